"""LD_PRELOAD=libbootstrap.so without the plugin: the same variables, no change to other processes or to the end of a program."""

import re
import subprocess

import pytest

from built_files import LIBRARY, PLUGIN, PROBE, built, inside
from exchange_steps import ENDS
from harness import INSIDE, Cluster, our_lines
from layout_oracle import differences, read_reports
from preload_steps import FOR_GLIBC, preloading, run_steps, sentences

ENDS_OF_PYTHON = {
    "os._exit": "import os; os._exit(7)",
    "exception": "raise SystemExit('no')",
    "fork": "import os; pid = os.fork(); os.waitpid(pid, 0) if pid else None",
}

# The values that frameworks need to start. `without_marks` names all other differences between the two ways.
LAYOUTS = {
    "two a node": ("-N2 --ntasks-per-node=2", 4),
    "cyclic": ("-N3 -n7 -m cyclic", 7),
    "plane": ("-N3 -n7 -m plane=2", 7),
    "uneven": ("-N4 -n9", 9),
    "node list backwards": ("-w node004,node002 -n4", 4),
    "one task": ("-n1 SLURM_BOOTSTRAP=on", 1),
    "overcommitted": ("-N1 -O -n20", 20),
    "with PMIx": ("-N2 -n4 --mpi=pmix", 4),
    "a GPU each": ("-N2 --ntasks-per-node=2 --gres=gpu:2", 4),
    "two GPUs each": ("-N2 --ntasks-per-node=2 --gres=gpu:4", 4),
    "GPUs, cyclic": ("-N2 --ntasks-per-node=2 -m cyclic --gres=gpu:2", 4),
    "first GPU first": ("-N2 --ntasks-per-node=2 --gres=gpu:2 SLURM_BOOTSTRAP_GPU=first", 4),
    "own GPU alone": ("-N2 --ntasks-per-node=2 --gres=gpu:2 SLURM_BOOTSTRAP_GPU=narrow", 4),
    "port chosen": ("-N2 -n4 SLURM_BOOTSTRAP_PORT=31017", 4),
    "port of the user": ("-N2 -n4 MASTER_PORT=31019", 4),
    "address template": ("-N2 -n2 SLURM_BOOTSTRAP_ADDR=%h.cluster SLURM_BOOTSTRAP_CLAIM=off", 2),
}


@pytest.fixture(scope="module")
def bare(cluster_factory) -> Cluster:
    """Four nodes with four GPUs each; plugstack.conf is empty unless a test writes a line."""
    cluster = cluster_factory("preload").up("--nodes", "4", "--cpus", "16", "--gpus", "4", "--no-plugin",
                                            "--plugin", built(PLUGIN))
    cluster.write_plugstack("\n")  # --plugin lets the nodes see it, and switches it on
    return cluster


@pytest.fixture
def plugin(bare):
    """Writes a line with our plugin into plugstack.conf, and removes it at the end."""
    yield bare.configure
    bare.write_plugstack("\n")


def play(cluster: Cluster, name: str, options: str, how: str) -> tuple[list, subprocess.CompletedProcess]:
    """Runs the probe in one step; `how` says how its ranks get their variables."""
    words = options.split()
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    words = [word for word in words if word.partition("=")[0] not in variables]
    if "-w" not in words:  # Slurm may choose other nodes for the second way while the first way's job still ends
        words.append(f"-wnode[001-00{(re.findall(r'-N([0-9])', options) or [1])[0]}]")
    folder = f"/home/alice/{how}-{re.sub('[^a-z0-9]+', '-', name)}"
    export = preloading() if how == "preload" else "--bootstrap=on" if how == "plugin" else "--export=ALL"
    mode = " alone" if "SLURM_BOOTSTRAP_ADDR" in variables else ""
    script = f"rm -rf {folder}; mkdir -p {folder}; srun {' '.join(words)} {export} "
    script += f"{PROBE} {folder}{mode}"
    done = run_steps(cluster, script, variables)
    return read_reports(cluster.state / folder.lstrip("/")), done


def without_marks(report: dict) -> dict:
    """The variables that a framework may read. Ports are computed from the ids of the step, which differ in each run."""
    # srun of 24.11 leaves the plugin's options for slurmstepd in the environment of the tasks.
    marks = ("SLURM", "_SLURM_SPANK_OPTION_", "PMI", "@")
    kept = {name: value for name, value in report.items() if not name.startswith(marks)}
    # The last one is Slurm's own: mpi/pmix of 24.11 makes it from the ids of the step.
    for name in ("LD_PRELOAD", "SLURM_BOOTSTRAP_SETTINGS", "SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_STEP",
                 "OMPI_MCA_orte_precondition_transports"):
        kept.pop(name, None)
    # With the plugin, srun's salt changes them.
    for name in ("MASTER_PORT", "PET_MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"):
        if name in kept:
            kept[name] = re.sub(r"(^|:)2[0-9]{4}$", r"\1computed", kept[name])
    if "PET_RDZV_ID" in kept:
        kept["PET_RDZV_ID"] = "of this step"
    return kept | {"@rank": report["SLURM_PROCID"], "@host": report["@host"]}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_preload_sets_the_variables_of_the_plugin(bare, plugin, name):
    options, tasks = LAYOUTS[name]
    seen = {}
    for how in ("preload", "plugin"):
        # Only srun with the plugin resolves MASTER_ADDR.
        plugin("when=always gpu_share=on interface=off") if how == "plugin" else bare.write_plugstack("\n")
        reports, done = play(bare, name, options, how)
        assert done.returncode == 0, done.stderr
        assert not sentences(done.stderr)
        seen[how] = sorted((without_marks(report) for report in reports), key=lambda report: int(report["@rank"]))
        assert len(seen[how]) == tasks
        if "SLURM_BOOTSTRAP_GPU" not in options and "=3101" not in options and "SLURM_BOOTSTRAP_ADDR" not in options:
            assert not differences(reports, (tasks,))  # the ranks met, on the expected hosts
    assert seen["preload"] == seen["plugin"]


def test_control_no_variable_is_set_without_the_library(bare):
    reports, done = play(bare, "nothing", "-N2 -n2", "none")
    assert done.returncode != 0 and not any(report.get("RANK") for report in reports)


@pytest.mark.parametrize("bind, lists, group", [("--gpus-per-task=1", ["0", "1"], None), ("--gpus-per-task=2", ["0,1", "2,3"], "0,1"),
                                                ("--gres=gpu:4 --gpu-bind=map_gpu:3,1", ["3", "1"], None)])
def test_a_list_that_slurm_narrowed_is_the_tasks_own(bare, bind, lists, group):
    reports, done = play(bare, f"bound {bind}", f"-N1 --ntasks-per-node=2 {bind}", "preload")
    reports.sort(key=lambda report: int(report["SLURM_PROCID"]))
    assert [report["CUDA_VISIBLE_DEVICES"] for report in reports] == lists, done.stderr
    for rank, report in enumerate(reports):
        assert (report["BOOTSTRAP_GPU"], report.get("BOOTSTRAP_GPUS")) == ("0", group)
        assert (report["RANK"], report["LOCAL_RANK"], report["LOCAL_WORLD_SIZE"]) == (str(rank), "0", "1")


def test_two_ranks_on_one_gpu_are_reported_and_start(bare):
    done = run_steps(bare, f"srun -N2 --ntasks-per-node=2 --gres=gpu:1 {preloading()} bash -c 'echo $RANK $BOOTSTRAP_GPU'")
    assert sorted(done.stdout.split()) == ["0", "1", "2", "3"] and done.returncode == 0
    told = sentences(done.stderr)
    assert len(told) == 2 and all("2 tasks on node00" in line and "share 1 GPU" in line for line in told), told


def test_rank_zero_holds_the_port_and_no_child_has_the_descriptor(bare):
    program = """
import os, socket, subprocess, sys
port = int(os.environ["MASTER_PORT"])
free = socket.socket()
try:
    free.bind(("", port))
    print("free")
except OSError as error:
    print("held")
server = socket.socket(socket.AF_INET6); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("::", port)); server.listen()
print(subprocess.run(["ls", "/proc/self/fd"], stdout=subprocess.PIPE, text=True).stdout.split())
"""
    path = bare.write_home("holder.py", program)
    shown = run_steps(bare, f"SLURM_BOOTSTRAP=on srun -n1 {preloading()} /usr/bin/python3 {path}").stdout.splitlines()
    assert shown == ["held", "['0', '1', '2', '3']"]
    control = run_steps(bare, f"srun -n1 --export=ALL,MASTER_PORT=20999 /usr/bin/python3 {path}").stdout.splitlines()
    assert control[0] == "free"


def test_a_port_that_is_taken_is_one_sentence_and_the_program_goes_on(bare):
    script = f"""export SLURM_BOOTSTRAP_PORT=31021
    srun --overlap -w node001 -n2 {preloading()} sleep 5 & sleep 2
    srun --overlap -w node001 -n2 {preloading()} echo on; wait"""
    done = run_steps(bare, f"salloc -Q -N1 -w node001 -n4 bash -c '{script}'")
    assert done.stdout.split() == ["on", "on"] and done.returncode == 0, done.stderr
    told = sentences(done.stderr)
    assert len(told) == 1 and "MASTER_PORT 31021 on node001 is already in use" in told[0], told


def test_a_plan_that_fails_is_one_sentence_and_the_program_goes_on(bare):
    script = f"hostfile=~/hosts; printf 'node002\\nnode001\\n' > $hostfile; SLURM_HOSTFILE=$hostfile srun -n2 -m arbitrary " \
             f"{preloading()} bash -c 'echo on $RANK'"
    done = run_steps(bare, script)
    assert done.stdout.split() == ["on", "on"] and done.returncode == 0
    told = sentences(done.stderr)
    assert len(told) == 2 and all("the order of ranks is arbitrary" in line for line in told), told  # one of each node
    # Printed once, although each program that the rank starts would fail in the same way.
    program = "bash -c '/bin/true; ls /dev/null >&2; echo on $RANK'"
    done = run_steps(bare, f"SLURM_BOOTSTRAP_PORT=1 srun -N1 -n3 {preloading()} {program}")
    assert done.stdout.split() == ["on"] * 3 and len(sentences(done.stderr)) == 1, done.stderr


@pytest.mark.parametrize("switch", ["SLURM_BOOTSTRAP=off", "SLURM_BOOTSTRAP_PRELOAD=off", "SUBMITIT_EXECUTOR=slurm"])
def test_off_sets_no_variable(bare, switch):
    done = run_steps(bare, f"{switch} srun -N1 -n2 {preloading()} bash -c 'env | grep -cE \"^(RANK|MASTER_|SLURM_BOOTSTRAP_STEP)\"'")
    assert done.stdout == "0\n0\n" and not sentences(done.stderr)
    assert run_steps(bare, f"srun -N1 -n2 {preloading()} bash -c 'echo $WORLD_SIZE'").stdout == "2\n2\n"  # control


def test_a_program_that_is_only_linked_gets_no_variables(bare):
    program = inside("tests/integration/preload_linked")
    assert run_steps(bare, f"srun -n2 {program}").stdout == "linked none\n" * 2
    control = run_steps(bare, f"srun -n2 {preloading()} {program}")
    assert sorted(control.stdout.splitlines()) == ["linked 0", "linked 1"], control.stderr


def test_batch_scripts_and_prologs_have_no_rank_and_inner_steps_their_own(bare):
    look = "$(env | grep -E '^(RANK|WORLD_SIZE|SLURM_BOOTSTRAP_STEP)' | LC_ALL=C sort | xargs)"
    bare.write_home("inner", f"#!/bin/bash\necho inner {look}\n")
    bare.write_home("outer", f"#!/bin/bash\necho outer {look}\n[ $RANK = 1 ] || srun --overlap -N2 -n3 ~/inner\n")
    bare.write_home("prolog", f"#!/bin/bash\necho print prolog {look}\n")
    bare.write_home("job", f"#!/bin/bash\necho batch {look}\nsrun -n2 -N2 --task-prolog=$HOME/prolog ~/outer\n")
    script = f"LD_PRELOAD={inside(LIBRARY)} sbatch -Q --wait -N2 -n4 -o ~/log ~/job; cat ~/log"
    done = run_steps(bare, script)
    # srun of 24.11 takes the ranks per node from the step around it, and reports that they do not fit.
    ignored = "srun: warning: can't honor --ntasks-per-node set to 1 which doesn't match the requested tasks 3"
    lines = sorted(line.strip() for line in done.stdout.splitlines() if not line.startswith(ignored))
    steps = [re.sub(r"SLURM_BOOTSTRAP_STEP=\d+\.(\d+)\.0", r"step \1", line) for line in lines]
    assert steps == ["batch", "inner RANK=0 step 1 WORLD_SIZE=3", "inner RANK=1 step 1 WORLD_SIZE=3",
                     "inner RANK=2 step 1 WORLD_SIZE=3", "outer RANK=0 step 0 WORLD_SIZE=2",
                     "outer RANK=1 step 0 WORLD_SIZE=2", "prolog", "prolog"], done.stdout + done.stderr


CHILDREN = """
import multiprocessing, os, subprocess, sys, torch
from torch.utils.data import DataLoader

def names(_=None):
    return os.environ["RANK"] + os.environ["SLURM_BOOTSTRAP_STEP"]

class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return len(names())

if __name__ == "__main__":
    mine = names()
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(2) as pool:
            assert pool.map(names, range(4)) == [mine] * 4
    assert sum(batch.sum() for batch in DataLoader(Data(), num_workers=2)) == 4 * len(mine)
    inner = [sys.executable, "-c", "import os; print(os.environ['RANK'] + os.environ['SLURM_BOOTSTRAP_STEP'])"]
    assert subprocess.run(inner, stdout=subprocess.PIPE, text=True).stdout == mine + "\\n"
    print("same")
"""


def test_children_of_a_rank_have_its_variables(bare):
    path = bare.write_home("children.py", CHILDREN)
    done = run_steps(bare, f"srun -N2 -n2 --mpi=pmix {preloading()} /usr/bin/python3 {path}")
    assert done.stdout.split() == ["same", "same"] and done.returncode == 0, done.stderr


@pytest.mark.parametrize("wrapper", ["/usr/bin/python3", "bash -c '/usr/bin/python3 $0 $*'"])
def test_an_unchanged_ddp_script_trains(bare, wrapper):
    script = f"{INSIDE}/etc/examples/train_ddp.py"
    done = run_steps(bare, f"OMP_NUM_THREADS=1 srun --mpi=pmix -N2 --ntasks-per-node=2 {preloading()} {wrapper} {script} --steps 40")
    assert done.returncode == 0 and "on 4 ranks" in done.stdout, done.stderr
    control = run_steps(bare, f"srun --mpi=pmix -N2 --ntasks-per-node=2 /usr/bin/python3 {script} --steps 40")
    assert control.returncode != 0


def ending(cluster: Cluster, export: str, command: str) -> tuple:
    done = run_steps(cluster, f"srun -Q --mpi=pmix -K0 -N2 -n2 {export} {command}")
    noise = re.compile(r"(StepId=|job |pid |step )\S+|\[[^]]*\]|\S*slurmstepd\S*")
    # srun reports the same end in other words if the tasks' ends arrive in another order; only its status is compared.
    errors = [noise.sub("", line) for line in done.stderr.splitlines() if not line.startswith("srun:")]
    output = done.stdout.splitlines()
    # A signal that ends one task may end the step before the other task has printed its line, which is the same.
    return done.returncode, sorted(set(output) if done.returncode > 128 else output), sorted(errors)


@pytest.mark.parametrize("way", [*ENDS, *(f"python {name}" for name in ENDS_OF_PYTHON)])
def test_a_program_ends_as_it_would_without_us(bare, way, tally):
    command = f"{inside('tests/integration/program_ends')} {way}"
    if way.startswith("python"):
        path = bare.write_home("ends.py", ENDS_OF_PYTHON[way.split()[1]])
        command = f"/usr/bin/python3 {path}"
    assert ending(bare, preloading(), command) == ending(bare, "--export=ALL", command)
    tally("M8", "ways to end, as without it", part="with the preload")


def test_control_a_library_that_changes_the_end_is_noticed(bare):
    command = f"{inside('tests/integration/program_ends')} return"
    assert ending(bare, preloading(inside("tests/integration/preload_bad.so")), command) != ending(bare, "--export=ALL", command)


def test_the_plugin_preloads_where_it_applies(bare, plugin, tally):
    look = "bash -c 'echo $RANK:$LD_PRELOAD'"
    library = inside(LIBRARY)
    plugin(f"when=gpu preload_library={library}")
    entry = FOR_GLIBC + library
    preload = run_steps(bare, f"srun -n1 --gres=gpu:1 --bootstrap-preload {look}")
    assert preload.stdout == f"0:{entry}\n" and not preload.stderr
    own = inside("tests/integration/preload_empty.so")
    assert run_steps(bare, f"srun -n1 --bootstrap-preload=on --export=ALL,LD_PRELOAD={own} {look}").stdout == f"0:{own}:{entry}\n"
    again = f"{own} /some/where/libbootstrap.so"
    assert run_steps(bare, f"srun -n1 --bootstrap-preload --export='ALL,LD_PRELOAD={again}' {look} 2>/dev/null").stdout == f"0:{again}\n"
    assert run_steps(bare, f"srun -n1 --gres=gpu:1 {look}").stdout == "0:\n"  # control: not asked for
    plugin(f"when=gpu preload=on preload_library={library}")
    assert run_steps(bare, f"srun -n1 --gres=gpu:1 {look}").stdout == f"0:{entry}\n"
    assert run_steps(bare, f"srun -n1 --gres=gpu:1 --bootstrap-preload=off {look}").stdout == "0:\n"
    assert run_steps(bare, f"srun -n1 {look}").stdout == ":\n"  # the site asks for steps with GPUs
    tally("L2", "lists that the plugin extends, ours once and last", 2, part="by the plugin")


def test_a_missing_library_is_reported_and_not_preloaded(bare, plugin):
    plugin("when=always announce=off preload=on preload_library=/nowhere/libbootstrap.so")
    done = run_steps(bare, "srun -N1 -n2 bash -c 'echo $RANK:$LD_PRELOAD'")
    assert sorted(done.stdout.split()) == ["0:", "1:"] and done.returncode == 0
    told = our_lines(done)
    assert len(told) == 1 and "cannot preload /nowhere/libbootstrap.so on node001: No such file" in told[0], done.stderr

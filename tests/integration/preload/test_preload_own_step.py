"""The preloaded library acts only in a step's own tasks: in other processes, variables of a step are left over."""

import re
import shutil
import subprocess

import pytest

from built_files import LIBRARY, PLUGIN, built, inside
from harness import Cluster
from preload_steps import preloading, run_steps, sentences

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "SLURM_BOOTSTRAP_STEP")
# Prints one line: a name, and the variables of a rank. It is a separate executable, like a user's program.
LOOK = f"""#!/usr/bin/python3
import os, sys
seen = " ".join(f"{{name}}={{os.environ[name]}}" for name in {NAMES[:2]!r} if name in os.environ)
others = sum(name in os.environ for name in {NAMES!r})
print(sys.argv[1], seen or "nothing", "whole" if others in (0, {len(NAMES)}) else "half", flush=True)
"""
# A job whose rank 1 submits the next job. Each rank, and each process that is none, prints its variables.
JOB = """#!/bin/bash
~/look batch$DEPTH
STEP -N2 -n3 ~/in-rank
"""
IN_RANK = """#!/bin/bash
~/look rank$DEPTH.$SLURM_PROCID
[ $SLURM_PROCID = 1 ] && [ $DEPTH -lt LAST ] || exit 0
salloc -Q -n1 ~/look salloc$DEPTH
srun -Q --overlap -N1 -n1 ~/look one$DEPTH
srun -Q --overlap -N1 -n2 bash -c '~/look inner$DEPTH.$SLURM_PROCID'
DEPTH=$((DEPTH + 1)) sbatch -Q -N2 -n3 -o ~/deep/log-%j ~/job
"""


@pytest.fixture(scope="module")
def bare(cluster_factory) -> Cluster:
    """Two nodes; plugstack.conf is empty unless a test has the plugin."""
    cluster = cluster_factory("own-step").up("--nodes", "2", "--cpus", "64", "--no-plugin", "--plugin", built(PLUGIN))
    cluster.write_plugstack("\n")
    cluster.write_home("look", LOOK)
    return cluster


@pytest.fixture
def plugin(bare):
    bare.configure(f"when=asked preload_library={inside(LIBRARY)}")
    yield
    bare.write_plugstack("\n")


def submit_from_ranks(cluster: Cluster, step: str, depth: int, env: dict[str, str]) -> list[str]:
    """The lines of all places in a chain of jobs, each submitted by a rank of the job before."""
    cluster.write_home("job", JOB.replace("STEP", step))
    cluster.write_home("in-rank", IN_RANK.replace("LAST", str(depth)))
    script = "rm -rf ~/deep; mkdir ~/deep; sbatch -Q -N2 -n3 -o ~/deep/log-%j ~/job\n" \
             "while squeue -h | grep -q .; do sleep 0.3; done; cat ~/deep/log-*"
    done = run_steps(cluster, script, {"DEPTH": "1", **env}, timeout=250)
    return sorted(line for line in done.stdout.splitlines() if line.endswith((" whole", " half")))


def right(depth: int) -> list[str]:
    lines = []
    for job in range(1, depth + 1):
        lines += [f"batch{job} nothing whole"]
        lines += [f"rank{job}.{rank} RANK={rank} WORLD_SIZE=3 whole" for rank in range(3)]
        if job < depth:
            lines += [f"salloc{job} nothing whole", f"one{job} nothing whole"]
            lines += [f"inner{job}.{rank} RANK={rank} WORLD_SIZE=2 whole" for rank in range(2)]
    return sorted(lines)


def test_jobs_that_ranks_submit_have_right_ranks_ten_deep(bare):
    assert submit_from_ranks(bare, "srun -Q", 10, {"LD_PRELOAD": inside(LIBRARY)}) == right(10)


def test_jobs_that_ranks_submit_have_right_ranks_with_the_plugins_preload(bare, plugin):
    """Once each job's shell became rank 0, and its step was refused since the shell had the port."""
    assert submit_from_ranks(bare, "srun -Q --bootstrap-preload", 10, {}) == right(10)


def test_control_the_variables_of_a_step_are_left_over_in_such_jobs(bare):
    """By its environment alone the batch script would be rank 0 of the outer step: Slurm keeps these variables."""
    bare.write_home("left-over", "#!/bin/bash\necho $SLURM_STEP_ID $SLURM_PROCID $((SLURM_TASK_PID == $$)) $SLURM_STEP_NUM_TASKS\n")
    bare.write_home("rank", "#!/bin/bash\n[ $SLURM_PROCID = 1 ] && sbatch -Q --wait -n1 -o ~/log ~/left-over\n")
    done = run_steps(bare, "srun -Q -N1 -n2 ~/rank; cat ~/log")
    assert done.stdout == "0 0 1 2\n", done


def test_a_shell_that_outlived_its_step_is_no_rank(bare):
    """Like tmux, or cron with the environment of a login: slurmstepd is no longer its ancestor."""
    script = f"""rm -f ~/seen; srun -Q -N1 -n2 bash -c '
      [ $SLURM_PROCID = 1 ] || exit 0
      setsid bash -c "sleep 2; LD_PRELOAD={inside(LIBRARY)} ~/look late > ~/seen" > /dev/null 2>&1 < /dev/null & sleep 0.3'
    for i in $(seq 50); do [ -s ~/seen ] && break; sleep 0.2; done; cat ~/seen"""
    assert run_steps(bare, script).stdout == "late nothing whole\n"


def test_a_process_that_leaves_its_parent_keeps_what_it_has(bare):
    """The control: its parent was set up before, and it inherits the variables."""
    script = f"""rm -f ~/seen; srun -Q -N1 -n2 {preloading()} bash -c '
      [ $SLURM_PROCID = 1 ] || exec sleep 4
      setsid bash -c "sleep 1; ~/look late > ~/seen" > /dev/null 2>&1 < /dev/null & sleep 3'; cat ~/seen"""
    assert run_steps(bare, script).stdout == "late RANK=1 WORLD_SIZE=2 whole\n"


@pytest.mark.parametrize("wrapper", ["env", "bash -c '$0 $*'", "bash -c 'bash -c \"$0 $*\" $0 $*'", "nice", "timeout 20"])
def test_a_task_below_its_own_wrapper_is_a_rank(bare, wrapper):
    """Also if only the innermost program loads the library."""
    for command in (f"{preloading()} {wrapper} ~/look task", f"{wrapper} /usr/bin/env LD_PRELOAD={inside(LIBRARY)} ~/look task"):
        done = run_steps(bare, f"srun -Q -N1 -n2 {command}")
        assert sorted(done.stdout.splitlines()) == [f"task RANK={rank} WORLD_SIZE=2 whole" for rank in (0, 1)], (command, done)


def test_one_task_is_set_up_where_it_is_asked_for(bare):
    assert run_steps(bare, f"srun -Q -n1 {preloading()} ~/look one").stdout == "one nothing whole\n"
    assert run_steps(bare, f"SLURM_BOOTSTRAP=on srun -Q -n1 {preloading()} ~/look one").stdout == "one RANK=0 WORLD_SIZE=1 whole\n"


def on_terminal(cluster: Cluster, command: str, env: str = "") -> str:
    """The output of a step with --pty, without the end of script's own input, which the terminal echoes."""
    done = run_steps(cluster, f"{env} script -qec \"srun -Q {command}\" /dev/null < /dev/null")
    return re.sub("\r|\b|\\^[@D]", "", done.stdout)


def test_a_step_on_a_terminal_is_left_alone_and_steps_inside_of_it_are_not(bare):
    bare.write_home("shell", "#!/bin/bash\n~/look task$SLURM_PROCID >> ~/pty\n[ $SLURM_PROCID = 0 ] || exit 0\n"
                             f"srun -Q --overlap -N2 -n4 {preloading()} ~/look inner\n")
    shown = on_terminal(bare, f"-N2 -n4 --pty {preloading()} ~/shell", "rm -f ~/pty;")
    seen = sorted((bare.state / "home/alice/pty").read_text().splitlines())
    assert seen == [f"task{rank} nothing whole" for rank in range(4)], "all shells, not only the first one"
    inner = sorted(line for line in shown.splitlines() if line.startswith("inner"))
    assert inner == [f"inner RANK={rank} WORLD_SIZE=4 whole" for rank in range(4)], shown
    shown = on_terminal(bare, f"-N1 -n2 --pty {preloading()} ~/look task", "SLURM_BOOTSTRAP=on")
    assert "task RANK=0 WORLD_SIZE=2 whole" in shown, shown


@pytest.mark.parametrize("launcher", ["torchrun", "hydra_pmi_proxy", "accelerate"])
def test_a_launcher_and_what_it_starts_are_left_alone(bare, launcher):
    text = "#!/usr/bin/python3\nimport os, subprocess\nsubprocess.run([os.path.expanduser('~/look'), 'worker'])\n"
    bare.write_home(launcher, text)
    for words in (f"~/{launcher}", f"env A=1 ~/{launcher}"):
        done = run_steps(bare, f"srun -Q -N1 -n2 {preloading()} {words}")
        assert done.stdout == "worker nothing whole\n" * 2 and not sentences(done.stderr), done
    bare.write_home("prog", text)
    control = run_steps(bare, f"srun -Q -N1 -n2 {preloading()} ~/prog")
    assert sorted(control.stdout.splitlines()) == ["worker RANK=0 WORLD_SIZE=2 whole", "worker RANK=1 WORLD_SIZE=2 whole"]


def test_one_torchrun_on_each_node_gets_its_own_row(bare):
    bare.write_home("torchrun", "#!/usr/bin/python3\nimport os\nfor prefix in ('PET_NNODES', 'RANK', 'WORLD_SIZE', 'MASTER_', 'LOCAL_'):\n"
                                "    print(*[f'{k}={v}' for k, v in os.environ.items() if k.startswith(prefix)], end='')\nprint()\n")
    done = run_steps(bare, f"srun -Q -N2 -n2 {preloading()} ~/torchrun train.py")
    assert done.stdout == "PET_NNODES=2\n" * 2, done
    told = run_steps(bare, f"srun -Q -N2 -n2 {preloading()} ~/torchrun --standalone train.py")
    assert told.stdout == "\n" * 2, told
    alone = run_steps(bare, f"SLURM_BOOTSTRAP=on srun -Q -N1 -n1 {preloading()} ~/torchrun train.py")
    assert alone.stdout == "\n", alone


def test_two_copies_of_the_library_act_once(bare):
    """Once the first copy took the port that the second needed."""
    copy = "/home/alice/libbootstrap.so.0"
    shutil.copy(built(LIBRARY), bare.state / copy.lstrip("/"))
    for libraries in ((copy, inside(LIBRARY)), (inside(LIBRARY), copy)):
        done = run_steps(bare, f"srun -Q -N2 -n4 {preloading(*libraries)} ~/look task")
        assert sorted(done.stdout.splitlines()) == [f"task RANK={rank} WORLD_SIZE=4 whole" for rank in range(4)]
        assert done.stderr == "", done.stderr


def test_programs_of_another_libc_start_with_the_plugins_preload(bare, plugin):
    if not shutil.which("musl-gcc"):
        pytest.skip("no musl-gcc (Debian: musl-tools)")
    text = "#include <stdio.h>\nint main(void) { puts(\"started\"); return 0; }\n"
    subprocess.run(["musl-gcc", "-x", "c", "-", "-o", str(bare.state / "home/alice/musl")], input=text, text=True, check=True)
    for command in ("~/musl", "bash -c ~/musl"):
        done = run_steps(bare, f"srun -Q -N1 -n2 --bootstrap-preload {command}")
        assert (done.returncode, done.stdout) == (0, "started\n" * 2), done
    control = run_steps(bare, f"srun -Q -n2 {preloading()} ~/musl")
    assert control.returncode != 0 and "Error relocating" in control.stderr, control

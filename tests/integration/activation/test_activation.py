"""Which steps are set up on a real cluster: each row of the table of shapes, requests and refusals, and values that cannot
be right."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

# two of them are fixtures
from activation_steps import ONE, PRINT, PYTHON, TWO, WORLD, cluster, is_untouched, other_file, site, srun, told, variables
from harness import wait_for
from port_steps import allocation, background

# advice_table.py has the reasons with advice.
ROWS = {
    "one task": ("-N1 -n1 --gres=gpu:2", PYTHON,
                 "the step has one task; use --ntasks-per-node=N to start a task for each of N GPUs, or --bootstrap=on to set up one task"),
    "a shell": (TWO, ["bash", "-c", "true"],
                "bash is a shell: the plugin does not set up what a shell starts; use --bootstrap=on to set it up, "),
    "a launcher behind prefixes": (TWO, ["env", "A=1", "nice", "mpirun", "--version"], "mpirun starts its own ranks; "),
    "a script of Perl": (TWO, ["perl", "-e", "1"], "perl runs a script: "),
    "dealt 3 and 2 of 5": ("-N2 -n5 --gres=gpu:3", PYTHON, "5 tasks on 2 nodes cannot be the same number on each node; "),
    "dealt 3 and 1 by Slurm": ("-N2 -n4 --gres=gpu:2", PYTHON,
                               "Slurm spreads the 4 tasks unevenly (1 to 3 on a node); use --ntasks-per-node=2 "),
    "GPUs per task": ("-N1 -n2 --gpus-per-task=1", PYTHON, "the step has GPUs per task (--gpus-per-task); use --gpus-per-node=N "),
    "tasks per GPU": ("-N1 --gpus=2 --ntasks-per-gpu=1", PYTHON,
                      "Slurm binds each task to its own GPUs (--gpu-bind, --ntasks-per-gpu); use --gpus-per-node=N "),
    "GPUs that were taken back": (f"{ONE} --gres=none", PYTHON, "the step has no GPUs; "),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_step_that_is_not_set_up_prints_why_on_request(cluster, row):
    options, program, reason = ROWS[row]
    sentence = f"bootstrap: StepId=ID: NOT SET UP: {reason}"
    explained = cluster.run(["srun", "-Q", "--bootstrap=explain", *options.split(), *program])
    assert len(told(explained)) == 1 and told(explained)[0].startswith(sentence), explained.stderr
    verbose = cluster.run(["srun", "-v", *options.split(), *program])
    assert [line for line in told(verbose) if line.startswith("bootstrap: StepId")] == told(explained), verbose.stderr
    silent = cluster.run(["srun", *options.split(), *program])
    assert told(silent) == []
    assert not any(variables(explained) + variables(verbose) + variables(silent)), silent.stdout
    if program is PYTHON:
        assert len(variables(silent)) == len(variables(explained)) > 0


def test_explain_changes_nothing_in_the_step(cluster):
    """`on` does: each task then sees the GPU of the other one, too."""
    line = "-N1 -n2 --gpus-per-task=1".split()
    lists = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $SLURM_GPU_BIND"]

    def found(*option):
        return sorted(cluster.run(["srun", *option, *line, *lists]).stdout.split())

    assert found() == found("--bootstrap=explain") == found("--bootstrap=off") != found("--bootstrap=on")


def test_a_step_with_several_programs_is_left_alone(cluster):
    """Also if their file is called *.py: Slurm passes its name in place of a program's."""
    (cluster.home / "several.py").write_text("0-3 hostname\n")
    for options in ("--multi-prog", f"{TWO} --multi-prog", f"--multi-prog {TWO}"):
        line = ["sh", "-c", f"cd && srun --bootstrap=explain -N2 -n4 {options} several.py"]
        done = cluster.run(line)
        assert len(told(done)) == 1 and "NOT SET UP: the step has several programs (--multi-prog); " in told(done)[0], done.stderr


def test_a_step_with_a_terminal_is_left_alone(cluster):
    done = cluster.run(["script", "-qec", f"srun --pty --bootstrap=explain {ONE} python3 -c 1", "/dev/null"])
    assert "NOT SET UP: the step has a terminal (--pty)" in done.stdout, done


@pytest.mark.parametrize("options", [ONE, TWO, f"{TWO} --export=NONE", f"{TWO} -m cyclic", "-N1 -n2 --gpus=2"])
def test_a_world_gets_the_variables_of_its_shape_alone(cluster, options):
    tasks = variables(srun(cluster, options, "/usr/bin/python3", *PYTHON[1:]))
    several = {"GLOO_SOCKET_IFNAME"} if "-N2" in options else set()
    assert len(tasks) == (4 if several else 2)
    for task in tasks:
        assert set(task) == WORLD | several
    assert sorted(task["RANK"] for task in tasks) == [str(rank) for rank in range(len(tasks))]
    assert len({(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in tasks}) == 1
    assert {task["JAX_COORDINATOR_PORT"] for task in tasks}.isdisjoint({task["MASTER_PORT"] for task in tasks})


def test_a_world_in_a_larger_job_has_its_own_ranks(cluster):
    """--preserve-env keeps the job's SLURM_NTASKS, which must not look like components of a step."""
    job = ["salloc", "-Q", "-N1", "-n4", "--gres=gpu:2", "srun", "-E", "-n2", "--gres=gpu:2"]
    for options in ([], ["--bootstrap=on"]):
        done = cluster.run([*job, *options, *PYTHON])
        assert sorted(task.get("RANK") for task in variables(done)) == ["0", "1"], done


def test_an_invalid_slurm_bootstrap_variable_sets_up_nothing(cluster):
    done = srun(cluster, TWO, env={"SLURM_BOOTSTRAP": "0"})
    assert [set(task) for task in variables(done)] == [{"SLURM_BOOTSTRAP"}] * 4, done
    assert len(told(done)) == 1 and 'warning: StepId=ID: NOT SET UP: SLURM_BOOTSTRAP="0" is not valid' in told(done)[0], done


def test_all_nodes_use_the_ports_of_the_submit_host(cluster, site):
    """A change of plugstack.conf does not reach all hosts at once."""
    plugstack = cluster.state / "etc" / "plugstack.conf"
    old = plugstack.read_text()
    site("port_range=21000-21000 master_addr=127.0.0.9")
    with other_file(cluster, "node002", plugstack, old, "plugstack.old"):
        tasks = variables(srun(cluster, TWO))
    assert {(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in tasks} == {("127.0.0.9", "21000")}, tasks


def test_a_world_prints_its_details_only_with_srun_v(cluster):
    assert told(srun(cluster, TWO)) == []
    line = ("bootstrap: StepId=ID: SET UP: a GPU for each task, and python3 runs Python code; use --bootstrap=off to run it without the "
            "plugin")
    lines = [text for text in told(srun(cluster, f"-v {TWO}")) if "StepId" in text]
    assert lines[0] == line and [text.split("=")[1] for text in lines[1:]] == ["ID: MASTER_ADDR", "ID: MASTER_PORT"], lines


def test_torchrun_gets_its_own_variables_alone(cluster):
    """A stand-in with the name torchrun prints them; test_real_frameworks.py runs the real one."""
    cluster.write_home("torchrun", f"#!/usr/bin/python3\n{PRINT}\n")
    tasks = variables(srun(cluster, "-N2 --ntasks-per-node=1 --gres=gpu:2", "./torchrun"))
    assert len(tasks) == 2 and {(task["PET_NNODES"], task["PET_NPROC_PER_NODE"]) for task in tasks} == {("2", "2")}
    assert sorted(task["PET_NODE_RANK"] for task in tasks) == ["0", "1"]
    for task in tasks:
        assert all(name.startswith(("PET_", "SLURM_BOOTSTRAP_")) for name in task), task
    assert is_untouched(srun(cluster, "-N1 -n1 --gres=gpu:2", "./torchrun"), 1)
    assert is_untouched(srun(cluster, TWO, "./torchrun"), 4)


def test_a_program_that_srun_cannot_see_is_reported_in_the_shape_of_a_world(cluster):
    done = cluster.run(["srun", *TWO.split(), "/nowhere/train"])
    assert told(done) == ['bootstrap: warning: StepId=ID: NOT SET UP: srun cannot see "/nowhere/train"; use --bootstrap=on to set it up, '
                          "or --bootstrap=off"]  # fmt: skip
    assert told(cluster.run(["srun", "-n1", "--gres=gpu:1", "/nowhere/train"])) == []


def test_observe_reports_on_the_first_node_what_world_would_do(cluster, site):
    site("when=observe")
    done = srun(cluster, f"-v {TWO}")
    assert is_untouched(done, 4)
    assert any("when=world would say: SET UP: a GPU for each task" in line for line in told(done))
    step = re.search(r"StepId=(\d+\.\d+)", done.stderr).group()
    line = rf'bootstrap: {step}: decision="NOT SET UP" user=.* reason: when=observe; when=world would say: SET UP:'
    assert [bool(re.search(line, cluster.log(f"slurmd.{node}"))) for node in ("node001", "node002")] == [True, False]
    shell = srun(cluster, f"-v {TWO}", "bash", "-c", "true")
    assert any("would say: NOT SET UP: bash is a shell" in line for line in told(shell))
    assert told(srun(cluster, TWO)) == []


def test_each_other_value_of_when_selects_its_steps(cluster, site):
    shell = ("bash", "-c", 'exec python3 -c "$0"', PRINT)
    site("when=gpu")
    assert variables(srun(cluster, "-n1 --gres=gpu:1", *shell))[0]["RANK"] == "0"
    assert is_untouched(srun(cluster, "-n1", *shell), 1)
    shared = variables(srun(cluster, "-N1 -n4 --gres=gpu:2"))
    assert {"RANK" in task for task in shared} == {True} and not any("BOOTSTRAP_GPU" in task for task in shared)
    site("when=always")
    assert variables(srun(cluster, "-n2 -N1", *shell))[0]["WORLD_SIZE"] == "2"
    for when in ("gpu", "always"):
        site(f"when={when}")
        terminal = cluster.run(["script", "-qec", f"srun --pty {ONE} bash -c 'echo rank=$RANK.'", "/dev/null"])
        assert "rank=." in terminal.stdout, terminal
        launcher = cluster.run(["srun", "-v", *TWO.split(), "mpirun", "--version"])
        assert any("NOT SET UP: mpirun starts its own ranks" in line for line in told(launcher)), launcher.stderr
    site("when=asked")
    assert is_untouched(srun(cluster, TWO), 4)
    assert set(variables(srun(cluster, f"{TWO} --bootstrap=on"))[0]) > WORLD


def test_a_step_that_takes_the_gpus_of_its_salloc_is_a_world(cluster):
    """Its srun has neither an option nor a variable with GPUs: slurmctld reports them."""
    job = ["salloc", "-Q", "-N1", "-n2", "--gres=gpu:2"]
    assert "SLURM_JOB_GPUS" not in cluster.run([*job, "env"]).stdout
    world = cluster.run([*job, "srun", *PYTHON])
    assert sorted(task.get("RANK") for task in variables(world)) == ["0", "1"], world
    # Control: with fewer GPUs than tasks, which slurmctld reports, too, it is no world.
    assert not any(variables(cluster.run(["salloc", "-Q", "-N1", "-n2", "--gres=gpu:1", "srun", *PYTHON])))


BATCH = """#!/bin/bash
#SBATCH --bootstrap=on -N1 -n4 --gres=gpu:2 -o asks.out -e asks.err
srun -n1 bash -c 'echo shell rank=$RANK'
srun -n1 mpirun --version
srun -n4 bash -c 'echo sharing rank=$RANK.'
script -qec "srun -n1 --pty bash -c 'echo terminal rank=\\$RANK.'" /dev/null
srun -n4 --bootstrap=on bash -c 'echo never'
touch asks.done
"""


def test_a_job_that_asks_sets_up_shells_and_warns_of_steps_that_cannot_be_set_up(cluster):
    cluster.write_home("asks.sh", BATCH)
    home = cluster.home
    cluster.run(["sbatch", "asks.sh"])
    wait_for((home / "asks.done").exists, what="the job does not end")
    out, err = (home / "asks.out").read_text(), (home / "asks.err").read_text()
    assert "shell rank=0\n" in out and out.count("sharing rank=.\n") == 4 and "never" not in out, out
    lines = re.findall(r"warning: StepId=\d+\.(\d): NOT SET UP: (.*)", err + out)
    reasons = {"1": "mpirun starts its own ranks", "2": "4 tasks of a node share 2 GPUs", "3": "the step has a terminal (--pty)"}
    assert {step: told_of.partition(", although ")[0] for step, told_of in lines if step != "3"} == {
        step: f"{reason}" for step, reason in reasons.items() if step != "3"}, err  # fmt: skip
    assert all("the job's --bootstrap=on asks for it" in told_of for _, told_of in lines), err
    assert "terminal rank=." in out and reasons["3"] in out, out
    # Control: a step that asks on its own line is refused.
    assert re.search(r"error: bootstrap: StepId=\d+\.4: .*--bootstrap-gpu-share", err), err


def test_a_launcher_of_a_job_that_asks_has_the_gpus_that_slurm_binds(cluster):
    for name in ("mpirun", "program"):
        cluster.write_home(name, "#!/bin/sh\necho gpus=$CUDA_VISIBLE_DEVICES\n")
    line = ["srun", "-Q", "-N1", "-n2", "--gpus-per-task=1"]
    launcher = cluster.run([*line, "./mpirun"], env={"SLURM_BOOTSTRAP": "on"})
    submitit = cluster.run([*line, "./program"], env={"SLURM_BOOTSTRAP": "on", "SUBMITIT_EXECUTOR": "slurm"})
    stock = cluster.run([*line, "./mpirun"])
    assert sorted(launcher.stdout.split()) == sorted(stock.stdout.split()) and "," not in stock.stdout, (launcher, stock)
    assert sorted(submitit.stdout.split()) == sorted(stock.stdout.split()), (submitit, stock)
    # Control: a program that is set up sees its peers' GPUs.
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    trains = cluster.run([*line, "python3", "-c", code], env={"SLURM_BOOTSTRAP": "on"})
    assert trains.stdout.split() == ["0,1", "0,1"], trains


UNRESOLVED = "it does not resolve where srun runs, or only to a loopback address"
STAYS = 'bootstrap: warning: StepId=ID: MASTER_ADDR="{}" stays as you set it, but {}; if the ranks are to meet on {}'
OR_ASK = ", unset it before srun, or use --bootstrap=on"


def test_values_that_cannot_be_right_are_replaced_and_reported(cluster):
    wrong = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "http"}
    done = srun(cluster, TWO, env=wrong)
    tasks = variables(done)
    assert sorted(task["RANK"] for task in tasks) == ["0", "1", "2", "3"]
    assert {(task["WORLD_SIZE"], task["MASTER_ADDR"]) for task in tasks} == {("4", "node001")}
    assert {task["MASTER_PORT"].isdigit() for task in tasks} == {True}
    assert len(told(done)) == 1 and all(f"{name}=" in told(done)[0] for name in wrong), done.stderr
    done = srun(cluster, TWO, env={"MASTER_ADDR": "10.99.99.99", "MASTER_PORT": "29500"})
    assert {(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in variables(done)} == {("10.99.99.99", "29500")}
    assert told(done) == [STAYS.format("10.99.99.99", "it is no address of node001, where rank 0 is", "node001, unset it before srun")]


def test_an_address_where_ranks_may_not_meet_stays_unless_the_step_asks(cluster):
    """A server of the user may run there. A line explains why the ranks may not meet."""
    line = {"MASTER_ADDR": "node002"}
    done = srun(cluster, TWO, env=line)
    assert {task["MASTER_ADDR"] for task in variables(done)} == {"node002"}
    assert told(done) == [STAYS.format("node002", "rank 0 is on node001", f"node001{OR_ASK}")]
    asked = srun(cluster, f"{TWO} --bootstrap=on", env=line)
    assert {task["MASTER_ADDR"] for task in variables(asked)} == {"node001"}
    assert len(told(asked)) == 1 and 'replaced MASTER_ADDR="node002" (rank 0 is on node001)' in told(asked)[0], asked.stderr
    # A numeric address may lead to rank 0's host although the host does not have it, so it stays.
    for options in (TWO, f"{TWO} --bootstrap=on", ONE, f"{ONE} --bootstrap=on"):
        number = srun(cluster, options, env={"MASTER_ADDR": "10.20.1.2"})
        assert {task["MASTER_ADDR"] for task in variables(number)} == {"10.20.1.2"}
        why = "it is no address of node001, where rank 0 is"
        assert told(number) == [STAYS.format("10.20.1.2", why, "node001, unset it before srun")], number.stderr
    for right in ("10.20.1.1", "node001", "head", "master.example"):  # the last has no address
        assert ("node001, where rank 0" in srun(cluster, TWO, env={"MASTER_ADDR": right}).stderr) == (right == "head")


def test_a_master_addr_outside_the_step_is_replaced_if_the_step_asks(cluster):
    """The job has a server on its first node, and the training on the second."""
    with allocation(cluster, "-N2", "--ntasks-per-node=4", "--gres=gpu:4") as job:
        for shape in ("--gres=gpu:2", "--gres=gpu:2 --bootstrap=on"):
            line, env = f"--jobid={job} -N1 -n2 --overcommit -w node002 {shape}", {"MASTER_ADDR": "node001", "SLURM_JOB_NODELIST": "node[001-002]"}
            done = srun(cluster, line, env=env)
            why = "this step has no task on that node, and rank 0 is on node002"
            if "--bootstrap=on" in shape:
                assert {task["MASTER_ADDR"] for task in variables(done)} == {"node002"}
                assert len(told(done)) == 1 and f'replaced MASTER_ADDR="node001" ({why})' in told(done)[0], done.stderr
            else:
                assert {task["MASTER_ADDR"] for task in variables(done)} == {"node001"}
                assert told(done) == [STAYS.format("node001", why, f"node002{OR_ASK}")], done.stderr


def test_an_address_that_only_the_nodes_resolve_stays_unless_the_step_asks(cluster):
    line = {"MASTER_ADDR": "nowhere.invalid"}
    with other_file(cluster, "head", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n", "nsswitch.conf"):
        done = srun(cluster, TWO, env=line)
        assert {task["MASTER_ADDR"] for task in variables(done)} == {"nowhere.invalid"}
        assert told(done) == [STAYS.format("nowhere.invalid", UNRESOLVED, f"node001{OR_ASK}")]
        asked = srun(cluster, f"{TWO} --bootstrap=on", env=line)
        assert {task["MASTER_ADDR"] for task in variables(asked)} == {"node001"}
        assert len(told(asked)) == 1, asked.stderr
        assert f'MASTER_ADDR="nowhere.invalid" ({UNRESOLVED})' in told(asked)[0], asked.stderr


def test_an_address_of_an_option_that_does_not_resolve_is_reported(cluster):
    """Also on one node. The host's own name and a numeric address cause no message."""
    line = "--bootstrap-addr=%h-ib7: node001-ib7 does not resolve where srun runs"
    with other_file(cluster, "head", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n", "nsswitch.conf"):
        for shape in (TWO, "-N1 -w node001 --ntasks-per-node=2 --gres=gpu:2"):
            done = srun(cluster, f"{shape} --bootstrap-addr=%h-ib7")
            assert {task["MASTER_ADDR"] for task in variables(done)} == {"node001-ib7"}
            assert len(told(done)) == 1 and line in told(done)[0], done.stderr
            for right in ("%h", "10.99.99.99"):
                assert told(srun(cluster, f"{shape} --bootstrap-addr={right}")) == []
            unasked = srun(cluster, shape, env={"SLURM_BOOTSTRAP_ADDR": "%h-ib7"})
            assert {task["MASTER_ADDR"] for task in variables(unasked)} == {"node001-ib7"}
            assert "does not resolve" not in unasked.stderr


SILENT_SERVER = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.53", 53))
print("ready", flush=True)
while True:
    question = server.recv(512)
    with open(sys.argv[1], "ab") as file:
        file.write(question)
"""


def test_a_silent_name_server_is_asked_only_if_the_step_is_set_up(cluster):
    """srun asks it only if the step is set up. The names of the nodes are in /etc/hosts here."""
    line = {"MASTER_ADDR": "master.example"}
    questions = cluster.state / "questions"

    def was_asked(options):
        questions.write_bytes(b"")
        done = srun(cluster, options, env=line)
        assert {task["MASTER_ADDR"] for task in variables(done)} == {"master.example"} and told(done) == [], done.stderr
        assert not any("GLOO_SOCKET_IFNAME" in task for task in variables(done)), "its route is that to another address"
        return b"master" in questions.read_bytes()

    with (background(cluster, ["python3", "-c", SILENT_SERVER, str(questions)], user="root", node="head", ready=True),
          other_file(cluster, "head", "/etc/resolv.conf", "nameserver 127.0.0.53\n", "resolv.conf"),
          # fmt: skip
          other_file(cluster, "head", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n", "nsswitch.conf")):
        assert was_asked(TWO) and was_asked(f"{TWO} --bootstrap=on")
        assert not was_asked(f"{TWO} --bootstrap=off")


def test_a_step_without_a_job_is_left_alone_without_a_message(cluster):
    """srun --no-allocate gives it numbers that slurmctld does not know."""
    done = cluster.run(["srun", "-Z", "-w", "node001,node002", "-N2", "-n2", *PYTHON], user="root", node="head")
    assert done.returncode == 0 and len(variables(done)) == 2, done.stderr
    assert not any(variables(done)) and told(done) == [], done.stderr


def test_every_node_can_still_run_jobs(cluster):
    assert cluster.script("status").returncode == 0

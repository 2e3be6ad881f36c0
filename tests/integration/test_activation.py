"""Which steps are set up on a real cluster: each row of the table of shapes, who asks and who refuses, what srun costs, and
what happens where slurmctld or a port cannot be had."""

# SPDX-License-Identifier: Apache-2.0

import re
import subprocess

import pytest

from harness import needs_torchrun

PRINT = "import os; print({name: value for name, value in os.environ.items() if name.startswith(%r)})"
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_", "MASTER_", "JAX_", "PET_", "HOROVOD_",
        "OMP_NUM", "BOOTSTRAP_", "SLURM_BOOTSTRAP", "GLOO_", "TF_CONFIG", "NVSHMEM", "CUDA_DEVICE_ORDER")  # fmt: skip
PYTHON = ["python3", "-c", PRINT % (OURS,)]
WORLD = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
         "MASTER_PORT", "CUDA_DEVICE_ORDER", "BOOTSTRAP_GPU", "JAX_COORDINATOR_PORT", "SLURM_BOOTSTRAP_LAYOUT",
         "SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_SETTINGS"}  # fmt: skip
TWO = "-N2 --ntasks-per-node=2 --gres=gpu:2"
ONE = "-N1 --ntasks-per-node=2 --gres=gpu:2"


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    cluster = cluster_factory("activation")
    cluster.asks = False
    return cluster.up("--gpus", "4", "--cpus", "8")


@pytest.fixture
def site(cluster):
    """Gives our line of plugstack.conf more arguments, for one test."""
    path = cluster.state / "etc" / "plugstack.conf"
    before = path.read_text()
    yield lambda arguments: path.write_text(f"{before.rstrip()} {arguments}\n")
    path.write_text(before)


def srun(cluster, options, *program, **run):
    done = cluster.run(["srun", *options.split(), *(program or PYTHON)], **run)
    assert done.returncode == 0, done.stderr
    return done


def variables(done):
    """Of each task, what it has of ours."""
    return [eval(line) for line in done.stdout.splitlines() if line.startswith("{")]  # noqa: S307: our own print


def told(done):
    """The lines of ours that a user reads, without the number of the step."""
    lines = [line.removeprefix("srun: ") for line in done.stderr.splitlines() if "bootstrap: " in line]
    return [re.sub(r"StepId=\d+\.\d+", "StepId=ID", line) for line in lines]


ROWS = {
    "one task": ("-N1 -n1 --gres=gpu:2", PYTHON, "it is one task; say --bootstrap=on to set it up"),
    "a shell": (TWO, ["bash", "-c", "true"], "bash is a shell, and what it starts is its author's business; "),
    "a launcher": (TWO, ["mpirun", "--version"], "mpirun starts its own ranks; "),
    "a launcher behind prefixes": (TWO, ["env", "A=1", "nice", "mpirun", "--version"], "mpirun starts its own ranks; "),
    "a script of Perl": (TWO, ["perl", "-e", "1"], "perl runs a script, "),
    "several GPUs a task": ("-N2 --ntasks-per-node=1 --gres=gpu:2", PYTHON, "1 task on each node, and 2 GPUs; "),
    "more tasks than GPUs": ("-N1 -n4 --gres=gpu:2", PYTHON, "4 tasks on each node, and 2 GPUs; "),
    "fewer tasks than GPUs": ("-N1 -n2 --gres=gpu:4", PYTHON, "2 tasks on each node, and 4 GPUs; "),
    "uneven": ("-N2 -n3 --gres=gpu:2", PYTHON, "its tasks are dealt unevenly, 3 on 2 nodes; give --ntasks-per-node"),
    "dealt 3 and 2 of 5": ("-N2 -n5 --gres=gpu:3", PYTHON, "its tasks are dealt unevenly, 5 on 2 nodes; "),
    "dealt 3 and 1": ("-N2 -n4 -m plane=3 --gres=gpu:2", PYTHON, "its tasks are dealt unevenly, 1 to 3 tasks on a node; "),
    "GPUs per task": ("-N1 -n2 --gpus-per-task=1", PYTHON, "it asked for GPUs per task; "),
    "tasks per GPU": ("-N1 --gpus=2 --ntasks-per-gpu=1", PYTHON, "Slurm binds each task to GPUs of its own; "),
    "a binding": (f"{ONE} --gpu-bind=single:1", PYTHON, "Slurm binds each task to GPUs of its own; "),
    "GPUs of the step on two nodes": ("-N2 -n4 --gpus=4", PYTHON, "it asked for GPUs of the whole step, on several nodes; "),
    "no GPUs": ("-N2 --ntasks-per-node=2", PYTHON, "it asked for no GPUs; "),
    "GPUs that were taken back": (f"{ONE} --gres=none", PYTHON, "it asked for no GPUs; "),
    "components": (f"-N1 -n1 --gres=gpu:1 {' '.join(['true', ':'])} -N1 -n1 --gres=gpu:1", ["true"], "it has several components; "),
    "torchrun for itself": (TWO, ["python3", "-m", "torch.distributed.run", "--standalone", "-h"], 'torchrun was told "--standalone" '),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_step_that_is_not_set_up_says_why_where_it_is_asked(cluster, row):
    options, program, reason = ROWS[row]
    done = cluster.run(["srun", "-Q", "--bootstrap=explain", *options.split(), *program])
    lines = told(done)
    assert len(lines) == 1 and lines[0].startswith(f"bootstrap: StepId=ID: not set up: {reason}"), done.stderr
    silent = cluster.run(["srun", "-Q", *options.split(), *program])
    assert told(silent) == []
    assert all(not found for found in variables(silent)), silent.stdout


def test_a_terminal_is_left_alone(cluster):
    done = cluster.run(["script", "-qec", f"srun --pty --bootstrap=explain {ONE} python3 -c 1", "/dev/null"])
    assert "not set up: it has a terminal (--pty)" in done.stdout, done


@pytest.mark.parametrize("options", [ONE, TWO, f"{TWO} --export=NONE", "-N1 -n2 --gpus=2"])
def test_a_world_gets_its_row_and_no_more(cluster, options):
    tasks = variables(srun(cluster, options, "/usr/bin/python3", *PYTHON[1:]))
    several = {"GLOO_SOCKET_IFNAME"} if "-N2" in options else set()
    assert len(tasks) == (4 if several else 2)
    for task in tasks:
        assert set(task) == WORLD | several
    assert sorted(task["RANK"] for task in tasks) == [str(rank) for rank in range(len(tasks))]
    assert len({(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in tasks}) == 1
    assert {task["JAX_COORDINATOR_PORT"] for task in tasks}.isdisjoint({task["MASTER_PORT"] for task in tasks})


@needs_torchrun
def test_torchrun_as_the_program_gets_its_own_and_no_more(cluster):
    done = srun(cluster, "-Q -N2 --ntasks-per-node=1 --gres=gpu:2 --bootstrap=explain", "torchrun", "-h")
    assert "torchrun is its program, one task on" in done.stderr
    assert "PET_NNODES=2" in done.stderr and "\nRANK " not in done.stderr


def test_a_program_that_cannot_be_seen_is_told_where_it_would_be_a_world(cluster):
    done = cluster.run(["srun", *TWO.split(), "/nowhere/train"])
    assert told(done) == ['bootstrap: warning: StepId=ID: not set up: srun cannot see "/nowhere/train"; say --bootstrap=on or '
                          "--bootstrap=off"]  # fmt: skip
    assert told(cluster.run(["srun", "-n1", "--gres=gpu:1", "/nowhere/train"])) == []


def test_observe_says_on_each_node_what_world_would_do(cluster, site):
    site("when=observe")
    done = srun(cluster, f"-v {TWO}")
    assert all(not found for found in variables(done)) and len(variables(done)) == 4
    assert any("when=world would say: set up: a GPU for each task" in line for line in told(done))
    step = re.search(r"StepId=(\d+\.\d+)", done.stderr).group()
    for node in ("node001", "node002"):
        assert f"bootstrap: {step}: when=observe; when=world would say: set up:" in cluster.log(f"slurmd.{node}")
    shell = srun(cluster, f"-v {TWO}", "bash", "-c", "true")
    assert any("would say: not set up: bash is a shell" in line for line in told(shell))


def test_what_else_the_site_can_say(cluster, site):
    shell = ("bash", "-c", "exec python3 -c \"$0\"", PYTHON[2])
    site("when=gpu")
    assert variables(srun(cluster, "-n1 --gres=gpu:1", *shell))[0]["RANK"] == "0"
    assert not variables(srun(cluster, "-n1", *shell))[0]
    shared = variables(srun(cluster, "-N1 -n4 --gres=gpu:2"))
    assert {"RANK" in task for task in shared} == {True} and not any("BOOTSTRAP_GPU" in task for task in shared)
    site("when=always")
    assert variables(srun(cluster, "-n2 -N1", *shell))[0]["WORLD_SIZE"] == "2"
    site("when=asked")
    assert all(not found for found in variables(srun(cluster, TWO)))
    assert len(variables(srun(cluster, f"{TWO} --bootstrap=on"))[0]) > len(WORLD)


def test_the_nearer_word_wins(cluster):
    shell = "bash -c 'echo rank=$RANK'"
    script = f"srun -n2 --gres=gpu:2 {shell}; srun -n2 --gres=gpu:2 --bootstrap=off {shell}; SLURM_BOOTSTRAP=off srun -n2 --gres=gpu:2 {shell}"
    done = cluster.run(["salloc", "-Q", "--bootstrap=on", "-N1", "-n2", "--gres=gpu:2", "bash", "-c", script])
    assert sorted(done.stdout.split()[:2]) == ["rank=0", "rank=1"], done
    assert done.stdout.split()[2:4] == ["rank=", "rank="], done
    assert sorted(done.stdout.split()[4:]) == ["rank=0", "rank=1"], "the job's option is nearer than the variable"
    refused = cluster.run(["salloc", "-Q", "--bootstrap=off", "-N1", "-n2", "--gres=gpu:2", "bash", "-c", f"SLURM_BOOTSTRAP=on srun -n2 {shell}"])
    assert refused.stdout.split() == ["rank=", "rank="], refused


def test_a_job_that_asks_sets_up_shells_and_leaves_launchers_alone(cluster):
    cluster.write_home("asks.sh", "#!/bin/bash\n#SBATCH --bootstrap=on -N1 -n2 --gres=gpu:2 -o asks.out\n"
                                  "srun -n1 bash -c 'echo shell rank=$RANK'\nsrun -n1 mpirun --version\n")  # fmt: skip
    cluster.run(["sbatch", "--wait", "asks.sh"])
    text = cluster.run(["cat", "asks.out"]).stdout
    assert "shell rank=0" in text
    assert re.search(r"warning: StepId=\d+\.1: not set up: mpirun starts its own ranks; the job's --bootstrap=on asks for it", text), text


def test_what_cannot_be_right_is_replaced_and_told(cluster):
    wrong = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "http"}
    done = srun(cluster, TWO, env=wrong)
    tasks = variables(done)
    assert sorted(task["RANK"] for task in tasks) == ["0", "1", "2", "3"]
    assert {(task["WORLD_SIZE"], task["MASTER_ADDR"]) for task in tasks} == {("4", "node001")}
    assert {task["MASTER_PORT"].isdigit() for task in tasks} == {True}
    assert len(told(done)) == 1 and all(f"{name}=" in told(done)[0] for name in wrong), done.stderr
    other = variables(srun(cluster, TWO, env={"MASTER_ADDR": "node002"}))
    assert {task["MASTER_ADDR"] for task in other} == {"node001"}, "another node of the step"
    done = srun(cluster, TWO, env={"MASTER_ADDR": "10.99.99.99", "MASTER_PORT": "29500"})
    assert {task["MASTER_ADDR"] for task in variables(done)} == {"10.99.99.99"} and told(done) == []


# What srun calls in slurmctld, by the names of sdiag.
CALLS = ("REQUEST_JOB_STEP_INFO", "REQUEST_STEP_LAYOUT")


def calls_of(cluster, *command):
    cluster.run(["sdiag", "-r"], user="root")
    done = cluster.run(["srun", "-Q", *command])
    assert done.returncode == 0, done.stderr
    text = cluster.run(["sdiag"], user="root").stdout
    found = {name: int(count) for name, count in re.findall(r"^\s+(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)", text, re.M)}
    return {name: found.get(name, 0) for name in CALLS}


def test_what_srun_asks_of_slurmctld(cluster, site):
    none = {name: 0 for name in CALLS}
    for free in (["-n1", "--gres=gpu:1", "true"], [*TWO.split(), "bash", "-c", "true"], ["-N2", "-n3", "--gres=gpu:2", "true"]):
        assert calls_of(cluster, *free) == none, free
    assert calls_of(cluster, *TWO.split(), "python3", "-c", "1") == {name: 1 for name in CALLS}
    assert calls_of(cluster, "-N2", "-n4", "python3", "-c", "1") == {name: 1 for name in CALLS}


SHIM = """
#include <errno.h>
#include <unistd.h>
int slurm_get_job_steps() { if (SECONDS > 0) sleep(SECONDS); errno = 5; return -1; }
"""


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_slurmctld_that_does_not_answer_costs_five_seconds_and_one_line(cluster, tmp_path, seconds):
    (tmp_path / "shim.c").write_text(SHIM)
    name = f"shim{seconds}.so"
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DSECONDS={seconds}", tmp_path / "shim.c", "-o", tmp_path / name], check=True)
    (cluster.state / "home" / "alice" / name).write_bytes((tmp_path / name).read_bytes())
    done = cluster.run(["env", f"LD_PRELOAD=/home/alice/{name}", "srun", *TWO.split(), "--export=PATH", *PYTHON], timeout=40)
    assert done.returncode == 0 and len(variables(done)) == 4 and not any(variables(done)), done
    assert len(told(done)) == 1 and "say --bootstrap=on to set it up" in told(done)[0], done.stderr
    reason = "slurmctld did not answer within 5 s" if seconds else "slurmctld did not say what the step asked for"
    assert reason in told(done)[0]


LISTEN = "import socket, sys, time; s = socket.socket(); s.bind(('', 23456)); s.listen(); print('there', flush=True); time.sleep(60)"


def test_a_port_that_cannot_be_held_ends_only_a_step_that_asked(cluster):
    other = cluster.start(["python3", "-c", LISTEN], node="node001")
    try:
        assert other.stdout.readline() == "there\n"
        refused = cluster.run(["srun", "--bootstrap-port=23456", *TWO.split(), *PYTHON])
        assert refused.returncode != 0 and "port 23456 cannot be held" in refused.stderr
        done = srun(cluster, TWO, env={"SLURM_BOOTSTRAP_PORT": "23456"})
        assert sorted(task["RANK"] for task in variables(done)) == ["0", "1", "2", "3"]
        assert len(told(done)) == 1 and "warning" in told(done)[0] and "port 23456 cannot be held" in told(done)[0], done.stderr
    finally:
        other.kill()
        other.wait()


def test_a_node_that_was_told_nothing_sets_up_nothing(cluster, site):
    """As where srun has another version: what it hands over is not for this plugin."""
    for text in ("1;1.0;world;unasked;0;;x", "2;999.0;world;unasked;0;;x", "3;;"):
        done = srun(cluster, "-N1 -n1 --gres=gpu:1", env={"SLURM_BOOTSTRAP_DECISION": text})
        assert not any(variables(done)), done.stdout

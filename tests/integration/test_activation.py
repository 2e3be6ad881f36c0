"""Which steps are set up on a real cluster: each row of the table of shapes, who asks and who refuses, what srun costs, and
what happens where slurmctld, a node's plugin or a port cannot be had."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import command_line, wait_for
from port_steps import background, in_node

# One line of each task, shorter than the pieces in which srun hands on what tasks print.
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_", "MASTER_", "JAX_", "PET_", "HOROVOD_",
        "OMP_NUM", "BOOTSTRAP_", "SLURM_BOOTSTRAP", "GLOO_", "TF_CONFIG", "NVSHMEM", "CUDA_DEVICE_ORDER")  # fmt: skip
LONG = ("SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_SETTINGS")  # of these the name alone
PRINT = f"import os; print({{k: '' if k in {LONG} else v for k, v in os.environ.items() if k.startswith({OURS})}})"
PYTHON = ["python3", "-c", PRINT]
WORLD = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
         "MASTER_PORT", "CUDA_DEVICE_ORDER", "BOOTSTRAP_GPU", "JAX_COORDINATOR_PORT", "SLURM_BOOTSTRAP_LAYOUT",
         "SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_SETTINGS"}  # fmt: skip
TWO = "-N2 --ntasks-per-node=2 --gres=gpu:2"
ONE = "-N1 --ntasks-per-node=2 --gres=gpu:2"
SHELL_RANK = ["bash", "-c", "echo rank=$RANK"]


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    cluster = cluster_factory("activation")
    cluster.asks = False
    return cluster.up("--gpus", "4", "--cpus", "8")


@pytest.fixture
def site(cluster):
    """Gives our line of plugstack.conf more arguments, for one test."""
    before = (cluster.state / "etc" / "plugstack.conf").read_text()
    yield lambda arguments: cluster.write_plugstack(f"{before.rstrip()} {arguments}\n")
    cluster.write_plugstack(before)


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


def is_untouched(done, tasks):
    """All tasks ran, and none of them has anything of ours: not even of half a world."""
    found = variables(done)
    assert done.returncode == 0 and len(found) == tasks, done
    return not any(found)


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
    "dealt 3 and 1 by Slurm": ("-N2 -n4 --gres=gpu:2", PYTHON, "its tasks are dealt unevenly, 1 to 3 tasks on a node; "),
    "dealt 3 and 1": ("-N2 -n4 -m plane=3 --gres=gpu:2", PYTHON, "its tasks are dealt unevenly, 1 to 3 tasks on a node; "),
    "GPUs per task": ("-N1 -n2 --gpus-per-task=1", PYTHON, "it asked for GPUs per task; "),
    "tasks per GPU": ("-N1 --gpus=2 --ntasks-per-gpu=1", PYTHON, "Slurm binds each task to GPUs of its own; "),
    "a binding": (f"{ONE} --gpu-bind=single:1", PYTHON, "Slurm binds each task to GPUs of its own; "),
    "GPUs of the step on two nodes": ("-N2 -n4 --gpus=4", PYTHON, "it asked for GPUs of the whole step, on several nodes; "),
    "no GPUs": ("-N2 --ntasks-per-node=2", PYTHON, "it asked for no GPUs; "),
    "GPUs that were taken back": (f"{ONE} --gres=none", PYTHON, "it asked for no GPUs; "),
    "components": ("-N1 -n1 --gres=gpu:1 true : -N1 -n1 --gres=gpu:1", ["true"], "it has several components; "),
    "torchrun for itself": (TWO, ["python3", "-m", "torch.distributed.run", "--standalone", "-h"], 'torchrun was told "--standalone" '),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_step_that_is_not_set_up_says_why_where_it_is_asked(cluster, row):
    options, program, reason = ROWS[row]
    sentence = f"bootstrap: StepId=ID: not set up: {reason}"
    explained = cluster.run(["srun", "-Q", "--bootstrap=explain", *options.split(), *program])
    assert len(told(explained)) == 1 and told(explained)[0].startswith(sentence), explained.stderr
    verbose = cluster.run(["srun", "-v", *options.split(), *program])
    assert [line for line in told(verbose) if line.startswith("bootstrap: StepId")] == told(explained), verbose.stderr
    silent = cluster.run(["srun", *options.split(), *program])
    assert told(silent) == []
    assert not any(variables(explained) + variables(verbose) + variables(silent)), silent.stdout
    if program is PYTHON:
        assert len(variables(silent)) == len(variables(explained)) > 0


def test_a_question_changes_nothing_of_the_step(cluster):
    """As asking does: with `on`, the GPUs of the other task are left to each."""
    line = "-N1 -n2 --gpus-per-task=1".split()
    lists = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $SLURM_GPU_BIND"]

    def found(*option):
        return sorted(cluster.run(["srun", *option, *line, *lists]).stdout.split())

    assert found() == found("--bootstrap=explain") == found("--bootstrap=off") != found("--bootstrap=on")


def test_a_terminal_is_left_alone(cluster):
    done = cluster.run(["script", "-qec", f"srun --pty --bootstrap=explain {ONE} python3 -c 1", "/dev/null"])
    assert "not set up: it has a terminal (--pty)" in done.stdout, done


@pytest.mark.parametrize("options", [ONE, TWO, f"{TWO} --export=NONE", f"{TWO} -m cyclic", "-N1 -n2 --gpus=2"])
def test_a_world_gets_its_row_and_no_more(cluster, options):
    tasks = variables(srun(cluster, options, "/usr/bin/python3", *PYTHON[1:]))
    several = {"GLOO_SOCKET_IFNAME"} if "-N2" in options else set()
    assert len(tasks) == (4 if several else 2)
    for task in tasks:
        assert set(task) == WORLD | several
    assert sorted(task["RANK"] for task in tasks) == [str(rank) for rank in range(len(tasks))]
    assert len({(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in tasks}) == 1
    assert {task["JAX_COORDINATOR_PORT"] for task in tasks}.isdisjoint({task["MASTER_PORT"] for task in tasks})


def test_a_world_is_silent_but_for_srun_v(cluster):
    assert told(srun(cluster, TWO)) == []
    line = "bootstrap: StepId=ID: set up: a GPU for each task, and python3 is Python; say --bootstrap=off to leave it as Slurm starts it"
    assert [text for text in told(srun(cluster, f"-v {TWO}")) if "StepId" in text] == [line]


def test_torchrun_as_the_program_gets_its_own_and_no_more(cluster):
    """By its name: what it does with them, test_frameworks.py shows."""
    cluster.write_home("torchrun", f"#!/usr/bin/python3\n{PRINT}\n")
    tasks = variables(srun(cluster, "-N2 --ntasks-per-node=1 --gres=gpu:2", "./torchrun"))
    assert len(tasks) == 2 and {(task["PET_NNODES"], task["PET_NPROC_PER_NODE"]) for task in tasks} == {("2", "2")}
    assert sorted(task["PET_NODE_RANK"] for task in tasks) == ["0", "1"]
    for task in tasks:
        assert all(name.startswith(("PET_", "SLURM_BOOTSTRAP_")) for name in task), task
    assert is_untouched(srun(cluster, "-N1 -n1 --gres=gpu:2", "./torchrun"), 1)
    assert is_untouched(srun(cluster, TWO, "./torchrun"), 4)


def test_a_program_that_cannot_be_seen_is_told_where_it_would_be_a_world(cluster):
    done = cluster.run(["srun", *TWO.split(), "/nowhere/train"])
    assert told(done) == ['bootstrap: warning: StepId=ID: not set up: srun cannot see "/nowhere/train"; say --bootstrap=on or '
                          "--bootstrap=off"]  # fmt: skip
    assert told(cluster.run(["srun", "-n1", "--gres=gpu:1", "/nowhere/train"])) == []


def test_observe_says_on_each_node_what_world_would_do(cluster, site):
    site("when=observe")
    done = srun(cluster, f"-v {TWO}")
    assert is_untouched(done, 4)
    assert any("when=world would say: set up: a GPU for each task" in line for line in told(done))
    step = re.search(r"StepId=(\d+\.\d+)", done.stderr).group()
    for node in ("node001", "node002"):
        assert f"bootstrap: {step}: when=observe; when=world would say: set up:" in cluster.log(f"slurmd.{node}")
    shell = srun(cluster, f"-v {TWO}", "bash", "-c", "true")
    assert any("would say: not set up: bash is a shell" in line for line in told(shell))
    assert told(srun(cluster, TWO)) == []


def test_what_else_the_site_can_say(cluster, site):
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
        assert any("not set up: mpirun starts its own ranks" in line for line in told(launcher)), launcher.stderr
    site("when=asked")
    assert is_untouched(srun(cluster, TWO), 4)
    assert set(variables(srun(cluster, f"{TWO} --bootstrap=on"))[0]) > WORLD


def test_the_nearer_word_wins(cluster):
    shell = "bash -c 'echo rank=$RANK'"
    script = f"srun -n2 {shell}; srun -n2 --bootstrap=off {shell}; SLURM_BOOTSTRAP=off srun -n2 {shell}"
    done = cluster.run(["salloc", "-Q", "--bootstrap=on", "-N1", "-n2", "--gres=gpu:2", "bash", "-c", script])
    assert sorted(done.stdout.split()[:2]) == ["rank=0", "rank=1"], done
    assert done.stdout.split()[2:4] == ["rank=", "rank="], done
    assert sorted(done.stdout.split()[4:]) == ["rank=0", "rank=1"], "the job's option is nearer than the variable"
    script = f"SLURM_BOOTSTRAP=on srun -n2 {shell}; srun --bootstrap=on -n2 {shell}"
    refused = cluster.run(["salloc", "-Q", "--bootstrap=off", "-N1", "-n2", "--gres=gpu:2", "bash", "-c", script])
    assert refused.stdout.split()[:2] == ["rank=", "rank="] and sorted(refused.stdout.split()[2:]) == ["rank=0", "rank=1"], refused
    assert srun(cluster, ONE, *SHELL_RANK, env={"SLURM_BOOTSTRAP": "off"}).stdout.split() == ["rank="] * 2
    assert sorted(srun(cluster, ONE, *SHELL_RANK, env={"SLURM_BOOTSTRAP": "on"}).stdout.split()) == ["rank=0", "rank=1"]
    assert {frozenset(task) for task in variables(srun(cluster, ONE, env={"SLURM_BOOTSTRAP": "off"}))} == {frozenset(["SLURM_BOOTSTRAP"])}


BATCH = """#!/bin/bash
#SBATCH --bootstrap=on -N1 -n4 --gres=gpu:2 -o asks.out -e asks.err
srun -n1 bash -c 'echo shell rank=$RANK'
srun -n1 mpirun --version
srun -n4 bash -c 'echo sharing rank=$RANK.'
script -qec "srun -n1 --pty bash -c 'echo terminal rank=\\$RANK.'" /dev/null
srun -n4 --bootstrap=on bash -c 'echo never'
touch asks.done
"""


def test_a_job_that_asks_sets_up_shells_and_leaves_alone_what_cannot_be(cluster):
    cluster.write_home("asks.sh", BATCH)
    home = cluster.state / "home" / "alice"
    cluster.run(["sbatch", "asks.sh"])
    wait_for((home / "asks.done").exists, 30, "the job does not end")
    out, err = (home / "asks.out").read_text(), (home / "asks.err").read_text()
    assert "shell rank=0\n" in out and out.count("sharing rank=.\n") == 4 and "never" not in out, out
    lines = re.findall(r"warning: StepId=\d+\.(\d): not set up: (.*)", err + out)
    reasons = {"1": "mpirun starts its own ranks", "2": "4 tasks of a node share 2 GPUs", "3": "it has a terminal (--pty)"}
    assert {step: told_of.partition("; ")[0] for step, told_of in lines if step != "3"} == {
        step: f"{reason}" for step, reason in reasons.items() if step != "3"}, err  # fmt: skip
    assert all("the job's --bootstrap=on asks for it" in told_of for _, told_of in lines), err
    assert "terminal rank=." in out and reasons["3"] in out, out
    # Control: what says so on its own line is refused.
    assert re.search(r"error: bootstrap: StepId=\d+\.4: .*--bootstrap-gpu-share", err), err


def test_what_cannot_be_right_is_replaced_and_told(cluster):
    wrong = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "http"}
    done = srun(cluster, TWO, env=wrong)
    tasks = variables(done)
    assert sorted(task["RANK"] for task in tasks) == ["0", "1", "2", "3"]
    assert {(task["WORLD_SIZE"], task["MASTER_ADDR"]) for task in tasks} == {("4", "node001")}
    assert {task["MASTER_PORT"].isdigit() for task in tasks} == {True}
    assert len(told(done)) == 1 and all(f"{name}=" in told(done)[0] for name in wrong), done.stderr
    done = srun(cluster, TWO, env={"MASTER_ADDR": "node002"})
    assert {task["MASTER_ADDR"] for task in variables(done)} == {"node001"} and "MASTER_ADDR=" in told(done)[0]
    done = srun(cluster, TWO, env={"MASTER_ADDR": "10.99.99.99", "MASTER_PORT": "29500"})
    assert {(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in variables(done)} == {("10.99.99.99", "29500")}
    assert told(done) == []


@contextmanager
def other_file(cluster, node, path, text, name):
    """One host has another text in a file than the others."""
    (cluster.state / "etc" / name).write_text(text)
    in_node(cluster, f"mount --bind {cluster.state}/etc/{name} {path}", node)
    try:
        yield
    finally:
        in_node(cluster, f"umount {path}", node)


def test_an_address_of_which_the_name_server_knows_nothing_is_replaced(cluster):
    """One that cannot be asked has said nothing: then the user's value stays."""
    line = {"MASTER_ADDR": "nowhere.invalid"}
    with other_file(cluster, "head", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n", "nsswitch.conf"):
        done = srun(cluster, TWO, env=line)
        assert {task["MASTER_ADDR"] for task in variables(done)} == {"node001"}
        assert len(told(done)) == 1 and 'MASTER_ADDR="nowhere.invalid" (it leads nowhere)' in told(done)[0], done.stderr


# By user, since what daemons ask of slurmctld meanwhile is theirs.
def calls_of(cluster, *command):
    """How often srun called slurmctld as alice, and what it asked by the names of sdiag."""
    cluster.run(["sdiag", "-r"], user="root")
    done = cluster.run(["srun", "-Q", *command])
    assert done.returncode == 0, done.stderr
    text = cluster.run(["sdiag"], user="root").stdout
    by_user = re.search(r"^\s+alice\s+\(\s*\d+\) count:(\d+)", text, re.M)
    return int(by_user[1]), {name for name in OUR_CALLS if re.search(rf"^\s+{name}\s", text, re.M)}


OUR_CALLS = {"REQUEST_JOB_STEP_INFO", "REQUEST_STEP_LAYOUT"}
FREE = (["-n1", "--gres=gpu:1", "true"], [*TWO.split(), "bash", "-c", "true"], ["-N2", "-n3", "--gres=gpu:2", "true"],
        [*TWO.split(), "--bootstrap=off", "true"], [*TWO.split(), "mpirun", "--version"])  # fmt: skip
ASKED = ([*TWO.split(), "python3", "-c", "1"], ["-N2", "-n4", "python3", "-c", "1"], [*ONE.split(), "python3", "-c", "1"])


def test_what_srun_asks_of_slurmctld(cluster):
    plugstack = (cluster.state / "etc" / "plugstack.conf").read_text()
    for line in (*FREE, *ASKED):
        count, names = calls_of(cluster, *line)
        cluster.write_plugstack("# no plugin\n")
        without, _ = calls_of(cluster, *[word for word in line if word != "--bootstrap=off"])
        cluster.write_plugstack(plugstack)
        assert (count - without, names) == ((0, set()) if line in FREE else (2, OUR_CALLS)), line


TRACED = "connect,socket,sendto,sendmsg"


def network_calls(cluster, plugstack, *line):
    """What srun did with sockets, without file descriptors and addresses, which differ from run to run."""
    cluster.write_plugstack(plugstack)
    path = cluster.state / "home" / "alice" / "srun.trace"
    path.unlink(missing_ok=True)
    done = cluster.run(["strace", "-f", "-qq", "-o", "srun.trace", "-e", f"trace={TRACED}", "srun", "-Q", *line])
    assert done.returncode == 0, done.stderr
    calls = re.findall(r"^\d+\s+(socket|connect)\(.*?(AF_\w+)", path.read_text(), re.M)
    return {name: calls.count(name) for name in {("socket", "AF_INET"), ("connect", "AF_INET"), ("socket", "AF_INET6")}}


def test_a_free_check_costs_no_socket(cluster):
    plugstack = (cluster.state / "etc" / "plugstack.conf").read_text()
    try:
        for line in FREE[:3]:
            without = network_calls(cluster, "# no plugin\n", *line)
            assert network_calls(cluster, plugstack, *line) == without and without["connect", "AF_INET"] > 0, line
        control = network_calls(cluster, plugstack, *ASKED[0])
        assert control["connect", "AF_INET"] >= network_calls(cluster, "# no plugin\n", *ASKED[0])["connect", "AF_INET"] + 2
    finally:
        cluster.write_plugstack(plugstack)


# The first call of ours, which fails, takes long, or is made once slurmctld has been stopped.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
int slurm_get_job_steps(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e) {
  if (SECONDS >= 0) { sleep(SECONDS); errno = 5; return -1; }
  close(open("/home/alice/asking", O_CREAT | O_WRONLY, 0600));
  while (access("/home/alice/stopped", F_OK) != 0) usleep(10000);
  return ((int (*)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t))dlsym(RTLD_NEXT, "slurm_get_job_steps"))(a, b, c, d, e);
}
"""


@pytest.fixture
def shimmed(cluster, tmp_path):
    """The words before srun with which its first call is another one."""

    def build(seconds):
        (tmp_path / "shim.c").write_text(SHIM)
        library = Path(cluster.state, "home", "alice", f"shim{seconds}.so")
        subprocess.run(["gcc", "-shared", "-fPIC", f"-DSECONDS={seconds}", tmp_path / "shim.c", "-o", library], check=True)
        return ["env", f"LD_PRELOAD=/home/alice/{library.name}"]

    return build


NOT_TOLD = "bootstrap: warning: StepId=ID: not set up: {}; say --bootstrap=on to set it up, or --bootstrap=off"
NO_ANSWER, FAILED = "slurmctld did not answer within 5 s", "slurmctld did not say what the step asked for"


@pytest.mark.parametrize("seconds, reason", [(0, FAILED), (60, NO_ANSWER)])
def test_a_call_that_fails_costs_five_seconds_at_most_and_one_line(cluster, shimmed, seconds, reason):
    began = time.monotonic()
    done = cluster.run([*shimmed(seconds), "srun", *TWO.split(), "--export=PATH", *PYTHON], timeout=40)
    assert is_untouched(done, 4) and told(done) == [NOT_TOLD.format(reason)], done.stderr
    assert time.monotonic() - began < 20
    # A step that asks is set up: what it is needs no call.
    done = cluster.run([*shimmed(seconds), "srun", *TWO.split(), "--bootstrap=on", "--export=PATH", *PYTHON], timeout=40)
    assert len(variables(done)) == 4 and all(set(task) > WORLD for task in variables(done)), done


def slurmctld_of(cluster):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = command_line(pid)
        if words.startswith(b"slurmctld\0") and f"{cluster.state}/".encode() in words:
            return int(pid)
    raise AssertionError("no slurmctld")


def test_a_slurmctld_that_is_stopped_between_the_step_and_the_calls(cluster, shimmed):
    """The step runs as without the plugin, though its slurmctld answers nobody."""
    home, controller = cluster.state / "home" / "alice", slurmctld_of(cluster)
    process = cluster.start([*shimmed(-1), "srun", *TWO.split(), "--export=PATH", *PYTHON])
    try:
        wait_for((home / "asking").exists, 20, "srun does not ask")
        os.kill(controller, signal.SIGSTOP)
        began = time.monotonic()
        cluster.write_home("stopped", "")
        lines = [process.stdout.readline() for _ in range(4)]
        assert time.monotonic() - began < 15 and lines == ["{}\n"] * 4, lines
    finally:
        os.kill(controller, signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        for name in ("asking", "stopped"):
            (home / name).unlink(missing_ok=True)
    done = subprocess.CompletedProcess([], process.returncode, out, err)
    assert process.returncode == 0 and told(done) == [NOT_TOLD.format(NO_ANSWER)], done


LISTEN = "import socket, time; s = socket.socket(); s.bind(('', 23456)); s.listen(); print('ready', flush=True); time.sleep(60)"


def test_a_port_that_cannot_be_held_ends_only_a_step_that_asked(cluster):
    with background(cluster, ["python3", "-c", LISTEN], user="bob", ready=True):
        # A rank of the other node may have begun before srun hears of it.
        refused = cluster.run(["srun", "--bootstrap-port=23456", *TWO.split(), "sh", "-c", "echo $RANK; exec sleep 600"], timeout=20)
        assert refused.returncode != 0 and not {"0", "1"} & set(refused.stdout.split()), refused
        assert len(told(refused)) == 1 and "port 23456 cannot be held" in told(refused)[0], refused.stderr
        done = srun(cluster, TWO, env={"SLURM_BOOTSTRAP_PORT": "23456"})
        assert sorted(task["RANK"] for task in variables(done)) == ["0", "1", "2", "3"]
        assert len(told(done)) == 1 and "warning" in told(done)[0] and "port 23456 cannot be held" in told(done)[0], done.stderr
    assert told(srun(cluster, TWO, env={"SLURM_BOOTSTRAP_PORT": "23456"})) == [], "control: it was the other program"


def test_what_srun_decided_is_obeyed_in_its_own_words_alone(cluster):
    """Where srun has no plugin, or another version, or the words are of another step, all nodes leave all tasks alone."""
    plugstack = cluster.state / "etc" / "plugstack.conf"
    texts = {"2;{}.{};world;unasked;1f;;x": True, "1;{}.{};world;unasked;1f;;x": False, "3;{}.{};world;unasked;1f;;x": False,
             "2;{}.9;world;unasked;1f;;x": False, "2;{}.{}": False, "on": False}  # fmt: skip
    with other_file(cluster, "head", plugstack, "# no plugin\n", "none.conf"):
        job = cluster.allocate("-N2", "--ntasks-per-node=2", "--gres=gpu:2")
        line = ["srun", f"--jobid={job}", "-n4", "--ntasks-per-node=2"]
        for step, (text, is_heard) in enumerate(texts.items()):
            done = cluster.run([*line, *PYTHON], env={"SLURM_BOOTSTRAP_DECISION": text.format(job, step)})
            if is_heard:
                assert sorted(task["RANK"] for task in variables(done)) == ["0", "1", "2", "3"], done
            else:
                assert is_untouched(done, 4), (text, done)
            assert told(done) == []
        # An option of ours that reached the nodes without srun's decision: they say that it is lost.
        done = cluster.run([*line, *PYTHON], env={"_SLURM_SPANK_OPTION_bootstrap_bootstrap": "on"})
        assert is_untouched(done, 4) and len(told(done)) == 1, done
        assert "srun did not say whether this step is set up" in told(done)[0], done.stderr
        cluster.run(["scancel", job])


def test_a_node_without_the_plugin_gets_nothing_and_the_others_agree_with_each_other(cluster):
    """All nodes come before submit hosts, and `slurm-bootstrap check` sees such a node: the plugin alone cannot."""
    plugstack = cluster.state / "etc" / "plugstack.conf"
    with other_file(cluster, "node002", plugstack, "# no plugin\n", "none.conf"):
        tasks = variables(srun(cluster, TWO))
    assert sorted("RANK" in task for task in tasks) == [False, False, True, True]
    assert sorted(task["RANK"] for task in tasks if "RANK" in task) == ["0", "1"]


def test_no_node_suffered(cluster):
    assert cluster.script("status").returncode == 0

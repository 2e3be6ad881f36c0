"""Steps in which one call of the release plugin fails: the place of the fault, the step, and the verdict on its outcome. Pairs of
nodes run steps at the same time."""

# SPDX-License-Identifier: Apache-2.0

import itertools
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from built_files import BUILT_INSIDE, PLUGIN, inside
from harness import wait_for

DOUBLES = f"{BUILT_INSIDE}/tests/doubles"
PRELOAD = f"{DOUBLES}/fault_calls.so"
LOG = "fault_calls.log"
# Each host has its own /tmp, and so its own plugstack.conf.
UP = ("--no-plugin", "--set", "PlugStackConfig=/tmp/plugstack.conf")

# The process whose call fails: srun, slurmstepd on the node of rank 0 or on the other one; for a batch job sbatch and
# its slurmstepd.
PROCESSES = ("srun", "first node", "last node", "sbatch", "batch node")
# The same in a step whose last task fails: only the last hooks do more there.
FAILING = {"srun, when a task fails": "srun", "last node, when a task fails": "last node"}
LAST_HOOKS = ("task_exit", "exit")

ECHO = "echo task $SLURM_PROCID $SLURMD_NODENAME $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT $BOOTSTRAP_GPU"
FAIL = "; test $SLURM_PROCID != 3 || exit 3"
BATCH = "echo batch ${RANK-none} ${MASTER_PORT-none} ${SLURM_BOOTSTRAP_STEP-none} >/tmp/ran"

# Not the default range, so that a lost option is noticed.
PORTS = range(25000, 26000)

USABLE = {"idle", "allocated", "mixed", "completing"}
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}

_numbers = itertools.count()


@dataclass(frozen=True, order=True)
class Call:
    """The call `number` of `function` in `hook`; with is_lasting, all later ones, too."""

    process: str
    hook: str
    function: str
    number: int
    is_lasting: bool = False

    @property
    def order(self):
        return f"{self.hook}:{self.function}:{self.number}{'+' if self.is_lasting else ''}"

    def __str__(self):
        lasting = " and all after" if self.is_lasting else ""
        return f"{self.function}#{self.number}{lasting} in {self.hook} of {self.process}"


@dataclass
class Run:
    """The outcome of a step."""

    status: int | None  # None: it did not end
    stdout: str
    stderr: str
    notes: str  # lines of the double: the counts, or that the fault happened
    deaths: list
    nodes: list
    job: str = ""  # the state of a batch job


class Node:
    """A node with its own plugstack.conf and its own slurmd, which starts slurmstepd through the exit recorder."""

    def __init__(self, cluster, name):
        self.name = name
        pid = (cluster.state / "pids" / name).read_text().strip()
        self.namespace = os.readlink(f"/proc/{pid}/ns/mnt")
        self.tmp = Path(f"/proc/{pid}/root/tmp")
        self.write("plugstack.conf", "")
        for slurmd in self.processes("slurmd"):
            os.kill(slurmd, signal.SIGTERM)
        wait_for(lambda: not self.processes("slurmd"), 20, "slurmd does not end")
        # In the foreground, so that the test notices its end.
        line = ["slurmd", "-D", "-f", f"{cluster.state}/etc/slurm.conf", "-d", f"{DOUBLES}/exit_recorder"]
        self.slurmd = cluster.start(line, user="root", node=name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.processes("slurmd"), 10, "slurmd does not start")

    def processes(self, *names):
        """The ids of processes on the node with one of these names."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/mnt") == self.namespace and Path(f"/proc/{pid}/comm").read_text().strip() in names:
                    found.append(int(pid))
        return found

    def write(self, name, text):
        """Replaces a file in the node's /tmp by a rename, since Slurm may read it at any moment."""
        fresh = self.tmp / f"{name}.new"
        fresh.write_text(text)
        fresh.rename(self.tmp / name)

    def take(self, name):
        """Reads and removes a file in the node's /tmp; "" if there is none."""
        text = ""
        with suppress(FileNotFoundError):
            text = (self.tmp / name).read_text()
            (self.tmp / name).unlink()
        return text

    def deaths(self):
        """How daemons have ended by themselves since the last call."""
        found = [f"slurmstepd {how}" for how in re.findall(r"^\w+ \d+ (signal \d+)$", self.take("witness.log"), re.MULTILINE)]
        return found if self.slurmd.poll() is None else [*found, f"slurmd {self.slurmd.returncode}"]


class Pair:
    """Two nodes that run steps; srun and sbatch run on the first one."""

    def __init__(self, cluster, *names):
        self.cluster = cluster
        self.nodes = [Node(cluster, name) for name in names]
        self.first = self.nodes[0]

    def prepare(self, process, order, plugin, other):
        for node in self.nodes:
            is_there = process in {"first node", "batch node"} if node is self.first else process == "last node"
            node.write("witness.env", f"LD_PRELOAD={PRELOAD}\nFAULT_CALLS={order}\n" if is_there else "")
            node.write("plugstack.conf", f"{plugin} {inside(PLUGIN)} when=always\n{other}")
            node.take("witness.log")
            node.take("ran")
            node.write(LOG, "")
            (node.tmp / LOG).chmod(0o666)

    def ask(self, *line):
        return self.cluster.run(line, user="root", node=self.first.name).stdout

    def run(self, process, order, plugin, seconds, other=""):
        """Runs one step, or one batch job, in which one process has the fault; `other`: one more line of plugstack.conf."""
        is_failing = process in FAILING
        process = FAILING.get(process, process)
        self.prepare(process, order, plugin, other)
        job = f"call{next(_numbers)}"
        env = {"LD_PRELOAD": PRELOAD, "FAULT_CALLS": order} if process in ("srun", "sbatch") else {}
        names = ",".join(node.name for node in self.nodes)
        is_batch = process in ("sbatch", "batch node")
        if is_batch:
            line = ["sbatch", "-t1", "-J", job, "-w", self.first.name, "-n1", "-o", "/tmp/batch.out", "--wrap", BATCH]
        else:
            line = ["srun", "-t1", "-J", job, "-w", names, "-N2", "-n4", "--ntasks-per-node=2", "--gres=gpu:2"]
            line += [f"--bootstrap-port-range={PORTS.start}-{PORTS.stop - 1}", "sh", "-c", ECHO + FAIL * is_failing]
        line = ["timeout", "-s", "KILL", str(seconds), *line]
        done = self.cluster.run(line, node=self.first.name, env=env, timeout=2 * seconds)
        deadline, state = time.monotonic() + seconds, ""
        while is_batch and done.returncode == 0 and state not in ENDED and time.monotonic() < deadline:
            time.sleep(0.1)
            state = self.ask("squeue", "-h", "-t", "all", "-n", job, "-o", "%T").strip()
        # slurmstepd may still be ending, and may die meanwhile.
        while any(node.processes("exit_recorder", "slurmstepd") for node in self.nodes) and time.monotonic() < deadline:
            time.sleep(0.02)
        return Run(
            status=None if done.returncode == 137 else done.returncode,
            stdout=self.first.take("ran") if is_batch else done.stdout,
            stderr=done.stderr + self.first.take("batch.out"),
            notes="".join(node.take(LOG) for node in self.nodes),
            deaths=[death for node in self.nodes for death in node.deaths()],
            nodes=re.findall(r"[a-z]+", self.ask("sinfo", "-h", "-N", "-n", names, "-p", "main", "-o", "%T")),
            job=state,
        )


def count_calls(pair, process, seconds=30):
    """{(hook, function): number of calls} of a run without fault."""
    run = pair.run(process, "count", "optional", seconds)
    counts = {}
    for hook, function, number in re.findall(r"^count (\w+) (\w+) (\d+)$", run.notes, re.MULTILINE):
        counts[hook, function] = max(counts.get((hook, function), 0), int(number))
    return run, counts


def wrong_values(stdout, alone=()):
    """What is wrong with the values of the four tasks, of which those in `alone` may have only their own GPU; "" if nothing is."""
    tasks = [line.split() for line in stdout.splitlines() if line.startswith("task ")]
    if sorted(task[1] for task in tasks) != list("0123"):
        return "exit status 0, but not every task ran"
    host_of_0 = next(task[2] for task in tasks if task[1] == "0")
    for task in tasks:
        # A task that may not open its peers' GPUs is treated as a node of its own, with a message about the cost.
        local = {str(int(task[1]) % 2)} | ({"0"} if task[1] in alone else set())
        is_right = len(task) == 9 and (task[3:5], task[6]) == ([task[1], "4"], host_of_0)
        if not is_right or task[5] not in local or task[8] != task[5]:
            return f"wrong values: {' '.join(task)}"
        if not task[7].isdigit() or int(task[7]) not in PORTS:
            return f"wrong port: {' '.join(task)}"
    return "" if len({task[7] for task in tasks}) == 1 else "different ports"


def is_untouched(stdout):
    """True if all tasks ran and none has a value of ours, as in a step on which srun could not decide."""
    tasks = [line.split() for line in stdout.splitlines() if line.startswith("task ")]
    return sorted(task[1] for task in tasks) == list("0123") and all(len(task) == 3 for task in tasks)


def sentences(stderr):
    """The plugin's messages, each sentence once even if several tasks print it; without srun's about the first failure."""
    said = re.findall(r"error: (?:spank: )?bootstrap: (.*)", stderr)
    return {re.sub(r"\d+", "N", sentence) for sentence in said if "was the first to fail" not in sentence}


def tasks_alone(call, stdout):
    """Tasks that may have one GPU alone, since their test of the devices was the call that failed."""
    if (call.hook, call.function) != ("task_init", "faccessat"):
        return set()
    tasks = [line.split() for line in stdout.splitlines() if line.startswith("task ")]
    hosts = {task[2] for task in tasks if (task[1] in "01") == (call.process == "first node")}
    return {task[1] for task in tasks if task[2] in hosts}


def is_unknown_to_srun(call, run):
    """The option could not be registered, so srun refuses it; the plugin prints the reason with -v."""
    return call.function == "spank_option_register" and run.status != 0 and "unrecognized option '--bootstrap-" in run.stderr


def verdict(call, run):
    """(True if it is as promised, a description of the outcome)."""
    if run.deaths:
        return False, f"died: {', '.join(sorted(set(run.deaths)))}"
    if any(state not in USABLE for state in run.nodes):
        return False, f"nodes {' '.join(run.nodes)}"
    if run.status is None:
        return False, "did not end"
    said = len(sentences(run.stderr))
    if call.process in ("sbatch", "batch node"):
        is_right = (run.status, run.job, run.stdout) == (0, "COMPLETED", "batch none none none\n")
        if is_right or (run.job, run.stdout, said) != ("FAILED", "", 1):
            return is_right, "right, as without the plugin" if is_right else f"{run.status} {run.job} {run.stdout!r}"
        return True, "refused with one sentence"
    if call.process in FAILING:
        is_right = run.status == 3 and said <= 1  # the first failure may get lost, with a message that it is lost
        return is_right, "the status of the task" if is_right else f"status {run.status}, {said} sentences"
    if is_unknown_to_srun(call, run):
        return not said, "refused by srun, which names the option"
    if run.status != 0:
        return said == 1, "refused with one sentence" if said == 1 else f"refused with {said} sentences"
    wrong = wrong_values(run.stdout, tasks_alone(call, run.stdout))
    if wrong and call.process == "srun" and is_untouched(run.stdout):
        warned = len(set(re.findall("bootstrap: warning: .*", run.stderr)))
        return 1 <= said + warned <= 2, f"nothing set on any node, and {said + warned} sentences on it"
    if wrong:
        return False, wrong
    return True, "right values, and a sentence on what is missing" if said else "right values"

"""What the plugin's hooks cost in the real slurmstepd: a clock before and one behind it in plugstack.conf."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import time
from collections import Counter, defaultdict
from statistics import median

from benchmarks.programs import built
from benchmarks.steps import Shell
from benchmarks.table import Group
from local_cluster import REPOSITORY

TOPOLOGY = REPOSITORY / "tests/data/topologies/dgx-h100.txt"
TASKS = 8
CONTROL_EVERY = 4  # steps with the plugin for one step in each other way
STEP = f"timeout 30 srun -Q -N1 -n{TASKS} --gres=gpu:{TASKS}"
CALLS = {"user_init": range(1), "task_post_fork": range(TASKS), "task_init": range(TASKS)}  # of each hook in a step
GOALS = {"user_init": 1000, "task_init": 100}  # microseconds, for the median
GOAL_OF_LARGEST = 10_000  # microseconds, with the largest environment that Linux accepts
LARGEST = (16_000, 115)  # variables, and bytes of each: nearly 2 MiB, and as many as the plugin accepts
CLUSTER = ("--nodes", "1", "--gpus", str(TASKS), "--cpus", "64", "--plugin-args", "when=gpu")


class HookClock:
    """One allocation in which steps run one after another, each under a plugstack.conf of its own.

    The ways: `on` with a topology file, `live` without one, `largest` with the largest environment, `off` with
    --bootstrap=off, `none` without the plugin, and `floor` with a plugin in its place that calls spank_setenv in task_init
    as often as ours does, and nothing else."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.times = cluster.state / "log" / "times"
        self.etc = cluster.state / "etc"
        clock = built("tests/doubles/clock_spank.so")
        for name in ("before", "after", "floor"):
            shutil.copy(clock, self.etc / f"clock_{name}.so")  # the same file loaded twice is one plugin
        self.topology = self.etc / "topology.txt"
        self.topology.write_bytes(TOPOLOGY.read_bytes())  # root's, whoever owns the repository
        self.topology.chmod(0o644)
        self.ours = (self.etc / "plugstack.conf").read_text().strip()
        self.cached = f"{self.ours} topology={self.topology}"
        self.own_variables = self.count_own_variables()
        self.ways = {
            "on": (self.cached, ""),
            "live": (self.ours, ""),
            "largest": (self.cached, ""),
            "off": (self.cached, "--bootstrap=off"),
            "none": ("", ""),
            "floor": (f"optional {self.etc}/clock_floor.so setenv={self.own_variables}", ""),
        }
        count, size = LARGEST
        lines = (f"export V{number:05}={'x' * (size - 8)}\n" for number in range(count))
        self.cluster.write_home("largest.env", "".join(lines))
        self.ran = []  # by step id, the way of that step

    def count_own_variables(self):
        """Variables that each task is given for itself, in task_init; the others slurmstepd sets once for all tasks."""
        self.cluster.write_plugstack(self.cached + "\n")
        done = self.cluster.run(["srun", f"-n{TASKS}", f"--gres=gpu:{TASKS}", "--bootstrap=explain", "-l", "env"])
        assert done.returncode == 0, done.stderr
        # With a topology file that the plugin refuses it would do something else.
        assert f"topology={self.topology} in plugstack.conf" in done.stderr and "because" not in done.stderr, done.stderr
        values = defaultdict(set)
        for line in done.stdout.splitlines():
            name, separator, value = line.partition(": ")[2].partition("=")
            if separator:
                values[name].add(value)
        own = {name for name, seen in values.items() if len(seen) > 1 and not name.startswith(("SLURM", "PMI"))}
        return len(own | {"OMP_NUM_THREADS"})  # which depends on the task's cores, and so is its own, too

    def select(self, way):
        """Puts what is to be measured between the clocks; returns the option for srun."""
        line, option = self.ways[way]
        before, after = (f"optional {self.etc}/clock_{clock}.so clock={clock} out={self.times}\n" for clock in ("before", "after"))
        self.cluster.write_plugstack(f"{before}{line}\n{after}")
        return option

    def run(self, count):
        """`count` steps with the plugin and some in each other way, in turn."""
        shell = Shell(self.cluster, "-N1", f"-n{TASKS}", f"--gres=gpu:{TASKS}")
        try:
            for number in range(count):
                for way in self.ways if number % CONTROL_EVERY == 0 else ["on"]:
                    option = self.select(way)
                    step = f"{STEP} {option} true"
                    if way == "largest":
                        step = f"(. ~/largest.env; {step})"
                    answer = shell.ask(f"{step}; echo status $?")
                    assert answer == ["status", "0"], f"step {len(self.ran)} ({way}): {' '.join(answer)}"
                    self.ran.append(way)
        finally:
            shell.close()

    def read(self):
        """How long each hook took in each way, in microseconds, and how often a call was not noted by both clocks."""
        noted = {}
        for line in self.times.read_text().splitlines():
            clock, hook, _node, _job, step, task, nanoseconds = line.split()
            noted[clock, hook, int(step), int(task)] = int(nanoseconds)
        took, missing = defaultdict(list), Counter()
        for step, way in enumerate(self.ran):
            for hook, tasks in CALLS.items():
                for task in tasks:
                    before, after = (noted.get((clock, hook, step, task)) for clock in ("before", "after"))
                    if before is None or after is None:
                        missing[way, hook] += 1
                    else:
                        took[way, hook].append((after - before) / 1000)
        return took, missing

    def results(self):
        """By way and hook. Slurm writes the times of a step when it has ended, which may be after srun's end."""
        deadline = time.monotonic() + 10
        while True:
            took, missing = self.read()
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert not missing, f"calls that were not noted by both clocks: {dict(missing)}"
        return took


def table(took, own_variables):
    group = Group(f"Hooks in slurmstepd, {TASKS} tasks on a node, with Slurm's own part")
    floor = took["floor", "task_init"]
    peer = f"{own_variables} spank_setenv and nothing else"
    init = group.add("task_init", "us", took["on", "task_init"], floor, peer, limit=GOALS["task_init"])
    init.why_not = (
        f"{own_variables} variables are each task's own, and to set so many through spank_setenv and do nothing else took "
        f"{median(floor):.0f} us in steps in between; {TASKS} tasks do it at once on {os.cpu_count()} CPUs"
    )
    off = took["off", "task_init"]
    group.add("task_init, step not set up", "us", off, took["none", "task_init"], "no plugin in its place")
    group.add("task_post_fork", "us", took["on", "task_post_fork"], took["none", "task_post_fork"], "no plugin")
    user = group.add("user_init", "us", took["on", "user_init"], limit=GOALS["user_init"])
    user.why_not = f"once for a node and step; the load was {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    group.add("user_init, no topology file", "us", took["live", "user_init"], took["on", "user_init"], "with one")
    peer = "an ordinary environment"
    for hook in ("user_init", "task_init"):
        group.add(f"{hook}, 2 MB of environment", "us", took["largest", hook], took["on", hook], peer, limit=GOAL_OF_LARGEST)
    return group


def measure(cluster, size):
    clock = HookClock(cluster)
    clock.run(size.steps)
    return table(clock.results(), clock.own_variables)

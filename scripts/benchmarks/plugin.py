"""What the plugin costs: its hooks in the real slurmstepd, the wall time of srun, and the environment of the tasks."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import product
from statistics import median

from benchmarks.steps import allocated, built
from benchmarks.table import Group

TASKS = 8
CONTROL_EVERY = 4  # steps with the plugin for one step in each other way
STEP = f"timeout 120 srun -Q -N1 -n{TASKS} --gres=gpu:{TASKS}"
CALLS = {"user_init": range(1), "task_init": range(TASKS)}  # of each hook in a step
GOALS = {"user_init": 1000, "task_init": 100}  # microseconds, for the median
GOAL_OF_LARGEST = 10_000  # microseconds, with the largest environment that Linux accepts
# Variables, and bytes of each.
MANY = (2_000, 40)
LARGEST = (16_000, 115)  # nearly 2 MiB, and as many as the plugin accepts
HOOKS_CLUSTER = ("--nodes", "1", "--gpus", str(TASKS), "--cpus", "64", "--plugin-args", "when=gpu")

NODES, GPUS = 4, 8
LAUNCH_CLUSTER = ("--nodes", str(NODES), "--gpus", str(GPUS), "--cpus", "32", "--plugin-args", "when=gpu")
LAUNCHES, LAUNCHED_TASKS = ("none", "pmix"), (2, 8, 32)  # srun --mpi=
ADDED_MILLISECONDS, ADDED_RATIO = 5, 1.01


class HookClock:
    """Steps that run one after another in one allocation, each under a plugstack.conf of its own with a clock before the plugin and one
    behind it.

    The ways: `on`, `many` and `largest` with more variables of the user's, `off` with --bootstrap=off, `none` without the plugin, and
    `floor` with a plugin in its place that calls spank_setenv in task_init as often as ours does, and no more."""

    def __init__(self, cluster):
        self.cluster, self.times, etc = cluster, cluster.state / "log" / "times", cluster.state / "etc"
        for name in ("before", "after", "floor"):
            shutil.copy(built("tests/doubles/clock_spank.so"), etc / f"clock_{name}.so")  # the same file loaded twice is one plugin
        ours = (etc / "plugstack.conf").read_text().strip()
        self.set_variables = self.count_set_variables(ours)
        floor = f"optional {etc}/clock_floor.so setenv={self.set_variables}"
        self.ways = {"on": (ours, "", None), "many": (ours, "", MANY), "largest": (ours, "", LARGEST), "off": (ours, "--bootstrap=off", None),
                     "none": ("", "", None), "floor": (floor, "", None)}
        for way, (_, _, more) in self.ways.items():
            count, size = more or (0, 0)
            cluster.write_home(f"{way}.env", "".join(f"export V{number:05}={'x' * (size - 8)}\n" for number in range(count)))
        self.ran = []  # by step id, the way of that step

    def count_set_variables(self, line):
        """Variables that our task_init adds to a task, or changes."""
        self.cluster.write_plugstack(line + "\n")
        with_plugin, without = (variables(self.cluster, mode, f"-N1 -n{TASKS} --gres=gpu:{TASKS}") for mode in ("on", "off"))
        ours = {name for name in with_plugin if name.startswith("SLURM_BOOTSTRAP") or not name.startswith("SLURM")}
        return sum(without.get(name) != with_plugin[name] for name in ours)

    def run(self, count):
        """`count` steps with the plugin and some in each other way, in turn."""
        etc = self.cluster.state / "etc"
        before, after = (f"optional {etc}/clock_{clock}.so clock={clock} out={self.times}\n" for clock in ("before", "after"))
        with allocated(self.cluster, "-N1", f"-n{TASKS}", f"--gres=gpu:{TASKS}") as ask:
            for number in range(count):
                for way in self.ways if number % CONTROL_EVERY == 0 else ["on"]:
                    line, option, _ = self.ways[way]
                    self.cluster.write_plugstack(f"{before}{line}\n{after}")
                    answer = ask(f"(. ~/{way}.env; {STEP} {option} true); echo status $?")
                    assert answer == ["status", "0"], f"step {len(self.ran)} ({way}): {' '.join(answer)}"
                    self.ran.append(way)

    def read(self):
        """How long each hook took in each way, in microseconds, and how often a call was not noted by both clocks."""
        noted, took, missing = {}, defaultdict(list), Counter()
        for line in self.times.read_text().splitlines():
            clock, hook, _node, _job, step, task, nanoseconds = line.split()
            noted[clock, hook, int(step), int(task)] = int(nanoseconds)
        for (step, way), hook in product(enumerate(self.ran), CALLS):
            for task in CALLS[hook]:
                before, after = (noted.get((clock, hook, step, task)) for clock in ("before", "after"))
                if before is None or after is None:
                    missing[way, hook] += 1
                else:
                    took[way, hook].append((after - before) / 1000)
        return took, missing

    def results(self):
        """The times by way and hook. Slurm writes the times of a step when it has ended, which may be after srun's end."""
        deadline = time.monotonic() + 10
        while True:
            took, missing = self.read()
            if not missing:
                return took
            assert time.monotonic() < deadline, f"calls that were not noted by both clocks: {dict(missing)}"
            time.sleep(0.1)


def measure_hooks(cluster, size):
    clock = HookClock(cluster)
    clock.run(size.steps)
    took, own, cpus = clock.results(), clock.set_variables, os.cpu_count()
    group = Group(f"Hooks in slurmstepd, {TASKS} tasks on a node, with Slurm's own part")
    floor = took["floor", "task_init"]
    group.add("task_init", "us", took["on", "task_init"], floor, f"{own} spank_setenv and nothing else", limit=GOALS["task_init"],
              why_not=f"to set so many variables through spank_setenv and do nothing else took {median(floor):.0f} us in steps in "
                      f"between; {TASKS} tasks do it at once on {cpus} CPUs")
    group.add("task_init, step not set up", "us", took["off", "task_init"], took["none", "task_init"], "no plugin in its place")
    group.add("user_init", "us", took["on", "user_init"], limit=GOALS["user_init"],
              why_not=f"once for a node and step; the load was {os.getloadavg()[0]:.1f} on {cpus} CPUs")
    for hook in ("user_init", "task_init"):
        group.add(f"{hook}, {MANY[0]:,} more variables", "us", took["many", hook], took["on", hook], "an ordinary environment")
        group.add(f"{hook}, 2 MB of environment", "us", took["largest", hook], took["on", hook], "an ordinary environment",
                  limit=GOAL_OF_LARGEST)
    return group


@contextmanager
def stopwatch(cluster, options):
    """Gives a function that times srun with the plugin and without it in turn, in an allocation with these options. Bash reads the clock
    before and after."""
    plugstack = (cluster.state / "etc" / "plugstack.conf").read_text()

    def time_of(line, has_plugin):
        cluster.write_plugstack(plugstack if has_plugin else "\n")
        answer = ask(f"began=$EPOCHREALTIME; {line}; echo $? $began $EPOCHREALTIME")
        assert len(answer) == 3 and answer[0] == "0", f"{line}: {' '.join(answer)}"
        return (float(answer[2]) - float(answer[1])) * 1000

    def pairs(with_plugin, without, count):
        """Milliseconds of `count` pairs. The cleanup after a step slows the next one, so that each is first as often as the other."""
        times = {True: [], False: []}
        time_of(without, False)  # warms up
        for pair in range(count + count % 2):
            for has_plugin in (True, False) if pair % 2 else (False, True):
                times[has_plugin].append(time_of(with_plugin if has_plugin else without, has_plugin))
        return times[True], times[False]

    try:
        with allocated(cluster, *options.split()) as ask:
            yield pairs
    finally:
        cluster.write_plugstack(plugstack)


def measure_wall_time(cluster, size):
    group = Group(f"Wall time of srun, {NODES} nodes, tasks with a GPU each, plugin on and off in turn")
    with stopwatch(cluster, f"-N{NODES} --ntasks-per-node={GPUS} --gres=gpu:{GPUS}") as pairs:
        for launch, tasks in product(LAUNCHES, LAUNCHED_TASKS):
            nodes = min(NODES, tasks)
            step = f"timeout 60 srun -Q --mpi={launch} -N{nodes} -n{tasks} --gres=gpu:{tasks // nodes} true"
            ours, without = pairs(step, step, size.pairs)
            row = group.add(f"srun --mpi={launch}, {tasks} tasks", "ms", ours, without, "no plugin", added_limit=ADDED_MILLISECONDS,
                            ratio_limit=ADDED_RATIO)
            if not row.is_met:
                # How much of it is the loading of the plugin, measured.
                switched_off = zip(*pairs(step.replace("srun ", "srun --bootstrap=off "), step, size.pairs))
                added = median(one - other for one, other in switched_off)
                row.why_not = (f"loaded and switched off (--bootstrap=off) it adds {added:+.1f} ms; "
                               f"what {NODES} nodes do side by side on a cluster takes turns on {os.cpu_count()} CPUs here")
    return group


def variables(cluster, mode, shape="-N2 --ntasks-per-node=2 --gres=gpu:2"):
    """The environment of the first task of a step."""
    step = ["srun", "-Q", *shape.split(), f"--bootstrap={mode}"]
    done = cluster.run([*step, "bash", "-c", "((SLURM_PROCID)) || env -0"])
    assert done.returncode == 0, done.stderr
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)


def measure_environment(cluster, _):
    group = Group("Environment of a task, 2 nodes with 2 tasks and 2 GPUs each")
    without = variables(cluster, "off")
    added = {name: value for name, value in variables(cluster, "on").items() if name not in without}
    group.add("variables added", "", len(added), limit=40)
    group.add("bytes added", "bytes", sum(len(f"{name}={value}") + 1 for name, value in added.items()), limit=4096)
    return group

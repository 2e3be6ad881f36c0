"""What the plugin adds to a step as a user sees it: the wall time of srun, and the environment of the tasks."""

# SPDX-License-Identifier: Apache-2.0

import os
from itertools import product
from statistics import median

from benchmarks.steps import Shell
from benchmarks.table import Group

NODES, GPUS = 4, 8
CLUSTER = ("--nodes", str(NODES), "--gpus", str(GPUS), "--cpus", "32", "--plugin-args", "when=gpu")
TASKS = (2, 8, 32)
LAUNCHES = ("none", "pmix")  # srun --mpi=
ADDED_MILLISECONDS, ADDED_RATIO = 5, 1.01


def switched_off(watch, step, pairs):
    """How much of it is the loading of the plugin, measured."""
    ours, without = watch.pairs(step.replace("srun ", "srun --bootstrap=off "), step, pairs)
    added = median(one - other for one, other in zip(ours, without))
    return (
        f"loaded and switched off (--bootstrap=off) it adds {added:+.1f} ms; what {NODES} nodes do side by side on a "
        f"cluster takes turns on {os.cpu_count()} CPUs here"
    )


class Stopwatch:
    """srun in one allocation, with the plugin and without it in turn. Bash reads the clock before and after."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.with_plugin = (cluster.state / "etc" / "plugstack.conf").read_text()
        self.shell = Shell(cluster, f"-N{NODES}", f"--ntasks-per-node={GPUS}", f"--gres=gpu:{GPUS}")

    def time(self, line, has_plugin):
        """Milliseconds of one command line."""
        self.cluster.write_plugstack(self.with_plugin if has_plugin else "\n")
        answer = self.shell.ask(f"began=$EPOCHREALTIME; {line}; echo $? $began $EPOCHREALTIME")
        assert len(answer) == 3 and answer[0] == "0", f"{line}: {' '.join(answer)}"
        return (float(answer[2]) - float(answer[1])) * 1000

    def pairs(self, with_plugin, without, count):
        """Milliseconds of `count` pairs. What a step leaves to be cleaned up slows the one behind it, so that each comes
        first as often as the other."""
        times = {True: [], False: []}
        self.time(without, False)  # warms up
        for pair in range(count + count % 2):
            for has_plugin in (True, False) if pair % 2 else (False, True):
                times[has_plugin].append(self.time(with_plugin if has_plugin else without, has_plugin))
        return times[True], times[False]

    def close(self):
        self.cluster.write_plugstack(self.with_plugin)
        self.shell.close()


def measure_wall_time(cluster, size):
    group = Group(f"Wall time of srun, {NODES} nodes, tasks with a GPU each, plugin on and off in turn")
    watch = Stopwatch(cluster)
    try:
        for launch, tasks in product(LAUNCHES, TASKS):
            nodes = min(NODES, tasks)
            # Binary that does nothing; -Q, since there is nothing to say.
            step = f"timeout 60 srun -Q --mpi={launch} -N{nodes} -n{tasks} --gres=gpu:{tasks // nodes} true"
            ours, without = watch.pairs(step, step, size.pairs)
            row = group.add(f"srun --mpi={launch}, {tasks} tasks", "ms", ours, without, "no plugin")
            row.added_limit, row.ratio_limit = ADDED_MILLISECONDS, ADDED_RATIO
            if not row.is_met:
                row.why_not = switched_off(watch, step, size.pairs)
    finally:
        watch.close()
    return group


def variables(cluster, mode, *options):
    """The environment of the first task of a step."""
    step = ["srun", "-Q", "-N2", "--ntasks-per-node=2", "--gres=gpu:2", f"--bootstrap={mode}", *options]
    done = cluster.run([*step, "bash", "-c", "((SLURM_PROCID)) || env -0"])
    assert done.returncode == 0, done.stderr
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)


def measure_environment(cluster, _):
    group = Group("Environment of a task, 2 nodes with 2 tasks and 2 GPUs each")
    without = variables(cluster, "off")
    for what, options in (("", ()), (", no frameworks", ("--bootstrap-frameworks=none",))):
        added = {name: value for name, value in variables(cluster, "on", *options).items() if name not in without}
        group.add(f"variables added{what}", "", len(added), limit=40)
        group.add(f"bytes added{what}", "bytes", sum(len(f"{name}={value}") + 1 for name, value in added.items()), limit=4096)
    return group

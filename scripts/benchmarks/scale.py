"""Clusters of many nodes on this machine: srun with the plugin off, on and asked, the memory of slurmstepd, exchanges of many ranks,
many tasks, many worlds, and what slurmctld is asked."""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import time
from statistics import median

from benchmarks.plugin import stopwatch
from benchmarks.steps import StepFailed, built, clocked, run_step, shape
from benchmarks.table import Group
from local_cluster import running

RATIO, ADDED_KIB = 1.03, 2048  # at JUDGED nodes; of slurmstepd at any size
JUDGED = 128
GPUS = 2  # and tasks, of each node
MANY_TASKS, MANY_WORLDS, QUEUED = 2000, 20, 40
SLEEP = ("python3", "-I", "-S", "-c", "import time; time.sleep(600)")


def stepd_memory(cluster, plugstack, nodes, text):
    """Private memory of each node's slurmstepd in a running step, in KiB: the median."""
    cluster.write_plugstack(text)
    step = cluster.start(["srun", "-Q", f"-N{nodes}", f"--ntasks-per-node={GPUS}", f"--gres=gpu:{GPUS}", *SLEEP])
    look = "for f in $(pgrep -f '^slurmstepd: .[0-9]+.0'); do awk '/^Private/ { s += $2 } END { print s }' /proc/$f/smaps_rollup; done"
    try:
        deadline = time.monotonic() + 120
        while True:
            found = [int(word) for word in cluster.run(["bash", "-c", look], user="root").stdout.split()]
            started = cluster.run(["pgrep", "-fc", "^[^ ]*python3 -I -S"]).stdout.strip()
            if len(found) == nodes and started == str(nodes * GPUS):
                return median(found)
            assert time.monotonic() < deadline, f"{len(found)} of {nodes} slurmstepd and {started} tasks are there after 120 s"
            time.sleep(0.5)
    finally:
        step.terminate()
        step.communicate(timeout=60)
        cluster.write_plugstack(plugstack)


def user_init_times(cluster, plugstack, nodes):
    """Microseconds on each node of one step, from two plugins that note the time."""
    etc, times = cluster.state / "etc", cluster.state / "log" / "times"
    lines = []
    for clock in ("before", "after"):
        shutil.copy(built("tests/doubles/clock_spank.so"), etc / f"clock_{clock}.so")  # the same file loaded twice is one plugin
        lines.append(f"optional {etc}/clock_{clock}.so clock={clock} out={times}\n")
    cluster.write_plugstack(f"{lines[0]}{plugstack}{lines[1]}")
    done = cluster.run(["srun", "-Q", f"-N{nodes}", f"--ntasks-per-node={GPUS}", f"--gres=gpu:{GPUS}", "true"], timeout=120)
    cluster.write_plugstack(plugstack)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 20
    while True:
        words = [line.split() for line in times.read_text().splitlines()] if times.exists() else []
        noted = {(clock, node): int(word) for clock, hook, node, *_, word in words if hook == "user_init"}
        if len(noted) == 2 * nodes:
            return [(noted["after", node] - noted["before", node]) / 1000 for clock, node in noted if clock == "after"]
        assert time.monotonic() < deadline, f"{len(noted)} of {2 * nodes} times of user_init are there"
        time.sleep(0.2)


def add_launches(group, cluster, plugstack, nodes, count):
    options = f"-N{nodes} --ntasks-per-node={GPUS} --gres=gpu:{GPUS}"
    with stopwatch(cluster, options) as pairs:
        step = f"timeout 120 srun -Q {options} true"
        for what, option, limit in (("on", "", RATIO if nodes >= JUDGED else None), ("requested", "--bootstrap=on ", None),
                                    ("--bootstrap=off", "--bootstrap=off ", None)):
            times = pairs(step.replace("srun ", f"srun {option}"), step, count)
            group.add(f"srun, {what}, {shape(nodes * GPUS, nodes)}", "ms", *times, "no plugin", ratio_limit=limit)
    group.add(f"user_init, {nodes} nodes at once", "us", user_init_times(cluster, plugstack, nodes))
    memory = [stepd_memory(cluster, plugstack, nodes, text) for text in (plugstack, "\n")]
    group.add(f"memory of slurmstepd, {nodes} nodes", "KiB", *memory, "no plugin", added_limit=ADDED_KIB)


def add_exchanges(group, cluster, nodes, count):
    """Worlds of all nodes that exchange a value, over each of the two ways."""
    ranks = nodes * GPUS
    for way, prefix in (("PMIx", ()), ("PMI-1", ("env", "-u", "PMIX_NAMESPACE"))):
        times, failures = [], []
        for _ in range(count):
            try:
                lines = run_step(cluster, ranks, *prefix, *clocked("exchange_start", "1"), nodes=nodes, timeout=180,
                                 env={"SLURM_BOOTSTRAP_TIMEOUT": "120"})
                times.append((max(line["ended"] for line in lines) - max(line["started"] for line in lines)) / 1e6)
            except StepFailed as error:
                failures.append(str(error))
        if times:
            group.add(f"start to 128 bytes over {way}, {shape(ranks, nodes)}", "ms", times)
        group.add(f"worlds of {count} that failed, {way}, {shape(ranks, nodes)}", "", len(failures), limit=0,
                  why_not=failures[-1] if failures else "")


def add_crowds(group, cluster, nodes):
    """Many tasks in a step, and many steps at once."""
    each = -(-MANY_TASKS // nodes)
    step = ["srun", "-Q", "-O", f"-N{nodes}", f"--ntasks-per-node={each}", "--bootstrap=on", "--bootstrap-gpu=off", "sh", "-c", "echo $RANK"]
    done = cluster.run(["timeout", "280", *step], timeout=300)
    missing = set(map(str, range(each * nodes))) - set(done.stdout.split())
    group.add(f"of {each * nodes} tasks of one step, without a rank", "", len(missing), limit=0,
              why_not=next(iter(done.stderr.splitlines()), ""))
    worlds = [cluster.start(["srun", "-Q", "-N2", f"--ntasks-per-node={GPUS}", f"--gres=gpu:{GPUS}", "python3", "-I", "-S", "-c",
                             "import os; print(os.environ['RANK'])"]) for _ in range(min(MANY_WORLDS, nodes // 2))]
    ended = [(world.communicate(timeout=180)[0], world.returncode) for world in worlds]
    failed = [end for end in ended if end[1] != 0 or sorted(end[0].split()) != [str(rank) for rank in range(2 * GPUS)]]
    group.add(f"of {len(worlds)} worlds at once, that failed", "", len(failed), limit=0, why_not=str(failed[:1]))


def answered(cluster):
    """Messages that slurmctld has answered so far."""
    counts = re.findall(r"^\s*REQUEST_\w+\s.*count:(\d+)", cluster.run(["sdiag"], user="root").stdout, re.MULTILINE)
    return sum(map(int, counts))


def add_queue(group, cluster, plugstack):
    """Jobs of one srun each, one after the other: how many in a second, and messages to slurmctld for each."""
    rates, messages = [], []
    for text in (plugstack, "\n"):
        cluster.write_plugstack(text)
        before, began = answered(cluster), time.monotonic()
        done = cluster.run(["bash", "-c", f"for ((i = 0; i < {QUEUED}; i++)); do srun -Q -N2 --ntasks-per-node={GPUS} --gres=gpu:{GPUS} "
                            "true || exit; done"], timeout=300)
        assert done.returncode == 0, done.stderr
        rates.append(QUEUED / (time.monotonic() - began))
        messages.append((answered(cluster) - before) / QUEUED)
    cluster.write_plugstack(plugstack)
    group.add("srun in a second, one after the other", "/s", *rates, "no plugin")
    group.add("messages to slurmctld for each", "", *messages, "no plugin")


def measure_scale(_, size):
    """A group for each size of cluster, so that each is shown when it is done."""
    for nodes in size.scale_nodes:
        group = Group(f"A cluster of {nodes} nodes on this machine, {GPUS} tasks with a GPU each on a node")
        with running("scale", "--nodes", str(nodes), "--gpus", str(GPUS), "--cpus", str(max(4, -(-MANY_TASKS // nodes))), "--plugin-args",
                     "announce=off") as cluster:
            plugstack = (cluster.state / "etc" / "plugstack.conf").read_text()
            add_launches(group, cluster, plugstack, nodes, size.scale_pairs)
            if nodes == min(size.scale_nodes, key=lambda count: abs(count - JUDGED)):
                add_exchanges(group, cluster, nodes, size.scale_worlds)
                add_crowds(group, cluster, nodes)
                add_queue(group, cluster, plugstack)
        yield group

"""Clusters of many nodes on this machine: srun with the plugin and without, the memory of slurmstepd, and exchanges of many ranks."""

# SPDX-License-Identifier: Apache-2.0

import time
from statistics import median

from benchmarks.plugin import stopwatch
from benchmarks.steps import StepFailed, clocked, run_step, shape
from benchmarks.table import Group
from local_cluster import running

RATIO, ADDED_KIB = 1.03, 2048  # at JUDGED nodes; of slurmstepd at any size
JUDGED = 128
GPUS = 2  # and tasks, of each node
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


def add_launches(group, cluster, plugstack, nodes, count):
    options = f"-N{nodes} --ntasks-per-node={GPUS} --gres=gpu:{GPUS}"
    with stopwatch(cluster, options) as pairs:
        step = f"timeout 120 srun -Q {options} true"
        group.add(f"srun, {shape(nodes * GPUS, nodes)}", "ms", *pairs(step, step, count), "no plugin",
                  ratio_limit=RATIO if nodes >= JUDGED else None)
    memory = [stepd_memory(cluster, plugstack, nodes, text) for text in (plugstack, "\n")]
    group.add(f"memory of slurmstepd, {nodes} nodes", "KiB", *memory, "no plugin", added_limit=ADDED_KIB)


def add_exchanges(group, cluster, nodes, count):
    """Worlds of all nodes that exchange a value, over each of the two ways."""
    ranks = nodes * GPUS
    for way, prefix in (("PMIx", ()), ("PMI-1", ("env", "-u", "PMIX_NAMESPACE"))):
        times, failures = [], []
        for _ in range(count):
            try:
                lines = run_step(cluster, ranks, *prefix, *clocked("exchange_start"), nodes=nodes, timeout=180,
                                 env={"SLURM_BOOTSTRAP_TIMEOUT": "120"})
                times.append((max(line["ended"] for line in lines) - max(line["started"] for line in lines)) / 1e6)
            except StepFailed as error:
                failures.append(str(error))
        if times:
            group.add(f"start to 128 bytes over {way}, {shape(ranks, nodes)}", "ms", times)
        group.add(f"worlds of {count} that failed, {way}, {shape(ranks, nodes)}", "", len(failures), limit=0,
                  why_not=failures[-1] if failures else "")


def measure_scale(_, size):
    group = Group(f"Clusters of many nodes on this machine, {GPUS} tasks with a GPU each on a node")
    for nodes in size.scale_nodes:
        with running("scale", "--nodes", str(nodes), "--gpus", str(GPUS), "--plugin-args", "announce=off") as cluster:
            plugstack = (cluster.state / "etc" / "plugstack.conf").read_text()
            add_launches(group, cluster, plugstack, nodes, size.scale_pairs)
            if nodes == min(size.scale_nodes, key=lambda count: abs(count - JUDGED)):
                add_exchanges(group, cluster, nodes, size.scale_worlds)
    return group

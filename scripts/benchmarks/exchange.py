"""The exchange beside bare PMIx in one step: time of a round, messages to the server, memory.

Times are CLOCK_MONOTONIC: all nodes of a cluster on this machine are network namespaces, so that their clocks are one.
The ranks share the machine's few cores: what counts is the ratio to a peer that takes turns with ours in the same step.
"""

# SPDX-License-Identifier: Apache-2.0

import re
from statistics import median

from benchmarks.programs import inside
from benchmarks.steps import NODES, StepFailed, clocked, run_step, shape
from benchmarks.table import Group

RATIO = 1.25
KINDS = {"id": "one id to all", "gather": "128 bytes of each to all"}
NVSHMEM_RATIO = 0.5  # from 32 ranks on
OTHERS = {  # other ways to bring one id to all over the same server
    "nvshmem-style": "NVSHMEM's way, {ranks} gets of each",
    "direct": "no fence, ask until it is there",
    "node": "one get on each node, then shared memory",
}


def spans(lines, kind, who):
    """Milliseconds of each round, from the begin of its first rank to the end of its last."""
    times = [line["times"] for line in lines if (line["kind"], line["who"]) == (kind, who)]
    begins = [min(column) for column in zip(*(row[0::2] for row in times))]
    ends = [max(column) for column in zip(*(row[1::2] for row in times))]
    return [(end - begin) / 1e6 for begin, end in zip(begins, ends)]


def measure_rounds(cluster, size):
    group = Group("A round of the exchange, PMIx initialised before, all ranks begin together")
    for ranks, nodes in size.shapes:
        lines = run_step(cluster, ranks, inside("tests/bench/exchange_bench"), "rounds", str(size.rounds), nodes=nodes, timeout=120)
        where = shape(ranks, nodes)
        for kind, what in KINDS.items():
            ours, bare = spans(lines, kind, "ours"), spans(lines, kind, "bare")
            assert len(ours) == len(bare) == size.rounds
            row = group.add(f"{what}, {where}", "ms", ours, bare, "bare PMIx", ratio_limit=RATIO)
            row.why_not = "ours waits on a thread of its own, for the deadline: two changes of threads on shared cores"
            if kind == "id":
                row.why_not = (
                    "a value of each rank is in our fence, by which a rank that is missing can be named; bare PMIx with as "
                    f"many took {median(spans(lines, 'gather', 'bare')):.1f} ms, ours {median(ours):.1f} ms"
                )
            group.add(f"{what}, {where}, over PMI-1", "ms", spans(lines, kind, "pmi1"), ours, "ours over PMIx")
        for who, peer in OTHERS.items():
            name = peer.format(ranks=ranks)
            row = group.add(f"one id to all, {where}", "ms", spans(lines, "id", "ours"), spans(lines, "id", who), name)
            if who == "nvshmem-style" and ranks >= 32:
                row.ratio_limit = NVSHMEM_RATIO
                row.why_not = "the fence takes most of a round, and both have one; Gets read memory that the node shares"
    return group


def measure_fences(cluster, size):
    """Slurm joins its nodes in a ring when a fence collects data, and in a tree when SLURM_PMIX_FENCE says so. Bare PMIx,
    so that what fails is Slurm's; with four nodes a ring is no longer than a tree is deep."""
    group = Group("Ring and tree: one id to all over bare PMIx, with SLURM_PMIX_FENCE in the environment of srun")
    found, failed, reason = {"tree": [], "ring": []}, {"tree": 0, "ring": 0}, ""
    turns = max(3, size.starts // 3)
    for _ in range(turns):
        for fence, times in found.items():
            try:
                lines = run_step(cluster, 16, inside("tests/bench/exchange_bench"), "rounds", "6", env={"SLURM_PMIX_FENCE": fence})
                times += spans(lines, "id", "bare")
            except StepFailed as error:
                failed[fence] += 1
                reason = str(error)
    for fence, times in found.items():
        group.add(f"{fence}: steps of {turns} that failed, {shape(16, NODES)}", "", failed[fence])
        if times:
            group.add(f"{fence}: one id to all, {shape(16, NODES)}", "ms", times)
    if reason:
        group.notes.append(f"such as: {reason}")
    return group


def count_messages(cluster, who, rounds):
    """Messages that the last of 16 ranks sent to its PMIx server in a process of so many rounds."""
    trace = f"trace.{who}.{rounds}"
    watch = f"strace -f -yy -e trace=write,writev,sendto,sendmsg -o /home/alice/{trace}"
    run = f"{inside('tests/bench/exchange_bench')} wire {who} {rounds}"
    script = f"if ((SLURM_PROCID == 15)); then exec {watch} {run}; else exec {run}; fi"
    step = ["srun", "-Q", "--mpi=pmix", f"-N{NODES}", "--ntasks-per-node", "4", "bash", "-c", script]
    done = cluster.run(["timeout", "60", *step], timeout=90)
    assert done.returncode == 0, done.stderr
    text = (cluster.state / "home" / "alice" / trace).read_text()
    return len(re.findall(r"(?:write|writev|sendto|sendmsg)\(\d+<TCP:", text))


def measure_messages(cluster, _):
    """From the difference of two lengths, so that what a process sends at its start and end is in neither."""
    group = Group("Messages of a rank to its PMIx server")
    few, many = 5, 25
    ours, bare = (
        (count_messages(cluster, who, many) - count_messages(cluster, who, few)) / (many - few) for who in ("ours", "bare")
    )
    group.add("in a round, 16 ranks on 4 nodes", "", ours, bare, "bare PMIx: put, commit, fence, get", ratio_limit=1)
    return group


def measure_memory(cluster, _):
    """Pages that only one process has and wrote to: of an open handle, and during rounds once libpmix has its own."""
    group = Group("Private memory of a rank, the most of 16")
    lines = run_step(cluster, 16, *clocked("exchange_start", "bytes"))
    group.add("of an open handle", "KiB", max(line["idle"] - line["before"] for line in lines), limit=64)
    lines = run_step(cluster, 16, inside("tests/bench/exchange_bench"), "memory", "20")
    group.add("more during rounds", "KiB", max(line["during"] - line["before"] for line in lines), limit=1024)
    return group

"""The exchange beside bare PMIx in one step: time of a round, messages to the server, memory. And from the start of the processes to the id
on the last rank: ours, MPI, bare PMIx and PyTorch's stores in turn.

Times are CLOCK_MONOTONIC: all nodes of a cluster on this machine are network namespaces, so that their clocks are one.
The ranks share the machine's few cores: what counts is the ratio to a peer that takes turns with ours in the same step.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import re
from collections import defaultdict
from statistics import median

from benchmarks.steps import NODES, StepFailed, clocked, inside, run_step, shape
from benchmarks.table import Group
from local_cluster import REPOSITORY

RATIO = 1.25
KINDS = {"id": "one id to all", "gather": "128 bytes of each to all"}
OURS = ("bytes", "pmi1")
MPI_RATIO, STORE_RATIO = 0.2, 1
STORE_RANKS = 16  # each imports torch, which takes seconds of a core
FIRST_PORT = 29600
CALLS = (1, 10, 100)
COMMUNICATORS = 8


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
                row.why_not = ("a value of each rank is in our fence, by which a rank that is missing can be named; bare PMIx with as "
                               f"many took {median(spans(lines, 'gather', 'bare')):.1f} ms, ours {median(ours):.1f} ms")
            group.add(f"{what}, {where}, over PMI-1", "ms", spans(lines, kind, "pmi1"), ours, "ours over PMIx")
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
    """Subtracts a short process from a long one, which leaves out the messages at the start and end."""
    group = Group("Messages of a rank to its PMIx server")
    few, many = 5, 25
    ours, bare = ((count_messages(cluster, who, many) - count_messages(cluster, who, few)) / (many - few) for who in ("ours", "bare"))
    group.add("in a round, 16 ranks on 4 nodes", "", ours, bare, "bare PMIx: put, commit, fence, get", ratio_limit=1)
    return group


def measure_memory(cluster, _):
    """Pages that only one process has and wrote to: of an open handle, and during rounds once libpmix has its own."""
    group = Group("Private memory of a rank, the most of 16")
    lines = run_step(cluster, 16, *clocked("exchange_start"))
    group.add("of an open handle", "KiB", max(line["idle"] - line["before"] for line in lines), limit=64)
    lines = run_step(cluster, 16, inside("tests/bench/exchange_bench"), "memory", "20")
    group.add("more during rounds", "KiB", max(line["during"] - line["before"] for line in lines), limit=1024)
    return group


def latest(lines, name):
    return max(line[name] for line in lines) / 1e6


def start_time(lines):
    """Milliseconds from the start of the last process to the id on the last rank: without srun, which starts all that are compared."""
    return latest(lines, "ended") - latest(lines, "started")


class Starts:
    """Times of one number of ranks, by program. A step of ours that fails ends the measuring, one of a peer is counted."""

    def __init__(self, cluster, ranks, nodes):
        self.cluster, self.ranks, self.nodes = cluster, ranks, nodes
        self.found, self.failures = defaultdict(list), defaultdict(list)  # failures: by peer, the error of each step

    def time(self, name, *command, timeout=60, of=start_time):
        try:
            self.found[name].append(of(run_step(self.cluster, self.ranks, *command, nodes=self.nodes, timeout=timeout)))
        except StepFailed as error:
            if name in OURS:
                raise
            self.failures[name].append(str(error))

    def shared_folder(self, name):
        """An empty folder that all nodes see."""
        folder = self.cluster.state / "home" / "alice" / f"{name}.{self.ranks}.{self.nodes}"
        folder.mkdir()
        owner = folder.parent.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        return f"/home/alice/{folder.name}"

    def turn(self, calls):
        self.time("bytes", *clocked("exchange_start", str(calls)))
        self.time("pmi1", "env", "-u", "PMIX_NAMESPACE", *clocked("exchange_start", str(calls)))
        self.time("bare", *clocked("exchange_bench", "start", str(calls)))
        self.time("mpi", *clocked("exchange_start_mpi", str(calls)))

    def store_turn(self, number, script):
        command = ["/usr/bin/python3", script, "node001", str(FIRST_PORT + number), self.shared_folder(f"store.{number}")]
        self.time("store", inside("tests/bench/exchange_clock"), *command, timeout=300, of=store_times)


def store_times(lines):
    """The same for TCPStore without the import of torch, and the import; without the wait for other ranks in both."""
    interpreter = median(line["interpreted"] - line["started"] for line in lines) / 1e6
    importing = median(line["imported"] - line["interpreted"] for line in lines) / 1e6
    return interpreter + latest(lines, "ended") - latest(lines, "resumed"), importing


def add_rows(group, starts):
    found, where = starts.found, shape(starts.ranks, starts.nodes)
    ours, bare, name = found["bytes"], found["bare"], f"start to 128 bytes, {where}"
    if found["mpi"]:
        row = group.add(name, "ms", ours, found["mpi"], "MPI_Init + MPI_Bcast", ratio_limit=MPI_RATIO)
        if bare:
            row.why_not = (f"PMIx alone, initialised by a program in C that does nothing else, took {median(bare):.0f} ms, "
                           f"{median(bare) / median(row.peer):.2f}x of MPI")
    if bare:
        group.add(name, "ms", ours, bare, "bare PMIx: init, put, fence, get")
    group.add(f"{name}, over PMI-1", "ms", found["pmi1"], ours, "over PMIx")
    if found["store"]:
        times, importing = zip(*found["store"])
        group.add(name, "ms", ours, times, "TCPStore, import torch left out", ratio_limit=STORE_RATIO)
        group.notes.append(f"{where}: the import of torch took {median(importing):.0f} ms more")
    for peer, failed in starts.failures.items():
        turns = len(failed) + len(found[peer])
        group.notes.append(f"{peer}, {where}: {len(failed)} of {turns} steps failed, such as: {failed[-1]}")


def measure_calls(cluster, size):
    """What a caller of bootstrap_exchange waits for, from the start of its process to the end of so many calls of one handle."""
    group = Group("Calls of one handle, from the start of the processes to the last on the last rank")
    for ranks, nodes in size.start_shapes:
        for calls in CALLS:
            starts = Starts(cluster, ranks, nodes)
            for _ in range(max(3, size.starts // 6)):
                starts.turn(calls)
            found, name = starts.found, f"{calls} of 128 bytes, {shape(ranks, nodes)}"
            row = group.add(name, "ms", found["bytes"], found["bare"], "bare PMIx: init, and as often put, fence, get", ratio_limit=RATIO)
            row.why_not = ("the first call starts a helper process for each rank; with Slurm before 23.02 it also asks whether the other "
                           "nodes have started their tasks: bare PMIx loses fences there, and waits for a minute")
            group.add(f"{name}, over PMI-1", "ms", found["pmi1"], found["bytes"], "over PMIx")
            if found["mpi"]:
                group.add(name, "ms", found["bytes"], found["mpi"], "MPI_Init, and as often MPI_Bcast")
        starts = Starts(cluster, ranks, nodes)
        for _ in range(max(3, size.starts // 6)):
            folder = inside("tests/doubles/nccl-2.28.9/libnccl.so.2").rpartition("/")[0]
            starts.time("bytes", "env", f"LD_LIBRARY_PATH={folder}", *clocked("exchange_start", str(COMMUNICATORS), "communicators"))
            starts.time("bare", *clocked("exchange_bench", "start", str(COMMUNICATORS)))
        group.add(f"{COMMUNICATORS} communicators of a stand-in for NCCL, {shape(ranks, nodes)}", "ms", starts.found["bytes"],
                  starts.found["bare"], "bare PMIx: init, and as often put, fence, get")
    return group


def measure_start(cluster, size):
    group = Group("From process start to an id in the hand of the last rank")
    source = REPOSITORY / "tests/bench/exchange_start_store.py"
    script = cluster.write_home(source.name, source.read_text())
    for ranks, nodes in size.start_shapes:
        starts = Starts(cluster, ranks, nodes)
        for number in range(size.starts if ranks <= 32 else max(1, size.starts // 3)):
            starts.turn(1)
            if ranks <= STORE_RANKS and number < size.stores:
                starts.store_turn(number, script)
        add_rows(group, starts)
    return group

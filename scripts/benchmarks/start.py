"""From the start of the processes to an id in the hand of the last rank: ours, MPI, bare PMIx and PyTorch's stores in turn."""

# SPDX-License-Identifier: Apache-2.0

import os
from collections import defaultdict
from statistics import median

from benchmarks.programs import inside
from benchmarks.steps import StepFailed, clocked, latest, run_step, shape, start_time
from benchmarks.table import Group
from local_cluster import REPOSITORY

OURS = ("bytes", "ids", "pmi1")
MPI_RATIO, STORE_RATIO = 0.2, 1
STORE_RANKS = 16  # each imports torch, which takes seconds of a core
FIRST_PORT = 29600


class Starts:
    """Times of one number of ranks, by program. A step of ours that fails ends the measuring, one of a peer is counted."""

    def __init__(self, cluster, ranks, nodes):
        self.cluster, self.ranks, self.nodes = cluster, ranks, nodes
        self.found = defaultdict(list)
        self.failures = defaultdict(list)  # by peer, what its steps that failed wrote

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

    def turn(self, number):
        self.time("bytes", *clocked("exchange_start", "bytes"))
        self.time("pmi1", "env", "-u", "PMIX_NAMESPACE", *clocked("exchange_start", "bytes"))
        self.time("ids", *clocked("exchange_start", "ids"))
        self.time("bare", *clocked("exchange_bench", "start", "1"))
        self.time("mpi", *clocked("exchange_start_mpi"))

    def store_turn(self, number, script):
        command = ["/usr/bin/python3", script, "node001", str(FIRST_PORT + number), self.shared_folder(f"store.{number}")]
        self.time("store", inside("tests/bench/exchange_clock"), *command, timeout=300, of=store_times)


def store_times(lines):
    """The same for TCPStore without the import of torch, and the import; without the wait for other ranks in both."""
    interpreter = median(line["interpreted"] - line["started"] for line in lines) / 1e6
    importing = median(line["imported"] - line["interpreted"] for line in lines) / 1e6
    return interpreter + latest(lines, "ended") - latest(lines, "resumed"), importing


def put_store_script(cluster):
    source = REPOSITORY / "tests/bench/exchange_start_store.py"
    return cluster.write_home(source.name, source.read_text())


def measure_late_store(cluster, _):
    """What clients of TCPStore wait that come before its server: nothing is gained by those that are early."""
    group = Group("PyTorch's TCPStore when rank 0 is 0.3 s late, 4 ranks on 2 nodes")
    starts = Starts(cluster, 4, 2)
    command = [inside("tests/bench/exchange_clock"), "/usr/bin/python3", put_store_script(cluster), "node001"]
    for place, (mode, words) in enumerate({"on time": (), "late": ("late",)}.items()):
        folder = starts.shared_folder(f"late.{place}")
        lines = run_step(cluster, 4, *command, str(FIRST_PORT + 100 + place), folder, *words, nodes=2, timeout=120)
        waits = [(line["ended"] - line["served"]) / 1e6 for line in lines if line["rank"] != 0]
        group.add(f"server there to id in hand, rank 0 {mode}", "ms", max(waits))
    group.notes.append("a client that is refused asks again after a time of its own, and not when the server comes")
    return group


def add_rows(group, starts):
    found = starts.found
    where = shape(starts.ranks, starts.nodes)
    for kind, what in (("bytes", "128 bytes"), ("ids", "an NCCL id")):
        mine, name, bare = found[kind], f"start to {what}, {where}", found["bare"]
        if found["mpi"]:
            row = group.add(name, "ms", mine, found["mpi"], "MPI_Init + MPI_Bcast", ratio_limit=MPI_RATIO)
            if bare:
                row.why_not = (
                    f"PMIx alone, initialised by a program in C that does nothing else, took {median(bare):.0f} ms, "
                    f"{median(bare) / row.peer.median:.2f}x of MPI"
                )
        if bare:
            group.add(name, "ms", mine, bare, "bare PMIx: init, put, fence, get")
        if kind == "bytes":
            group.add(f"{name}, over PMI-1", "ms", found["pmi1"], mine, "over PMIx")
        if found["store"]:
            times = [without for without, _ in found["store"]]
            importing = median(importing for _, importing in found["store"])
            group.add(name, "ms", mine, times, "TCPStore, import torch left out", ratio_limit=STORE_RATIO)
            group.notes.append(f"{where}: the import of torch took {importing:.0f} ms more")
    for peer, failed in starts.failures.items():
        turns = len(failed) + len(found[peer])
        group.notes.append(f"{peer}, {where}: {len(failed)} of {turns} steps failed, such as: {failed[-1]}")


def measure(cluster, size):
    group = Group("From process start to an id in the hand of the last rank")
    script = put_store_script(cluster)
    for ranks, nodes in size.start_shapes:
        starts = Starts(cluster, ranks, nodes)
        for number in range(size.starts if ranks <= 32 else max(1, size.starts // 3)):
            starts.turn(number)
            if ranks <= STORE_RANKS and number < size.stores:
                starts.store_turn(number, script)
        add_rows(group, starts)
    return group

"""From the start of the processes to an id in the hand of the last rank: ours, MPI, bare PMIx and PyTorch's stores in turn."""

# SPDX-License-Identifier: Apache-2.0

import os
from collections import defaultdict
from statistics import median

from benchmarks.programs import inside
from benchmarks.steps import StepFailed, Steps, clocked, latest, shape, start_time
from benchmarks.table import Group
from local_cluster import REPOSITORY

MPI_RATIO, STORE_RATIO = 0.2, 1
STORE_RANKS = 16  # each imports torch, which takes seconds of a core
FIRST_PORT = 29600


class Starts:
    """Times of one number of ranks, by program."""

    def __init__(self, steps, ranks, nodes):
        self.steps, self.ranks, self.nodes = steps, ranks, nodes
        self.found = defaultdict(list)
        self.missing = {}  # by program, why it was not measured

    def time(self, name, *command, timeout=60, of=start_time):
        if name in self.missing:
            return
        try:
            self.found[name].append(of(self.steps.run(self.ranks, *command, nodes=self.nodes, timeout=timeout, name=name)))
        except StepFailed as error:
            self.missing[name] = str(error)

    def shared_folder(self, name):
        """An empty folder that all nodes see."""
        folder = self.steps.cluster.state / "home" / "alice" / f"{name}.{self.ranks}.{self.nodes}"
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
        self.time("file", *clocked("exchange_start_file", f"{self.shared_folder(f'file.{number}')}/id"))

    def store_turn(self, number, script):
        command = ["/usr/bin/python3", script, "node001", str(FIRST_PORT + number), self.shared_folder(f"store.{number}")]
        self.time("store", inside("tests/bench/exchange_clock"), *command, timeout=300, of=store_times)


def store_times(lines):
    """The same for TCPStore without the import of torch, and the import; without the wait for other ranks in both."""
    interpreter = median(line["interpreted"] - line["started"] for line in lines) / 1e6
    importing = median(line["imported"] - line["interpreted"] for line in lines) / 1e6
    return interpreter + latest(lines, "ended") - latest(lines, "resumed"), importing


def measure_late_store(cluster):
    """What clients of TCPStore wait that come before its server: nothing is gained by those that are early."""
    group = Group("PyTorch's TCPStore when rank 0 is 0.3 s late, 4 ranks on 2 nodes")
    steps = Steps(cluster)
    source = REPOSITORY / "tests/bench/exchange_start_store.py"
    script = cluster.write_home(source.name, source.read_text())
    starts = Starts(steps, 4, 2)
    command = [inside("tests/bench/exchange_clock"), "/usr/bin/python3", script, "node001"]
    for place, (mode, words) in enumerate({"on time": (), "late": ("late",)}.items()):
        folder = starts.shared_folder(f"late.{place}")
        lines = steps.run(4, *command, str(FIRST_PORT + 100 + place), folder, *words, nodes=2, timeout=120, name="TCPStore")
        waits = [(line["ended"] - line["served"]) / 1e6 for line in lines if line["rank"] != 0]
        group.add(f"server there to id in hand, rank 0 {mode}", "ms", max(waits))
    group.notes.append("a client that is refused asks again after a time of its own, and not when the server comes")
    return group


def add_rows(group, starts):
    found = starts.found
    where = shape(starts.ranks, starts.nodes)
    for kind, what in (("bytes", "128 bytes"), ("ids", "an NCCL id")):
        mine = found[kind]
        if not mine:
            group.notes.append(f"start to {what}, {where}: not measured: {starts.missing[kind]}")
            continue
        name = f"start to {what}, {where}"
        if found["mpi"]:
            row = group.add(name, "ms", mine, found["mpi"], "MPI_Init + MPI_Bcast", ratio_limit=MPI_RATIO)
            bare = found["bare"]
            if bare:
                row.why_not = (
                    f"PMIx alone, initialised by a program in C that does nothing else, took {median(bare):.0f} ms, "
                    f"{median(bare) / row.peer.median:.2f}x of MPI"
                )
        if found["bare"]:
            group.add(name, "ms", mine, found["bare"], "bare PMIx: init, put, fence, get")
        if kind == "bytes" and found["pmi1"]:
            group.add(f"{name}, over PMI-1", "ms", found["pmi1"], mine, "over PMIx")
        if found["file"]:
            row = group.add(name, "ms", mine, found["file"], "file store: rename, polled every 10 ms", ratio_limit=STORE_RATIO)
            row.why_not = (
                "a folder of one machine's memory, as here, is the fastest file store that can be; bare PMIx by itself took "
                f"{median(found['bare']):.0f} ms" if found["bare"] else ""
            )
        if found["store"]:
            times = [without for without, _ in found["store"]]
            importing = median(importing for _, importing in found["store"])
            group.add(name, "ms", mine, times, "TCPStore, import torch left out", ratio_limit=STORE_RATIO)
            group.notes.append(f"{where}: the import of torch took {importing:.0f} ms more")
    for kind in ("bare", "mpi", "file", "store"):
        if kind in starts.missing:
            group.notes.append(f"{kind}, {where}: {starts.missing[kind]}")


def measure(cluster, pairs, store_pairs, shapes, tell=lambda done, of: None):
    group = Group("From process start to an id in the hand of the last rank")
    steps = Steps(cluster)
    source = REPOSITORY / "tests/bench/exchange_start_store.py"
    script = cluster.write_home(source.name, source.read_text())
    for place, (ranks, nodes) in enumerate(shapes):
        starts = Starts(steps, ranks, nodes)
        count = pairs if ranks <= 32 else max(1, pairs // 3)
        for number in range(count):
            starts.turn(number)
            if ranks <= STORE_RANKS and number < store_pairs:
                starts.store_turn(number, script)
            tell(place + (number + 1) / count, len(shapes))
        add_rows(group, starts)
    group.notes += steps.notes()
    return group

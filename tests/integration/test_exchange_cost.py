"""What the exchange costs beside bare PMIx, NVSHMEM's way over it, MPI_Init with MPI_Bcast, PyTorch's TCPStore and a file.

Nothing fails for being slow, since the machine may be busy: the table says which goals were met. A test fails when
something did not run, or when what was counted cannot be. Times are CLOCK_MONOTONIC: all nodes of such a cluster are
network namespaces of one machine, so that their clocks are one. The ranks share the machine's few cores, and so every
figure is a ratio to a peer that ran in turn with ours, in the same step or in the step after.
"""

import json
import os
import re
import shutil
from collections import defaultdict
from statistics import median, quantiles

import pytest

from harness import REPOSITORY

BENCH = "build/release/tests/bench"
INSIDE = "/opt/slurm-bootstrap"
NODES = 4
SIZES = (16, 32)
PROGRAMS = ("exchange_bench", "exchange_clock", "exchange_start", "exchange_start_file", "exchange_start_mpi")


class Table:
    """Rows of: quantity, ours, peer, ratio, goal, and whether it was met."""

    def __init__(self):
        self.rows = []

    def add(self, what, ours, peer, peer_name, unit, goal, ratio=None):
        ratio = ours / peer if ratio is None else ratio
        cells = [what, f"{ours:.2f} {unit}", f"{peer:.2f} {unit} ({peer_name})", f"{ratio:.2f}"]
        self.rows.append([*cells, f"<= {goal}", "met" if ratio <= goal else "not met"])

    def note(self, what, ours, peer, peer_name, unit):
        """A ratio without a goal."""
        self.rows.append([what, f"{ours:.2f} {unit}", f"{peer:.2f} {unit} ({peer_name})", f"{ours / peer:.2f}", "", ""])

    def add_limit(self, what, ours, limit, unit):
        self.rows.append([what, f"{ours} {unit}", "", "", f"<= {limit} {unit}", "met" if ours <= limit else "not met"])

    def show(self, capsys):
        rows = [["", "ours", "peer", "ratio", "goal", ""], *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
        with capsys.disabled():
            print(f"\nexchange, {NODES} nodes, medians ({load}):")
            for row in rows:
                print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


@pytest.fixture(scope="module")
def bench(cluster_factory):
    missing = [name for name in PROGRAMS if not (REPOSITORY / BENCH / name).exists()]
    if missing:
        pytest.fail(f"{BENCH}: {missing} not built; run cmake --preset release && cmake --build --preset release")
    return cluster_factory("bench").up("--nodes", str(NODES), "--cpus", "16", "--no-plugin")


def program(name):
    return f"{INSIDE}/{BENCH}/{name}"


def run_ranks(cluster, ranks, *command, timeout=120):
    """What each rank printed, as a list of all lines; every rank printed some."""
    step = ["srun", "--mpi=pmix", f"-N{NODES}", "--ntasks-per-node", str(ranks // NODES), "--overcommit"]
    line = ["timeout", str(timeout), *step, "--kill-on-bad-exit=1", *command]
    done = cluster.run(line, env={"BOOTSTRAP_TIMEOUT": "20"}, timeout=timeout + 30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {line["rank"] for line in lines} == set(range(ranks)), done.stderr
    return lines


def run_peer(cluster, ranks, *command):
    """What each rank of a peer printed, and in how many tries it failed before: that is no fault of what we measure.
    A step of 32 ranks was seen to crash in MPI_Init of Open MPI 4.1.4."""
    for failures in range(3):
        try:
            return run_ranks(cluster, ranks, *command, timeout=60), failures
        except AssertionError as error:
            failed = error
    raise failed


def spans(lines, kind, who):
    """Milliseconds of each round, from the begin of its first rank to the end of its last."""
    times = [line["times"] for line in lines if (line["kind"], line["who"]) == (kind, who)]
    begins = [min(column) for column in zip(*(row[0::2] for row in times))]
    ends = [max(column) for column in zip(*(row[1::2] for row in times))]
    return [(end - begin) / 1e6 for begin, end in zip(begins, ends)]


def spread(values):
    tenths = quantiles(values, n=10)
    return f"{tenths[0]:.1f}-{tenths[-1]:.1f}"


@pytest.mark.parametrize("ranks", SIZES)
def test_beside_bare_pmix(bench, ranks, request, capsys):
    """One id to all, and one value of each rank to all; PMIx is initialised already, and the ranks begin together."""
    rounds = 100 if request.config.getoption("--full") else 30
    lines = run_ranks(bench, ranks, program("exchange_bench"), "rounds", str(rounds))
    table = Table()
    for kind, what in (("id", "one id to all"), ("gather", "128 bytes of each to all")):
        ours, bare = spans(lines, kind, "ours"), spans(lines, kind, "bare")
        assert len(ours) == len(bare) == rounds
        ratio = median(one / other for one, other in zip(ours, bare))
        name = f"bare PMIx; p10-p90: ours {spread(ours)}, bare {spread(bare)}"
        table.add(f"{what}, {ranks} ranks", median(ours), median(bare), name, "ms", 1.25, ratio)
    mine = median(spans(lines, "id", "ours"))
    for who, name in (("nvshmem-style", f"NVSHMEM's way: {ranks} gets of each"), ("direct", "no fence, ask until it is there"),
                      ("node", "one get on each node, then shared memory")):
        theirs = median(spans(lines, "id", who))
        show = table.add if who == "nvshmem-style" and ranks == max(SIZES) else table.note
        show(f"one id to all, {ranks} ranks", mine, theirs, name, "ms", *([0.5] if show == table.add else []))
    table.show(capsys)


def count_messages(cluster, who, rounds):
    """Messages that the last rank sent to the PMIx server in a process of so many rounds."""
    trace = f"trace.{who}.{rounds}"
    watch = f"strace -f -yy -e trace=write,writev,sendto,sendmsg -o /home/alice/{trace}"
    run = f"{program('exchange_bench')} wire {who} {rounds}"
    script = f"if ((SLURM_PROCID == 15)); then exec {watch} {run}; else exec {run}; fi"
    step = ["srun", "--mpi=pmix", f"-N{NODES}", "--ntasks-per-node", "4", "bash", "-c", script]
    done = cluster.run(["timeout", "60", *step], timeout=90)
    assert done.returncode == 0, done.stderr
    text = (cluster.state / "home" / "alice" / trace).read_text()
    return len(re.findall(r"(?:write|writev|sendto|sendmsg)\(\d+<TCP:", text))


def test_sends_no_more_messages_than_bare_pmix(bench, capsys):
    """Counts, so it can fail: messages of a rank to its server in a round, from the difference of two lengths."""
    if not shutil.which("strace"):
        pytest.fail("strace is not there; run scripts/setup")
    few, many = 5, 25
    ours, bare = (
        (count_messages(bench, who, many) - count_messages(bench, who, few)) / (many - few) for who in ("ours", "bare")
    )
    table = Table()
    table.add("messages of a rank to its server in a round", ours, bare, "bare PMIx", "", 1)
    table.show(capsys)
    assert bare >= 1  # the fence, or the counting sees nothing
    assert ours <= bare


def latest(lines, name):
    return max(line[name] for line in lines) / 1e6


def start_time(lines):
    """Milliseconds from the start of the last process to the id in the hand of the last rank. When srun starts the
    last one is no matter of any of these."""
    return latest(lines, "ended") - latest(lines, "started")


def store_times(lines):
    """The same for TCPStore without the import of torch, and with it; without the wait for other ranks in both."""
    interpreter = median(line["interpreted"] - line["started"] for line in lines) / 1e6
    importing = median(line["imported"] - line["interpreted"] for line in lines) / 1e6
    store = interpreter + latest(lines, "ended") - latest(lines, "resumed")
    return store, store + importing


def clock(name, *arguments):
    return [program("exchange_clock"), program(name), *arguments]


@pytest.mark.parametrize("ranks", SIZES)
def test_from_start_to_id(bench, ranks, request, capsys):
    """Process start to id in hand: ours, MPI_Init + MPI_Bcast and TCPStore in turn."""
    full = request.config.getoption("--full")
    turns, store_turns = (15, 5) if full else (3, 1 if ranks == min(SIZES) else 0)
    source = REPOSITORY / "tests/bench/exchange_start_store.py"
    script = bench.write_home(source.name, source.read_text())
    found = defaultdict(list)
    has_nccl = True
    peer_failures = 0
    for turn in range(turns):
        found["bytes"].append(start_time(run_ranks(bench, ranks, *clock("exchange_start", "bytes"))))
        if has_nccl:
            try:
                found["ids"].append(start_time(run_ranks(bench, ranks, *clock("exchange_start", "ids"))))
            except AssertionError as error:
                assert "libnccl" in str(error), error
                has_nccl = False
        found["bare"].append(start_time(run_ranks(bench, ranks, *clock("exchange_bench", "start", "1"))))
        lines, failures = run_peer(bench, ranks, *clock("exchange_start_mpi"))
        found["mpi"].append(start_time(lines))
        file = f"/home/alice/id.{ranks}.{turn}"
        found["file"].append(start_time(run_ranks(bench, ranks, *clock("exchange_start_file", file))))
        peer_failures += failures
        if turn < store_turns:
            folder = bench.state / "home" / "alice" / f"store.{ranks}.{turn}"
            folder.mkdir()
            owner = folder.parent.stat()
            os.chown(folder, owner.st_uid, owner.st_gid)
            command = ["/usr/bin/python3", script, "node001", str(29600 + turn), f"/home/alice/{folder.name}"]
            lines = run_ranks(bench, ranks, program("exchange_clock"), *command, timeout=300)
            without_import, with_import = store_times(lines)
            found["store"].append(without_import)
            found["store and import"].append(with_import)
    table = Table()
    ours = {"bytes": f"start to 128 bytes, {ranks} ranks", "ids": f"start to an NCCL id, {ranks} ranks"}
    for kind, what in ours.items():
        if kind not in found:
            table.rows.append([what, "no libnccl", "", "", "", "not measured"])
            continue
        mine = median(found[kind])
        table.add(what, mine, median(found["mpi"]), "MPI_Init + MPI_Bcast", "ms", 0.2)
        table.note(what, mine, median(found["bare"]), "bare PMIx: init, put, fence, get", "ms")
        table.add(what, mine, median(found["file"]), "a file on this machine's disk, looked for every 10 ms", "ms", 1)
        if store_turns:
            table.add(what, mine, median(found["store"]), "TCPStore without import torch", "ms", 1)
            table.note(what, mine, median(found["store and import"]), "TCPStore with import torch", "ms")
    if peer_failures:
        table.rows.append(["steps of Open MPI that failed", "", str(peer_failures), "", "", ""])
    table.show(capsys)


def test_memory(bench, capsys):
    """Pages that only one process has and wrote to: of an open handle, and during rounds once libpmix has its own."""
    idle = [line["idle"] - line["before"] for line in run_ranks(bench, 16, *clock("exchange_start", "bytes"))]
    lines = run_ranks(bench, 16, program("exchange_bench"), "memory", "20")
    during = [line["during"] - line["before"] for line in lines]
    table = Table()
    table.add_limit("memory of an open handle, most of 16 ranks", max(idle), 64, "KiB")
    table.add_limit("more during rounds, most of 16 ranks", max(during), 1024, "KiB")
    table.show(capsys)

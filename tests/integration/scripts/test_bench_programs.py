"""The programs in tests/bench run with few values and verify their results, so that none of them rots between two reports."""

import json
import os
import re
import subprocess
from collections import defaultdict

import pytest

from built_files import built, inside
from communicator_steps import REAL_NCCL
from harness import REPOSITORY

BENCH = "tests/bench"
NODES, PER_NODE, ROUNDS = 2, 3, 4
RANKS = NODES * PER_NODE
NOT_MEASURED = 77


@pytest.fixture(scope="module")
def bench_nodes(cluster_factory):
    return cluster_factory("programs").up("--nodes", str(NODES), "--cpus", "8", "--no-plugin")


def run_ranks(cluster, *command):
    """The lines that the ranks of a step printed."""
    srun = ["srun", "--mpi=pmix", f"-N{NODES}", "--ntasks-per-node", str(PER_NODE), "--kill-on-bad-exit=1"]
    done = cluster.run(["timeout", "100", *srun, *command], timeout=120)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_all_ways_of_an_id(bench_nodes):
    lines = run_ranks(bench_nodes, inside(f"{BENCH}/exchange_bench"), "rounds", str(ROUNDS))
    found = defaultdict(list)
    for line in lines:
        found[line["kind"], line["who"]].append(line)
    assert set(found) == {(kind, who) for kind in ("id", "gather") for who in ("ours", "pmi1", "bare")}
    for way, ranks in found.items():
        assert {line["rank"] for line in ranks} == set(range(RANKS)), way
        for line in ranks:
            times = line["times"]
            assert len(times) == 2 * ROUNDS and times == sorted(times), way  # begin and end, one after the other
    # The ways differ in how often they ask, which can be counted.
    gets = {way: sum(line["gets"] or 0 for line in ranks) for way, ranks in found.items()}
    assert gets["id", "bare"] == RANKS * ROUNDS
    assert gets["gather", "bare"] == RANKS * RANKS * ROUNDS
    assert all(line["gets"] is None for line in found["id", "ours"])


def root_rate(*words, nccl):
    done = subprocess.run([built(f"{BENCH}/root_rate"), *words], capture_output=True, text=True, timeout=90,
                          env={**os.environ, "SLURM_BOOTSTRAP_NCCL": nccl, "LD_LIBRARY_PATH": ""})
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_the_root_of_the_real_nccl():
    if REAL_NCCL is None:
        pytest.skip("there is no libnccl.so.2")
    done, lines = root_rate("1", "1x2", "1x64", "3x10", "4x64", "5x5", nccl=f"{REAL_NCCL}/libnccl.so.2")
    if done.returncode == NOT_MEASURED:
        pytest.skip(lines[0]["not_measured"])
    assert done.returncode == 0, done
    assert [(line["roots"], line["ranks"]) for line in lines] == [(1, 2), (1, 64), (3, 10), (4, 64), (5, 5)]
    for line in lines:
        assert line["last_ms"] > 0 and line["nccl"].startswith("2.28.")


def test_a_root_of_another_protocol_is_not_measured():
    """Controls: another version, none at all, and the double, which claims to be 2.28 and has another protocol."""
    done, lines = root_rate("1", "1x8", nccl=built("tests/doubles/nccl-2.23.4/libnccl.so.2"))
    assert done.returncode == NOT_MEASURED and lines == [{"not_measured": "libnccl 2.23.4 is not 2.28"}], done
    done, lines = root_rate("1", "1x8", nccl="/nowhere/libnccl.so.2")
    assert done.returncode == NOT_MEASURED and "/nowhere/libnccl.so.2" in lines[0]["not_measured"], done
    done, lines = root_rate("1", "1x8", nccl=built("tests/doubles/nccl-2.28.9/libnccl.so.2"))
    assert done.returncode == 1 and lines == [] and "rank 0 has no answer" in done.stderr, done
    for words in (["1"], ["0", "1x8"], ["1", "8x1"], ["1", "1x8y"], ["1", "0x8"]):
        assert root_rate(*words, nccl="")[0].returncode == 2


def test_the_plan_bench():
    words = ["--benchmark_format=json", "--benchmark_min_time=0.01"]
    done = subprocess.run([built(f"{BENCH}/plan_bench"), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = {entry["name"]: entry for entry in json.loads(done.stdout)["benchmarks"]}
    assert set(found) >= {f"make_plan_of_{what}/{nodes}" for what in ("node", "all_frameworks") for nodes in (2, 12500)}
    # A measurement that found its own result to be wrong has this member.
    assert not [entry["name"] for entry in found.values() if "error_message" in entry]
    assert all(entry["real_time"] > 0 for entry in found.values())
    assert found["make_plan_of_all_frameworks/2"]["variables"] > found["make_plan_of_node/2"]["variables"] >= 9


def test_every_program_has_a_test():
    """A program that is built here and used by no test, nor by scripts/bench, would rot unseen."""
    users = [*(REPOSITORY / "tests/integration").rglob("test_*.py"), *(REPOSITORY / "scripts").rglob("*.py")]
    tests = "".join(path.read_text() for path in users)
    targets = re.findall(r"add_executable\((\w+)", (REPOSITORY / "tests/bench/CMakeLists.txt").read_text())
    untested = [target for target in targets if target not in tests]
    assert len(targets) >= 5 and not untested, untested

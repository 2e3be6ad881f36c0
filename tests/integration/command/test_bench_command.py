"""`slurm-bootstrap bench` on a real cluster: NCCL's and CUDA's doubles add up, and every way for it to end."""

import json
import re
import subprocess
from collections import Counter

import pytest

from built_files import BUILT_INSIDE, COMMAND, built
from exchange_steps import missing_ranks, run_step

DOUBLES = f"{BUILT_INSIDE}/tests/doubles"
SHORT = ("--max-bytes", "64K", "--factor", "16", "--iterations", "3", "--warmup", "1")
SIZES = [8, 128, 2048, 32768]
SKIPPED = 77
OWN_LIMIT = 30  # seconds for a step, which is killed then

ROW = re.compile(r"^ +(\d+) +(\d+) +float +([\d.]+) +([\d.]+) +([\d.]+) +(\d+|-)$", re.MULTILINE)
AVERAGE = re.compile(r"^average busbw ([\d.]+) GB/s$", re.MULTILINE)
SENTENCE = re.compile(r"^slurm-bootstrap: (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def bench_cluster(cluster_factory):
    return cluster_factory("nccl").up("--nodes", "2", "--cpus", "16", "--gpus", "4", "--no-plugin")


def bench(cluster, nodes, per_node, *words, env=None, options=(), before="true", gpus=4):
    """`before` is run by the shell of each rank, which then becomes the command."""
    variables = {"LD_LIBRARY_PATH": f"{DOUBLES}/nccl-2.28.9:{DOUBLES}/cuda", "CUDA_DOUBLE_DEVICES": "4", **(env or {})}
    srun = ("--mpi=pmix", *([f"--gres=gpu:{gpus}"] if gpus else []), *options)
    command = ("sh", "-c", f'{before}; exec "$@"', "sh", COMMAND, "bench", *words)
    return run_step(cluster, nodes, per_node, *command, options=srun, env=variables, limit=OWN_LIMIT)


def sentences(step):
    return SENTENCE.findall(step.stderr)


def on_rank(rank, **variables):
    words = " ".join(f"{name}={value}" for name, value in variables.items())
    return f"if [ $SLURM_PROCID = {rank} ]; then export {words}; fi"


@pytest.mark.parametrize("nodes, per_node", [(1, 2), (2, 1), (2, 2)])
def test_the_sums_are_right_and_only_rank_0_speaks(bench_cluster, nodes, per_node):
    log = f"/home/alice/bench-{nodes}-{per_node}.log"
    step = bench(bench_cluster, nodes, per_node, *SHORT, env={"NCCL_DOUBLE_LOG": log})
    ranks = nodes * per_node
    assert step.returncode == 0 and step.stderr == "", step
    rows = ROW.findall(step.stdout)
    assert [int(row[0]) for row in rows] == SIZES and {row[5] for row in rows} == {"0"}, step.stdout
    assert len(AVERAGE.findall(step.stdout)) == 1 and step.stdout.count("BYTES") == 1
    assert f": {ranks} ranks on {nodes} node" in step.stdout and f"{ranks} x CUDA double; NCCL 2.28.9" in step.stdout
    # Worked out from the times that stand there, with the definition of nccl-tests.
    for size, _, time, algbw, busbw, _ in rows:
        expected = int(size) / float(time) / 1000
        assert abs(float(algbw) - expected) < 0.001 + 0.01 * expected
        assert abs(float(busbw) - expected * 2 * (ranks - 1) / ranks) < 0.001 + 0.01 * expected
    # NCCL was really asked: one communicator of all ranks, and it was given back.
    lines = (bench_cluster.home / log.split("/")[-1]).read_text().splitlines()
    calls = Counter(line.split()[0] for line in lines)
    assert calls == {"ncclGetUniqueId": 1, "ncclCommInitRank": ranks, "ncclCommDestroy": ranks}


@pytest.mark.parametrize("group, size", [("world", 4), ("node", 2), ("cross", 2)])
def test_communicators_as_json(bench_cluster, group, size):
    step = bench(bench_cluster, 2, 2, *SHORT, "--communicator", group, "--json", "--in-place")
    assert step.returncode == 0 and step.stderr == "", step
    found = json.loads(step.stdout)
    assert (found["communicator"], found["ranks"], found["nodes"]) == (group, 4, 2)
    assert (found["fewest_ranks"], found["most_ranks"]) == (size, size)
    assert found["in_place"] and found["checked"] and found["gpus"] == ["CUDA double"] * 4
    assert found["communicator_ms"] > 0 and found["unique_ids_ms"] > 0
    assert [row["bytes"] for row in found["sizes"]] == SIZES
    for row in found["sizes"]:
        assert row["wrong"] == 0 and row["time_us"] > 0
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"] * 2 * (size - 1) / size, abs=2e-6)


@pytest.mark.parametrize("fault, first", [("sum", 0), ("lazy", 0), ("sum", 6)])
def test_a_wrong_sum_is_noticed_and_named(bench_cluster, fault, first):
    """From the second size on where `first` is 6: with --warmup 1 --iterations 3 each size makes 6 all-reduces."""
    before = on_rank(3, NCCL_DOUBLE_FAULT=fault, NCCL_DOUBLE_FAULT_AT=first)
    step = bench(bench_cluster, 2, 2, *SHORT, before=before)
    assert step.returncode == 1, step
    size = "8 bytes" if first == 0 else "128 bytes"
    said = sentences(step)
    assert len(said) == 1 and said[0].startswith(f"an all-reduce of {size} gave wrong sums on rank 3 (node002, "), said
    wrong = [int(row[5]) for row in ROW.findall(step.stdout)]
    assert len(wrong) == 4 and (wrong[0] > 0) == (first == 0) and all(wrong[1:])
    # Control: who does not look sees nothing.
    unseen = bench(bench_cluster, 2, 2, *SHORT, "--no-check", before=before)
    assert unseen.returncode == 0 and {row[5] for row in ROW.findall(unseen.stdout)} == {"-"}, unseen


def test_a_rank_that_never_comes_is_named(bench_cluster):
    absent = "if [ $SLURM_PROCID = 3 ]; then exec sleep 60; fi"
    step = bench(bench_cluster, 2, 2, *SHORT, "--timeout", "3", before=absent, options=("--wait=2",))
    assert step.returncode != 0 and step.seconds < 20 and step.stdout == "", step
    assert any(said.endswith("; missing: rank 3 (node002, local rank 1)") for said in sentences(step)), step
    assert all(3 in missing_ranks(said) for said in sentences(step)) and len(sentences(step)) == 3, step


def test_a_rank_that_stops_in_the_middle_is_named(bench_cluster):
    stops = on_rank(3, NCCL_DOUBLE_FAULT="stop", NCCL_DOUBLE_FAULT_AT=6)
    step = bench(bench_cluster, 2, 2, *SHORT, "--timeout", "3", before=stops, options=("--wait=2",))
    assert step.returncode != 0 and step.seconds < 25, step
    assert [int(row[0]) for row in ROW.findall(step.stdout)] == [8] and not AVERAGE.search(step.stdout), step
    said = sentences(step)
    assert len(said) == 3 and all("the all-reduces of 128 bytes have not finished after 3 s; " in text for text in said)
    # In a round that is not the first the servers of other nodes report whole nodes (test_exchange_faults).
    assert any("rank 3 (node002, local rank 1)" in text for text in said), said
    assert all("rank 3 (node002" in text or "all of node002" in text for text in said), said


@pytest.mark.parametrize("fault, text", [("stall", "the all-reduces of 128 bytes have not finished after 3 s"),
                                         ("error", "rank 1 (node001, local rank 1): ncclAllReduce failed: ")])
def test_all_ranks_end_with_the_same_when_nccl_fails(bench_cluster, fault, text):
    fails = on_rank(1, NCCL_DOUBLE_FAULT=fault, NCCL_DOUBLE_FAULT_AT=6)
    script = f'{fails}; "$@"; echo "rank $SLURM_PROCID ended with $?"; exit 0'
    env = {"LD_LIBRARY_PATH": f"{DOUBLES}/nccl-2.28.9:{DOUBLES}/cuda", "CUDA_DOUBLE_DEVICES": "4"}
    command = ("sh", "-c", script, "sh", COMMAND, "bench", *SHORT, "--timeout", "3")
    step = run_step(bench_cluster, 2, 2, *command, options=("--mpi=pmix", "--gres=gpu:4"), env=env, limit=OWN_LIMIT)
    assert step.seconds < 20, step
    assert sorted(re.findall(r"rank (\d) ended with (\d+)", step.stdout)) == [(str(rank), "1") for rank in range(4)], step
    assert len(sentences(step)) == 1 and text in sentences(step)[0], step


@pytest.mark.parametrize("env, gpus, reason", [
    ({"CUDA_DOUBLE_DEVICES": "0"}, 4, "no CUDA-capable device is detected (100)"),
    ({"LD_LIBRARY_PATH": f"{DOUBLES}/nccl-2.28.9"}, 4, "there is no libcuda.so.1; install the driver"),
    ({}, 0, "Slurm gave it no GPU; request GPUs: srun "),
])
def test_without_a_gpu_it_is_skipped_and_not_passed(bench_cluster, env, gpus, reason):
    if "libcuda" in reason and has_driver():
        pytest.skip("this machine has a driver")
    step = bench(bench_cluster, 2, 2, env=env, gpus=gpus)
    assert step.returncode == SKIPPED and step.stdout == "", step
    said = sentences(step)
    assert len(said) == 1 and reason in said[0], said
    assert said[0].startswith("the benchmark is skipped, because CUDA has no GPU for any rank; rank 0 (node001, local rank 0): ")


def has_driver():
    return "libcuda.so.1" in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout


def test_a_gpu_that_only_some_have_is_a_failure(bench_cluster):
    step = bench(bench_cluster, 2, 2, before=on_rank(2, CUDA_DOUBLE_DEVICES=0))
    assert step.returncode == 1 and step.stdout == "", step
    said = sentences(step)
    assert len(said) == 1 and said[0].startswith("rank 2 (node002, local rank 0) has no GPU, but other ranks have one: "), said


def test_no_nccl_is_a_failure(bench_cluster):
    step = bench(bench_cluster, 1, 2, env={"LD_LIBRARY_PATH": f"{DOUBLES}/cuda", "SLURM_BOOTSTRAP_NCCL": "/nowhere/libnccl.so"})
    assert step.returncode == 1 and len(sentences(step)) == 1, step
    assert sentences(step)[0].startswith("rank 0 (node001, local rank 0): cannot load NCCL"), step


def test_without_pmix_it_goes_over_pmi1(bench_cluster):
    step = bench(bench_cluster, 2, 2, *SHORT, options=("--mpi=none",))
    assert step.returncode == 0 and step.stdout and step.stderr == "", step
    # Control: without PMI-1 either, its message has the remedy.
    step = bench(bench_cluster, 2, 1, options=("--mpi=none",), before="unset SLURM_SRUN_COMM_PORT")
    assert step.returncode == 1 and step.stdout == "", step
    assert all("srun --mpi=pmix" in said for said in sentences(step)) and sentences(step), step


@pytest.mark.parametrize("words, said", [
    (["--min-bytes", "x"], '--min-bytes is "x"; it takes bytes, such as 8, 64K, 128M or 4G, 1024G at most'),
    (["--min-bytes", "6"], "--min-bytes is 6; it takes a multiple of 4, since floats are added"),
    (["--min-bytes", "1K", "--max-bytes", "512"], "--max-bytes is 512, below the 1024 of --min-bytes"),
])
def test_sizes_that_do_not_fit_are_one_sentence(words, said):
    done = subprocess.run([built("libbootstrap/slurm-bootstrap"), "bench", *words], capture_output=True, text=True, timeout=60, env={})
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"slurm-bootstrap: {said}\n"


def test_outside_of_a_step(bench_cluster):
    done = bench_cluster.run([COMMAND, "bench"])
    assert (done.returncode == 2 and done.stdout == ""
            and "start the program with srun: srun --ntasks-per-node 2 --gres gpu:2 slurm-bootstrap bench\n" in done.stderr)

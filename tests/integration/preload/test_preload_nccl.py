"""The interposed NCCL calls in real steps, over the NCCL double: guard, missing ranks, timing, and what is left alone."""

import re
import time

import pytest

from built_files import LIBRARY, inside
from harness import Cluster
from preload_steps import preloading, run_steps, sentences

DOUBLES = "tests/doubles"
STEP = "-N2 --ntasks-per-node=2"


@pytest.fixture(scope="module")
def bare(cluster_factory) -> Cluster:
    return cluster_factory("interpose").up("--nodes", "4", "--cpus", "16", "--gpus", "4", "--no-plugin")


def step(cluster: Cluster, options: str, arguments: str, library: bool | str = True, nccl: str = "2.28.9",
         program: str = "", **variables: str):
    """One step of ranks that make communicators."""
    paths = f"{inside(f'{DOUBLES}/nccl-{nccl}')}:{inside(f'{DOUBLES}/cuda')}"
    variables = {"LD_LIBRARY_PATH": paths, "NCCL_DOUBLE_LOG": "/home/alice/nccl.log"} | variables
    command = program or inside("tests/integration/preload_nccl")
    export = library if isinstance(library, str) else preloading() if library else "--export=ALL"
    words = " ".join(f"{name}={value}" for name, value in variables.items())
    return run_steps(cluster, f"rm -f ~/nccl.log; {words} srun -Q -K0 {options} {export} {command} /home/alice {arguments}")


def results(done) -> list[str]:
    return sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))


def bounded(arguments: str, seconds: int) -> dict[str, str]:
    """For ranks that wait for one that does not come: each is ended by itself, and Slurm kills nobody."""
    return {"program": f"timeout {seconds} {inside('tests/integration/preload_nccl')}", "arguments": arguments}


@pytest.mark.parametrize("is_local", [False, True], ids=["linked", "opened as Python does"])
@pytest.mark.parametrize("is_first", [False, True], ids=["behind us", "before us"])
def test_a_tracer_is_called_once_and_nobody_calls_in_circles(bare, is_first, is_local):
    libraries = [inside(LIBRARY), inside(f"{DOUBLES}/nccl_tracer.so")]
    program, arguments = "", "rank"
    if is_local:
        program = inside("tests/integration/preload_loader")
        program = f"{program} {inside('tests/integration/preload_nccl_shared.so')} -- "
    done = step(bare, f"--mpi=pmix {STEP}", arguments, preloading(*(libraries[::-1] if is_first else libraries)),
                program=program)
    if is_local:  # nothing that dlsym finds stands behind a tracer, with or without us
        assert done.returncode != 0 and "tracer: ncclGetUniqueId has no next" in done.stderr
        return
    assert done.returncode == 0 and len(results(done)) == 4, done.stderr
    assert done.stderr.count("tracer: ncclCommInitRank\n") == 4 and "came back" not in done.stderr



@pytest.mark.parametrize("call", ["rank", "config", "scalable", "split", "all"])
def test_calls_pass_through_and_nothing_is_said(bare, call):
    seen = {}
    for library in (True, False):
        quiet = {"SLURM_BOOTSTRAP_GUARD": "off"} if call == "all" else {}  # two ranks that take both GPUs are told otherwise
        done = step(bare, f"--mpi=pmix {STEP} --gres=gpu:2", call, library, CUDA_DOUBLE_DEVICES="2", **quiet)
        seen[library] = (done.returncode, results(done), done.stderr)
    assert seen[True] == seen[False]
    assert seen[True][0] == 0 and len(seen[True][1]) == 4 and not seen[True][2]


@pytest.mark.parametrize("call, function", [("rank", "ncclCommInitRank"), ("config", "ncclCommInitRankConfig"),
                                            ("scalable", "ncclCommInitRankScalable"), ("split", "ncclCommSplit")])
def test_a_rank_that_does_not_call_is_named(bare, call, function):
    done = step(bare, f"--mpi=pmix {STEP}", **bounded(f"{call} absent=3", 9), SLURM_BOOTSTRAP_TIMEOUT="4")
    told = sentences(done.stderr)
    assert len(told) == 1, done.stderr
    assert re.fullmatch(rf"bootstrap: warning: StepId=\d+\.0: rank 3 \(node002, local rank 1\) has not called {function} after 4 s", told[0])


def test_control_without_the_library_nobody_is_named(bare):
    done = step(bare, f"--mpi=pmix {STEP}", **bounded("rank absent=3", 7), library=False, SLURM_BOOTSTRAP_TIMEOUT="4")
    assert done.returncode != 0 and not sentences(done.stderr)


def test_rank_zero_may_be_the_one_that_is_missing(bare):
    """The members find each other by the id, so it is there before rank 0 goes astray."""
    done = step(bare, f"--mpi=pmix {STEP}", **bounded("split absent=0", 15), SLURM_BOOTSTRAP_TIMEOUT="4")
    assert [line.split(": ", 3)[3] for line in sentences(done.stderr)] == [
        "rank 0 (node001, local rank 0) has not called ncclCommSplit after 4 s"]


def test_a_part_of_the_step_is_spoken_of_in_its_own_ranks(bare):
    done = step(bare, f"--mpi=pmix {STEP}", **bounded("rank size=3 absent=2", 9), SLURM_BOOTSTRAP_TIMEOUT="4")
    assert [line.split(": ", 3)[3] for line in sentences(done.stderr)] == [
        "rank 2 of a communicator of 3 has not called ncclCommInitRank after 4 s; among those that have, "
        "0 is rank 0 (node001, local rank 0), 1 is rank 1 (node001, local rank 1)"]


def test_without_pmix_each_node_says_that_it_waits(bare):
    done = step(bare, f"--mpi=none {STEP}", **bounded("rank absent=3", 7), SLURM_BOOTSTRAP_TIMEOUT="4")
    told = sorted(line.split(": ", 3)[3] for line in sentences(done.stderr))
    assert told == [f"rank {rank} (node00{node}, local rank 0) has waited 4 s in ncclCommInitRank; start the step with "
                    "srun --mpi=pmix to see which ranks are missing" for rank, node in ((0, 1), (2, 2))]


def test_an_exit_while_ranks_announce_themselves_ends_no_step(bare):
    """A process that ends in a PMIx session is a crash to Slurm: exit() closes it, which _exit() cannot."""
    began = time.monotonic()
    done = step(bare, f"--mpi=pmix {STEP}", "rank absent=3 end=4", SLURM_BOOTSTRAP_TIMEOUT="8")
    assert done.returncode == 0 and not sentences(done.stderr), done.stderr
    assert time.monotonic() - began > 7  # the absent rank was there to be killed
    control = step(bare, f"--mpi=pmix {STEP}", "rank absent=3 _end=4", SLURM_BOOTSTRAP_TIMEOUT="8")
    assert control.returncode != 0


def test_a_gpu_of_another_rank_is_named(bare):
    done = step(bare, "-N1 --ntasks-per-node=4 --gres=gpu:4", "rank device=0", CUDA_DOUBLE_DEVICES="4")
    told = sorted(line.split(": ", 3)[3] for line in sentences(done.stderr))
    assert told == [f"rank {rank} (node001, local rank {rank}) is about to use cuda:0, the GPU of rank 0 (node001, local rank 0); "
                    f"its own is cuda:{rank}: call cudaSetDevice(LOCAL_RANK) before NCCL, or set SLURM_BOOTSTRAP_GUARD=fix"
                    for rank in (1, 2, 3)]
    assert results(done) == [f"rank {rank} of 4: 5 on device 0" for rank in range(4)]  # NCCL's own refusal


@pytest.mark.parametrize("guard, code, used", [("fix", 0, [0, 1, 2, 3]), ("off", 5, [0, 0, 0, 0])])
def test_the_guard_can_correct_and_be_silent(bare, guard, code, used):
    done = step(bare, "-N1 --ntasks-per-node=4 --gres=gpu:4", "rank device=0", CUDA_DOUBLE_DEVICES="4", SLURM_BOOTSTRAP_GUARD=guard)
    assert not sentences(done.stderr)
    assert results(done) == [f"rank {rank} of 4: {code} on device {device}" for rank, device in enumerate(used)]


def test_control_right_gpus_are_right(bare):
    done = step(bare, "-N1 --ntasks-per-node=4 --gres=gpu:4", "rank", CUDA_DOUBLE_DEVICES="4")
    assert not sentences(done.stderr)
    assert results(done) == [f"rank {rank} of 4: 0 on device {rank}" for rank in range(4)]


def test_one_process_that_takes_the_gpus_of_others_is_told(bare):
    done = step(bare, "-N1 --ntasks-per-node=2 --gres=gpu:2", "all", CUDA_DOUBLE_DEVICES="2")
    told = sentences(done.stderr)
    assert len(told) == 2 and all("is about to use 2 GPUs by itself" in line for line in told), done.stderr
    alone = step(bare, "-N1 -n1 --gres=gpu:2", "all", CUDA_DOUBLE_DEVICES="2")
    assert alone.returncode == 0 and not sentences(alone.stderr)


def test_timing_on_request(bare):
    done = step(bare, f"--mpi=pmix {STEP}", "config", SLURM_BOOTSTRAP_TIMING="1")
    told = sorted(line.split(" ", 2)[2] for line in sentences(done.stderr))
    assert [re.sub(r"[\d.]+ ms", "T", line) for line in told] == [
        f"rank {rank}: ncclCommInitRankConfig of 4 ranks, 1 root: T" for rank in range(4)]


def init_calls(cluster: Cluster) -> list[str]:
    return sorted(line for line in (cluster.state / "home/alice/nccl.log").read_text().splitlines() if "CommInit" in line)


def test_a_rank_that_failed_in_the_call_is_named_with_nccls_sentence(bare):
    """It has called, and its peers wait on: before, they said that it had not."""
    done = step(bare, f"--mpi=pmix {STEP}", **bounded("rank wrong=1", 12), SLURM_BOOTSTRAP_TIMEOUT="4")
    told = [line.split(": ", 3)[3] for line in sentences(done.stderr)]
    assert told == ["ncclCommInitRank has not returned after 4 s: rank 1 (node001, local rank 1): ncclCommInitRank failed: "
                    "invalid argument (run with NCCL_DEBUG=WARN for details) (Invalid rank requested : 99/4)"], done.stderr


def test_a_rank_that_was_killed_in_the_call_has_ended(bare):
    done = step(bare, f"--mpi=pmix {STEP}", **bounded("rank absent=3 killed=1", 14), SLURM_BOOTSTRAP_TIMEOUT="8")
    told = [line.split(": ", 3)[3] for line in sentences(done.stderr)]
    assert told == ["ncclCommInitRank has not returned after 8 s: rank 1 (node001, local rank 1) has ended; "
                    "rank 3 (node002, local rank 1) has not called ncclCommInitRank after 8 s"], done.stderr


def test_two_ranks_with_different_versions_are_named_before_the_deadline(bare):
    """Real NCCL waits for ever then. Here rank 3 never checks in, so that the double waits, too."""
    older = f"{inside(f'{DOUBLES}/nccl-2.23.4')}:{inside(f'{DOUBLES}/cuda')}"
    script = (f"if [ $SLURM_NODEID = 1 ]; then export LD_LIBRARY_PATH={older}; fi; "
              "if [ $SLURM_PROCID = 3 ]; then export NCCL_DOUBLE_STALL=1; fi; "
              f"exec timeout 12 {inside('tests/integration/preload_nccl')} /home/alice rank")
    done = step(bare, f"--mpi=pmix {STEP}", "", program=f"bash -c '{script}'", SLURM_BOOTSTRAP_TIMEOUT="8",
                PRELOAD_NCCL_ONE_ID="1")
    told = [line.split(": ", 3)[3] for line in sentences(done.stderr)]
    assert told == ["NCCL 2.28.9 on rank 0 (node001, local rank 0) and 2.23.4 on rank 2 (node002, local rank 0): different "
                    "versions make no communicator, and some wait for each other for ever; set LD_LIBRARY_PATH, or the Python "
                    "environment, to one version for all ranks"], done.stderr


@pytest.mark.parametrize("how", ["grouped", "polled"])
def test_calls_that_come_back_early_are_watched_and_timed(bare, how):
    """In a group and without blocking the call itself takes no time: what is waited for comes after it."""
    function = "ncclCommInitRank" if how == "grouped" else "ncclCommInitRankConfig"
    done = step(bare, f"--mpi=pmix {STEP}", **bounded(f"{how} absent=3", 9), SLURM_BOOTSTRAP_TIMEOUT="4")
    assert [line.split(": ", 3)[3] for line in sentences(done.stderr)] == [
        f"rank 3 (node002, local rank 1) has not called {function} after 4 s"], done.stderr
    late = step(bare, f"--mpi=pmix {STEP}", f"{how} late=3", SLURM_BOOTSTRAP_TIMING="1")
    times = {line.split()[3]: float(re.search(r"([\d.]+) ms$", line)[1]) for line in sentences(late.stderr)}
    assert len(times) == 4 and all(times[f"{rank}:"] > 500 for rank in (0, 1, 2)), late.stderr


def test_two_copies_of_nccl_in_one_process_each_serve_their_own(bare):
    """Opened as Python opens modules, one linked to libnccl.so.2 and one with NCCL inside."""
    libraries = [inside(f"tests/integration/preload_nccl_{kind}.so") for kind in ("shared", "static")]
    for order in (libraries, libraries[::-1]):
        program = f"{inside('tests/integration/preload_loader')} {' '.join(order)} --"
        done = step(bare, f"--mpi=pmix {STEP}", "rank", program=program, SLURM_BOOTSTRAP_TIMING="1")
        versions = [re.search(r"version=(\d+)", call)[1] for call in init_calls(bare) if "rank=0" in call]
        expected = ["22809", "22304"] if order == libraries else ["22304", "22809"]
        assert sorted(versions) == sorted(expected), done.stderr
        assert len(sentences(done.stderr)) == 8, done.stderr


def test_a_call_that_is_not_seen_is_told_once(bare):
    library = inside("tests/integration/preload_nccl_shared.so")
    loader = inside("tests/integration/preload_loader")
    done = step(bare, f"--mpi=pmix {STEP}", "rank", program=f"{loader} deep {library} --")
    told = sentences(done.stderr)
    assert done.returncode == 0 and len(told) == 1 and "cannot intercept" in told[0], done.stderr
    control = step(bare, f"--mpi=pmix {STEP}", "rank", program=f"{loader} {library} --")
    assert control.returncode == 0 and not sentences(control.stderr)


def test_a_wrong_value_is_one_sentence_and_passed_over(bare):
    done = step(bare, f"--mpi=pmix {STEP}", "rank", SLURM_BOOTSTRAP_TIMEOUT="soon")
    assert done.returncode == 0
    assert [line.split(": ", 3)[3] for line in sentences(done.stderr)] == [
        'SLURM_BOOTSTRAP_TIMEOUT="soon" is ignored: use whole seconds, 1 to 86400']


def test_workers_of_a_launcher_are_left_alone(bare):
    """torchrun numbers its workers anew: what we know of the task is not true of them."""
    program = f"env RANK=7 WORLD_SIZE=8 {inside('tests/integration/preload_nccl')}"
    done = step(bare, f"--mpi=pmix {STEP}", "rank", program=program, SLURM_BOOTSTRAP_TIMING="1")
    assert done.returncode == 0 and not sentences(done.stderr), done.stderr


GROW = inside("tests/integration/preload_grow")


def steps_at_once(cluster: Cluster, *steps: str, library: bool = True, **variables: str) -> list[tuple[list[str], list[str]]]:
    """What the ranks of each step printed, and what we said: the steps wait for what does not come, and so do it together."""
    variables = {"LD_LIBRARY_PATH": f"{inside(f'{DOUBLES}/nccl-2.32.3')}:{inside(f'{DOUBLES}/cuda')}"} | variables
    words = " ".join(f"{name}={value}" for name, value in variables.items())
    srun = f"{words} srun -Q -K0 --mpi=pmix -w node[001-002] {STEP} {preloading() if library else '--export=ALL'} timeout 12 {GROW}"
    runs = "\n".join(f"(mkdir -p grow.{number}; {srun} ~/grow.{number} {arguments} >~/grow.{number}/out 2>~/grow.{number}/err) &"
                     for number, arguments in enumerate(steps))
    done = run_steps(cluster, f"cd; {runs}\nwait; for n in $(seq 0 {len(steps) - 1}); do cat grow.$n/out; echo ==; cat grow.$n/err; echo ==; "
                              "done; rm -r grow.*")
    parts = done.stdout.split("==\n")
    return [(sorted(parts[2 * n].splitlines()), sorted(sentences(parts[2 * n + 1]))) for n in range(len(steps))]


def test_growing_and_shrinking_pass_through_and_nothing_is_said(bare):
    sums = {"grow": 10, "polled": 10, "split": {0: 4, 1: 6, 2: 4, 3: 6}, "shrink": 6}
    for library in (True, False):
        for (how, expected), (printed, told) in zip(sums.items(), steps_at_once(bare, *sums, library=library)):
            ranks = range(3 if how == "shrink" else 4)
            assert printed == [f"rank {rank} of 4: 0, sum {expected[rank] if how == 'split' else expected}" for rank in ranks]
            assert not told


def test_who_does_not_grow_or_shrink_is_named(bare):
    """Old ranks know each other and new ones the id alone: so there may be a sentence for each."""
    steps = ("grow absent=3", "grow absent=1", "grow absent=0", "grow killed=1 absent=3", "split absent=3", "shrink absent=2")
    rank = [f"rank {rank} (node00{1 + rank // 2}, local rank {rank % 2})" for rank in range(4)]
    late, ended = "has not called ncclCommGrow after 6 s", f", or is one of those that have ended: {rank[1]}"
    no_third = f"rank 3 of a communicator of 4 {late}%s; among those that have, 0 is {rank[0]}, 2 is {rank[2]}"
    no_second = f"rank 1 of a communicator of 2 {late}%s; among those that have, 0 is {rank[0]}"
    expected = [
        [no_third % ""],
        ["all new ranks have called ncclCommGrow, and it has not returned after 6 s: a rank that was in the communicator has not "
         "called it, or they cannot connect to each other; NCCL_DEBUG=INFO shows the addresses that NCCL tries", no_second % ""],
        ["no rank of the communicator that is to grow has called ncclCommGrow with the unique id of the new ranks after 6 s",
         f"rank 0 of a communicator of 2 {late}; among those that have, 1 is {rank[1]}"],
        [no_second % ended, no_third % ended],
        [f"{rank[3]} has not called ncclCommSplit after 6 s"],
        [f"rank 2 of a communicator of 4 has not called ncclCommShrink after 6 s; among those that have, 0 is {rank[0]}, 1 is {rank[1]}"]]
    found = steps_at_once(bare, *steps, SLURM_BOOTSTRAP_TIMEOUT="6")
    assert [[line.split(": ", 3)[3] for line in told] for _, told in found] == expected

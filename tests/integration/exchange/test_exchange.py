"""Ranks of real steps exchange values over Slurm's PMIx server, and the step is then as if they had not."""

import random
import re

import pytest

from built_files import BUILD, program
from exchange_steps import DIFFERENT_CALLS, DONE, assert_different_calls_fail_at_once, leftovers, run_step, wait_until_nothing_is_left
from harness import INSIDE, REPOSITORY, TESTS, module_cluster, wait_for
from port_steps import background

AT_ONCE = 3
DISTRIBUTIONS = ("block", "cyclic", "plane=2")

exchange_cluster = module_cluster("exchange", "--nodes", "4", "--cpus", "64", "--no-plugin")


def is_complete(step, ranks, rounds):
    """All ranks had the right values in all rounds, and each has as many open files as before."""
    found = DONE.findall(step.stdout)
    good = [int(rank) for rank, *told, before, after in found if told == [str(ranks), str(rounds)] and before == after]
    return step.returncode == 0 and step.stderr == "" and sorted(good) == list(range(ranks))


def random_shape(generator):
    nodes = generator.randint(1, 4)
    per_node = generator.choice([1, 2, 3, 4, 5, 8, 16] if generator.random() < 0.3 else [1, 2, 3, 4])
    return nodes, per_node, generator.choice(DISTRIBUTIONS), generator.choice([0, 1, 128, 4096])


def test_all_ranks_have_all_values_and_nothing_is_left(exchange_cluster, campaign, figure):
    generator = random.Random(campaign.seed)
    count = campaign.size(1000, 20)
    shapes = [(1, 1, "block", 128), (4, 16, "block", 128)] + [random_shape(generator) for _ in range(count - 2)]
    before = leftovers(exchange_cluster)

    def run(shape):
        nodes, per_node, distribution, size = shape
        options = ("--mpi=pmix", f"--distribution={distribution}")
        command = (program("exchange_probe"), "--rounds", "2", "--bytes", str(size), "--timeout", "20000")
        return run_step(exchange_cluster, nodes, per_node, *command, options=options)

    outcomes = campaign.run(run, shapes, AT_ONCE)
    count = len(outcomes)
    bad = [(shape, step) for shape, step in outcomes if not is_complete(step, shape[0] * shape[1], 2)]
    ranks = sum(nodes * per_node for (nodes, per_node, *_), _ in outcomes)
    # Of the slowest rank of each step: both exchanges and the sessions around them.
    times = sorted(max(map(float, re.findall(r"rounds in (\S+) ms", step.stdout)), default=0) / 2 for _, step in outcomes)
    p99 = times[int(0.99 * (len(times) - 1))]
    got = (f"{len(bad)} of {count:,} steps failed, {ranks:,} ranks; p99 of an exchange {p99:.0f} ms "
           f"with {AT_ONCE} steps at once")  # fmt: skip
    figure("M1", got=got, met=not bad and p99 <= 1000, seed=campaign.seed,
           why="" if p99 <= 1000 else "the machine was busy: all steps share its cores",
           control="bare PMIx loses fences; files of a running step are seen")  # fmt: skip
    assert not bad, "\n".join(f"{shape}: {step.returncode} {step.stdout}{step.stderr}" for shape, step in bad)
    wait_until_nothing_is_left(exchange_cluster, before)


def test_leftovers_would_be_seen(exchange_cluster):
    """Control: while a step runs, PMIx does have files on its nodes."""
    before = leftovers(exchange_cluster)
    with background(exchange_cluster, ["srun", "--mpi=pmix", "-N2", "--ntasks-per-node", "1", "sleep", "20"], node="head"):
        wait_for(lambda: any("node001" in path for path in leftovers(exchange_cluster) - before))
    wait_until_nothing_is_left(exchange_cluster, before)


@pytest.mark.parametrize("mode", ["exchange", "barrier"])
def test_many_rounds_in_one_step(exchange_cluster, mode, request):
    is_full = request.config.getoption("--full")
    for width, rounds in [(4, 200), (2, 1000)] if is_full else [(4, 50)]:
        step = run_step(exchange_cluster, width, width, program("exchange_probe"), "--rounds", str(rounds), "--mode", mode)
        assert is_complete(step, width * width, rounds), step


def test_control_sessions_without_a_common_leave_lose_fences(exchange_cluster):
    """The same with PMIx alone: a session that closes takes a rank out of the fence that a faster one has begun."""
    for _ in range(10):
        step = run_step(exchange_cluster, 4, 4, program("exchange_bare"), "200", limit=15)
        if step.returncode != 0:
            break
    assert step.returncode != 0, "200 sessions of 16 ranks in quick succession lost nothing in 10 steps"


TSAN_ROUNDS, TSAN_ROUNDS_IN_FULL = 30, 10000


def run_rounds(cluster, mode, rounds, build=BUILD, **env):
    """Two ranks that open, exchange and close again and again, of one of the builds."""
    path = f"{build}/tests/integration/exchange_rounds"
    if not (REPOSITORY / path).exists():
        pytest.skip(f"{path} is not built")
    return run_step(cluster, 1, 2, f"{INSIDE}/{path}", mode, str(rounds), env=env, limit=300 + rounds)


@pytest.mark.parametrize("mode, env", [
    ("ours", {}),
    # As libpmix 5 always does: what a session has once read of a rank of its node it gets again, whatever was put since.
    ("ours", {"PMIX_MCA_gds": "hash"}),
    ("threads", {}),
])
def test_rounds_are_right_and_leave_no_file_open(exchange_cluster, mode, env):
    step = run_rounds(exchange_cluster, mode, 20, **env)
    assert (step.returncode, step.stderr) == (0, ""), step


def test_no_memory_is_lost_in_exchanges(exchange_cluster):
    options = f"suppressions={TESTS}/exchange/lsan.supp:print_suppressions=0"
    step = run_rounds(exchange_cluster, "ours", 40, "build/dev", ASAN_OPTIONS="fast_unwind_on_malloc=0", LSAN_OPTIONS=options)
    assert (step.returncode, step.stderr) == (0, ""), step


# A helper process has no standard error: it ends with its first report, and the round of its rank fails.
TSAN = {"TSAN_OPTIONS": "exitcode=66:halt_on_error=1"}


@pytest.mark.parametrize("mode", ["ours", "threads"])
def test_no_data_race_in_exchanges(exchange_cluster, mode, request, figure):
    rounds = TSAN_ROUNDS_IN_FULL if mode == "ours" and request.config.getoption("--full") else TSAN_ROUNDS
    step = run_rounds(exchange_cluster, mode, rounds, "build/tsan", **TSAN)
    assert (step.returncode, step.stderr) == (0, ""), step
    figure("M10", mode, got=f"0 reports in {rounds} rounds of two ranks", met=True, control="a race in the same program is reported")


def test_control_a_data_race_is_reported(exchange_cluster):
    step = run_rounds(exchange_cluster, "racy", 5, "build/tsan", **TSAN)
    assert step.returncode == 66 and "WARNING: ThreadSanitizer: data race" in step.stderr, step


@pytest.mark.parametrize("different", DIFFERENT_CALLS)
def test_different_calls_fail_at_once(exchange_cluster, different):
    assert_different_calls_fail_at_once(exchange_cluster, different, "--mpi=pmix")

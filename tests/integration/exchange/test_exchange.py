"""Ranks of real steps exchange values over Slurm's PMIx server. The exchange does not change how a program ends, forks or runs MPI.
With another user's PMIx, or a server that does not answer, each rank gets one sentence in time, and its process
can end."""

import random
import re

import pytest

from built_files import BUILD, LIBRARY, inside, program
from exchange_steps import (DIFFERENT_CALLS, DONE, ENDS, assert_different_calls_fail_at_once, leftovers, run_python, run_step, sentences,
                            successes, wait_until_nothing_is_left)
from harness import INSIDE, REPOSITORY, TESTS, module_cluster, wait_for
from port_steps import background

AT_ONCE = 3
DISTRIBUTIONS = ("block", "cyclic", "plane=2")
FIRST_TWO = ("--mpi=pmix", "-w", "node001,node002")

exchange_cluster = module_cluster("exchange", "--nodes", "4", "--cpus", "64", "--no-plugin")


def is_complete(step, ranks, rounds):
    """True if all ranks had the right values in all rounds, and as many open files as before."""
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
    # The slowest rank of each step: both exchanges and their sessions.
    times = sorted(max(map(float, re.findall(r"rounds in (\S+) ms", step.stdout)), default=0) / 2 for _, step in outcomes)
    p99 = times[int(0.99 * (len(times) - 1))]
    got = (f"{len(bad)} of {count:,} steps failed, {ranks:,} ranks; p99 of an exchange {p99:.0f} ms "
           f"with {AT_ONCE} steps at once")  # fmt: skip
    figure("M1", got=got, met=not bad and p99 <= 1000, seed=campaign.seed,
           why="" if p99 <= 1000 else "the machine was busy: all steps share its cores",
           control="bare PMIx loses fences; files of a running step are seen")  # fmt: skip
    assert not bad, "\n".join(f"{shape}: {step.returncode} {step.stdout}{step.stderr}" for shape, step in bad)
    wait_until_nothing_is_left(exchange_cluster, before)


def test_control_files_of_a_running_step_are_seen(exchange_cluster):
    """Control: while a step runs, PMIx has files on its nodes."""
    before = leftovers(exchange_cluster)
    with background(exchange_cluster, ["srun", "--mpi=pmix", "-N2", "--ntasks-per-node", "1", "sleep", "20"], node="head"):
        wait_for(lambda: any("node001" in path for path in leftovers(exchange_cluster) - before))
    wait_until_nothing_is_left(exchange_cluster, before)


@pytest.mark.parametrize("mode", ["exchange", "barrier"])
def test_many_rounds_in_one_step_are_right(exchange_cluster, mode, is_full):
    for width, rounds in [(4, 200), (2, 1000)] if is_full else [(4, 50)]:
        step = run_step(exchange_cluster, width, width, program("exchange_probe"), "--rounds", str(rounds), "--mode", mode)
        assert is_complete(step, width * width, rounds), step


def test_control_sessions_without_a_common_leave_lose_fences(exchange_cluster):
    """The same with PMIx alone: when a session closes, its rank is removed from the fence that a faster rank has begun."""
    for _ in range(10):
        step = run_step(exchange_cluster, 4, 4, program("exchange_bare"), "200", limit=15)
        if step.returncode != 0:
            break
    assert step.returncode != 0, "200 sessions of 16 ranks in quick succession lost nothing in 10 steps"


TSAN_ROUNDS, TSAN_ROUNDS_IN_FULL = 30, 10000


def run_rounds(cluster, mode, rounds, build=BUILD, **env):
    """Two ranks of one of the builds, which open, exchange and close repeatedly."""
    path = f"{build}/tests/integration/exchange_rounds"
    if not (REPOSITORY / path).exists():
        pytest.skip(f"{path} is not built")
    return run_step(cluster, 1, 2, f"{INSIDE}/{path}", mode, str(rounds), env=env, limit=300 + rounds)


@pytest.mark.parametrize("mode, env", [
    ("ours", {}),
    # As in libpmix 5: a session that has read a value of a rank on its node reads the same value again, also after a new put.
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


# A helper process has no standard error, so it ends at its first report, and the round of its rank fails.
TSAN = {"TSAN_OPTIONS": "exitcode=66:halt_on_error=1"}


@pytest.mark.parametrize("mode", ["ours", "threads"])
def test_no_data_race_in_exchanges(exchange_cluster, mode, is_full, figure):
    rounds = TSAN_ROUNDS_IN_FULL if mode == "ours" and is_full else TSAN_ROUNDS
    step = run_rounds(exchange_cluster, mode, rounds, "build/tsan", **TSAN)
    assert (step.returncode, step.stderr) == (0, ""), step
    figure("M10", mode, got=f"0 reports in {rounds} rounds of two ranks", met=True, control="a race in the same program is reported")


def test_control_a_data_race_is_reported(exchange_cluster):
    step = run_rounds(exchange_cluster, "racy", 5, "build/tsan", **TSAN)
    assert step.returncode == 66 and "WARNING: ThreadSanitizer: data race" in step.stderr, step


@pytest.mark.parametrize("different", DIFFERENT_CALLS)
def test_different_calls_fail_at_once(exchange_cluster, different):
    assert_different_calls_fail_at_once(exchange_cluster, different, "--mpi=pmix")


# -- what else a program does


# Each letter is an action: x exchange, I MPI_Init, B MPI_Barrier, F MPI_Finalize, L MPI_Finalize that odd ranks end late.
AFTER_INIT = ("IxBFx", "IxxBxFxx", "IFxxx", "ILxxx")
BEFORE_INIT = ("xIBF", "xxIxBxF", "xIxBxLxx")

MPI4PY = """import ctypes, sys, time
time.sleep(0.3)  # Slurm 22.05 loses a message of MPI_Init that comes while another node still starts its tasks
library = ctypes.CDLL(sys.argv[1])
library.bootstrap_last_error.restype = ctypes.c_char_p
job = ctypes.c_void_p()
assert library.bootstrap_open(ctypes.byref(job), None) == 0, library.bootstrap_last_error()
from mpi4py import MPI
for _ in range(3):
    assert library.bootstrap_barrier(job) == 0, library.bootstrap_last_error()
    assert MPI.COMM_WORLD.allreduce(1) == MPI.COMM_WORLD.size == library.bootstrap_size(job)
    assert MPI.COMM_WORLD.rank == library.bootstrap_rank(job)
MPI.Finalize()
assert library.bootstrap_barrier(job) == 0, library.bootstrap_last_error()
print("right", flush=True)
import os
os._exit(0)
"""


@pytest.mark.parametrize("mpi", ["pmix", "none"])
def test_a_program_below_valgrind_exchanges_without_an_error(exchange_cluster, mpi):
    words = ["srun", f"--mpi={mpi}", "-N2", "-n2", "valgrind", "--error-exitcode=9", program("exchange_ends"), "return", "kept"]
    done = exchange_cluster.run(words, timeout=120)
    assert done.returncode == 0 and done.stderr.count("ERROR SUMMARY: 0 errors") == 2, done.stderr[-3000:]


def of_each_task(line):
    """srun joins tasks in one line, depending on when their ends arrive. Returns one line for each task."""
    told = re.fullmatch(r"(srun: error: \S+): tasks? ([\d,-]+): (.+)", line)
    if not told:
        return {line}
    ranges = [(part.split("-")[0], part.split("-")[-1]) for part in told[2].split(",")]
    tasks = [task for first, last in ranges for task in range(int(first), int(last) + 1)]
    return {f"{told[1]}: task {task}: {told[3]}" for task in tasks}


def outcome(step):
    """The exit status of a step and srun's messages about its tasks, without job ids."""
    lines = [line for line in step.stderr.splitlines() if line.startswith("srun:")]
    lines = {each for line in lines for each in of_each_task(line)}
    return step.returncode, sorted(re.sub(r"\d+\.\d+|\d\d:\d\d:\d\d", "", line) for line in lines)


def test_every_end_of_a_program_is_as_without_the_library(exchange_cluster, campaign, figure):
    cases = [(how, first) for how in ENDS for first in ("nothing", "exchange", "kept")] * campaign.size(50, 1)

    def run(case):
        return run_step(exchange_cluster, 2, 2, program("exchange_ends"), *case, options=FIRST_TWO)

    steps = campaign.run(run, cases, AT_ONCE)
    expected = {how: outcome(step) for (how, first), step in steps if first == "nothing"}
    bad = [(case, step, expected[case[0]]) for case, step in steps if outcome(step) != expected[case[0]]]
    codes = {how: code for how, (code, _) in expected.items()}
    figure("M8", got=f"{len(ENDS)} ways, {len(steps):,} steps, {len(bad)} differences", met=not bad,
           control="PMIx_Init without PMIx_Finalize ends the step")  # fmt: skip
    assert not bad, bad[0]
    assert codes["return"] == codes["child"] == codes["workers"] == 0 and codes["exit3"] == 3 and codes["abort"] != 0


@pytest.mark.parametrize("how", ["return", "_exit"])
def test_control_a_session_left_open_is_a_kill(exchange_cluster, how):
    step = run_step(exchange_cluster, 2, 2, program("exchange_ends"), how, "pmix")
    assert step.returncode == 137 and "Killed" in step.stderr, step


def sockets(listing):
    return set(re.findall(r"socket:\[\d+\]", listing))


def test_children_are_refused_and_see_no_connection(exchange_cluster):
    step = run_python(exchange_cluster, "fork_program.py")
    lines = step.stdout.splitlines()
    assert step.returncode == 0 and sum(line.endswith(": success") for line in lines) == 12, step
    for child in ("child between", "child in the midst"):
        told = [line for line in lines if line.startswith(child)]
        assert len(told) == 1 and "this process is a forked child of the rank, and exchanges do not work after fork()" in told[0], step
    # Control: a program without us also inherits slurmstepd's own listening socket (Slurm 22.05).
    plain = run_step(exchange_cluster, 1, 1, "ls", "-l", "/proc/self/fd")
    assert len(sockets(step.stdout)) == len(sockets(plain.stdout)), (step.stdout, plain.stdout)


def test_control_a_child_of_bare_pmix_inherits_the_connection(exchange_cluster):
    plain = run_step(exchange_cluster, 1, 1, "ls", "-l", "/proc/self/fd")
    step = run_step(exchange_cluster, 1, 1, program("exchange_bare"), "1", "look")
    assert len(sockets(step.stdout)) == len(sockets(plain.stdout)) + 1, (step.stdout, plain.stdout)


LOST_CONNECTION = "status = -61"


def test_mpi_and_the_exchange_take_turns(exchange_cluster, campaign, figure):
    # Slurm's PMIx 4.2.2 loses a rank's data in shared memory when the rank's first session ends, no matter which library
    # opened it. A second session finds the data only in the hash store (the control below).
    cases = [(order, {}) for order in AFTER_INIT] + [(order, {"PMIX_MCA_gds": "hash"}) for order in BEFORE_INIT]
    steps = [(order, run_step(exchange_cluster, 2, 4, program("exchange_mpi"), order, env=env))
             for order, env in campaign.each(cases * campaign.size(50, 1))]
    bad = [(order, step) for order, step in steps if step.returncode != 0]
    lost = sum(LOST_CONNECTION in step.stderr for _, step in steps)
    figure("M7", got=f"{len(cases)} orders, {len(steps)} steps, {len(bad)} failed, {lost} lost connections",
           met=not bad and not lost, control="a second session of bare PMIx lacks its local rank")
    assert not bad, bad[0]
    assert not any(LOST_CONNECTION in step.stderr for _, step in steps)


def test_control_a_second_session_of_bare_pmix_lacks_its_local_rank(exchange_cluster):
    """So MPI_Init fails after another session, unless PMIx keeps its data in the hash store."""
    step = run_step(exchange_cluster, 1, 1, program("exchange_bare"), "2", "local-rank")
    cured = run_step(exchange_cluster, 1, 1, program("exchange_bare"), "2", "local-rank", env={"PMIX_MCA_gds": "hash"})
    if step.returncode == 0:
        pytest.skip("this PMIx keeps a rank's data over a session")
    assert "NOT-FOUND" in step.stderr and cured.returncode == 0, (step, cured)


def test_mpi4py_and_the_exchange_work_in_one_program(exchange_cluster):
    check = exchange_cluster.run(["/usr/bin/python3", "-c", "import mpi4py"])
    if check.returncode != 0:
        pytest.skip("mpi4py is not installed")
    step = run_step(exchange_cluster, 2, 2, "/usr/bin/python3", "-c", MPI4PY, inside(LIBRARY))
    assert step.returncode == 0 and step.stdout == "right\n" * 4, step


# -- another PMIx, or none


DEADLINE = 2  # seconds
SILENT_PORT = 23456
TALLY_GOALS = {"M6": 400}
TALLY_CONTROL = "bare PMIx waits for a silent server"
SILENT = f"""import socket, time
listener = socket.create_server(("127.0.0.1", {SILENT_PORT}), backlog=50)
print("ready", flush=True)
held = []
while True:
    held.append(listener.accept())
"""
SET_PORT = "for name in ${!PMIX_SERVER_URI*}; do export $name=${!name%:*}:PORT; done"

# The shell commands before the program starts, and the message.
REFUSALS = {
    "rank out of range": ("export PMIX_RANK=99", r'PMIX_RANK is "99", but SLURM_PROCID is \d'),
    "closed port": (SET_PORT.replace("PORT", "9"), r"PMIx \S+ cannot connect to Slurm's server on this node: "),
    "silent server": (SET_PORT.replace("PORT", str(SILENT_PORT)),
                      r"the PMIx server on this node \(node00[12]\) does not answer; look for slurmstepd in its slurmd.log"),
    "unknown transport": ("export PMIX_MCA_ptl=usock", r"cannot connect to Slurm's server on this node: "),
    "no library": ("export SLURM_BOOTSTRAP_PMIX=/nowhere/libpmix.so", r"cannot load PMIx: /nowhere/libpmix.so: "),
}


def run_script(cluster, before):
    script = f"{before}\nexec {program('exchange_probe')} --timeout {DEADLINE * 1000}"
    return run_step(cluster, 2, 2, "bash", "-c", script, options=FIRST_TWO)


@pytest.mark.parametrize("name", REFUSALS)
def test_an_unusable_pmix_is_refused_in_one_sentence(exchange_cluster, name, campaign, tally):
    before, sentence = REFUSALS[name]
    listen = ["python3", "-I", "-S", "-c", SILENT]
    with (
        background(exchange_cluster, listen, node="node001", ready=True),
        background(exchange_cluster, listen, node="node002", ready=True),
    ):
        steps = campaign.run(lambda _: run_script(exchange_cluster, before), range(campaign.size(50, 1)), AT_ONCE)
    for _, step in steps:
        told = sentences(step)
        # No step was ended from outside, so no thread of ours blocks the exit.
        assert step.returncode not in (0, 124, 137) and not successes(step), step
        assert sorted(rank for rank, _ in told) == [0, 1, 2, 3], step
        assert all(re.search(sentence, text) for _, text in told), step
        tally("M6", "steps refused, each rank with its sentence")


@pytest.mark.parametrize("before", ["", "export PMIX_MCA_gds=hash"])
def test_control_a_usable_pmix_is_not_refused(exchange_cluster, before, tally):
    step = run_script(exchange_cluster, before)
    assert step.returncode == 0 and successes(step) == {0, 1, 2, 3}, step
    tally("M6", "done where nothing is wrong")


def test_control_bare_pmix_waits_for_a_silent_server(exchange_cluster):
    before = REFUSALS["silent server"][0]
    with background(exchange_cluster, ["python3", "-I", "-S", "-c", SILENT], node="node001", ready=True):
        step = run_step(exchange_cluster, 1, 1, "bash", "-c", f"{before}\nexec {program('exchange_bare')} 1", limit=6,
                        options=("--mpi=pmix", "-w", "node001"))
    assert step.returncode in (124, 137), step


def test_one_rank_that_cannot_connect_is_named_by_the_others(exchange_cluster):
    step = run_script(exchange_cluster, "if ((SLURM_PROCID == 2)); then export PMIX_RANK=99; fi")
    told = dict(sentences(step))
    assert 'PMIX_RANK is "99"' in told.pop(2) and set(told) == {0, 1, 3}, step
    assert all(text.endswith("missing: rank 2 (node002, local rank 0)") for text in told.values()), step

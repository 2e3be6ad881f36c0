"""What else a program does: it ends in any way, forks, runs MPI. The exchange changes nothing of it, nor is hindered."""

import re

import pytest

from built_files import LIBRARY, inside, program
from exchange_steps import ENDS, run_python, run_step
from harness import module_cluster

AT_ONCE = 3

# Each letter is a step: x exchange, I MPI_Init, B MPI_Barrier, F MPI_Finalize, L one that every other rank ends late.
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

side_effects_cluster = module_cluster("side-effects", "--nodes", "2", "--cpus", "32", "--no-plugin")


@pytest.mark.parametrize("mpi", ["pmix", "none"])
def test_a_program_below_valgrind_exchanges_without_an_error(side_effects_cluster, mpi):
    cluster = side_effects_cluster
    words = ["srun", f"--mpi={mpi}", "-N2", "-n2", "valgrind", "--error-exitcode=9", program("exchange_ends"), "return", "kept"]
    done = cluster.run(words, timeout=120)
    assert done.returncode == 0 and done.stderr.count("ERROR SUMMARY: 0 errors") == 2, done.stderr[-3000:]


def of_each_task(line):
    """srun puts tasks into one line as their ends happen to reach it: one line for each task instead."""
    told = re.fullmatch(r"(srun: error: \S+): tasks? ([\d,-]+): (.+)", line)
    if not told:
        return {line}
    ranges = [(part.split("-")[0], part.split("-")[-1]) for part in told[2].split(",")]
    tasks = [task for first, last in ranges for task in range(int(first), int(last) + 1)]
    return {f"{told[1]}: task {task}: {told[3]}" for task in tasks}


def outcome(step):
    """What Slurm made of a step: its exit and srun's messages about tasks, without the numbers of jobs."""
    lines = [line for line in step.stderr.splitlines() if line.startswith("srun:")]
    lines = {each for line in lines for each in of_each_task(line)}
    return step.returncode, sorted(re.sub(r"\d+\.\d+|\d\d:\d\d:\d\d", "", line) for line in lines)


def test_every_end_of_a_program_is_as_without_the_library(side_effects_cluster, campaign, figure):
    cases = [(how, first) for how in ENDS for first in ("nothing", "exchange", "kept")] * campaign.size(50, 1)

    def run(case):
        return run_step(side_effects_cluster, 2, 2, program("exchange_ends"), *case)

    steps = campaign.run(run, cases, AT_ONCE)
    expected = {how: outcome(step) for (how, first), step in steps if first == "nothing"}
    bad = [(case, step, expected[case[0]]) for case, step in steps if outcome(step) != expected[case[0]]]
    codes = {how: code for how, (code, _) in expected.items()}
    figure("M8", got=f"{len(ENDS)} ways, {len(steps):,} steps, {len(bad)} differences", met=not bad,
           control="PMIx_Init without PMIx_Finalize ends the step")  # fmt: skip
    assert not bad, bad[0]
    assert codes["return"] == codes["child"] == codes["workers"] == 0 and codes["exit3"] == 3 and codes["abort"] != 0


@pytest.mark.parametrize("how", ["return", "_exit"])
def test_control_a_session_left_open_is_a_kill(side_effects_cluster, how):
    step = run_step(side_effects_cluster, 2, 2, program("exchange_ends"), how, "pmix")
    assert step.returncode == 137 and "Killed" in step.stderr, step


def sockets(listing):
    return set(re.findall(r"socket:\[\d+\]", listing))


def test_children_are_refused_and_see_no_connection(side_effects_cluster):
    step = run_python(side_effects_cluster, "fork_program.py")
    lines = step.stdout.splitlines()
    assert step.returncode == 0 and sum(line.endswith(": success") for line in lines) == 12, step
    for child in ("child between", "child in the midst"):
        told = [line for line in lines if line.startswith(child)]
        assert len(told) == 1 and "this process is a forked child of the rank, and exchanges do not work after fork()" in told[0], step
    # What a program inherits without us: slurmstepd's own listening socket (Slurm 22.05).
    plain = run_step(side_effects_cluster, 1, 1, "ls", "-l", "/proc/self/fd")
    assert len(sockets(step.stdout)) == len(sockets(plain.stdout)), (step.stdout, plain.stdout)


def test_control_a_child_of_bare_pmix_inherits_the_connection(side_effects_cluster):
    plain = run_step(side_effects_cluster, 1, 1, "ls", "-l", "/proc/self/fd")
    step = run_step(side_effects_cluster, 1, 1, program("exchange_bare"), "1", "look")
    assert len(sockets(step.stdout)) == len(sockets(plain.stdout)) + 1, (step.stdout, plain.stdout)


LOST_CONNECTION = "status = -61"


def test_mpi_and_the_exchange_take_turns(side_effects_cluster, campaign, figure):
    # Slurm's PMIx 4.2.2 loses what it knows of a rank in shared memory when the rank's first session ends, whoever had
    # it; a second session finds it in the hash store alone (the control below).
    cases = [(order, {}) for order in AFTER_INIT] + [(order, {"PMIX_MCA_gds": "hash"}) for order in BEFORE_INIT]
    steps = [(order, run_step(side_effects_cluster, 2, 4, program("exchange_mpi"), order, env=env))
             for order, env in campaign.each(cases * campaign.size(50, 1))]
    bad = [(order, step) for order, step in steps if step.returncode != 0]
    lost = sum(LOST_CONNECTION in step.stderr for _, step in steps)
    figure("M7", got=f"{len(cases)} orders, {len(steps)} steps, {len(bad)} failed, {lost} lost connections",
           met=not bad and not lost, control="a second session of bare PMIx lacks its local rank")
    assert not bad, bad[0]
    assert not any(LOST_CONNECTION in step.stderr for _, step in steps)


def test_control_a_second_session_of_bare_pmix_lacks_its_local_rank(side_effects_cluster):
    """So MPI_Init fails after any other session, unless PMIx keeps its data in the hash store."""
    step = run_step(side_effects_cluster, 1, 1, program("exchange_bare"), "2", "local-rank")
    cured = run_step(side_effects_cluster, 1, 1, program("exchange_bare"), "2", "local-rank", env={"PMIX_MCA_gds": "hash"})
    if step.returncode == 0:
        pytest.skip("this PMIx keeps a rank's data over a session")
    assert "NOT-FOUND" in step.stderr and cured.returncode == 0, (step, cured)


def test_mpi4py(side_effects_cluster):
    check = side_effects_cluster.run(["/usr/bin/python3", "-c", "import mpi4py"])
    if check.returncode != 0:
        pytest.skip("mpi4py is not installed")
    step = run_step(side_effects_cluster, 2, 2, "/usr/bin/python3", "-c", MPI4PY, inside(LIBRARY))
    assert step.returncode == 0 and step.stdout == "right\n" * 4, step

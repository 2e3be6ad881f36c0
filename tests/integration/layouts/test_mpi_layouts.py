"""The layouts of the matrix once more, with mpi4py in the tasks: MPI's ranks, intra and inter ranks are ours."""

import re

import pytest

from case_shell import HELD
from harness import OPEN_MPI, TESTS, needs_pmix
from layout_cases import arbitrary_cases, fixed, generated, het_cases, plain_cases
from layout_runner import Outcome, outcome, outcomes_of, runner  # two of them are fixtures

pytestmark = needs_pmix

TIME_LIMIT = 40
GENERATED_IN_FULL = 750
# Open MPI 5 does not start without HOME, which --export takes from some of the steps.
PROGRAM = f"/usr/bin/env HOME=/home/alice /usr/bin/python3 {TESTS}/layouts/mpi_ranks.py"
# A terminal joins the output of its tasks with its own; a job that is requeued is killed in the midst of MPI.
LEFT_OUT = {"terminal", "requeue", "step inside a task, port chosen there", "step inside a task",
            "srun of another job from a task", "job sent from a task", "job array"}
# Where components are not in the order of their nodes, Slurm 22.05's PMIx connects to the wrong ones and ends the step,
# with and without us. In a plain job Slurm may place them so, whatever the options of the case.
NOT_BY_SLURM = {case.name for case in het_cases() if case.naive_fails or not case.slow}
# Open MPI 5.0.7 does not come out of its first collective where one node has 11 ranks and three have one each, with us
# and with --bootstrap=off.
NOT_BY_MPI = {"odd job, block", "odd job, cyclic", "odd job, plane"} if OPEN_MPI.startswith("5.") else set()


def pytest_generate_tests(metafunc):
    if metafunc.function is test_mpis_ranks_are_ours:
        cases = plain_cases() + arbitrary_cases() + het_cases()
        if metafunc.config.getoption("--full"):
            cases = fixed() + generated(GENERATED_IN_FULL, metafunc.config.getoption("--seed"))
        cases = [case for case in cases if case.name not in LEFT_OUT | NOT_BY_SLURM | NOT_BY_MPI]
        assert len(cases) >= 40
        metafunc.parametrize("outcome", cases, indirect=True, ids=str)


# Open MPI 4.1.4 jumps to address 0 in MPI_Init now and then, without the plugin as well: etc/doc/mpirun-facts.md.
CRASH, MOST_CRASHES = "Failing at address: (nil)", 2
crashed = []


@pytest.fixture(scope="module")
def run(runner):
    def run(case, program=PROGRAM):
        done, _ = runner.run(case, program, {"SLURM_MPI_TYPE": "pmix"}, limit=TIME_LIMIT)
        said = sorted(map(int, re.findall(r"^(?:\d+: )?equal: (\d+) ranks$", done.stdout + done.stderr, re.M)))
        # srun with PMIx may not end after its last task where it has several components: Slurm's, see CONTRIBUTING.md.
        has_ended = done.returncode == 0 or done.returncode in HELD and case in het_cases()
        is_right = has_ended and said == sorted(case.steps)
        if not is_right and CRASH in done.stderr and len(crashed) < MOST_CRASHES:
            crashed.append(case.name)
            return Outcome(case, [], [])
        return Outcome(case, [], [] if is_right else [f"exit status {done.returncode}: {said}", done.stdout[-400:], done.stderr[-4000:]])

    return run


@pytest.fixture(scope="module")
def outcomes(request, run):
    with outcomes_of(request, run) as outcomes:
        yield outcomes


def test_mpis_ranks_are_ours(outcome):
    assert not outcome.trouble, outcome.text
    if outcome.case.name in crashed:
        pytest.skip("Open MPI crashed by itself")


def test_control_another_rank_is_noticed(run):
    case = next(case for case in plain_cases() if case.name == "uneven cyclic")
    assert "LOCAL_RANK is 7, and" in run(case, f"/usr/bin/env LOCAL_RANK=7 {PROGRAM}").text

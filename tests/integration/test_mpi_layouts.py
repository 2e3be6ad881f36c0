"""The layouts of the matrix once more, with mpi4py in the tasks: MPI's ranks, intra and inter ranks are ours."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from case_shell import HELD, run_script
from harness import needs_pmix, steps_run_again
from layout_cases import PREAMBLE, arbitrary_cases, fixed, generated, het_cases, plain_cases
from test_layouts import GENERATED_IN_FULL, Runner

pytestmark = needs_pmix

AT_ONCE = 3
TIME_LIMIT = 40
# Open MPI 5 does not start without HOME, which --export takes from some of the steps.
PROGRAM = "/usr/bin/env HOME=/home/alice /usr/bin/python3 /opt/slurm-bootstrap/tests/integration/mpi_ranks.py"
# A terminal joins the output of its tasks with its own; a job that is requeued is killed in the midst of MPI.
LEFT_OUT = {"terminal", "requeue", "step inside a task, port chosen there", "step inside a task",
            "srun of another job from a task", "job sent from a task", "job array"}
# Open MPI 5.0.7 does not come out of its first collective where one node has 11 ranks and three have one each, with us
# and with --bootstrap=off.
HANGS_IN_MPI_5 = {"odd job, block", "odd job, cyclic", "odd job, plane"}


def not_by_mpi():
    said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    return HANGS_IN_MPI_5 if re.search(r"Open MPI\) 5\.", said) else set()


@pytest.fixture(scope="module")
def runner(wide_cluster, probe):
    runner = Runner(wide_cluster, probe)
    yield runner
    wide_cluster.run(["scancel", runner.wide, runner.odd])  # other tests of this cluster need the GPUs


def run(runner, case, number, program=PROGRAM):
    """What is wrong with the case, or ''. Open MPI 4.1.4 was seen to crash in MPI_Init, on a busy machine."""
    out = f"/home/alice/mpi/{number}"
    variables = {"OUT": out, "probe": "unused", "WIDE": runner.wide, "ODD": runner.odd, "SLURM_MPI_TYPE": "pmix"}
    for _ in range(3):
        done = run_script(runner.cluster, f"{PREAMBLE}\nexport PROBE='{program}'\n{case.script}", variables, TIME_LIMIT)
        if "SIGSEGV" not in done.stderr:
            break
        steps_run_again.append(case.name)
    said = sorted(map(int, re.findall(r"^(?:\d+: )?equal: (\d+) ranks$", done.stdout + done.stderr, re.M)))
    # srun with PMIx may not end after its last task where it has several components: Slurm's, CONTRIBUTING.md has more.
    has_ended = done.returncode == 0 or done.returncode in HELD and case in het_cases()
    if has_ended and said == sorted(case.steps):
        return ""
    return f"{case.name}: {case.script}: exit status {done.returncode}: {said} {done.stdout[-400:]} {done.stderr[-4000:]}"


def test_mpis_ranks_are_ours_in_every_layout(runner, request):
    cases = plain_cases() + arbitrary_cases() + het_cases()
    if request.config.getoption("--full"):
        cases = fixed() + generated(GENERATED_IN_FULL, request.config.getoption("--seed") or 1)
    # Where components are not in the order of their nodes, Slurm 22.05's PMIx connects to the wrong ones and ends the
    # step, with and without us. In a plain job Slurm may place them so, whatever the case says.
    not_by_slurm = {case.name for case in het_cases() if case.naive_fails or not case.slow}
    cases = [case for case in cases if case.name not in LEFT_OUT | not_by_slurm | not_by_mpi()]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = list(filter(None, pool.map(lambda pair: run(runner, pair[1], pair[0]), enumerate(cases))))
    assert not wrong, "\n" + "\n".join(wrong)
    assert len(cases) >= 40


def test_control_another_rank_is_noticed(runner):
    case = next(case for case in plain_cases() if case.name == "uneven cyclic")
    assert "LOCAL_RANK is 7, and" in run(runner, case, "control", f"/usr/bin/env LOCAL_RANK=7 {PROGRAM}")

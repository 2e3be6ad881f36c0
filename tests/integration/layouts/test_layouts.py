"""The layout matrix: real steps of every shape, whose ranks really meet. The expected values come from where each task ran."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from built_files import PROBE
from case_shell import HELD, run_script
from harness import wait_for
from layout_cases import PREAMBLE, Case, crowded_cases, fixed, generated, unheard_cases
from layout_oracle import Report, as_launch_scripts_do, by_step, differences, read_reports

AT_ONCE = 3
GENERATED, GENERATED_IN_FULL = 20, 750
NAMED = {case.name: case for case in fixed()}
NAIVE_FAILS = [case for case in fixed() if case.naive_fails]
LEAST, LEAST_IN_FULL = (60, 400), (500, 5000)  # steps and tasks


def pytest_generate_tests(metafunc):
    if metafunc.function is test_every_task_has_the_right_values:
        option = metafunc.config.getoption
        count = GENERATED_IN_FULL if option("--full") else GENERATED
        metafunc.parametrize("outcome", fixed() + crowded_cases() + generated(count, option("--seed")), indirect=True, ids=str)


@dataclass
class Outcome:
    case: Case
    reports: list[Report]
    trouble: list[str]

    @property
    def text(self) -> str:
        return "\n  ".join([f"{self.case.name}: {self.case.script}", *self.trouble])


@pytest.fixture(scope="module")
def run(wide_cluster):
    """Runs a case in its own folder in alice's home, with an option for the probe. Frees the GPUs at the end, which other tests of
    this cluster need."""
    jobs = {"WIDE": wide_cluster.allocate("-N4", "--ntasks-per-node=16", "--gres=gpu:4"), "ODD": wide_cluster.allocate("-N4", "-n14")}
    numbers = itertools.count(1)

    def run(case: Case, probe_option: str = "") -> Outcome:
        out = f"/home/alice/layouts/{next(numbers)}"
        script = f'{PREAMBLE}\nPROBE="$PROBE {probe_option}"\n{case.script}'
        done = run_script(wide_cluster, script, {"OUT": out, "probe": PROBE, **jobs})
        reports = read_reports(wide_cluster.state / out[1:])
        trouble = differences(reports, case.steps, case.hosts)
        if done.returncode != 0:
            trouble.append(f"exit status {done.returncode}")
        if trouble:
            trouble += done.stderr.splitlines()[:12]
        return Outcome(case, reports, trouble)

    yield run
    wide_cluster.run(["scancel", *jobs.values()])


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, run):
    """{name: future} of the cases of the selected tests, which all begin now. Cases that wait for Slurm come first, and have their
    own threads."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    cases = {case.name: case for item in items if (case := item.callspec.params.get("outcome"))}
    with ThreadPoolExecutor(AT_ONCE) as quick, ThreadPoolExecutor(AT_ONCE) as waiting:
        begun = sorted(cases.values(), key=lambda case: not case.slow)
        try:
            yield {case.name: (waiting if case.slow else quick).submit(run, case) for case in begun}
        finally:
            for each in (quick, waiting):
                each.shutdown(cancel_futures=True)


@pytest.fixture
def outcome(request: pytest.FixtureRequest, outcomes: dict) -> Outcome:
    return outcomes[request.param.name].result()


def test_every_task_has_the_right_values(outcome):
    assert not outcome.trouble, outcome.text


@pytest.mark.parametrize("outcome", [NAMED["requeue"]], indirect=True, ids=str)
def test_a_requeued_job_gets_another_port(outcome):
    steps = by_step(outcome.reports)
    assert [(key[1], key[2]) for key in steps] == [("0", "0"), ("0", "1")]
    assert len({key[0] for key in steps}) == 1
    assert len({tasks[0]["MASTER_PORT"] for tasks in steps.values()}) == 2


@pytest.mark.parametrize("outcome", [NAMED["step inside a task, port chosen there"]], indirect=True, ids=str)
def test_a_port_chosen_inside_a_task_is_kept(outcome):
    outer, inner = by_step(outcome.reports).values()
    assert {task["MASTER_PORT"] for task in inner} == {"31013"} != {task["MASTER_PORT"] for task in outer}


@pytest.mark.parametrize("outcome", NAIVE_FAILS, indirect=True, ids=str)
def test_control_rules_of_launch_scripts_are_found_wrong(outcome):
    naive = [as_launch_scripts_do(report) for report in outcome.reports]
    assert differences(naive, outcome.case.steps, outcome.case.hosts)


def test_enough_layouts_were_run(outcomes, request, seed, figure):
    """Keeps the figure of the report if all cases ran."""
    if not NAMED.keys() <= outcomes.keys():
        pytest.skip("only some layouts were selected")
    found = [each.result() for each in outcomes.values()]
    steps, tasks = sum(len(by_step(each.reports)) for each in found), sum(len(each.reports) for each in found)
    wrong = [each.case.name for each in found if each.trouble]
    got = f"{steps} layouts, {tasks:,} tasks, {len(wrong)} differences"
    is_enough = steps >= LEAST_IN_FULL[0] and tasks >= LEAST_IN_FULL[1]
    figure("C3", got=got, met=is_enough and not wrong, seed=seed, why="" if is_enough else "fewer layouts than the goal",
           control="the rules of launch scripts are found wrong")
    assert (steps, tasks) >= (LEAST_IN_FULL if request.config.getoption("--full") else LEAST)
    assert len(NAIVE_FAILS) >= 20


@pytest.mark.parametrize("case", unheard_cases(), ids=lambda case: case.name)
def test_components_without_a_common_decision_are_left_alone_with_one_sentence(run, case):
    outcome = run(case)
    assert outcome.reports and not any("RANK" in report for report in outcome.reports), outcome.text
    sentences = [line for line in outcome.trouble if "bootstrap: " in line]
    assert len(sentences) == 1, outcome.text
    assert "--export" in sentences[0] and "SLURM_BOOTSTRAP_DECISION" in sentences[0]


def test_control_ranks_of_launch_scripts_do_not_meet(run):
    outcome = run(NAMED["rank 0 on the last node"], "naive")
    assert any("exit status" in line for line in outcome.trouble)
    assert any("not an address of node003" in line for line in outcome.trouble), outcome.text
    assert not {f"exit status {status}" for status in HELD} & set(outcome.trouble), outcome.text


def test_a_case_that_hangs_is_ended_with_its_jobs(wide_cluster):
    """Also if a process outlives it that has its output open, as salloc can."""
    folder, jobs = "/home/alice/layouts/held", ["squeue", "--me", "-h", "-o", "%Z"]
    script = f"salloc --no-shell -Q -N1 -n1; setsid sleep 8 & {' '.join(jobs)}; sleep 60"
    held = run_script(wide_cluster, script, {"OUT": folder}, limit=2, grace=2)
    assert held.returncode in HELD and folder in held.stdout.splitlines(), held
    wait_for(lambda: folder not in wide_cluster.run(jobs).stdout.splitlines(), what="its job is still there")


def test_every_node_can_still_run_jobs(outcomes, wide_cluster):
    assert wide_cluster.script("status").returncode == 0

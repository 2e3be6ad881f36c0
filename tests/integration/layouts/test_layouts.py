"""The layout matrix: real steps of every shape, whose ranks really meet, against what really ran where."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pytest

from case_shell import HELD, run_script
from harness import Cluster, wait_for
from layout_cases import PREAMBLE, Case, fixed, generated, unheard_cases
from layout_oracle import Report, as_launch_scripts_do, by_step, differences, read_reports

GENERATED = 20
GENERATED_IN_FULL = 750
AT_ONCE = 3


@dataclass
class Outcome:
    case: Case
    reports: list[Report]
    trouble: list[str]

    @property
    def text(self) -> str:
        return "\n  ".join([f"{self.case.name}: {self.case.script}", *self.trouble])


class Runner:
    """Runs cases in a cluster, each with a folder of its own in alice's home."""

    def __init__(self, cluster: Cluster, probe: str):
        self.cluster = cluster
        self.probe = probe
        self.count = 0
        self.wide = cluster.allocate("-N4", "--ntasks-per-node=16", "--gres=gpu:4")
        self.odd = cluster.allocate("-N4", "-n14")

    def run(self, case: Case, probe_options: str = "") -> Outcome:
        self.count += 1
        out = f"/home/alice/layouts/{self.count}"
        variables = {"OUT": out, "probe": self.probe, "WIDE": self.wide, "ODD": self.odd}
        if crc32(case.name.encode()) % 2:  # about half of the cases
            variables["SLURM_BOOTSTRAP_FRAMEWORKS"] = "auto,horovod"
        done = run_script(self.cluster, f"{PREAMBLE}\nPROBE=\"$PROBE {probe_options}\"\n{case.script}", variables)
        reports = read_reports(Path(f"{self.cluster.state}{out}"))
        trouble = differences(reports, case.steps, case.hosts)
        if done.returncode != 0:
            trouble.append(f"exit status {done.returncode}")
        if trouble:
            trouble += done.stderr.splitlines()[:12]
        return Outcome(case, reports, trouble)


@pytest.fixture(scope="module")
def runner(wide_cluster: Cluster, probe: str) -> Runner:
    return Runner(wide_cluster, probe)


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--seed") or random.SystemRandom().randrange(1, 1_000_000)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, runner: Runner, seed: int) -> list[Outcome]:
    """Every case, run once; several at once, and those that wait for Slurm first."""
    full = request.config.getoption("--full")
    cases = fixed() + generated(GENERATED_IN_FULL if full else GENERATED, seed)
    cases.sort(key=lambda case: not case.slow)
    slow = sum(case.slow for case in cases)
    with ThreadPoolExecutor(AT_ONCE) as quick, ThreadPoolExecutor(AT_ONCE) as waiting:
        running = [waiting.submit(runner.run, case) for case in cases[:slow]]
        running += [quick.submit(runner.run, case) for case in cases[slow:]]
        return [future.result() for future in running]


def test_every_task_of_every_layout_is_right(outcomes, seed, request, capsys, figure):
    steps = sum(len(by_step(outcome.reports)) for outcome in outcomes)
    tasks = sum(len(outcome.reports) for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if outcome.trouble]
    with capsys.disabled():
        print(f"\nlayout matrix: {steps} layouts, {tasks} tasks, {len(wrong)} differences, seed {seed}")
    is_enough = steps >= 500 and tasks >= 5000
    figure("C3", got=f"{steps} layouts, {tasks:,} tasks, {len(wrong)} differences", met=is_enough and not wrong, seed=seed,
           why="" if is_enough else "fewer layouts than the goal", control="the rules of launch scripts are found wrong")
    assert not wrong, "\n" + "\n".join(outcome.text for outcome in wrong)
    least_steps, least_tasks = (500, 5000) if request.config.getoption("--full") else (60, 400)
    assert steps >= least_steps and tasks >= least_tasks


def test_a_requeued_job_gets_another_port(outcomes):
    steps = by_step(named(outcomes, "requeue").reports)
    assert [(key[1], key[2]) for key in steps] == [("0", "0"), ("0", "1")]
    assert len({key[0] for key in steps}) == 1
    assert len({tasks[0]["MASTER_PORT"] for tasks in steps.values()}) == 2


def test_a_port_chosen_inside_a_task_is_kept(outcomes):
    outer, inner = by_step(named(outcomes, "step inside a task, port chosen there").reports).values()
    assert {task["MASTER_PORT"] for task in inner} == {"31013"} != {task["MASTER_PORT"] for task in outer}


@pytest.mark.parametrize("case", unheard_cases(), ids=lambda case: case.name)
def test_components_that_cannot_hear_of_each_other_are_left_alone_with_one_sentence(runner, case):
    outcome = runner.run(case)
    assert outcome.reports and not any("RANK" in report for report in outcome.reports), outcome.text
    sentences = [line for line in outcome.trouble if "bootstrap: " in line]
    assert len(sentences) == 1, outcome.text
    assert "--export" in sentences[0] and "SLURM_BOOTSTRAP_DECISION" in sentences[0]


def test_control_rules_of_launch_scripts_are_found_wrong(outcomes):
    blind = []
    for outcome in outcomes:
        if outcome.case.naive_fails:
            naive = [as_launch_scripts_do(report) for report in outcome.reports]
            if not differences(naive, outcome.case.steps, outcome.case.hosts):
                blind.append(outcome.case.name)
    assert not blind
    assert sum(outcome.case.naive_fails for outcome in outcomes) >= 20


def test_control_ranks_of_launch_scripts_do_not_meet(runner):
    case = next(case for case in fixed() if case.name == "rank 0 on the last node")
    started = time.monotonic()
    outcome = runner.run(case, "naive")
    assert any("exit status" in line for line in outcome.trouble)
    assert any("not an address of node003" in line for line in outcome.trouble), outcome.text
    assert time.monotonic() - started < 20


def test_a_case_that_is_held_ends_with_its_jobs(runner):
    """Also where something outlives it that has its output open, as salloc can."""
    folder, jobs = "/home/alice/layouts/held", ["squeue", "--me", "-h", "-o", "%Z"]
    script = f"salloc --no-shell -Q -N1 -n1; setsid sleep 8 & {' '.join(jobs)}; sleep 60"
    held = run_script(runner.cluster, script, {"OUT": folder}, limit=2, grace=2)
    assert held.returncode in HELD and folder in held.stdout.splitlines(), held
    wait_for(lambda: folder not in runner.cluster.run(jobs).stdout.splitlines(), what="its job is still there")


def test_no_node_suffered(outcomes, runner):
    assert runner.cluster.script("status").returncode == 0


def named(outcomes: list[Outcome], name: str) -> Outcome:
    return next(outcome for outcome in outcomes if outcome.case.name == name)

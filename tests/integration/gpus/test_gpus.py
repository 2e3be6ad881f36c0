"""The GPU matrix: each task of real steps gets its own GPUs by the order of its list, and no GPU is hidden from a peer."""

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from built_files import PROBE, double
from case_shell import run_script
from gpu_cases import (OPEN, OUR_MODES, PREAMBLE, TASK, UNEVEN, Case, basic_cases, fixed, generated, placed,
                       refused_cases, step)
from gpu_oracle import Wanted, cuda_devices, differences, given_to_jobs, numbers
from harness import CGROUP_VERSIONS, Cluster, our_lines, wait_for
from layout_oracle import Report, by_step, read_reports

IN_SHORT = {"uneven": 5, "open": 5}  # generated steps
IN_FULL = {"uneven": 100, "open": 60}
PARTS = 6  # of the named cases: the short form runs one for each version of cgroups and two without cgroups, the full form all
AT_ONCE = 4


@dataclass
class Outcome:
    case: Case
    reports: list[Report]
    sentences: list[str]  # of the plugin
    trouble: list[str]

    @property
    def text(self) -> str:
        return "\n  ".join([f"{self.case.name}: {self.case.script}", *self.trouble])


class Runner:
    """Runs cases in a cluster, each with a folder of its own in alice's home."""

    runs = itertools.count(1)  # shared by all runners: several may use one cluster

    def __init__(self, cluster: Cluster, names: dict[str, int] | None = None, variable: str = "CUDA_VISIBLE_DEVICES", label: str = ""):
        self.cluster = cluster
        self.label = label
        self.names = names
        self.variable = variable  # of the vendor
        cluster.write_home("gpu_task", TASK)

    def run(self, case: Case) -> Outcome:
        out = f"/home/alice/gpus/{next(self.runs)}"
        variables = {"OUT": out, "probe": PROBE}
        done = run_script(self.cluster, f"{PREAMBLE}\n{case.script}", variables)
        folder = Path(f"{self.cluster.state}{out}")
        reports = [self.as_cuda(report) for report in read_reports(folder)]
        trouble = differences(reports, given_to_jobs(folder), case.steps, case.wanted, self.names)
        sentences = our_lines(done)
        if done.returncode != 0:
            trouble.append(f"exit status {done.returncode}")
        if case.warnings not in (None, len(sentences)):
            trouble.append(f"{len(sentences)} sentences of ours and not {case.warnings}")
        if trouble:
            trouble[8:] = [f"... {len(trouble) - 8} more"] if len(trouble) > 8 else []
            trouble += done.stderr.splitlines()[:12]
        return Outcome(case, reports, sentences, trouble)

    def as_cuda(self, report: Report) -> Report:
        """The lists of other vendors also count the devices that can be opened; Intel's mask has no order."""
        if self.variable == "CUDA_VISIBLE_DEVICES":
            return report
        assert "CUDA_VISIBLE_DEVICES" not in report and "CUDA_DEVICE_ORDER" not in report
        words = report.get(self.variable, "none").split(",")
        if self.variable == "ZE_AFFINITY_MASK":
            words.sort()
        return report | {"CUDA_VISIBLE_DEVICES": ",".join(words), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def run_all(self, cases: list[Case]) -> list[Outcome]:
        """Runs several at once, first those that wait for Slurm. If a hostfile assigns the tasks, and other jobs have GPUs of those
        nodes, Slurm gives the job other GPUs and then refuses its step, also without the plugin: such a case runs alone."""
        alone = [case for case in cases if "hostfile" in case.script]
        others = sorted((case for case in cases if case not in alone), key=lambda case: not case.slow)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = list(pool.map(self.run, others))
        for case in alone:
            wait_for(lambda: self.cluster.run(["squeue", "-h"]).stdout == "", 30, "a job has not ended")
            outcomes.append(self.run(case))
        return outcomes


def gpu_list(cluster: dict[str, int]) -> list[str]:
    return ["--nodes", str(len(cluster)), "--gpus", ",".join(map(str, cluster.values())), "--cpus", "64"]


@pytest.fixture(scope="module", params=CGROUP_VERSIONS)
def uneven(request, cluster_factory) -> Runner:
    # Binds some steps to CPUs.
    options = [f"--constrain-devices={request.param}", "--set", "TaskPlugin=task/cgroup,task/affinity"]
    cluster = cluster_factory(f"gpus-{request.param}").up(*gpu_list(UNEVEN), *options)
    return Runner(cluster, label=f"devices constrained by cgroup {request.param}")


@pytest.fixture(scope="module")
def open_to_all(cluster_factory) -> Runner:
    return Runner(cluster_factory("open-gpus").up(*gpu_list(OPEN)))


def outcomes_of(request, runner: Runner, gpus: dict[str, int], label: str, seed: int) -> list[Outcome]:
    if request.config.getoption("--full"):
        return runner.run_all(fixed(gpus) + generated(gpus, IN_FULL[label], seed))
    # Each run takes other parts, so that the short form covers all of them in time.
    parts = {"v1": [seed], "v2": [seed + PARTS // 2]}.get(runner.label[-2:], [seed, seed + PARTS // 2])
    cases = [case for part in parts for case in fixed(gpus)[part % PARTS::PARTS]]
    return runner.run_all(cases + generated(gpus, IN_SHORT[label], seed))


def judge(outcomes: list[Outcome], seed: int, label: str, least: int, figure):
    steps = sum(len(by_step(outcome.reports)) for outcome in outcomes)
    tasks = sum(len(outcome.reports) for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if outcome.trouble]
    figure("C6", part=label, got=f"{steps} layouts, {tasks:,} tasks, {len(wrong)} differences", seed=seed,
           met=not wrong and steps >= least, control="without the plugin Slurm hides the peers, and the oracle says so")
    assert not wrong, "\n" + "\n".join(outcome.text for outcome in wrong)
    assert steps >= least


def test_every_task_has_gpus_of_its_own_and_sees_its_peers(uneven, request, seed, figure):
    outcomes = outcomes_of(request, uneven, UNEVEN, "uneven", seed)
    judge(outcomes, seed, uneven.label, 200 if request.config.getoption("--full") else 17, figure)


def test_every_task_has_gpus_of_its_own_where_all_can_be_opened(open_to_all, request, seed, figure):
    outcomes = outcomes_of(request, open_to_all, OPEN, "open", seed)
    judge(outcomes, seed, "devices open to all", 150 if request.config.getoption("--full") else 25, figure)


@pytest.mark.parametrize("case", refused_cases(), ids=lambda case: case.name)
def test_more_tasks_than_gpus_are_refused_in_one_sentence(uneven, case):
    outcome = uneven.run(case)
    assert not outcome.reports, outcome.text
    assert len(outcome.sentences) == case.warnings, outcome.text
    for sentence in outcome.sentences:
        assert "--bootstrap-gpu-share" in sentence and len(sentence) < 400
    hosts = {re.search(r"\d+ tasks on (\w+) would", sentence)[1] for sentence in outcome.sentences}
    assert len(hosts) == len(outcome.sentences), outcome.text
    assert any("exit status" in line or "srun ended with 1" in line for line in outcome.trouble), outcome.text


HIDDEN = "-N1 -n4 -w {with 4} --gpus-per-task=1"


def test_without_the_plugin_slurm_hides_the_peers(uneven):
    """Control: the oracle finds what users find without the plugin, and no fault with it."""
    outcome = uneven.run(placed(Case("hidden", f"srun --bootstrap=off {HIDDEN} $PROBE", ()), UNEVEN))
    assert sorted(task["@open"] for task in outcome.reports) == ["0", "1", "2", "3"]
    assert {task["CUDA_VISIBLE_DEVICES"] for task in outcome.reports} == {"0"}
    devices = {task["SLURM_LOCALID"]: cuda_devices(task) for task in outcome.reports}
    assert devices == {"0": [0], "1": [1], "2": [2], "3": [3]}  # so set_device(LOCAL_RANK) fails except for one task
    as_scripts_do = [task | {"RANK": task["SLURM_PROCID"], "LOCAL_RANK": task["SLURM_LOCALID"], "WORLD_SIZE": "4",
                             "BOOTSTRAP_GPU": "0", "SLURM_BOOTSTRAP_STEP": "0.0.0"} for task in outcome.reports]
    jobs = {task["SLURM_JOB_ID"]: {"node003": {0, 1, 2, 3}} for task in outcome.reports}
    found = differences(as_scripts_do, jobs, (4,), Wanted())
    assert any("set_device(LOCAL_RANK) is None" in line for line in found), found
    assert any("tasks can open [(0,), (1,), (2,), (3,)]" in line for line in found), found

    outcome = uneven.run(placed(Case("not hidden", f"srun --quiet {HIDDEN} $PROBE", (4,)), UNEVEN))
    assert not outcome.trouble, outcome.text
    assert {task["@open"] for task in outcome.reports} == {"0,1,2,3"}
    assert len({task["CUDA_VISIBLE_DEVICES"] for task in outcome.reports}) == 1
    assert len({cuda_devices(task)[int(task["LOCAL_RANK"])] for task in outcome.reports}) == 4


def test_slurm_gets_our_binding_for_one_srun_alone(uneven):
    """The plugin's default applies to one srun: not to its programs, and not to other steps."""
    script = "srun --quiet -N1 -n2 --gpus-per-task=1 bash -c 'env | grep SLURM_GPU_BIND'; [ $? = 1 ]"
    assert "exit status 1" not in uneven.run(Case("variable", script, ())).trouble
    nested = "srun --quiet -N1 -n1 -c4 --gres=gpu:4 srun --bootstrap=off --overlap -c1 -n4 --gpus-per-task=1 $PROBE"
    assert sorted(len(numbers(task["@open"])) for task in uneven.run(Case("nested", nested, ())).reports) == [1] * 4


@pytest.fixture
def uuids(open_to_all):
    """Slurm as if it knew the GPUs' UUIDs: lists of texts that the plugin must not change."""
    original = open_to_all.cluster.plugstack

    def configure(text: str) -> Runner:
        names = {text.replace("%d", str(number)): number for number in range(4)}
        open_to_all.cluster.write_plugstack(f"required {double('site_spank')} uuids={','.join(names)}\n{original}")
        return Runner(open_to_all.cluster, names)

    yield configure
    open_to_all.cluster.write_plugstack(original)


def test_lists_of_uuids_stay_uuids(uuids):
    runner = uuids("GPU-%d-ab12")
    cases = [placed(case, OPEN) for mode in OUR_MODES for case in basic_cases(mode)]
    outcomes = runner.run_all([case for case in cases if "task per GPU" not in case.name])
    wrong = [outcome for outcome in outcomes if outcome.trouble]
    assert not wrong, "\n" + "\n".join(outcome.text for outcome in wrong)
    words = {word for outcome in outcomes for task in outcome.reports for word in task["CUDA_VISIBLE_DEVICES"].split(",")}
    assert words == {f"GPU-{number}-ab12" for number in range(4)}


@pytest.mark.parametrize("mode", OUR_MODES)
def test_a_mig_instance_stands_alone_in_its_list(uuids, mode):
    """CUDA gives a process one MIG instance, the first of its list."""
    runner = uuids("MIG-%d")
    outcome = runner.run(placed(step("MIG", "-N1 -n4 --gres=gpu:4", 4, mode), OPEN))
    lists = sorted(task["CUDA_VISIBLE_DEVICES"] for task in outcome.reports)
    assert lists == [f"MIG-{number}" for number in range(4)], outcome.text
    assert len(outcome.sentences) <= 1, outcome.text
    assert {task["LOCAL_RANK"] for task in outcome.reports} == {task["BOOTSTRAP_GPU"] for task in outcome.reports} == {"0"}
    assert sorted(task["RANK"] for task in outcome.reports) == ["0", "1", "2", "3"]


ONE_NODE = {"node001": 4}


def test_intels_lists_are_right_and_cannot_have_an_order(cluster_factory):
    cluster = cluster_factory("gpus-intel").up(*gpu_list(ONE_NODE), "--gpu-env", "intel")
    runner = Runner(cluster, variable="ZE_AFFINITY_MASK")
    cases = [placed(case, ONE_NODE) for mode in ("index", "narrow") for case in basic_cases(mode)[:5:2]]
    wrong = [outcome for outcome in runner.run_all(cases) if outcome.trouble]
    assert not wrong, "\n" + "\n".join(outcome.text for outcome in wrong)
    outcome = runner.run(placed(step("a mask has no order", "-N1 -n2 --gres=gpu:2", 2, "first"), ONE_NODE))
    assert not outcome.reports and len(outcome.sentences) == 1 and "ZE_AFFINITY_MASK" in outcome.sentences[0], outcome.text
    assert cluster.script("status").returncode == 0


def test_every_node_can_still_run_jobs(uneven, open_to_all):
    assert uneven.cluster.script("status").returncode == 0
    assert open_to_all.cluster.script("status").returncode == 0

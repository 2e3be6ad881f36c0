"""Near GPUs on a real cluster: two sockets of one CPU each, which this machine's CPUs 0 and 1 stand in for, and a topology
file in which the first two GPUs are near to CPU 1 and the last two near to CPU 0."""

import os
import shutil
from pathlib import Path

import pytest

from built_files import COMMAND, PROBE
from harness import REPOSITORY
from layout_oracle import read_reports

NEAR = {"0": {2, 3}, "1": {0, 1}}  # GPUs by CPU
TOPOLOGY = REPOSITORY / "tests/data/topologies/two-cpus.txt"


class Node:
    """One node with four GPUs; `run` answers with the reports of a step's tasks, in order of rank."""

    def __init__(self, cluster, file):
        self.cluster, self.file, self.count = cluster, Path(file), 0

    def place_topology(self):
        shutil.copyfile(TOPOLOGY, self.file)
        self.file.chmod(0o644)

    def run(self, *options, program=()):
        self.count += 1
        out = f"/home/alice/near/{self.count}"
        self.cluster.run(["mkdir", "-p", out])
        done = self.cluster.run(["srun", "-N1", "--gres=gpu:4", *options, *(program or (PROBE, out, "gpus"))])
        assert done.returncode == 0, done.stderr
        reports = read_reports(Path(f"{self.cluster.state}{out}"))
        return sorted(reports, key=lambda report: int(report["SLURM_PROCID"])), done


@pytest.fixture(scope="module")
def node(cluster_factory):
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs CPUs 0 and 1")
    cluster = cluster_factory("near")
    file = f"{cluster.state}/etc/topology.txt"
    cluster.up("--nodes", "1", "--gpus", "4", "--cpus", "2", "--sockets", "2", "--constrain-devices",
               "--set", "TaskPlugin=task/cgroup,task/affinity", "--plugin-args", f"topology={file}")
    return Node(cluster, file)


def own_gpus(report):
    """Physical GPUs of a task: the step holds all four, so that the list's numbers are those of the node."""
    entries = [int(entry) for entry in report["CUDA_VISIBLE_DEVICES"].split(",")]
    places = report.get("BOOTSTRAP_GPUS", report["BOOTSTRAP_GPU"])
    return {entries[int(place)] for place in places.split(",")}


@pytest.mark.parametrize("options", [[], ["--cpu-bind=map_cpu:1,0"], ["--cpu-bind=map_cpu:0,1"], ["--cpu-bind=cores"],
                                     ["--bootstrap-gpu=first"], ["--bootstrap-gpu=narrow"],
                                     ["--bootstrap-gpu=first", "--gpus-per-task=2"]])
def test_each_task_gets_the_gpus_near_its_cores(node, options):
    node.place_topology()
    reports, _ = node.run("-n2", *options)
    assert {report["@cpus"] for report in reports} == {"0", "1"}
    for report in reports:
        assert own_gpus(report) == NEAR[report["@cpus"]]


def test_control_without_the_file_they_are_far(node):
    node.file.unlink(missing_ok=True)
    reports, _ = node.run("-n2")
    assert any(own_gpus(report) != NEAR[report["@cpus"]] for report in reports)
    node.place_topology()


def test_one_task_has_the_nearest_gpu_first(node):
    node.place_topology()
    for cpu in "01":
        (report,), _ = node.run("-n1", "-c2", f"--cpu-bind=map_cpu:{cpu}")
        assert int(report["CUDA_VISIBLE_DEVICES"].split(",")[0]) in NEAR[cpu]


def test_unbound_tasks_get_groups_of_neighbours_and_are_bound_only_if_asked(node):
    node.place_topology()
    reports, _ = node.run("-n2", "--cpu-bind=none")
    assert {report["@cpus"] for report in reports} == {"0,1"}
    assert all(own_gpus(report) in NEAR.values() for report in reports)
    reports, _ = node.run("-n2", "--cpu-bind=none", "--bootstrap-cpu=near")
    for report in reports:
        assert own_gpus(report) == NEAR[report["@cpus"]]


def test_a_task_whose_cores_are_all_far_keeps_them(node):
    node.place_topology()
    reports, _ = node.run("-n2", "--cpu-bind=map_cpu:0,0", "--bootstrap-cpu=near")
    assert [report["@cpus"] for report in reports] == ["0", "0"]


def test_a_file_that_cannot_be_used_costs_the_order_alone(node):
    node.place_topology()
    node.file.chmod(0o666)
    _, done = node.run("-n2", "--bootstrap=explain", program=("true",))
    assert "Places of the GPUs: the kernel (/sys, /proc), because" in done.stderr.replace("\n", " ")
    node.place_topology()
    _, done = node.run("-n2", "--bootstrap=explain", program=("true",))
    assert f"Places of the GPUs: {node.file}" in done.stderr.replace("\n", " ")


def test_the_table_of_the_node_shows_who_has_which_gpu(node):
    node.place_topology()
    _, done = node.run("-n2", program=(COMMAND, "explain", "--gpus"))
    lines = done.stdout.splitlines()
    columns = lines[2].index("RANK"), lines[2].index("GPUS IT CAN USE")
    for gpu, rank in ((0, 1), (1, 1), (2, 0), (3, 0)):
        [line] = [line for line in lines if line.startswith(f"{gpu} ")]
        assert (line[columns[0]], line[columns[1]:]) == (str(rank), "0-3") and "far" not in line, done.stdout


def test_explain_names_a_task_with_gpus_and_one_core(node):
    line = "has one core and 2 GPUs: data loaders share this core with the training; use srun --cpus-per-task=N"
    shown = {}
    for options in ("-n2", "-n1 -c2"):
        _, done = node.run(*options.split(), "--bootstrap=explain", program=(COMMAND, "explain", "--rank", "0"))
        shown[options] = [line in " ".join(text.split()) for text in (done.stdout, done.stderr)]
    assert shown == {"-n2": [True, True], "-n1 -c2": [False, False]}

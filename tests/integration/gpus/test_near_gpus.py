"""Near GPUs on a real cluster: two NUMA nodes of one CPU each, which this machine's CPUs 0 and 1 stand in for. The first two
GPUs are near to CPU 1 and the last two near to CPU 0, by files of /sys and /proc that the node sees in place of its own."""

import os
from pathlib import Path

import pytest

from built_files import COMMAND, PROBE
from layout_oracle import read_reports

NEAR = {"0": {2, 3}, "1": {0, 1}}  # GPUs by CPU
FILES = """
mount -t tmpfs driver /proc/driver && mount -t tmpfs devices /sys/bus/pci/devices && mount -t tmpfs nodes /sys/devices/system/node
for cpu in 0 1; do
  mkdir /sys/devices/system/node/node$cpu && echo $cpu >/sys/devices/system/node/node$cpu/cpulist
done
for gpu in 0 1 2 3; do
  pci=0000:1$gpu:00.0
  mkdir -p /proc/driver/nvidia/gpus/$pci /sys/bus/pci/devices/$pci
  printf 'Model: \t\t NVIDIA H100\nDevice Minor: \t %s\n' $gpu >/proc/driver/nvidia/gpus/$pci/information
  echo $((gpu < 2)) >/sys/bus/pci/devices/$pci/numa_node
done
"""

OWN = [" and ".join(f"GPU {gpu} (0000:1{gpu}:00.0, /dev/nvidia{gpu}, NVIDIA H100, NUMA node {int(gpu < 2)})" for gpu in pair)
       for pair in ((0, 1), (2, 3))]  # fmt: skip


class Node:
    """One node with four GPUs; `run` answers with the reports of a step's tasks, in order of rank."""

    def __init__(self, cluster):
        self.cluster, self.count = cluster, 0

    def change(self, script):
        done = self.cluster.run(["sh", "-ec", script], user="root", node="node001")
        assert done.returncode == 0, done

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
    cluster.up("--nodes", "1", "--gpus", "4", "--cpus", "2", "--sockets", "2", "--constrain-devices",
               "--set", "TaskPlugin=task/cgroup,task/affinity")
    node = Node(cluster)
    node.change(FILES)
    return node


def own_gpus(report):
    """Physical GPUs of a task: the step holds all four, so that the list's numbers are those of the node."""
    entries = [int(entry) for entry in report["CUDA_VISIBLE_DEVICES"].split(",")]
    places = report.get("BOOTSTRAP_GPUS", report["BOOTSTRAP_GPU"])
    return {entries[int(place)] for place in places.split(",")}


@pytest.mark.parametrize("options", [[], ["--cpu-bind=map_cpu:1,0"], ["--cpu-bind=map_cpu:0,1"], ["--cpu-bind=cores"],
                                     ["--bootstrap-gpu=first"], ["--bootstrap-gpu=narrow"],
                                     ["--bootstrap-gpu=first", "--gpus-per-task=2"]])
def test_each_task_gets_the_gpus_near_its_cores(node, options):
    reports, _ = node.run("-n2", *options)
    assert {report["@cpus"] for report in reports} == {"0", "1"}
    for report in reports:
        assert own_gpus(report) == NEAR[report["@cpus"]]


def test_control_without_the_driver_they_are_far(node):
    node.change("mv /proc/driver/nvidia /proc/driver/none")
    reports, _ = node.run("-n2")
    node.change("mv /proc/driver/none /proc/driver/nvidia")
    assert any(own_gpus(report) != NEAR[report["@cpus"]] for report in reports)


def test_one_task_has_the_nearest_gpu_first(node):
    for cpu in "01":
        (report,), _ = node.run("-n1", "-c2", f"--cpu-bind=map_cpu:{cpu}")
        assert int(report["CUDA_VISIBLE_DEVICES"].split(",")[0]) in NEAR[cpu]


def test_unbound_tasks_get_groups_of_neighbours_and_are_bound_only_if_asked(node):
    reports, _ = node.run("-n2", "--cpu-bind=none")
    assert {report["@cpus"] for report in reports} == {"0,1"}
    assert all(own_gpus(report) in NEAR.values() for report in reports)
    reports, _ = node.run("-n2", "--cpu-bind=none", "--bootstrap-cpu=near")
    for report in reports:
        assert own_gpus(report) == NEAR[report["@cpus"]]


def test_a_task_whose_cores_are_all_far_keeps_them(node):
    reports, _ = node.run("-n2", "--cpu-bind=map_cpu:0,0", "--bootstrap-cpu=near")
    assert [report["@cpus"] for report in reports] == ["0", "0"]


@pytest.mark.parametrize("options, lines", [
    ("-n2", [f"{{}} on node001: {OWN[1 - cpu]}; runs on cores {cpu}; can use GPUs 0-3" for cpu in range(2)]),
    ("-n2 --cpu-bind=map_cpu:0,0 --bootstrap-gpu=narrow",
     [f"{{}} on node001: {OWN[0]}; runs on cores 0, far from it; can use GPUs 0-1",
      f"{{}} on node001: {OWN[1]}; runs on cores 0; can use GPUs 2-3"]),
    ("-n2 --gpu-bind=map_gpu:3,1 --cpu-bind=none",
     ["{} on node001: GPU 3 (0000:13:00.0, /dev/nvidia3, NVIDIA H100, NUMA node 0); runs on cores 0-1, far from it; can use GPUs 3",
      "{} on node001: GPU 1 (0000:11:00.0, /dev/nvidia1, NVIDIA H100, NUMA node 1); runs on cores 0-1, far from it; can use GPUs 1"]),
    ("-n2 --bootstrap=off", [f"{{}} on node001: no GPU of its own; runs on cores {cpu}; can use GPUs 0-3" for cpu in "01"]),
])  # fmt: skip
def test_explain_shows_the_gpu_of_each_rank(node, options, lines):
    _, done = node.run(*options.split(), program=(COMMAND, "explain", "--gpus"))
    ranks = (f"rank {rank} (local rank {rank})" for rank in range(2))
    assert sorted(done.stdout.splitlines()) == [line.format(rank) for line, rank in zip(lines, ranks)], done


def test_explain_names_a_task_with_gpus_and_one_core(node):
    line = "has one core and 2 GPUs: data loaders share this core with the training; use srun --cpus-per-task=N"
    shown = {}
    for options in ("-n2", "-n1 -c2"):
        _, done = node.run(*options.split(), "--bootstrap=explain", program=(COMMAND, "explain", "--rank", "0"))
        shown[options] = [line in " ".join(text.split()) for text in (done.stdout, done.stderr)]
    assert shown == {"-n2": [True, True], "-n1 -c2": [False, False]}

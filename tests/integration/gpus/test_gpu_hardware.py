"""With real GPUs (label `gpu`; skipped without): the device of each task is the one that the driver and CUDA mean.

Run on a machine with NVIDIA's driver: scripts/check --only integration -- -m gpu
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from built_files import COMMAND, double

pytestmark = pytest.mark.gpu

# What a task of CUDA sees, through the driver's own interface: no toolkit is needed.
TASK = r"""
import ctypes, json, os
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name}: error {result}"
call("cuInit", 0)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
devices = []
for ordinal in range(count.value):
    device, uuid, bus = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDeviceGetUuid", ctypes.byref(uuid), device)
    call("cuDeviceGetPCIBusId", bus, 32, device)
    text = bytes(uuid).hex()
    parts = [text[:8], text[8:12], text[12:16], text[16:20], text[20:]]
    devices.append({"uuid": "GPU-" + "-".join(parts), "bus": bus.value.decode().lower()})
print(json.dumps({"devices": devices, "environment": dict(os.environ)}))
"""


@pytest.fixture(scope="module")
def gpu_cluster(cluster_factory, gpus):
    return cluster_factory("gpu").up("--nodes", "1", "--gpus", "real", "--cpus", str(2 * len(gpus)))


def run_tasks(cluster, *options):
    """What each task of a step sees, in order of rank."""
    script = cluster.write_home("gpu_task.py", TASK)
    done = cluster.succeed(["srun", "-N1", *options, "/usr/bin/python3", script], timeout=120)
    tasks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(tasks, key=lambda task: int(task["environment"]["RANK"])), done.stderr


def own_uuid(task):
    return task["devices"][int(task["environment"]["BOOTSTRAP_GPU"])]["uuid"]


@pytest.mark.parametrize("mode", ["index", "first", "narrow"])
def test_each_task_has_a_gpu_of_its_own(gpu_cluster, gpus, mode):
    """Each task of a node has a GPU of its own, by the driver's UUIDs, with --bootstrap-gpu"""
    count = str(len(gpus))
    tasks, _ = run_tasks(gpu_cluster, "-n", count, f"--gres=gpu:{count}", f"--bootstrap-gpu={mode}")
    assert sorted(map(own_uuid, tasks)) == sorted(gpus)
    for task in tasks:
        assert own_uuid(task) == task["devices"][int(task["environment"]["LOCAL_RANK"])]["uuid"]
        assert len(task["devices"]) == (1 if mode == "narrow" else len(gpus))


def test_the_list_counts_as_nvidia_smi_does(gpu_cluster, gpus):
    """CUDA counts the GPUs of the list as nvidia-smi does"""
    tasks, _ = run_tasks(gpu_cluster, "-n1", f"--gres=gpu:{len(gpus)}")
    order = [int(entry) for entry in tasks[0]["environment"]["CUDA_VISIBLE_DEVICES"].split(",")]
    assert [device["uuid"] for device in tasks[0]["devices"]] == [gpus[entry] for entry in order]


def test_a_uuid_list_names_the_tasks_own(gpu_cluster, gpus):
    """A list of UUIDs, as Slurm with AutoDetect=nvml writes it: each task's own GPU is right"""
    # The double that writes it is listed before the plugin.
    line = f"required {double('site_spank')} uuids={','.join(gpus)}\n"
    with gpu_cluster.other_plugstack(line + gpu_cluster.plugstack):
        tasks, _ = run_tasks(gpu_cluster, "-n", str(len(gpus)), f"--gres=gpu:{len(gpus)}")
    for task in tasks:
        assert task["environment"]["BOOTSTRAP_GPU_UUIDS"] == own_uuid(task)
    assert sorted(map(own_uuid, tasks)) == sorted(gpus)


def test_explain_knows_the_gpus(gpu_cluster, gpus):
    """`slurm-bootstrap explain --gpus` names the GPUs of nvidia-smi, and their files"""
    asked = ["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"]
    addresses = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.lower().split()
    done = gpu_cluster.run(["srun", "--bootstrap=on", "-N1", f"--gres=gpu:{len(gpus)}", COMMAND, "explain", "--gpus"])
    found = re.findall(r"GPU (\d+) \([0-9a-f]+:([0-9a-f:.]+), (/dev/nvidia\d+), ", done.stdout)
    assert [(int(number), address) for number, address, _ in found] == [
        (number, address.partition(":")[2]) for number, address in enumerate(addresses)], done  # fmt: skip
    assert all(Path(device).is_char_device() for _, _, device in found)


def test_two_ranks_on_one_gpu_are_shared_only_if_asked(gpu_cluster, gpus):
    """Two ranks on one GPU are refused before they start, unless --bootstrap-gpu-share is said"""
    tasks, _ = run_tasks(gpu_cluster, "-n2", "--gres=gpu:1", "--bootstrap-gpu-share")
    assert len({own_uuid(task) for task in tasks}) == 1
    refused = gpu_cluster.run(["srun", "--bootstrap=on", "-N1", "-n2", "--gres=gpu:1", "true"])
    assert refused.returncode != 0 and "--bootstrap-gpu-share" in refused.stderr

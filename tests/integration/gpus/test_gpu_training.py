"""Real GPUs (label `gpu`; skipped without one): each task's device according to the driver and CUDA; and training by the lines of the
README, as a user types them, with their results.

Both nodes of a cluster have the GPUs of this machine. NCCL accepts two ranks on one GPU if they are on two hosts, and then uses
a socket, so one GPU is enough for a world of two. scripts/gpu-check prints each test's measurements.
"""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import re
import sys
from pathlib import Path

import pytest

from built_files import BUILT_INSIDE, COMMAND, TRAIN, double, inside
from harness import INSIDE, run_here, succeed_here
from preload_steps import preloading, sentences

pytestmark = pytest.mark.gpu

EXAMPLES = f"{INSIDE}/etc/examples"
COMM_PROBE = f"{BUILT_INSIDE}/tests/integration/comm_probe"  # makes a communicator, or unique ids
ENDED = re.compile(r"final loss (\S+) \(it was (\S+)\).* on (?:all )?(\d+) ranks")

# One task that did not ask prints CUDA's view and its environment.
ONE_TASK = """
import json, os, torch
print(json.dumps({"devices": [str(torch.cuda.get_device_properties(i)) for i in range(torch.cuda.device_count())],
                  "environment": {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TMPDIR", "HOSTNAME"))},
                  "sum": torch.ones(1000, device="cuda").sum().item()}))
"""

# PyTorch's NCCL group without MASTER_PORT, and CuPy's communicator with our id.
BY_SLURM = """
import os, torch, torch.distributed as dist, slurm_bootstrap
torch.cuda.set_device(slurm_bootstrap.Job().device or 0)
dist.init_process_group("nccl", init_method="slurm://")
values = torch.ones(1000, device="cuda")
dist.all_reduce(values)
print("sum", int(values[0].item()), "of", dist.get_world_size())
dist.destroy_process_group()
"""
BY_CUPY = """
import cupy, slurm_bootstrap
from cupy.cuda import nccl
job = slurm_bootstrap.Job()
cupy.cuda.Device(job.device or 0).use()
comm = nccl.NcclCommunicator(job.size, job.nccl_unique_ids()[0], job.rank)
values = cupy.ones(1000, dtype="f")
comm.allReduce(values.data.ptr, values.data.ptr, 1000, nccl.NCCL_FLOAT, nccl.NCCL_SUM, cupy.cuda.Stream.null.ptr)
print("sum", int(values[0]), "of", job.size)
"""


def python_with(module, test):
    """This Python, if the module finds a GPU in it."""
    done = run_here([sys.executable, "-c", f"import {module}; assert {test}"], timeout=120)
    if done.returncode != 0:
        pytest.skip(f"needs {module} with CUDA for {sys.executable}, a Python that all users may read")
    return sys.executable


@pytest.fixture(scope="module")
def torch(gpus):
    return python_with("torch", "torch.cuda.is_available()")


@pytest.fixture(scope="module")
def jax(gpus):
    return python_with("jax", "jax.devices('gpu')")


@pytest.fixture(scope="module")
def nodes(cluster_factory, gpus):
    """Two nodes with the plugin, where no step asks for it."""
    cluster = cluster_factory("gpuworld", asks=False).up("--nodes", "2", "--gpus", "real", "--cpus", str(2 * len(gpus)))
    return cluster


def run(cluster, line, timeout=60, **variables):
    libraries = {"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if "LD_LIBRARY_PATH" in os.environ else {}
    script = ["timeout", str(timeout), "bash", "-c", line]
    return cluster.run(script, env=libraries | variables, timeout=timeout + 20)


def trained(done, ranks):
    """The last line of a training, whose loss must have fallen on all ranks."""
    ended = ENDED.search(done.stdout)
    assert done.returncode == 0 and ended, done.stdout + done.stderr
    final, first, size = float(ended[1]), float(ended[2]), int(ended[3])
    assert size == ranks and final < first / 2
    return f"{size} ranks, loss {first:.4f} to {final:.4f}"


def test_ddp_by_srun(nodes, torch, gpus, record_property):
    """DDP over NCCL, by `srun -N2 --ntasks-per-node N --gres gpu:N python3 train_ddp.py`"""
    count = len(gpus)
    done = run(nodes, f"srun -N2 --ntasks-per-node {count} --gres gpu:{count} {torch} {EXAMPLES}/train_ddp.py")
    record_property("measured", trained(done, 2 * count))
    assert len(re.findall(r" cuda:\d+$", done.stdout, re.MULTILINE)) == 2 * count


def test_ddp_by_torchrun(nodes, torch, gpus, record_property):
    """DDP over NCCL, by `srun -N2 --ntasks-per-node 1 --gres gpu:N torchrun train_ddp.py`"""
    torchrun = Path(torch).parent / "torchrun"
    done = run(nodes, f"srun -N2 --ntasks-per-node 1 --gres gpu:{len(gpus)} {torchrun} {EXAMPLES}/train_ddp.py")
    record_property("measured", trained(done, 2 * len(gpus)))


@pytest.mark.parametrize("python, program", [("torch", "train_ddp.py"), ("jax", "train_jax.py")])
def test_the_preload_alone(nodes, request, gpus, record_property, python, program):
    """The same without the plugin, by `LD_PRELOAD=libbootstrap.so.0`"""
    python, count = request.getfixturevalue(python), len(gpus)
    with nodes.other_plugstack():
        done = run(nodes, f"srun {preloading()} -N2 --ntasks-per-node {count} --gres gpu:{count} {python} {EXAMPLES}/{program}",
                   XLA_PYTHON_CLIENT_PREALLOCATE="false")
    record_property("measured", trained(done, 2 * count))
    assert not sentences(done.stderr)


def test_jax_by_srun(nodes, jax, gpus, record_property):
    """JAX over NCCL, by `srun -N2 --ntasks-per-node N --gres gpu:N python3 train_jax.py`"""
    count = len(gpus)
    done = run(nodes, f"srun -N2 --ntasks-per-node {count} --gres gpu:{count} {jax} {EXAMPLES}/train_jax.py",
               XLA_PYTHON_CLIENT_PREALLOCATE="false")  # two processes share the memory of a GPU
    record_property("measured", trained(done, 2 * count))


@pytest.mark.parametrize("mpi", ["", "--mpi=pmix"], ids=["PMI-1", "PMIx"])
def test_train_cc(nodes, gpus, record_property, mpi):
    """C++ with NCCL: ids over Slurm, by `srun -N2 --ntasks-per-node N --gres gpu:N ./train`"""
    count = len(gpus)
    done = run(nodes, f"srun {mpi} -N2 --ntasks-per-node {count} --gres gpu:{count} {inside(TRAIN)}")
    record_property("measured", f"{mpi or 'PMI-1'}: {trained(done, 2 * count)}")
    assert done.stdout.startswith("on GPUs, gradients over NCCL")


def test_all_reduce(nodes, torch, gpus, record_property):
    """PyTorch's all_reduce by message size, by `srun -N2 --ntasks-per-node N --gres gpu:N python3 all_reduce.py`"""
    count = len(gpus)
    done = run(nodes, f"srun -N2 --ntasks-per-node {count} --gres gpu:{count} {torch} {EXAMPLES}/all_reduce.py {1 << 26}")
    assert done.returncode == 0, done.stderr
    busbw = {int(row[0]) >> 20: row[3] for row in map(str.split, done.stdout.splitlines()[1:])}
    record_property("measured", f"1 MiB: {busbw[1]} GB/s; 64 MiB: {busbw[64]} GB/s")


def test_two_ranks_of_one_node_on_one_gpu_are_named(nodes, gpus, record_property):
    """Two ranks of a node on one GPU, by the library: one sentence that names both"""
    done = run(nodes, f"srun -N1 -n2 --gres=gpu:1 --bootstrap-gpu-share {COMM_PROBE}")
    assert done.returncode != 0 and (said := re.search(r"rank 0 \([^)]*\) and rank 1 .* are both on GPU [^ ]*\d", done.stderr)), done.stderr
    record_property("measured", said.group())


def test_a_rank_whose_nccl_fails_is_named(nodes, record_property):
    """A rank that fails alone inside NCCL, by the library: all ranks end with that rank's sentence"""
    # NCCL finds no such interface.
    script = f"((SLURM_PROCID == 1)) && export NCCL_SOCKET_IFNAME==none0; exec {COMM_PROBE} --timeout-ms 10000"
    done = run(nodes, f"srun -N2 --ntasks-per-node 1 --gres gpu:1 --bootstrap=on bash -c '{script}'")
    assert done.returncode not in (0, 124) and (said := re.search(r"rank 1 \([^)]*\)[^\n]*NCCL[^\n]*", done.stderr)), done.stderr
    record_property("measured", said.group())


def test_two_releases_of_nccl_are_named(nodes, torch, record_property):
    """Two ranks with different releases of NCCL, by the library: one sentence that names both"""
    find = ("import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('nvidia.nccl').submodule_search_locations[0], "
            "'lib/libnccl.so.2'))")
    other = run_here([torch, "-c", find]).stdout.strip()
    script = f"((SLURM_PROCID == 1)) && export SLURM_BOOTSTRAP_NCCL={other}; exec {COMM_PROBE} --ids 1"
    done = run(nodes, f"srun -N2 --ntasks-per-node 1 --gres gpu:1 --bootstrap=on bash -c '{script}'")
    if done.returncode == 0:
        pytest.skip("this machine's NCCL is of the release that PyTorch brings")
    assert (said := re.search(r"NCCL (\S+) on rank \d .* and (\S+) on rank \d[^:]*", done.stderr)), done.stderr
    assert said[1] != said[2]
    record_property("measured", said.group())


@pytest.mark.parametrize("module, needs, text", [("torch", "torch.cuda.is_available()", BY_SLURM),
                                                 ("cupy", "__import__('cupy.cuda.nccl').cuda.nccl.available", BY_CUPY)],
                         ids=["PyTorch by slurm://", "CuPy with an id of ours"])  # fmt: skip
def test_the_python_package(nodes, gpus, record_property, module, needs, text):
    """The Python package makes a communicator of NCCL"""
    python, count = python_with(module, needs), len(gpus)
    program = nodes.write_home("by_package.py", text)
    with nodes.other_plugstack():
        done = run(nodes, f"srun {preloading()} -N2 --ntasks-per-node {count} --gres gpu:{count} {python} {program}",
                   PYTHONPATH=f"{INSIDE}/libbootstrap/python")  # it uses the preloaded library
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"sum {2 * count} of {2 * count}"] * 2 * count
    record_property("measured", done.stdout.splitlines()[0])


def test_devices_that_slurm_constrains(cluster_factory, torch, gpus, record_property):
    """ConstrainDevices=yes: a step without GPUs opens none, and one with all GPUs computes on them"""
    cluster = cluster_factory("gpufence").up("--nodes", "1", "--gpus", "real", "--cpus", str(2 * len(gpus)), "--constrain-devices")
    opens = run(cluster, "srun -N1 -n1 --bootstrap=off python3 -c 'open(\"/dev/nvidia0\")'")
    assert opens.returncode != 0 and "Operation not permitted" in opens.stderr, opens.stderr
    computes = "import os, torch; print(torch.ones(9, device=int(os.environ[\"BOOTSTRAP_GPU\"])).sum().item())"
    done = run(cluster, f"srun -N1 -n{len(gpus)} --gpus-per-task=1 --bootstrap=on {torch} -c '{computes}'")
    assert done.returncode == 0 and done.stdout.split() == ["9.0"] * len(gpus), done.stderr
    version = re.search(r"CgroupPlugin=cgroup/(v\d)", (cluster.state / "etc" / "cgroup.conf").read_text())
    record_property("measured", f"cgroup {version[1]}; without a GPU: Operation not permitted")


def test_a_narrow_list_keeps_peers(nodes, torch, gpus, record_property):
    """NCCL's peer-to-peer transport where each task sees its own GPU alone"""
    if len(gpus) < 2:
        pytest.skip("needs two GPUs")
    count, found = len(gpus), {}
    for mode in ("index", "narrow"):
        done = run(nodes, f"srun -N1 -n{count} --gres=gpu:{count} --bootstrap-gpu={mode} {torch} {EXAMPLES}/all_reduce.py 1048576",
                   NCCL_DEBUG="INFO")
        assert done.returncode == 0, done.stderr
        found[mode] = len(re.findall(r" via P2P", done.stdout + done.stderr))
    record_property("measured", f"channels by P2P: {found['index']} with all GPUs visible, {found['narrow']} with one")
    assert found["index"] == found["narrow"]


def test_a_task_that_did_not_ask(nodes, torch, record_property):
    """One task of PyTorch sees the same with the plugin as without"""
    program = nodes.write_home("one_task.py", ONE_TASK)
    with_plugin = run(nodes, f"srun -N1 -n1 --gres=gpu:1 {torch} {program}")
    with nodes.other_plugstack():
        without = run(nodes, f"srun -N1 -n1 --gres=gpu:1 {torch} {program}")
    assert with_plugin.returncode == without.returncode == 0, with_plugin.stderr + without.stderr
    assert json.loads(with_plugin.stdout) == json.loads(without.stdout) and with_plugin.stderr == without.stderr
    record_property("measured", "devices, environment and output are equal")


def test_check_finds_nothing_wrong(nodes, gpus, record_property):
    """`srun slurm-bootstrap check`"""
    count = len(gpus)
    done = run(nodes, f"srun -N2 --ntasks-per-node {count} --gres gpu:{count} {COMMAND} check")
    assert done.returncode == 0, done.stdout + done.stderr
    record_property("measured", "; ".join(" ".join(line.split()) for line in done.stdout.splitlines() if re.search("NCCL|GPU", line)))


# -- the device of each task


# The devices that a CUDA task sees, through the driver's own interface: no toolkit is needed.
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


def run_tasks(cluster, *options):
    """The devices of each task of a step, in order of rank."""
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
    addresses = succeed_here(asked).stdout.lower().split()
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

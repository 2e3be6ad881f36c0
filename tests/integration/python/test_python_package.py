"""pip's package on a cluster without the plugin: a user without root installs the wheel and starts PyTorch with slurm://."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from built_files import inside
from harness import REPOSITORY

STEP = ("srun", "-N2", "--ntasks-per-node=2")
PROGRAM = "/home/alice/program.py"
PYTHON = "/home/alice/venv/bin/python3"

# Two worlds, one after the other: each has a store and a port of its own.
TWO_WORLDS = """
import os
IMPORTS
kept = []
for world in range(2):
    dist.init_process_group("gloo", init_method="slurm://")
    total = torch.tensor([2.0 ** dist.get_rank()])
    dist.all_reduce(total)
    kept.append(total)
    os.write(1, f"world {world} rank {dist.get_rank()} of {dist.get_world_size()} sum {int(total)}\\n".encode())
    dist.barrier()
    dist.destroy_process_group()
"""
JOB = """
import os, slurm_bootstrap
job = slurm_bootstrap.Job()
job.barrier()
places = [place.decode().strip() for place in job.exchange(f"{job.local_rank}/{job.local_size} {job.node_rank}/{job.node_count}".encode().ljust(16))]
os.write(1, f"{job.rank}: {places} {job.device} {job.master_addr}\\n".encode())
"""
IDS = """
import os, slurm_bootstrap
job = slurm_bootstrap.Job()
world, node = job.nccl_unique_ids("world", 2), job.nccl_unique_ids("node")
everything = job.exchange(b"".join(world + node))
assert [len(each) for each in world + node] == [128] * 3 and world[0] != world[1]
assert len({each[:256] for each in everything}) == 1, "the ids of the world differ"
of_nodes = [each[256:] for each in everything]
assert of_nodes[0] == of_nodes[1] != of_nodes[2] == of_nodes[3], "the ids of a node do not belong to it"
os.write(1, b"right\\n")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as pip builds it, with scikit-build-core from PyPI."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    # The compiler's line is that of the preset `release`, so that ccache has most objects.
    line = [folder / "venv/bin/pip", "wheel", "--no-deps", "--wheel-dir", folder, REPOSITORY,
            "--config-settings=cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON"]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | {"CC": "/usr/bin/cc", "CXX": "/usr/bin/c++"})
    if "scikit-build-core" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("PyPI gave no scikit-build-core")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def site(cluster_factory, wheel):
    cluster = cluster_factory("python").up("--no-plugin", "--nodes", "2", "--gpus", "2", "--cpus", "8")
    shutil.copy(wheel, cluster.home)
    (cluster.home / wheel.name).chmod(0o644)
    install = f"python3 -m venv --system-site-packages ~/venv && ~/venv/bin/pip install --quiet --no-index ~/{wheel.name}"
    done = cluster.run(["bash", "-c", install], timeout=120)
    assert done.returncode == 0, done.stderr
    return cluster


def run(site, text, *options, command=(), env=None):
    site.write_home("program.py", text)
    return site.run([*STEP, *options, *command, PYTHON, PROGRAM], env=env, timeout=120)


def test_the_wheel_has_no_compiled_extension(wheel):
    assert wheel.name.split("-")[2:4] == ["py3", "none"]
    names = zipfile.ZipFile(wheel).namelist()
    assert {"slurm_bootstrap/py.typed", "slurm_bootstrap/libbootstrap.so.0", "slurm_bootstrap/slurm-bootstrap"} <= set(names)


@pytest.mark.parametrize("imports, options", [
    pytest.param("slurm_bootstrap, torch", (), id="first-PMI-1"),
    pytest.param("torch, slurm_bootstrap", ("--mpi=pmix",), id="last-PMIx"),
    pytest.param("slurm_bootstrap, torch", ("--mpi=pmix",), id="first-PMIx", marks=pytest.mark.full),
    pytest.param("torch, slurm_bootstrap", (), id="last-PMI-1", marks=pytest.mark.full),
])
def test_pytorch_meets_without_a_port(site, imports, options):
    text = TWO_WORLDS.replace("IMPORTS", f"import {imports}\nimport torch.distributed as dist")
    done = run(site, text, *options)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"world {world} rank {rank} of 4 sum 15" for world in range(2) for rank in range(4)]


@pytest.mark.full
def test_without_the_package_there_is_no_such_method(site):
    """The control. PyTorch before 2.5 needs the import."""
    done = run(site, TWO_WORLDS.replace("IMPORTS", "import torch\nimport torch.distributed as dist"),
               env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.returncode != 0 and "No rendezvous handler for slurm://" in done.stderr, done


@pytest.mark.full
@pytest.mark.parametrize("given, sentence", [
    ("rank=0, world_size=4", "slurm://: rank 1 passed another rank or world_size than Slurm's"),
    ("rank=job.rank, world_size=2", "init_process_group has world_size=2, and in this step of Slurm it is 4"),
])
def test_ranks_that_are_not_slurms_are_refused(site, given, sentence):
    done = run(site, "import slurm_bootstrap, torch.distributed as dist\njob = slurm_bootstrap.Job()\n"
                     f"dist.init_process_group('gloo', init_method='slurm://', {given})")
    assert done.returncode != 0 and sentence in done.stderr, done


def test_a_job_knows_its_ranks(site):
    done = run(site, JOB, "--gres=gpu:2")
    assert done.returncode == 0, done.stderr
    places = [f"{rank % 2}/2 {rank // 2}/2" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == [f"{rank}: {places} {rank % 2} node001" for rank in range(4)]


def test_ids_of_nccl_are_the_groups(site):
    done = run(site, IDS, env={"SLURM_BOOTSTRAP_NCCL": inside("tests/doubles/nccl-2.28.9/libnccl.so.2")})
    assert done.stdout.splitlines() == ["right"] * 4, done.stderr


@pytest.mark.full
def test_a_missing_rank_is_an_exception_with_a_sentence(site):
    done = run(site, "import os, slurm_bootstrap\njob = slurm_bootstrap.Job(timeout=3)\n"
                     "if job.rank != 3:\n  try:\n    job.barrier()\n  except TimeoutError as error:\n"
                     "    os.write(1, f'{type(error).__name__} {error.status} {error}\\n'.encode())\nelse:\n  import time\n  time.sleep(8)\n",
               "--mpi=pmix")
    assert len(done.stdout.splitlines()) == 3 and done.stdout.count("BootstrapTimeoutError 8 StepId=") == 3, done
    assert "missing: rank 3 (node002, local rank 1)" in done.stdout, done


def test_outside_a_step_there_is_no_job(site):
    done = site.run([PYTHON, "-c", "import slurm_bootstrap; slurm_bootstrap.Job()"])
    assert done.returncode != 0 and "BootstrapError: " in done.stderr and "start the program with srun" in done.stderr


def test_the_command_comes_with_it(site):
    done = site.run([*STEP, "/home/alice/venv/bin/slurm-bootstrap", "explain", "--rank", "3"])
    assert done.returncode == 0 and "NOT SET UP" in done.stdout, done
    refused = site.run(["/home/alice/venv/bin/slurm-bootstrap", "topology"])
    assert refused.returncode == 1 and "was built without hwloc" in refused.stderr, refused


def test_run_gives_an_ordinary_program_its_rank(site):
    done = run(site, (REPOSITORY / "etc/examples/train_ddp.py").read_text(), command=("/home/alice/venv/bin/slurm-bootstrap", "run"))
    assert done.returncode == 0 and "on 4 ranks" in done.stdout, done


NEW_PYTORCH = TWO_WORLDS.replace("IMPORTS", "import torch\nimport torch.distributed as dist") + "\nos._exit(0)\n"
NCCL4PY = """
import os, slurm_bootstrap, nccl.core
job = slurm_bootstrap.Job()
[mine] = job.nccl_unique_ids()
assert set(job.exchange(mine)) == {mine}
try:
    nccl.core.Communicator.init(job.size, job.rank, nccl.core.UniqueId.from_bytes(mine))
    os.write(1, b"a communicator\\n")
except Exception as error:  # without a GPU
    os.write(1, f"{type(error).__name__}: {error}\\n".encode())
"""


def run_in(site, environments, name, text):
    """In an environment of scripts/frameworks, which has this package by PYTHONPATH, as pip's --target would give it."""
    site.write_home("program.py", text)
    folder = environments(name)
    env = {"PYTHONPATH": "/home/alice/venv/lib/python3.11/site-packages", "OMP_NUM_THREADS": "1"}
    return site.run(["bash", "-c", f"PATH={folder}:$PATH {' '.join(STEP)} python3 {PROGRAM}"], env=env, timeout=180)


@pytest.mark.full
@pytest.mark.parametrize("name", ["pytorch-2.7", "pytorch"])
def test_new_pytorch_needs_no_import(site, environments, name):
    done = run_in(site, environments, name, NEW_PYTORCH)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"world {world} rank {rank} of 4 sum 15" for world in range(2) for rank in range(4)]


@pytest.mark.full
def test_nccl4py_takes_our_id_up_to_the_gpu(site, environments):
    done = run_in(site, environments, "pytorch", NCCL4PY)
    said = set(done.stdout.splitlines())
    assert done.returncode == 0 and len(said) == 1 and said.pop().startswith(("a communicator", "NCCLError: UnhandledCudaError")), done


@pytest.mark.full
def test_horovod_meets_without_horovodrun(site, environments):
    for program in (REPOSITORY / "tests/integration/frameworks/programs").glob("*.py"):
        if program.name in ("horovod_train.py", "training.py"):
            site.write_home(program.name, program.read_text())
    text = "import sys, slurm_bootstrap, horovod_train\nslurm_bootstrap.horovod()\nsys.argv = ['', 'train']\nhorovod_train.main()\n"
    done = run_in(site, environments, "horovod", text)
    assert done.returncode == 0 and "on 4 ranks" in done.stdout, done

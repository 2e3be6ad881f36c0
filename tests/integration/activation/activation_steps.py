"""Steps that show whether they are set up: our variables in their tasks, and our messages."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

# One line for each task, shorter than the pieces in which srun passes on the output of tasks.
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_", "MASTER_", "JAX_", "PET_", "HOROVOD_",
        "OMP_NUM", "BOOTSTRAP_", "SLURM_BOOTSTRAP", "GLOO_", "TF_CONFIG", "NVSHMEM", "CUDA_DEVICE_ORDER")  # fmt: skip
LONG = ("SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_SETTINGS")  # only the names of these are printed
PRINT = f"import os; print({{k: '' if k in {LONG} else v for k, v in os.environ.items() if k.startswith({OURS})}})"
PYTHON = ["python3", "-c", PRINT]
WORLD = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
         "MASTER_PORT", "CUDA_DEVICE_ORDER", "BOOTSTRAP_GPU", "JAX_COORDINATOR_PORT", "SLURM_BOOTSTRAP_LAYOUT",
         "SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_SETTINGS"}  # fmt: skip
TWO = "-N2 --ntasks-per-node=2 --gres=gpu:2"
ONE = "-N1 -w node001 --ntasks-per-node=2 --gres=gpu:2"  # a node may still end the step before
SHELL_RANK = ["bash", "-c", "echo rank=$RANK"]


@pytest.fixture(scope="module")
def cluster(cluster_factory, request):
    """Only the steps themselves ask."""
    label = request.module.__name__.removeprefix("test_").replace("_", "-")
    return cluster_factory(label, asks=False).up("--gpus", "4", "--cpus", "8")


@pytest.fixture
def site(cluster):
    """Sets the arguments of our line in plugstack.conf, for one test."""
    yield cluster.configure
    cluster.configure()


def srun(cluster, options, *program, **run):
    return cluster.succeed(["srun", *options.split(), *(program or PYTHON)], **run)


def variables(done):
    """Our variables in each task."""
    return [eval(line) for line in done.stdout.splitlines() if line.startswith("{")]  # noqa: S307: our own print


# Counted for alice alone, since daemons call slurmctld, too.
def calls_of(cluster, *command):
    """The number of srun's calls of slurmctld as alice, and the kinds of our calls, by their names in sdiag."""
    cluster.run(["sdiag", "-r"], user="root")
    cluster.succeed(["srun", "-Q", *command])
    text = cluster.run(["sdiag"], user="root").stdout
    by_user = re.search(r"^\s+alice\s+\(\s*\d+\) count:(\d+)", text, re.M)
    return int(by_user[1]), {name for name in OUR_CALLS if re.search(rf"^\s+{name}\s", text, re.M)}


RECORD, LAYOUT, OF_JOB, OF_NODE = "REQUEST_JOB_STEP_INFO", "REQUEST_STEP_LAYOUT", "REQUEST_JOB_INFO_SINGLE", "REQUEST_NODE_INFO_SINGLE"
OUR_CALLS = RECORD, LAYOUT, OF_JOB, OF_NODE


ANNOUNCED = re.compile(r"(are the ranks of|form) one world; .*; use --bootstrap=off for independent runs$")


def all_lines(done):
    """Our lines on the user's terminal, without the number of the step."""
    lines = [line.removeprefix("srun: ") for line in done.stderr.splitlines() if "bootstrap: " in line]
    return [re.sub(r"StepId=\d+\.\d+", "StepId=ID", line) for line in lines]


def told(done):
    """The same without srun's line about a world that is set up unasked."""
    return [line for line in all_lines(done) if not ANNOUNCED.search(line)]


def is_untouched(done, tasks):
    """All tasks ran, and none of them has a variable of ours."""
    found = variables(done)
    assert done.returncode == 0 and len(found) == tasks, done
    return not any(found)


def other_file(cluster, node, path, text, name):
    """On one host this file has another text, for the time of the block."""
    (cluster.state / "etc" / name).write_text(text)
    return cluster.mounted(cluster.state / "etc" / name, path, node)

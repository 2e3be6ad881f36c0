"""Steps that show from outside whether they are set up: our variables in their tasks, and our messages."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

# One line of each task, shorter than the pieces in which srun hands on what tasks print.
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_", "MASTER_", "JAX_", "PET_", "HOROVOD_",
        "OMP_NUM", "BOOTSTRAP_", "SLURM_BOOTSTRAP", "GLOO_", "TF_CONFIG", "NVSHMEM", "CUDA_DEVICE_ORDER")  # fmt: skip
LONG = ("SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_SETTINGS")  # of these the name alone
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
    """Gives our line of plugstack.conf other arguments, for one test."""
    yield cluster.configure
    cluster.configure()


def srun(cluster, options, *program, **run):
    return cluster.succeed(["srun", *options.split(), *(program or PYTHON)], **run)


def variables(done):
    """Of each task, what it has of ours."""
    return [eval(line) for line in done.stdout.splitlines() if line.startswith("{")]  # noqa: S307: our own print


# By user, since what daemons ask of slurmctld meanwhile is theirs.
def calls_of(cluster, *command):
    """How often srun called slurmctld as alice, and what it asked by the names of sdiag."""
    cluster.run(["sdiag", "-r"], user="root")
    cluster.succeed(["srun", "-Q", *command])
    text = cluster.run(["sdiag"], user="root").stdout
    by_user = re.search(r"^\s+alice\s+\(\s*\d+\) count:(\d+)", text, re.M)
    return int(by_user[1]), {name for name in OUR_CALLS if re.search(rf"^\s+{name}\s", text, re.M)}


RECORD, LAYOUT, OF_JOB, OF_NODE = "REQUEST_JOB_STEP_INFO", "REQUEST_STEP_LAYOUT", "REQUEST_JOB_INFO_SINGLE", "REQUEST_NODE_INFO_SINGLE"
OUR_CALLS = RECORD, LAYOUT, OF_JOB, OF_NODE


ANNOUNCED = re.compile(r"(are the ranks of|form) one world; .*; use --bootstrap=off for independent runs$")


def all_lines(done):
    """The lines of ours that a user reads, without the number of the step."""
    lines = [line.removeprefix("srun: ") for line in done.stderr.splitlines() if "bootstrap: " in line]
    return [re.sub(r"StepId=\d+\.\d+", "StepId=ID", line) for line in lines]


def told(done):
    """The same without the line of srun for a world that is set up unasked."""
    return [line for line in all_lines(done) if not ANNOUNCED.search(line)]


def is_untouched(done, tasks):
    """All tasks ran, and none of them has anything of ours: not even of half a world."""
    found = variables(done)
    assert done.returncode == 0 and len(found) == tasks, done
    return not any(found)


def other_file(cluster, node, path, text, name):
    """One host has another text in a file than the others."""
    (cluster.state / "etc" / name).write_text(text)
    return cluster.mounted(cluster.state / "etc" / name, path, node)

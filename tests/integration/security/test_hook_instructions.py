"""The hooks of slurmstepd take a bounded number of instructions, whatever the environment of the step contains.

callgrind counts them, with the same result for the same input, also on a busy machine. 40 million instructions take about
10 ms; an ordinary step takes 0.2 million. Long values are bounded by the limits of the known variables (variables.cc): without
these "ports" takes 4 million and "all variables: assignments" 29."""

# SPDX-License-Identifier: Apache-2.0

import re
import subprocess

import pytest

from built_files import built
from hostile_values import PATTERNS, value, variables_in_code

# Instructions of the hooks. task_init runs in a task, which has its own process: one task is counted.
MOST = 40_000_000
MOST_KIB = 4096  # by which slurmstepd grows
HOOKS = ("user_init", "task_post_fork", "task_init", "task_exit")
MOST_OF_LONG_VALUES = 6_000_000
MOST_OF_ONE_LONG_VALUE = 1_000_000
ARGUMENTS = 2 << 20  # Linux accepts this many bytes of arguments and environment

# A world of two nodes with two tasks each, as srun passes it to the first node.
STEP = {
    "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[001-002]", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_DISTRIBUTION": "block",
    "SLURM_BOOTSTRAP_DECISION": "5\t12.0\t2\t0\t0\t4660\t\t0\t\ta GPU for each task\t",
    "SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1",
}  # fmt: skip
OWN = {"SLURM_JOB_ID", "SLURM_BOOTSTRAP_DECISION"}  # without them nothing is set up, and there is nothing to count


def instructions(folder, entries, tasks=()):
    """The instructions of the hooks in slurmstepd and in one task, the RANK of this task, and slurmstepd's growth in KiB. `tasks`:
    the number on the node, and in the step."""
    file = folder / "environment"
    file.write_bytes(b"".join(f"{name}={text}\0".encode() for name, text in entries))
    program = [built("tests/integration/hook_instructions"), file, *map(str, tasks)]
    hooks = [f"--toggle-collect=slurm_spank_{hook}" for hook in HOOKS]
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts.%p", *hooks, *program]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    plain = subprocess.run(program, capture_output=True, text=True, errors="replace", timeout=500, check=False)
    rank, grew = plain.stdout.split("\n")[:2]
    # The task's count includes the instructions of slurmstepd before the fork.
    return max(map(int, re.findall(r"Collected : (\d+)", done.stderr))), rank, int(grew.split()[1])


def filled(pattern):
    """The step, with this pattern in all variables, each as long as they all fit."""
    names = [name for name in variables_in_code() if name not in OWN]
    size = ARGUMENTS // len(names) - 64
    return list((STEP | {name: value(pattern, size) for name in names}).items())


CASES = {
    **{f"all variables: {pattern}": filled(pattern) for pattern in PATTERNS},
    "ports": list((STEP | {"SLURM_STEP_RESV_PORTS": value("ports")}).items()),
    "64 ranges of ports": list((STEP | {"SLURM_STEP_RESV_PORTS": value("ports", 64 * 11), "PMI_CONTROL_PORT": "1024-65535"}).items()),
    "16,000 other variables": [*STEP.items(), *((f"V{i:05}", "x" * 110) for i in range(16000))],
    "names with the number of a component": [*STEP.items(), *(
        (f"{name}_HET_GROUP_{i:03}", "x" * 257) for i in range(700) for name in
        ("RANK", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_TRES_PER_TASK", "PATH", "USER", "HOME"))],
    "150,000 variables": [*((f"V{i:05}", "") for i in range(150_000)), *STEP.items()],
    "one name 100,000 times": [*STEP.items(), *[("RANK", "1")] * 100_000],
}
OFTEN = ["ports", "64 ranges of ports", "16,000 other variables", "150,000 variables", "one name 100,000 times", "names with the number of a component", "all variables: ports",
         "all variables: assignments"]  # fmt: skip


@pytest.mark.parametrize("case", [case if case in OFTEN else pytest.param(case, marks=pytest.mark.full) for case in CASES])
def test_hooks_are_bounded(case, tmp_path):
    most = MOST_OF_LONG_VALUES if case.startswith("all ") else MOST_OF_ONE_LONG_VALUE if "ports" in case else MOST
    count, _, grew = instructions(tmp_path, CASES[case])
    assert count <= most, f"{count:,} instructions"
    assert grew <= MOST_KIB, f"{grew} KiB"


def large(nodes, tasks, names, **more):
    """A consistent step, as a user's own srun could send it, seen on its first node."""
    gpus = ",".join(map(str, range(min(tasks, 200))))
    return STEP | {"SLURM_STEP_NODELIST": names, "SLURM_STEP_NUM_TASKS": str(nodes * tasks), "SLURM_STEP_NUM_NODES": str(nodes),
                   "SLURM_STEP_TASKS_PER_NODE": f"{tasks}(x{nodes})", "SLURM_BOOTSTRAP_LAYOUT": "12.0/block",
                   "SLURM_STEP_GPUS": gpus, "CUDA_VISIBLE_DEVICES": gpus, **more}  # fmt: skip


ASKED = {"SLURM_BOOTSTRAP_DECISION": STEP["SLURM_BOOTSTRAP_DECISION"].replace("\t2\t0\t", "\t3\t2\t", 1)}
LONG_LIST = ",".join(f"GPU-{number:03}-{'x' * 110}" for number in range(256))
# Name: nodes, tasks on each, their names, and whether slurmstepd makes a plan for it.
LARGE = {
    "2 tasks on a node": (2, 2, "node[001-002]", {}, True),
    "64 tasks on a node": (1024, 64, "node[001-1024]", {}, True),
    "512 tasks on a node": (2, 512, "node[001-002]", {}, True),
    "the largest step": (16384, 6, "node[001-16384]", {}, True),
    "the largest step in a list of long names": (16384, 6, "node[001-16384]", {
        "MASTER_ADDR": "elsewhere", "SLURM_JOB_NODELIST": f"{'x' * 200}[0001-5000]"}, True),  # fmt: skip
    "more nodes": (65536, 1, "node[001-65536]", {}, False),
    "longer names": (16384, 1, f"node001,{'x' * 235}[00001-16383]", {}, False),
    "512 tasks with long lists of GPUs": (2, 512, "node[001-002]", ASKED | {
        "CUDA_VISIBLE_DEVICES": LONG_LIST, "SLURM_STEP_GPUS": ",".join(map(str, range(256))), "SLURM_BOOTSTRAP_GPU": "first",
        "SLURM_BOOTSTRAP_GPU_SHARE": "on"}, True),  # fmt: skip
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE)
def test_hooks_of_large_steps_are_bounded(case, tmp_path):
    nodes, tasks, names, more, is_planned = LARGE[case]
    count, rank, grew = instructions(tmp_path, list(large(nodes, tasks, names, **more).items()), (tasks, nodes * tasks))
    assert rank == ("RANK=0" if is_planned else "RANK="), rank
    assert count <= MOST, f"{count:,} instructions"
    assert grew <= MOST_KIB, f"{grew} KiB"


def test_control_counter_sees_the_hooks(tmp_path):
    """An ordinary step is set up, and a larger environment takes more instructions."""
    count, rank, _ = instructions(tmp_path, list(STEP.items()))
    assert rank == "RANK=0" and 100_000 < count < MOST
    more, rank, _ = instructions(tmp_path, CASES["16,000 other variables"])
    assert rank == "RANK=0" and more > 2 * count

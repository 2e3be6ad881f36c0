"""The hooks of slurmstepd take a bounded number of instructions, whatever the environment of the step holds.

callgrind counts: the same for the same input, on a busy machine too. 40 million instructions take about 10 ms; an ordinary
step takes 0.2 million. The limits of the known variables (known_variables.cc) hold the bounds of long values: without them
"ports" takes 4 million and "all variables: assignments" 29."""

# SPDX-License-Identifier: Apache-2.0

import re
import subprocess

import pytest

from built_files import built
from hostile_values import PATTERNS, value, variables_in_code

# Instructions of user_init and task_init together.
MOST = 40_000_000
MOST_OF_LONG_VALUES = 6_000_000
MOST_OF_ONE_LONG_VALUE = 1_000_000
ARGUMENTS = 2 << 20  # Linux accepts so many bytes of arguments and environment

# A world of two nodes with two tasks each, as srun hands it to the first of them.
STEP = {
    "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "node[001-002]", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_DISTRIBUTION": "block",
    "SLURM_BOOTSTRAP_DECISION": "5\t12.0\t2\t0\t0\t4660\t\t0\t\ta GPU for each task\t",
    "SLURM_STEP_GPUS": "0,1", "CUDA_VISIBLE_DEVICES": "0,1",
}  # fmt: skip
OWN = {"SLURM_JOB_ID", "SLURM_BOOTSTRAP_DECISION"}  # without them nothing is set up, and there is nothing to count


def instructions(folder, entries):
    """Of both hooks, and the RANK of the first task."""
    file = folder / "environment"
    file.write_bytes(b"".join(f"{name}={text}\0".encode() for name, text in entries))
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts", "--toggle-collect=slurm_spank_user_init",
               "--toggle-collect=slurm_spank_task_init", built("tests/integration/hook_instructions"), file]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1)), done.stdout.strip()


def filled(pattern):
    """The step, with this pattern in all variables, as long as all of them fit."""
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
    count, _ = instructions(tmp_path, CASES[case])
    assert count <= most, f"{count:,} instructions"


def test_control_counter_sees_the_hooks(tmp_path):
    """An ordinary step is set up, and a larger environment takes more."""
    count, rank = instructions(tmp_path, list(STEP.items()))
    assert rank == "RANK=0" and 100_000 < count < MOST
    more, rank = instructions(tmp_path, CASES["16,000 other variables"])
    assert rank == "RANK=0" and more > 2 * count

"""Steps that make NCCL communicators: how they are started, and the output of their ranks."""

# SPDX-License-Identifier: Apache-2.0

import os
import re

from built_files import BUILT_INSIDE, inside
from exchange_steps import are_in_time, run_step

REAL_NCCL = next((folder for folder in ("/usr/local/cuda/lib", "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu")
                  if os.path.exists(f"{folder}/libnccl.so.2")), None)

RANK = re.compile(r"^rank (\d+): (.+)$", re.MULTILINE)
FAILED = re.compile(r"^rank (\d+) after (\d+) ms: bootstrap: StepId=\S+ rank \d+: (.+)$", re.MULTILINE)


def libraries(nccl="2.28.9"):
    """LD_LIBRARY_PATH for our library and one version of NCCL and CUDA."""
    nccl = inside(f"tests/doubles/nccl-{nccl}/libnccl.so.2").removesuffix("/libnccl.so.2")
    return f"{BUILT_INSIDE}/libbootstrap:{nccl}:{BUILT_INSIDE}/tests/doubles/cuda"


def run(cluster, nodes, per_node, *command, nccl="2.28.9", env=None, **more):
    variables = {"LD_LIBRARY_PATH": libraries(nccl), "CUDA_DOUBLE_DEVICES": "4", **(env or {})}
    return run_step(cluster, nodes, per_node, *command, env=variables, **more)


def answers(step):
    assert step.returncode == 0 and step.stderr == "", step
    return {int(rank): text for rank, text in RANK.findall(step.stdout)}


def failures(step, deadline=None):
    """The message of each rank and its time in milliseconds, within its deadline; the step must have failed by itself."""
    assert step.returncode != 0 and "timeout: sending signal" not in step.stderr, step
    said = {int(rank): (text, int(after)) for rank, after, text in FAILED.findall(step.stderr)}
    assert deadline is None or are_in_time(step.seconds, [after for _, after in said.values()], deadline), step
    return said


def whole(groups):
    """The output of comm_probe if these lists of ranks are the communicators."""
    return {rank: f"{place} of {len(group)}, sum {sum(group)}" for group in groups for place, rank in enumerate(group)}

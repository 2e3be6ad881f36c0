"""A task of a Slurm step: which rank it is, where the ranks meet, and small exchanges between them.

`import slurm_bootstrap` gives PyTorch the method init_process_group(..., init_method="slurm://").
"""

# SPDX-License-Identifier: Apache-2.0

from slurm_bootstrap import _torch
from slurm_bootstrap._horovod import horovod
from slurm_bootstrap._job import BootstrapError, BootstrapTimeoutError, Job

__all__ = ["BootstrapError", "BootstrapTimeoutError", "Job", "horovod"]

_torch.register_now_or_later()

"""A task of a Slurm step: which rank it is, where the ranks meet, and small exchanges between them.

`import slurm_bootstrap` gives PyTorch the method init_process_group(..., init_method="slurm://").
"""

# SPDX-License-Identifier: Apache-2.0

import sys
from typing import TYPE_CHECKING, Any

# Where the package is installed, each `import torch` runs this file, so other modules load at their first use.
if TYPE_CHECKING:
    from slurm_bootstrap._command import where
    from slurm_bootstrap._horovod import horovod
    from slurm_bootstrap._job import BootstrapError, BootstrapTimeoutError, Job
else:
    _MODULES = {"BootstrapError": "_job", "BootstrapTimeoutError": "_job", "Job": "_job", "horovod": "_horovod", "where": "_command"}

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__():
        return sorted({*globals(), *_MODULES})


__all__ = ["BootstrapError", "BootstrapTimeoutError", "Job", "horovod", "where"]


def _rendezvous(*arguments: Any, **words: Any) -> Any:
    from slurm_bootstrap._rendezvous import rendezvous

    return rendezvous(*arguments, **words)


def _register() -> None:
    """Adds slurm:// to PyTorch, once. PyTorch 2.5 and newer call it at the end of `import torch`."""
    try:
        from torch.distributed.rendezvous import register_rendezvous_handler

        register_rendezvous_handler("slurm", _rendezvous)
    except Exception:  # it is there already, or PyTorch has no torch.distributed: `import torch` must go on
        pass


if "torch" in sys.modules:
    _register()
else:
    from slurm_bootstrap._import_hook import call_after_import

    call_after_import("torch.distributed.rendezvous", _register)

"""Python on the nodes loads this first, as sitecustomize: it records the trainings of the scaling report, and applies
SCALING_FAULT to one of the models."""

import builtins
import os
import signal
import sys
from pathlib import Path

plain_import = builtins.__import__
fault = os.environ.get("SCALING_FAULT", "")
place = f"{os.environ.get('SLURM_STEP_NUM_NODES')}x{os.environ.get('SLURM_STEP_NUM_TASKS')}"


def spoil(models):
    """Wraps the function that builds a model with the faults."""
    build = models.build

    def build_or_fail(name, size):
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        backend = sys.argv[1]
        if rank == 0:
            with Path(os.environ["HOME"], "trained").open("a") as diary:
                diary.write(f"{backend}-{name}-{place}\n")
        last = rank == ranks - 1
        if fault == f"kill {backend} {name} {place}" and last:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == f"raise {name}" and last:
            raise RuntimeError("the disk is on fire")
        model = build(name, size)
        if fault == f"differ {name}" and last:
            next(model.parameters()).data.add_(0.01)
        return model

    models.build, models.spoiled = build_or_fail, True


def import_and_spoil(name, *rest, **more):
    module = plain_import(name, *rest, **more)
    models = sys.modules.get("models")
    if hasattr(models, "build") and not hasattr(models, "spoiled"):
        spoil(models)
    return module


builtins.__import__ = import_and_spoil

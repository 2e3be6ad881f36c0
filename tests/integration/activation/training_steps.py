"""A cluster with a program that trains over Gloo, by env:// or slurm://."""

# SPDX-License-Identifier: Apache-2.0

from built_files import LIBRARY, PLUGIN, built, inside
from harness import INSIDE

TRAIN = """
import os, sys
METHOD = sys.argv[1] if len(sys.argv) > 1 else "env://"
if METHOD == "slurm://":
    sys.path.insert(0, "PACKAGE")
    import ctypes
    ctypes.CDLL("LIBRARY")
    import slurm_bootstrap
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=METHOD)
total = torch.ones(1)
dist.all_reduce(total)
os.write(1, f"sum {int(total)} {os.environ.get('MASTER_ADDR')}\\n".encode())
"""
TORCHRUN = ["torchrun", "--nproc_per_node=2", "train.py"]
ONE_EACH = "-N2 --ntasks-per-node=1 --gres=gpu:2"


def training_cluster(cluster_factory, name, *options):
    """Only the steps themselves ask. The nodes see the library also without the plugin in plugstack.conf."""
    cluster = cluster_factory(name, asks=False).up("--cpus", "8", "--gpus", "4", "--plugin", built(PLUGIN), *options)
    cluster.write_home("train.py", TRAIN.replace("PACKAGE", f"{INSIDE}/libbootstrap/python").replace("LIBRARY", inside(LIBRARY)))
    return cluster

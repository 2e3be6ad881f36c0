"""The back ends of the scaling report behind one interface: reduce a flat buffer over all ranks; runs on the nodes."""

# SPDX-License-Identifier: Apache-2.0

import os
import sys


class Distributed:
    """torch.distributed with gloo or nccl; the world comes from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

    def __init__(self, name):
        import torch
        import torch.distributed as dist

        if not dist.is_available() or not getattr(dist, f"is_{name}_available")():
            sys.exit(f"PyTorch {torch.__version__} was built without {name}; choose another back end")
        dist.init_process_group(name, init_method="env://")
        self.dist, self.place = dist, (dist.get_rank(), dist.get_world_size())

    def reduce(self, buffer, operation):
        """SUM, MIN or MAX of each element over all ranks, in place."""
        self.dist.all_reduce(buffer, op=getattr(self.dist.ReduceOp, operation))

    def close(self):
        self.dist.destroy_process_group()


class Mpi:
    """mpi4py's Allreduce. Buffers of a GPU go through host memory: Debian's MPI cannot read a GPU's."""

    def __init__(self):
        try:
            from mpi4py import MPI
        except ImportError as error:
            sys.exit(f"back end mpi needs mpi4py, which did not load: {error}")
        self.mpi, self.world = MPI, MPI.COMM_WORLD
        self.place = self.world.Get_rank(), self.world.Get_size()

    def reduce(self, buffer, operation):
        host = buffer.cpu()  # the buffer itself if it is in host memory
        self.world.Allreduce(self.mpi.IN_PLACE, host.numpy(), op=getattr(self.mpi, operation))
        if host is not buffer:
            buffer.copy_(host)

    def close(self):
        """mpi4py calls MPI_Finalize at exit."""


class Horovod:
    """Horovod's allreduce with PyTorch, over Gloo or MPI."""

    def __init__(self, controller):
        # Before the import. `slurm-bootstrap run --horovod` sets both for Gloo.
        os.environ.setdefault("HOROVOD_CONTROLLER", controller)
        os.environ.setdefault("HOROVOD_CPU_OPERATIONS", controller)
        try:
            import horovod.torch as hvd
        except ImportError as error:
            sys.exit(f"back end horovod-{controller} needs Horovod with PyTorch, which did not load: {error}")
        if not getattr(hvd, f"{controller}_built")():
            sys.exit(f"Horovod was built without {controller} (horovodrun --check-build); choose another back end")
        hvd.init()
        self.hvd, self.place = hvd, (hvd.rank(), hvd.size())

    def reduce(self, buffer, operation):
        self.hvd.allreduce_(buffer, op=getattr(self.hvd, operation.capitalize()), name=f"{operation} of {buffer.numel()}")

    def close(self):
        self.hvd.shutdown()


def connect(name, rank, ranks):
    if name.startswith("horovod-"):
        backend = Horovod(name.removeprefix("horovod-"))
    else:
        backend = Mpi() if name == "mpi" else Distributed(name)
    # A back end that started as a world of its own would measure nothing, and agree with itself.
    if backend.place != (rank, ranks):
        sys.exit(f"{name} sees rank {backend.place[0]} of {backend.place[1]}, the environment says rank {rank} of {ranks}; "
                 f"srun's --mpi and the back end do not fit")
    return backend

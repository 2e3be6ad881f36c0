"""The back ends of the scaling report behind one interface: sum a flat buffer over all ranks; runs on the nodes."""

# SPDX-License-Identifier: Apache-2.0

import sys


class Distributed:
    """torch.distributed with gloo or nccl; the world comes from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

    def __init__(self, name, rank, ranks, device):
        import torch
        import torch.distributed as dist

        ready = dist.is_available() and (dist.is_nccl_available() if name == "nccl" else dist.is_gloo_available())
        if not ready:
            sys.exit(f"PyTorch {torch.__version__} was built without {name}; choose another back end")
        self.dist, self.name, self.device = dist, name, device
        # Gloo's threads may let go of a tensor late, and must not be the last that hold one when the group ends:
        # etc/examples/train_ddp.py says more.
        self.kept = []
        dist.init_process_group(name, init_method="env://")
        check_world(name, (dist.get_rank(), dist.get_world_size()), (rank, ranks))

    def sum(self, buffer):
        self.dist.all_reduce(buffer)

    def range(self, buffer):
        """The least and the greatest of every element over all ranks."""
        least, most = buffer.clone(), buffer.clone()
        self.dist.all_reduce(least, op=self.dist.ReduceOp.MIN)
        self.dist.all_reduce(most, op=self.dist.ReduceOp.MAX)
        self.keep(least, most)
        return least, most

    def keep(self, *buffers):
        self.kept += buffers

    def close(self):
        self.dist.destroy_process_group()


class Mpi:
    """mpi4py's Allreduce. Buffers of a GPU go through host memory: Debian's MPI cannot read a GPU's."""

    def __init__(self, name, rank, ranks, device):
        try:
            from mpi4py import MPI
        except ImportError as error:
            sys.exit(f"back end mpi needs mpi4py, which did not load: {error}")
        self.mpi, self.world, self.device = MPI, MPI.COMM_WORLD, device
        check_world(name, (self.world.Get_rank(), self.world.Get_size()), (rank, ranks))

    def reduce(self, buffer, operation):
        if buffer.device.type == "cpu":
            self.world.Allreduce(self.mpi.IN_PLACE, buffer.numpy(), op=operation)
            return
        host = buffer.cpu()
        self.world.Allreduce(self.mpi.IN_PLACE, host.numpy(), op=operation)
        buffer.copy_(host)

    def sum(self, buffer):
        self.reduce(buffer, self.mpi.SUM)

    def range(self, buffer):
        """The least and the greatest of every element over all ranks."""
        least, most = buffer.clone(), buffer.clone()
        self.reduce(least, self.mpi.MIN)
        self.reduce(most, self.mpi.MAX)
        return least, most

    def keep(self, *buffers):
        """MPI holds no buffer once a call has returned."""

    def close(self):
        """mpi4py calls MPI_Finalize at exit."""


def check_world(name, seen, told):
    """A back end that started as a world of its own would measure nothing, and agree with itself."""
    if seen != told:
        sys.exit(f"{name} sees rank {seen[0]} of {seen[1]}, the environment says rank {told[0]} of {told[1]}; "
                 f"srun's --mpi and the back end do not fit")


def connect(name, rank, ranks, device):
    return (Mpi if name == "mpi" else Distributed)(name, rank, ranks, device)

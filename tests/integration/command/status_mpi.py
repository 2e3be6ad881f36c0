"""A rank of MPI: rank 2 sleeps while the others are in a barrier."""

import time

from mpi4py import MPI

if MPI.COMM_WORLD.rank == 2:
    time.sleep(600)
MPI.COMM_WORLD.Barrier()

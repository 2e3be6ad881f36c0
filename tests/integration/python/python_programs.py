"""Programs of the tests of the Python package."""

# SPDX-License-Identifier: Apache-2.0

# Two worlds, one after the other: each has its own store and port, and two groups beside the group of all ranks.
TWO_WORLDS = """
import os, sys
IMPORTS
read = {name for name in sys.modules if name.startswith("slurm_bootstrap")}
assert read <= {"slurm_bootstrap", "slurm_bootstrap._import_hook"}, f"import torch reads more than it needs: {read}"
kept = []
for world in range(2):
    dist.init_process_group("gloo", init_method="slurm://")
    total, part = torch.tensor([2.0 ** dist.get_rank()]), torch.tensor([2.0 ** dist.get_rank()])
    groups = [dist.new_group([0, 3]), dist.new_group([1, 2])]
    dist.all_reduce(total)
    dist.all_reduce(part, group=groups[dist.get_rank() in (1, 2)])
    kept.append(total)
    sums = f"{int(total)} {int(part)} {os.environ.get('RANK')}"
    os.write(1, f"world {world} rank {dist.get_rank()} of {dist.get_world_size()} sums {sums}\\n".encode())
    dist.barrier()
    dist.destroy_process_group()
"""
JOB = """
import os, slurm_bootstrap
job = slurm_bootstrap.Job()
job.barrier()
place = f"{job.local_rank}/{job.local_size} {job.node_rank}/{job.node_count}".encode().ljust(16)
places = [place.decode().strip() for place in job.exchange(place)]
os.write(1, f"{job.rank}: {places} {job.device} {job.master_addr}\\n".encode())
"""
IDS = """
import os, slurm_bootstrap
job = slurm_bootstrap.Job()
world, node = job.nccl_unique_ids("world", 2), job.nccl_unique_ids("node")
everything = job.exchange(b"".join(world + node))
assert [len(each) for each in world + node] == [128] * 3 and world[0] != world[1]
assert len({each[:256] for each in everything}) == 1, "the ids of the world differ"
of_nodes = [each[256:] for each in everything]
assert of_nodes[0] == of_nodes[1] != of_nodes[2] == of_nodes[3], "the ids of a node do not belong to it"
os.write(1, b"right\\n")
"""
# Each rank has another Python.
OTHER_PYTHON = """
import os, sys, slurm_bootstrap
job = slurm_bootstrap.Job()
everything = job.exchange((b"%d.%d" % sys.version_info[:2]).ljust(8))
os.write(1, b"%d.%d %d %s\\n" % (*sys.version_info[:2], job.rank, b" ".join(each.strip() for each in everything)))
"""
NCCL4PY = """
import os, slurm_bootstrap, nccl.core
job = slurm_bootstrap.Job()
[mine] = job.nccl_unique_ids()
assert set(job.exchange(mine)) == {mine}
try:
    made = nccl.core.Communicator.init(job.size, job.rank, nccl.core.UniqueId.from_bytes(mine))
    os.write(1, f"rank {made.rank} of {made.nranks}\\n".encode())
except Exception as error:  # without a GPU
    os.write(1, f"{type(error).__name__}: {error}\\n".encode())
"""
RIGHT_TYPES = """
import slurm_bootstrap
job = slurm_bootstrap.Job(timeout=3)
everything: list[bytes] = job.exchange(b"%8d" % job.rank)
ids: list[bytes] = job.nccl_unique_ids("node", count=2)
device: int = 0 if job.device is None else job.device
try:
    job.barrier()
except slurm_bootstrap.BootstrapTimeoutError as error:
    print(error.status + 1, job.master_addr.upper())
with slurm_bootstrap.Job() as other:
    slurm_bootstrap.horovod(timeout=other.size)
"""
WRONG_TYPES = """
import slurm_bootstrap
job = slurm_bootstrap.Job()
job.exchange("text")
job.nccl_unique_ids("wrld")
device: int = job.device
slurm_bootstrap.Jbo()
"""

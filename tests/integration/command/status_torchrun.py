"""A worker of torchrun: rank 3 is late."""

import os
import time
from pathlib import Path

import torch.distributed as dist

rank = int(os.environ["RANK"])
Path.home().joinpath("torchrun", f"{rank}.at").write_text("here")
if rank == 3:
    time.sleep(600)
dist.init_process_group("gloo")

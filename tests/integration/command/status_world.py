#!/usr/bin/env python3
"""A PyTorch world for the tests of `slurm-bootstrap status`. The test controls the stage of each rank.

status_world.py FOLDER: the file FOLDER/RANK names what the rank does, until the test changes or removes the file.
Before the ranks meet, rank 2 may stay in `asleep`, `import` or `port`; without a file it continues. Then each rank loops
over all_reduce, and obeys its file before each round. FOLDER/RANK.at has the rank's current stage.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

FOLDER, RANK = Path(sys.argv[1]), int(os.environ["RANK"])


def order():
    try:
        return (FOLDER / str(RANK)).read_text()
    except FileNotFoundError:
        return ""


def tell(place):
    (FOLDER / f"{RANK}.at").write_text(place)


def asleep():
    tell("asleep")
    while order() == "asleep":
        time.sleep(3)


asleep()
if order() == "import":
    tell("import")
    sys.path.insert(0, (FOLDER / "frozen").read_text())
    try:
        import module_on_a_frozen_mount  # noqa: F401
    except ImportError:
        pass  # the mount is released

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

kept = []  # see etc/examples/train_ddp.py


def other_port():
    right = os.environ["MASTER_PORT"]
    os.environ["MASTER_PORT"] = str(int(right) + 1)
    tell("port")
    while order() == "port":
        try:
            dist.init_process_group("gloo", timeout=timedelta(seconds=5))
        except (RuntimeError, OSError):
            time.sleep(0.5)
    os.environ["MASTER_PORT"] = right


class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        while order() == "loader":
            time.sleep(1)
        return index


def read_stuck_loader():
    for _ in torch.utils.data.DataLoader(Stuck(), num_workers=1):
        pass


def save_checkpoint():
    weights = torch.zeros(1 << 22)
    while order() == "checkpoint":
        torch.save(weights, FOLDER / "checkpoint")


def compute():
    end = time.monotonic() + (0.8 if order() == "slow" else 0)
    while time.monotonic() < end or order() == "busy":
        sum(range(10000))


def evaluate():
    while order() == "hold":
        time.sleep(0.2)


def main():
    torch.set_num_threads(1)
    if order() == "port":
        other_port()
    tell("rendezvous")
    dist.init_process_group("gloo")
    total = torch.ones(1 << 10)
    kept.append(total)
    acts = {"loader": read_stuck_loader, "checkpoint": save_checkpoint, "slow": compute, "busy": compute, "hold": evaluate, "input": input}
    while True:
        act = order()
        tell(act or "round")
        if act == "barrier":
            dist.barrier()
        if act == "end":
            return
        acts.get(act, bool)()
        dist.all_reduce(total)


if __name__ == "__main__":
    main()

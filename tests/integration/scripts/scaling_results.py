"""Results of the scaling report, made up for tests of its statistics and findings."""

# SPDX-License-Identifier: Apache-2.0

from scaling.cells import DONE, Cell
from scaling.report import measures
from scaling.runner import Result

STEPS, WARM_UP = 20, 4


def made_rows(ranks, compute, transfer, waits=(), steps=STEPS, jitter=0.0, samples=8, busy=1.0):
    """Rows of a training whose slowest rank computes so long, and of which each waits so long for that one."""
    waits = waits or [0.0] * ranks
    rows = []
    for step in range(-WARM_UP, steps):
        slow = 100.0 if step < 0 else 1 + jitter * (-1) ** step
        for rank in range(ranks):
            own = compute * slow - waits[rank]
            rows.append({"rank": str(rank), "step": str(step), "samples": str(samples), "forward": str(own / 2), "backward": str(own / 4),
                         "communication": str(transfer * slow + waits[rank]), "update": str(own / 4), "busy": str(own * busy),
                         "loss": str(3.0 - 0.1 * step)})
    return rows


def made(backend, nodes, tasks, compute, transfer, cores=64, machines=None, **more):
    """A result of a cell, each node a machine unless said otherwise."""
    cell = Cell(backend, "mlp", nodes, tasks)
    ranks = [{"rank": rank, "machine": f"m{rank // tasks if machines is None else rank % machines}",
              "cores": ",".join(map(str, range(cores)))} for rank in range(cell.ranks)]
    return Result(cell, DONE, rows=made_rows(cell.ranks, compute, transfer, **more), ranks=ranks)


def rows_of(results):
    return measures.make_rows([result for result in results if result.status == DONE])

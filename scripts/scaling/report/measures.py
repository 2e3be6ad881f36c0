"""The numbers of the tables, from the rows of steps.csv alone: a pandas table with a line for each cell."""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import asdict

import numpy
import pandas

from scaling.options import BACKENDS
from scaling.steps import TIMES

BLOCKS = 10
WIDTH = 1.96  # standard errors: 95 % of a normal distribution


def mean_and_spread(values):
    """The mean, and 1.96 standard errors of it from the means of up to ten blocks of neighbouring steps: what disturbs one step often
    disturbs the next, so that single steps are no independent samples. One block has no spread: nan."""
    blocks = [block.mean() for block in numpy.array_split(values, min(BLOCKS, len(values)))]
    spread = WIDTH * numpy.std(blocks, ddof=1) / len(blocks) ** 0.5 if len(blocks) > 1 else numpy.nan
    return values.mean(), spread


def numbers_of(rows):
    """The numbers of one cell. The time of a step is the mean over its ranks: the sum over all ranks makes their steps equally long.
    Transfer is the least communication time of a rank in each step, that of the slowest one; waiting is what the others take beyond it."""
    frame = pandas.DataFrame(rows)
    frame = frame[frame.step >= 0]  # the others are warm-up
    by_step = frame.assign(total=frame[list(TIMES)].sum(axis=1)).groupby("step")
    step, spread = mean_and_spread(by_step.total.mean().to_numpy())
    samples = int(by_step.samples.sum().iloc[-1])
    communication, transfer = frame.communication.mean(), by_step.communication.min().mean()
    return {"step_seconds": step, "step_seconds_spread": spread, "samples_per_step": samples,
            "samples_per_second": samples / step, "samples_per_second_spread": samples / step * spread / step,
            "compute_seconds": step - communication, "transfer_seconds": transfer, "wait_seconds": communication - transfer}


def load_of(ranks):
    """Where processes are most crowded: how many on one machine, and how many cores may all of these use."""
    machines = {}
    for rank in ranks:
        machine = machines.setdefault(rank.get("machine"), [0, set()])
        machine[0] += 1
        for part in filter(None, rank.get("cores", "").split(",")):
            first, _, last = part.partition("-")
            machine[1].update(range(int(first), int(last or first) + 1))
    crowds = [(count, len(cores)) for count, cores in machines.values() if cores]
    return max(crowds, key=lambda crowd: crowd[0] / crowd[1], default=(len(ranks), len(ranks)))


def make_table(results):
    """A line for each cell that was done. Speed-up is that of throughput, relative to the smallest world of the same back end and model,
    which counts as many as it has processes."""
    if not results:
        return pandas.DataFrame()
    lines = []
    for result in results:
        count, cores = load_of(result.ranks)
        lines.append({**asdict(result.cell), "processes": result.cell.ranks, "layout": result.cell.layout, **numbers_of(result.rows),
                      "oversubscribed": count > cores, "processes_on_a_machine": count, "cores_of_it": cores})
    table = pandas.DataFrame(lines)
    table["order"] = table.backend.map(BACKENDS.index)
    table = table.sort_values(["model", "nodes", "tasks", "order"], ignore_index=True).drop(columns="order")
    least = table.sort_values(["processes", "nodes"]).drop_duplicates(["backend", "model"])
    base = table[["backend", "model"]].merge(least, how="left")  # of each line
    is_base = table.layout == base.layout
    ratio = table.samples_per_second / base.samples_per_second
    relative = numpy.hypot(table.step_seconds_spread / table.step_seconds, base.step_seconds_spread / base.step_seconds)
    table["speedup"] = ratio * base.processes
    table["speedup_spread"] = (table.speedup * relative).mask(is_base, 0.0)
    for column in ("speedup", "speedup_spread"):
        table[column.replace("speedup", "efficiency")] = table[column] / table.processes
    table["speedup_relative_to"] = base.layout
    table["is_base"] = is_base
    return table

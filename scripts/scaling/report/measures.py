"""The numbers of the tables, from the rows of steps.csv alone."""

# SPDX-License-Identifier: Apache-2.0

import math
import statistics
from dataclasses import dataclass

from scaling.steps import TIMES

BLOCKS = 10
WIDTH = 1.96  # standard errors, or deviations: 95 % of a normal distribution


@dataclass(frozen=True)
class Value:
    """A mean and its spread: 1.96 standard errors, from means of blocks of steps; nan where there is but one block."""

    mean: float
    spread: float

    def over(self, other):
        """The ratio of two independent values."""
        ratio = self.mean / other.mean
        return Value(ratio, ratio * math.hypot(self.spread / self.mean, other.spread / other.mean))

    def times(self, factor):
        return Value(self.mean * factor, self.spread * abs(factor))


def known(spread):
    return 0.0 if math.isnan(spread) else spread


def in_blocks(values):
    """Means of up to ten runs of neighbouring steps: what disturbs one step often disturbs the next, so that single
    steps are no independent samples."""
    count = min(BLOCKS, len(values))
    edges = [round(number * len(values) / count) for number in range(count + 1)]
    return [statistics.fmean(values[low:high]) for low, high in zip(edges, edges[1:])]


def deviation(blocks):
    return WIDTH * statistics.stdev(blocks) if len(blocks) > 1 else math.nan


def mean_of(values):
    blocks = in_blocks(values)
    return Value(statistics.fmean(values), deviation(blocks) / math.sqrt(len(blocks)))


@dataclass(frozen=True)
class Figures:
    """Of one cell. Seconds are of a step, as the mean over ranks: the sum over all ranks makes their steps equally long."""

    step: Value
    compute: float
    transfer: float  # least communication time of a rank in each step: that of the slowest rank
    wait: float  # communication beyond that, for slower ranks
    samples: int  # of a step, on all ranks
    throughput: Value  # samples per second
    rates: tuple  # samples per second of one process: mean and 1.96 standard deviations of the blocks

    communication = property(lambda self: self.transfer + self.wait)
    share = property(lambda self: self.communication / self.step.mean)  # of the step, that communication takes


def figures_of(rows):
    """From the rows of one cell; warm-up steps have negative numbers."""
    by_number = {}
    for row in rows:
        if int(row["step"]) >= 0:
            by_number.setdefault(int(row["step"]), []).append({name: float(row[name]) for name in (*TIMES, "samples")})
    steps = [ranks for _, ranks in sorted(by_number.items())]
    totals = [statistics.fmean(sum(rank[name] for name in TIMES) for rank in ranks) for ranks in steps]
    step, samples = mean_of(totals), int(sum(rank["samples"] for rank in steps[-1]))
    blocks = [samples / len(steps[0]) / block for block in in_blocks(totals)]
    communication = statistics.fmean(rank["communication"] for ranks in steps for rank in ranks)
    transfer = statistics.fmean(min(rank["communication"] for rank in ranks) for ranks in steps)
    return Figures(step, step.mean - communication, transfer, communication - transfer, samples, Value(samples, 0.0).over(step),
                   (statistics.fmean(blocks), deviation(blocks)))


@dataclass(frozen=True)
class Row:
    """A line of the tables."""

    cell: object
    figures: Figures
    base: object  # the cell that speed-up is relative to
    speedup: Value
    efficiency: Value
    load: tuple  # most processes on one machine, and the cores that they share

    oversubscribed = property(lambda self: self.load[0] > self.load[1])
    star = property(lambda self: "*" if self.oversubscribed else "")

    def as_dict(self):
        """For cells.json."""
        figures = self.figures
        values = {"step_seconds": figures.step, "samples_per_second": figures.throughput, "speedup": self.speedup,
                  "efficiency": self.efficiency}
        numbers = {name: value.mean for name, value in values.items()} | {f"{name}_spread": value.spread for name, value in values.items()}
        numbers |= {"compute_seconds": figures.compute, "transfer_seconds": figures.transfer, "wait_seconds": figures.wait,
                    "samples_per_step": figures.samples}
        return {**{name: None if math.isnan(value) else value for name, value in numbers.items()},
                "speedup_relative_to": self.base.layout, "oversubscribed": self.oversubscribed,
                "processes_on_a_machine": self.load[0], "cores_of_it": self.load[1]}


def load_of(ranks):
    """Where processes are most crowded: how many on one machine, and how many cores may all of these use."""
    machines = {}
    for rank in ranks:
        machine = machines.setdefault(rank.get("machine"), [0, set()])
        machine[0] += 1
        machine[1] |= set(filter(None, rank.get("cores", "").split(",")))
    crowds = [(count, len(cores)) for count, cores in machines.values() if cores]
    return max(crowds, key=lambda crowd: crowd[0] / crowd[1], default=(len(ranks), len(ranks)))


def make_rows(results):
    """A line for each cell that was done. Speed-up is that of throughput, relative to the smallest world of the same
    back end and model, which counts as many as it has processes."""
    figures = {result.cell: figures_of(result.rows) for result in results}
    bases, rows = {}, []
    for cell in sorted(figures, key=lambda cell: (cell.ranks, cell.nodes)):
        bases.setdefault((cell.backend, cell.model), cell)
    for result in results:
        cell, base = result.cell, bases[result.cell.backend, result.cell.model]
        ratio = Value(1.0, 0.0) if cell == base else figures[cell].throughput.over(figures[base].throughput)
        speedup = ratio.times(base.ranks)
        rows.append(Row(cell, figures[cell], base, speedup, speedup.times(1 / cell.ranks), load_of(result.ranks)))
    return rows

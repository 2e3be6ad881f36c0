"""Tells how far a long run is: which cell of how many, what it gave, and how long the rest may take."""

# SPDX-License-Identifier: Apache-2.0

import time

from scaling.cells import DONE, FAILED
from scaling.report.measures import figures_of


def costs_of(groups):
    """What each cell costs in proportion to others: more with each process, and most where Python and PyTorch start."""
    return {cell: (2 + cell.ranks) * (1 if place else 3) for group in groups for place, cell in enumerate(group)}


def spoken(seconds):
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


class Progress:
    """Of the groups of cells that are to be run."""

    def __init__(self, groups, say):
        self.costs, self.say = costs_of(groups), say
        self.spent, self.count = 0, 0
        self.start = time.monotonic()

    def begin(self, known):
        kept = sum(result.status == DONE for result in known)
        passed = len(known) - kept
        notes = [f"{kept} are done already"] if kept else []
        notes += [f"{passed} cannot be run here"] if passed else []
        self.say(f"{len(self.costs) + len(known)} cells" + (f", of which {' and '.join(notes)}" if notes else ""))

    def done(self, result):
        """A line for the cell that has a result now."""
        self.count += 1
        self.spent += self.costs[result.cell]
        left = sum(self.costs.values()) - self.spent
        if result.status == FAILED:
            text = f"failed: {result.reason}"
        else:
            figures = figures_of(result.rows)
            text = f"{1000 * figures.step.mean:.1f} ms a step, {figures.throughput.mean:,.0f} samples/s"
        seconds = (time.monotonic() - self.start) / self.spent * left
        more = f"; about {spoken(seconds)} left" if left else ""
        total = len(self.costs)
        self.say(f"[{self.count:{len(str(total))}}/{total}] {result.cell.backend} {result.cell.model} {result.cell.layout}: {text}{more}")

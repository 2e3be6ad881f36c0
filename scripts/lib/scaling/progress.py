"""Tells how far a long run is: which cell of how many, what it gave, and how long the rest may take."""

# SPDX-License-Identifier: Apache-2.0

import time

from scaling.cells import DONE, FAILED
from scaling.measures import figures_of


def cost(cell):
    """What a cell costs in proportion to others: a start, and as much again for each process on crowded cores."""
    return 2 + cell.ranks


def spoken(seconds):
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"


class Progress:
    def __init__(self, waiting, total, say):
        self.left = sum(map(cost, waiting))
        self.spent, self.count, self.total, self.say = 0, total - len(waiting), total, say
        self.start = time.monotonic()

    def begin(self, known):
        kept = sum(result.status == DONE for result in known)
        passed = len(known) - kept
        notes = [f"{kept} are done already"] if kept else []
        notes += [f"{passed} cannot be run here"] if passed else []
        self.say(f"{self.total} cells" + (f", of which {' and '.join(notes)}" if notes else ""))

    def done(self, result):
        """A line for the cell that has a result now."""
        self.count += 1
        self.left -= cost(result.cell)
        self.spent += cost(result.cell)
        if result.status == FAILED:
            text = f"failed: {result.reason}"
        else:
            figures = figures_of(result.rows)
            text = f"{1000 * figures.step.mean:.1f} ms a step, {figures.throughput.mean:,.0f} samples/s"
        seconds = (time.monotonic() - self.start) / self.spent * self.left
        more = f"; about {spoken(seconds)} left" if self.left else ""
        width = len(str(self.total))
        self.say(f"[{self.count:{width}}/{self.total}] {result.cell.backend} {result.cell.model} {result.cell.layout}: {text}{more}")

"""Rows of a benchmark: a quantity, ours, a peer's, the ratio, the goal, and whether it was met. As a table and as JSON."""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import dataclass, field
from operator import sub, truediv
from statistics import median, quantiles


def aligned(rows, left=None):
    """The lines of a table of texts: the first columns, `left` of them, to the left, the others to the right; None: all to the left."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        cells = (f"{cell:{'<' if left is None or column < left else '>'}{widths[column]}}" for column, cell in enumerate(row))
        yield "  ".join(cells).rstrip()


def tenths(values):
    """10th and 90th percentile; None where there are too few values."""
    ends = quantiles(values, n=10) if len(values) >= 10 else None
    return ends and (ends[0], ends[-1])


def text_of(values, unit):
    spread = f" ({number(ends[0])}-{number(ends[1])})" if (ends := tenths(values)) else ""
    return f"{number(median(values))}{spread} {unit}".rstrip()


def data_of(values):
    return {"median": median(values), "p10_p90": tenths(values), "count": len(values)}


def number(value):
    """Three digits that count, and no more than the value has."""
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return str(int(value))
    return next((f"{value:.{digits}f}" for digits, limit in ((0, 100), (1, 10), (2, 1)) if abs(value) >= limit), f"{value:.3g}")


@dataclass
class Row:
    """`ours` and `peer` are the values in the order in which they were measured; one value where it is a count. `limit` is for
    ours in `unit`, `ratio_limit` for the ratio, `added_limit` for what ours has more than the peer (in `unit`; then the ratio
    may stay within `ratio_limit` instead). A row without any is shown and not judged."""

    quantity: str
    unit: str
    ours: list
    peer: list = None
    peer_name: str = ""
    limit: float = None
    ratio_limit: float = None
    added_limit: float = None
    why_not: str = ""  # measured in the same run; shown when the goal is not met

    def beside_peer(self, operation):
        """For two that ran in turn, the median over the pairs: the load of the machine is in both."""
        if self.peer is None:
            return None
        if len(self.ours) == len(self.peer) > 1:
            return median(map(operation, self.ours, self.peer))
        return operation(median(self.ours), median(self.peer))

    ratio = property(lambda self: self.beside_peer(truediv))
    added = property(lambda self: self.beside_peer(sub))

    def goals(self):
        """Each goal, and whether it is met; one of them is enough."""
        if self.limit is not None:
            yield f"<= {number(self.limit)} {self.unit}".rstrip(), median(self.ours) <= self.limit
        if self.added_limit is not None:
            yield f"<= +{number(self.added_limit)} {self.unit}", self.added <= self.added_limit
        if self.ratio_limit is not None:
            yield f"<= {number(self.ratio_limit)}x", self.ratio <= self.ratio_limit

    goal = property(lambda self: " or ".join(text for text, _ in self.goals()))

    @property
    def is_met(self):
        """None where there is no goal."""
        return any(met for _, met in self.goals()) if self.goal else None

    def cells(self):
        peer = "" if self.peer is None else f"{text_of(self.peer, self.unit)}, {self.peer_name}"
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        if self.added_limit is not None:
            ratio += f" ({self.added:+.1f} {self.unit})"
        verdict = {None: "", True: "met", False: "not met"}[self.is_met]
        count = str(len(self.ours)) if len(self.ours) > 1 else ""
        return [self.quantity, text_of(self.ours, self.unit), peer, ratio, self.goal, verdict, count]

    def data(self):
        return {"quantity": self.quantity, "unit": self.unit, "ours": data_of(self.ours),
                "peer": None if self.peer is None else {"name": self.peer_name, **data_of(self.peer)},
                "ratio": self.ratio, "added": self.added, "goal": self.goal or None, "met": self.is_met,
                "why_not": self.why_not if self.is_met is False else None}


@dataclass
class Group:
    """The rows of one module. `failed` is the error that ended it; `notes` are for people."""

    title: str
    rows: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    failed: str = ""

    def add(self, quantity, unit, ours, peer=None, peer_name="", **goal):
        """Adds a row of lists of values, or single numbers."""
        ours, peer = ([values] if isinstance(values, (int, float)) else values for values in (ours, peer))
        self.rows.append(Row(quantity, unit, ours, peer, peer_name, **goal))
        return self.rows[-1]

    def text(self):
        lines = [self.title, "=" * len(self.title)]
        lines += [f"FAILED: {self.failed}"] if self.failed else []
        if self.rows:
            lines += aligned([["", "ours", "peer", "ratio", "goal", "", "n"], *(row.cells() for row in self.rows)])
        lines += [f"  {row.quantity}: {row.why_not}" for row in self.rows if row.is_met is False and row.why_not]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def data(self):
        return {"title": self.title, "rows": [row.data() for row in self.rows], "notes": self.notes, "failed": self.failed or None}

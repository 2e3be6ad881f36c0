#!/usr/bin/env python3
"""Keeps the figures B2 and L3 from what `scripts/bench --json FILE` measured in its groups launch and preload: FILE."""

# SPDX-License-Identifier: Apache-2.0

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from test_report.figures import Figure, keep  # noqa: E402

STEP_MILLISECONDS, PRELOAD_MICROSECONDS, PAIRS = 5, 100, 180


def rows(file):
    return [row for group in json.loads(Path(file).read_text())["groups"] for row in group["rows"] if row["peer"]]


def keep_figure(identity, found, limit):
    """Rows of ours and a peer that ran in turn: what ours has more, each and the worst of them."""
    pairs = sum(row["ours"]["count"] for row in found)
    unit = found[0]["unit"]
    each = "; ".join(f"{row['quantity']} {row['added']:+.1f} {unit}" for row in found)
    worst = max(found, key=lambda row: row["added"])
    met = worst["added"] <= limit
    why = "" if met else f"{worst['quantity']}: {worst.get('why_not') or 'the reason is in the table of scripts/bench'}"
    keep(Figure(identity, "", f"{each} (medians of {pairs} pairs)", met, pairs >= PAIRS, why=why))


def main(file):
    found = rows(file)
    keep_figure("B2", [row for row in found if row["quantity"].startswith("srun --mpi=")], STEP_MILLISECONDS)
    preload = [row for row in found if row["quantity"].startswith("start and end") and row["peer"]["name"] == "no preload"]
    keep_figure("L3", preload, PRELOAD_MICROSECONDS)


if __name__ == "__main__":
    main(sys.argv[1])

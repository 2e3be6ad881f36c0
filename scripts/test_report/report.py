#!/usr/bin/env python3
"""The report of `scripts/check --full` on one page: steps, versions, figures with their goals, what was not reached and why,
and the tables. Reads build/report, prints Markdown."""

# SPDX-License-Identifier: Apache-2.0

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from test_report.figures import FOLDER, GOALS, kept, markdown  # noqa: E402
from test_report.versions import show  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[2]


def duration(seconds):
    return f"{seconds // 3600} h {seconds // 60 % 60:02} min" if seconds >= 3600 else f"{seconds // 60} min {seconds % 60:02} s"


def commit():
    done = subprocess.run(["git", "-C", REPOSITORY, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "not a checkout"


def steps():
    """Rows of what scripts/check wrote: step, seconds, outcome, the last line that its runner printed."""
    path = FOLDER / "steps.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return [[name, duration(int(seconds)), outcome, said.replace("|", "/")] for name, seconds, outcome, said in lines]


def verdict(figure):
    if not figure.met:
        return "**no**"
    return "yes" if figure.is_full else "yes, short form"


def row(figure):
    what, goal = GOALS[figure.id]
    part = f", {figure.part}" if figure.part else ""
    seed = f" (seed {figure.seed})" if figure.seed else ""
    return [figure.id, what + part, goal, figure.got + seed, verdict(figure), figure.control or "-", figure.date]


def shortcomings(figures):
    """What was not reached, or not in full, with the reason; and what was not measured at all."""
    for figure in figures:
        if not figure.met or not figure.is_full or figure.why:
            name = f"{figure.id}, {figure.part}" if figure.part else figure.id
            yield f"* {name}: {figure.why or 'the short form was run'}"
    measured = {figure.id for figure in figures}
    for identity, (what, _) in GOALS.items():
        if identity not in measured:
            yield f"* {identity} ({what}): not measured in this run"


def page():
    figures = kept()
    met = sum(figure.met for figure in figures)
    full = sum(figure.met and figure.is_full for figure in figures)
    yield "# slurm-bootstrap: what was tested"
    yield ""
    yield (f"{datetime.date.today()}, commit {commit()}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}: "
           f"{len(figures)} figures of {len(GOALS)} entries, {met} met, {full} of these in full size.")
    yield from ["", "## Steps", "", markdown(["step", "time", "outcome", "what its runner said"], steps())]
    versions = show()
    if versions.count("\n") > 2:
        yield from ["", "## Versions that were run", "", versions]
    yield from ["", "## Figures", ""]
    yield markdown(["", "what", "goal", "measured", "met", "control: what failed as it must", "when"], map(row, figures))
    yield from ["", "## Not reached, or not in full", "", *shortcomings(figures)]
    for figure in figures:
        if figure.table and figure.id != "M9":
            part = f", {figure.part}" if figure.part else ""
            yield from ["", f"## {figure.id}: {GOALS[figure.id][0]}{part}", "", figure.table.strip()]


if __name__ == "__main__":
    print("\n".join(page()))

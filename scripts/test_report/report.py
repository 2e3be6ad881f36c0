#!/usr/bin/env python3
"""The report of `scripts/check --full` on one page, as Markdown: steps, versions, figures with their goals, what was not reached and why,
and the tables. Reads build/report.

report.py                             prints it
report.py versions PART RESULTS.xml   keeps what this machine tests with, and how many tests passed, as figure M9 of PART ("debian 12")
report.py bench FILE                  keeps the figures B2 and L3 from what `scripts/bench --json FILE` measured
"""

# SPDX-License-Identifier: Apache-2.0

import datetime
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from local_cluster import REPOSITORY, slurm_version  # noqa: E402
from test_report.figures import FOLDER, GOALS, Figure, keep, kept, markdown  # noqa: E402

# The Debian packages of what is shown beside Slurm; one of each list is installed.
PACKAGES = {"PMIx": ("libpmix2", "libpmix2t64"), "hwloc": ("libhwloc15",), "munge": ("munge",), "PyTorch": ("python3-torch",),
            "Open MPI": ("openmpi-bin",), "mpi4py": ("python3-mpi4py",), "Python": ("python3",), "gcc": ("g++",), "CMake": ("cmake",)}
OUTCOMES = ("passed", "skipped", "failed")
STEP_MILLISECONDS, PRELOAD_MICROSECONDS, PAIRS = 5, 100, 180


def installed():
    """The version of each package that is installed, without Debian's epoch."""
    names = [name for packages in PACKAGES.values() for name in packages]
    line = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n", *names]
    # dpkg-query exits 1 when it does not know one of the names.
    lines = subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()
    return {words[1]: words[2].split(":")[-1] for words in map(str.split, lines) if words[0] == "ii"}


def counts(results):
    """How many tests of a JUnit file passed, were skipped, and failed."""
    suites = list(ElementTree.parse(results).getroot().iter("testsuite"))
    total, skipped = (sum(int(suite.get(name)) for suite in suites) for name in ("tests", "skipped"))
    failed = sum(int(suite.get(name)) for suite in suites for name in ("failures", "errors"))
    return dict(zip(OUTCOMES, (total - skipped - failed, skipped, failed)))


def keep_versions(part, results, folder=FOLDER):
    tests, versions = counts(results), installed()
    facts = {"Debian": Path("/etc/debian_version").read_text().strip(), "Slurm": slurm_version() or "none"}
    facts |= {what: next((versions[name] for name in names if name in versions), "none") for what, names in PACKAGES.items()}
    facts["integration tests"] = ", ".join(f"{tests[outcome]} {outcome}" for outcome in OUTCOMES if tests[outcome])
    facts["date"] = datetime.date.today().isoformat()
    met = tests["passed"] > 0 and tests["failed"] == 0
    keep(Figure("M9", part, f"{facts['integration tests']} with Slurm {facts['Slurm']}, PMIx {facts['PMIx']}", met, True,
                why="" if met else "tests failed", table=markdown(("what", part), facts.items())), folder)


def keep_bench_figure(identity, found, limit):
    """From rows of ours and a peer that ran in turn: how much more ours takes in each row, judged by the worst row."""
    pairs = sum(row["ours"]["count"] for row in found)
    each = "; ".join(f"{row['quantity']} {row['added']:+.1f} {row['unit']}" for row in found)
    worst = max(found, key=lambda row: row["added"])
    met = worst["added"] <= limit
    why = "" if met else f"{worst['quantity']}: {worst.get('why_not') or 'the reason is in the table of scripts/bench'}"
    keep(Figure(identity, "", f"{each} (medians of {pairs} pairs)", met, pairs >= PAIRS, why=why))


def keep_bench(file):
    """Keeps the figures of the groups launch and preload."""
    rows = [row for group in json.loads(Path(file).read_text())["groups"] for row in group["rows"] if row["peer"]]
    keep_bench_figure("B2", [row for row in rows if row["quantity"].startswith("srun --mpi=")], STEP_MILLISECONDS)
    keep_bench_figure("L3", [row for row in rows if row["quantity"].startswith("start and end") and row["peer"]["name"] == "no preload"],
                      PRELOAD_MICROSECONDS)


def duration(seconds):
    return f"{seconds // 3600} h {seconds // 60 % 60:02} min" if seconds >= 3600 else f"{seconds // 60} min {seconds % 60:02} s"


def steps():
    """Rows of what scripts/check wrote: step, seconds, outcome, the last line that its runner printed."""
    path = FOLDER / "steps.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return [[name, duration(int(seconds)), outcome, last.replace("|", "/")] for name, seconds, outcome, last in lines]


def row(figure):
    what, goal = GOALS[figure.id]
    return [figure.id, what + figure.name.removeprefix(figure.id), goal, figure.got + (f" (seed {figure.seed})" if figure.seed else ""),
            "**no**" if not figure.met else "yes" if figure.is_full else "yes, short form", figure.control or "-", figure.date]


def shortcomings(figures):
    """What was not reached, or not in full, with the reason; and what was not measured at all."""
    for figure in figures:
        if not figure.met or not figure.is_full or figure.why:
            yield f"* {figure.name}: {figure.why or 'the short form was run'}"
    measured = {figure.id for figure in figures}
    yield from (f"* {identity} ({what}): not measured in this run" for identity, (what, _) in GOALS.items() if identity not in measured)


def page():
    figures = kept()
    done = subprocess.run(["git", "-C", REPOSITORY, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    met, full = sum(figure.met for figure in figures), sum(figure.met and figure.is_full for figure in figures)
    yield from ("# slurm-bootstrap: what was tested", "")
    yield (f"{datetime.date.today()}, commit {done.stdout.strip() or 'not a checkout'}, {os.cpu_count()} cores, Linux "
           f"{platform.release().split('-')[0]}: {len(figures)} figures of {len(GOALS)} entries, {met} met, {full} of these in full size.")
    yield from ("", "## Steps", "", markdown(["step", "time", "outcome", "what its runner said"], steps()))
    yield from ("", "## Figures", "")
    yield markdown(["", "what", "goal", "measured", "met", "control: what failed as it must", "when"], map(row, figures))
    yield from ("", "## Not reached, or not in full", "", *shortcomings(figures))
    for figure in figures:
        if figure.table:
            yield from ("", f"## {figure.id}: {GOALS[figure.id][0]}{figure.name.removeprefix(figure.id)}", "", figure.table.strip())


def main(command="", *arguments):
    if command == "versions":
        keep_versions(*arguments)
    elif command == "bench":
        keep_bench(*arguments)
    else:
        print("\n".join(page()))


if __name__ == "__main__":
    main(*sys.argv[1:])

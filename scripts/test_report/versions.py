#!/usr/bin/env python3
"""What a machine tests with, and how many tests passed: the table of versions, from what is installed and what pytest wrote.

versions.py PART RESULTS.xml   keeps it as figure M9 of that part, such as "debian 12"
"""

# SPDX-License-Identifier: Apache-2.0

import datetime
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from local_cluster import slurm_version  # noqa: E402
from test_report.figures import FOLDER, Figure, keep, kept, markdown  # noqa: E402

# What is shown beside Slurm, which need not be a package, and the Debian packages one of which has it.
PACKAGES = {
    "PMIx": ("libpmix2", "libpmix2t64"),
    "hwloc": ("libhwloc15",),
    "munge": ("munge",),
    "PyTorch": ("python3-torch",),
    "Open MPI": ("openmpi-bin",),
    "mpi4py": ("python3-mpi4py",),
    "Python": ("python3",),
    "gcc": ("g++",),
    "CMake": ("cmake",),
}
OUTCOMES = ("passed", "skipped", "failed")


def debian():
    return Path("/etc/debian_version").read_text().strip()


def installed():
    """The version of each package that is installed, without Debian's epoch."""
    names = [name for packages in PACKAGES.values() for name in packages]
    line = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n", *names]
    found = {}
    # dpkg-query exits 1 when it does not know one of the names.
    for entry in subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines():
        status, name, *version = entry.split()
        if status.startswith("ii"):
            found[name] = version[0].split(":")[-1]
    return found


def counts(results):
    """How many tests of a JUnit file passed, were skipped, and failed."""
    suites = list(ElementTree.parse(results).getroot().iter("testsuite"))
    total, skipped = (sum(int(suite.get(name)) for suite in suites) for name in ("tests", "skipped"))
    failed = sum(int(suite.get(name)) for suite in suites for name in ("failures", "errors"))
    return dict(zip(OUTCOMES, (total - skipped - failed, skipped, failed)))


def rows(tests):
    """(what, value) of this machine, in the order of the table."""
    versions = installed()
    yield "Debian", debian()
    yield "Slurm", slurm_version() or "none"
    for what, packages in PACKAGES.items():
        yield what, next((versions[name] for name in packages if name in versions), "none")
    yield "integration tests", ", ".join(f"{tests[outcome]} {outcome}" for outcome in OUTCOMES if tests[outcome])
    yield "date", datetime.date.today().isoformat()


def keep_part(part, results, folder=FOLDER):
    tests = counts(results)
    lines = list(rows(tests))
    facts = dict(lines)
    got = f"{facts['integration tests']} with Slurm {facts['Slurm']}, PMIx {facts['PMIx']}"
    met = tests["passed"] > 0 and tests["failed"] == 0
    table = markdown(("what", part), lines)
    keep(Figure("M9", part, got, met, True, why="" if met else "tests failed", table=table), folder)


def show(folder=FOLDER):
    """One table of all parts, a column each."""
    parts = [figure for figure in kept(folder) if figure.id == "M9" and figure.table]
    columns = [dict(line.strip("| ").split(" | ", 1) for line in figure.table.splitlines()[2:]) for figure in parts]
    names = list(dict.fromkeys(name for column in columns for name in column))
    return markdown(["", *(figure.part for figure in parts)],
                    [[name, *(column.get(name, "") for column in columns)] for name in names])  # fmt: skip


if __name__ == "__main__":
    keep_part(*sys.argv[1:])

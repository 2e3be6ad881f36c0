#!/usr/bin/env python3
"""The page of scripts/gpu-check, from what pytest wrote and what this machine has.

gpu_page.py RESULTS.xml   prints it, as Markdown
"""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import datetime
import platform
import sys
import xml.etree.ElementTree as ElementTree
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scaling.hostfacts import ask, version_of  # noqa: E402
from test_report.figures import markdown  # noqa: E402

MOST_WORDS = 24  # of a cell
PYTHON_PACKAGES = ("torch", "jax", "nvidia-nccl-cu12", "nvidia-nccl-cu13")


# outcome: passed, failed or skipped. text: the measurement, or the reason.
Row = namedtuple("Row", "what outcome text")


def of_library(name, read):
    """A version, from a library that the loader of this machine finds."""
    try:
        return read(ctypes.CDLL(name))
    except (OSError, AttributeError):
        return ""


def nccl(library):
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"


def pmix(library):
    library.PMIx_Get_version.restype = ctypes.c_char_p
    return " ".join(library.PMIx_Get_version().decode().split()[:2])


def versions():
    """(name, version) of what is here."""
    gpus = ask("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").splitlines()
    found = [*(("GPU", gpu) for gpu in gpus), ("system", platform.freedesktop_os_release().get("PRETTY_NAME", "")),
             ("kernel", platform.release()), ("Slurm", ask("slurmd", "-V")), ("PMIx", of_library("libpmix.so.2", pmix)),
             ("NCCL of the system", of_library("libnccl.so.2", nccl)), ("Python", platform.python_version()),
             *((package, version_of(package)) for package in PYTHON_PACKAGES)]
    return [(name, version) for name, version in found if version not in ("", "not installed")]


def rows(path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        trouble = next((found for found in case if found.tag in ("skipped", "failure", "error")), None)
        outcome = "passed" if trouble is None else "skipped" if trouble.tag == "skipped" else "failed"
        text = properties.get("measured", "") if trouble is None else trouble.get("message") or ""
        yield Row(properties.get("says", case.get("name")), outcome, next(iter(text.splitlines()), ""))


def cell(text):
    """Cut, so that the table can be read at a glance."""
    words = text.replace("|", "\\|").split()
    return " ".join(words[:MOST_WORDS] + ["..."] * (len(words) > MOST_WORDS))


def page(found, machine, day):
    """The lines of the page."""
    count = {outcome: sum(row.outcome == outcome for row in found) for outcome in ("passed", "failed", "skipped")}
    yield from ("# A run of scripts/gpu-check", "")
    yield f"{day}: {count['passed']} passed, {count['failed']} failed, {count['skipped']} not run."
    yield from ("", markdown(["", "version"], ([name, cell(version)] for name, version in machine)))
    if count["passed"] + count["failed"]:
        ran = ([cell(row.what), row.outcome, cell(row.text)] for row in found if row.outcome != "skipped")
        yield from ("", markdown(["what was run", "", "measured"], ran))
    if count["skipped"]:
        yield from ("", markdown(["not run", "why"], ([cell(row.what), cell(row.text)] for row in found if row.outcome == "skipped")))


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    print("\n".join(page(list(rows(arguments[0])), versions(), datetime.date.today())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""The page of scripts/gpu-check, from what pytest wrote and what this machine has.

gpu_page.py RESULTS.xml   prints it, as Markdown
"""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import datetime
import importlib.metadata
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

MOST_WORDS = 24  # of a cell
PYTHON_PACKAGES = ("torch", "jax", "nvidia-nccl-cu12", "nvidia-nccl-cu13")


@dataclass
class Row:
    what: str
    outcome: str  # passed, failed or skipped
    text: str  # what it measured, or why it was not run


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else ""


def nccl():
    """Of the machine, as its loader finds it."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return ""
    return f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"


def pmix():
    try:
        library = ctypes.CDLL("libpmix.so.2")
    except OSError:
        return ""
    library.PMIx_Get_version.restype = ctypes.c_char_p
    return " ".join(library.PMIx_Get_version().decode().split()[:2])


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def versions():
    """(name, version) of what is here."""
    gpus = subprocess.run(["sh", "-c", "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader"],
                          capture_output=True, text=True).stdout.strip().splitlines()
    found = [("GPU", gpu) for gpu in gpus] + [
        ("system", platform.freedesktop_os_release().get("PRETTY_NAME", "")),
        ("kernel", platform.release()),
        ("Slurm", first_line("slurmd", "-V")),
        ("PMIx", pmix()),
        ("NCCL of the system", nccl()),
        ("Python", platform.python_version()),
        *((package, version_of(package)) for package in PYTHON_PACKAGES),
    ]
    return [(name, version) for name, version in found if version]


def rows(path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
        skipped, failed = case.find("skipped"), case.find("failure")
        failed = case.find("error") if failed is None else failed
        what = properties.get("says", case.get("name"))
        if skipped is not None:
            yield Row(what, "skipped", skipped.get("message"))
        elif failed is not None:
            yield Row(what, "failed", (failed.get("message") or "").splitlines()[0])
        else:
            yield Row(what, "passed", properties.get("measured", ""))


def cell(text):
    """A table shall stay one that is read at a glance."""
    words = text.replace("|", "\\|").split()
    return " ".join(words[:MOST_WORDS] + ["..."] * (len(words) > MOST_WORDS))


def page(found, machine, day):
    """The lines of the page."""
    count = {outcome: sum(row.outcome == outcome for row in found) for outcome in ("passed", "failed", "skipped")}
    yield from ("# A run of scripts/gpu-check", "")
    yield f"{day}: " + ", ".join(f"{number} {'not run' if outcome == 'skipped' else outcome}" for outcome, number in count.items()) + "."
    yield from ("", "| | version |", "| --- | --- |")
    yield from (f"| {name} | {cell(version)} |" for name, version in machine)
    if count["passed"] + count["failed"]:
        yield from ("", "| what was run | | measured |", "| --- | --- | --- |")
        yield from (f"| {cell(row.what)} | {row.outcome} | {cell(row.text)} |" for row in found if row.outcome != "skipped")
    if count["skipped"]:
        yield from ("", "| not run | why |", "| --- | --- |")
        yield from (f"| {cell(row.what)} | {cell(row.text)} |" for row in found if row.outcome == "skipped")


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(rows(arguments[0]))
    print("\n".join(page(found, versions(), datetime.date.today())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

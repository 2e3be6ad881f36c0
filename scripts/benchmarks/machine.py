"""What a benchmark ran on: processor, memory, kernel, and the versions of what it compares."""

# SPDX-License-Identifier: Apache-2.0

import os
import platform
import re
from datetime import datetime, timezone
from pathlib import Path

from local_cluster import slurm_version
from test_report.versions import installed

PACKAGES = ("libpmix2", "openmpi-bin", "python3-torch", "libhwloc15")

BUSY = "This machine was busy: other programs have a part in each time below. Measure again on an idle one."


def processor():
    names = re.findall(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return names[0] if names else platform.machine()


def memory():
    kibibytes = int(re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()).group(1))
    return round(kibibytes / 2**20)


def describe():
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_gib": memory(),
        "kernel": platform.release(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "is_busy": os.getloadavg()[0] > os.cpu_count() / 4,
        "packages": {"slurm": slurm_version()} | {name: version for name, version in installed().items() if name in PACKAGES},
    }


def headline(machine):
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['date']}: {machine['cpus']} CPUs ({machine['processor']}), {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}, load {machine['load_at_start']} at the start\n{packages}"
        + (f"\n{BUSY}" if machine["is_busy"] else "")
    )

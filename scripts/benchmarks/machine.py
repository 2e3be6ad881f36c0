"""What a benchmark ran on: processor, memory, kernel, and the versions of what it compares."""

# SPDX-License-Identifier: Apache-2.0

import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

PACKAGES = ("slurmd", "libpmix2", "openmpi-bin", "python3-torch", "libhwloc15")


def processor():
    names = re.findall(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return names[0] if names else platform.machine()


def memory():
    kibibytes = int(re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text()).group(1))
    return round(kibibytes / 2**20)


def package_versions():
    """Of Debian packages that are installed."""
    line = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    done = subprocess.run(line, capture_output=True, text=True)
    return dict(entry.split(" ", 1) for entry in done.stdout.splitlines() if not entry.endswith(" "))


def describe():
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_gib": memory(),
        "kernel": platform.release(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "packages": package_versions(),
    }


def headline(machine):
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['date']}: {machine['cpus']} CPUs ({machine['processor']}), {machine['memory_gib']} GiB, Linux "
        f"{machine['kernel']}, load {machine['load_at_start']} at the start\n{packages}"
    )

#!/usr/bin/env python3
"""Prints what this node is and has, as lines `@fact NAME VALUE`; started by the scaling report, one task a node."""
# SPDX-License-Identifier: Apache-2.0

import os
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

LONGEST = 800  # characters: Slurm forwards lines of up to 1 KiB whole


def read(path):
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def ask(*words):
    """The output of a command and its errors; '' when it is not there or fails."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30,
                              errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def counted(lines, form):
    return ", ".join(form.format(lines.count(line), line) for line in dict.fromkeys(lines))


def links(topology):
    """How each pair of GPUs is joined: NV18 is 18 NVLinks, PIX one PCIe switch, SYS the other socket. Each pair is there twice."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in topology.splitlines()]
    pairs = [word for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) for word in row[1:]]
    return counted([word for word in pairs if re.fullmatch(r"NV\d+|PIX|PXB|PHB|NODE|SYS", word)][::2], "{} pairs {}")


def processor_name():
    model = re.search(r"^(?:model name|Model)\s*:\s*(.+)", read("/proc/cpuinfo"), re.M)
    return model[1] if model else platform.machine()


def machine_facts():
    sysfs = Path("/sys/class")
    sockets = len(set(re.findall(r"^physical id\s*:\s*(\d+)", read("/proc/cpuinfo"), re.M))) or 1
    system = re.search(r'^PRETTY_NAME="?([^"\n]+)', read("/etc/os-release"), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.M)
    cards = [path for path in sorted(sysfs.glob("net/*")) if path.name != "lo"]
    asked = ask("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader").splitlines()
    return {
        "operating system": system[1] if system else platform.system(), "kernel": platform.release(),
        "machine": read("/proc/sys/kernel/random/boot_id") or "unknown",
        "CPU": f"{sockets} x {processor_name()}: {os.cpu_count()} logical CPUs, this task may use "
               f"{len(os.sched_getaffinity(0))}",
        "memory": f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "unknown",
        "network interfaces": "; ".join(f"{path.name} {read(path / 'operstate')} ({read(path / 'speed') or 'unknown'} Mbit/s)"
                                        for path in cards),
        "InfiniBand or RoCE": "; ".join(f"{port.parents[1].name} port {port.name}: {read(port / 'rate') or 'unknown'}"
                                        for port in sorted(sysfs.glob("infiniband/*/ports/*"))),
        "GPUs and driver": counted(asked, "{} x {}"), "GPU links": links(ask("nvidia-smi", "topo", "-m"))}


def version_of(package):
    """From the package's metadata: loading Horovod takes seconds."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def program_facts():
    facts = {"Python": f"{platform.python_version()} ({sys.executable})", "PyTorch": "not installed", "GPUs for PyTorch": "0",
             "MPI": "not installed", **{name: version_of(name.lower()) for name in ("NumPy", "mpi4py", "Horovod")}}
    try:
        import torch
        import torch.distributed as dist

        ready = [name for name in ("gloo", "nccl", "mpi") if dist.is_available() and getattr(dist, f"is_{name}_available")()]
        nccl = f", NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if "nccl" in ready else ""
        facts["PyTorch"] = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}{nccl}, with {', '.join(ready) or 'no back end'}"
        facts["GPUs for PyTorch"] = str(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    except ImportError:
        pass
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI

        facts["MPI"] = MPI.Get_library_version().split(",")[0].strip("\0 \n")
    except (ImportError, RuntimeError):
        pass
    return facts


if __name__ == "__main__":
    for fact, value in {"host": platform.node(), **machine_facts(), **program_facts()}.items():
        print(f"@fact {fact.replace(' ', '_')} {' '.join(value.split())[:LONGEST] or 'none'}", flush=True)

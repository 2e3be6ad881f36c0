#!/usr/bin/env python3
"""Prints what this node is and has, as lines `@fact NAME VALUE`; started by the scaling report, one task a node."""
# SPDX-License-Identifier: Apache-2.0

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
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


def processor_name():
    model = re.search(r"^(?:model name|Model)\s*:\s*(.+)", read("/proc/cpuinfo"), re.M)
    return model[1] if model else platform.machine()


def processor():
    sockets = len(set(re.findall(r"^physical id\s*:\s*(\d+)", read("/proc/cpuinfo"), re.M))) or 1
    return (f"{processor_name()}: {os.cpu_count()} logical CPUs in {sockets} "
            f"{'socket' if sockets == 1 else 'sockets'}, this task may use {len(os.sched_getaffinity(0))}")


def interfaces():
    """Each but the loopback, with its speed where the driver has one."""
    paths = [path for path in sorted(Path("/sys/class/net").glob("*")) if path.name != "lo"]
    return "; ".join(f"{path.name} {read(path / 'operstate')} ({read(path / 'speed') or 'unknown'} Mbit/s)" for path in paths)


def fabric():
    return "; ".join(f"{port.parents[1].name} port {port.name}: {read(port / 'rate') or 'unknown'}"
                     for port in sorted(Path("/sys/class/infiniband").glob("*/ports/*")))


def gpus():
    lines = ask("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").splitlines()
    return "; ".join(f"{lines.count(name)} x {name}" for name in dict.fromkeys(lines))


def gpu_links():
    """How each pair of GPUs is joined, counted: NV18 is 18 NVLinks, PIX one PCIe switch, SYS the other socket."""
    pairs = []
    for line in ask("nvidia-smi", "topo", "-m").splitlines():
        words = re.sub(r"\x1b\[[0-9;]*m", "", line).split()
        if words and re.fullmatch(r"GPU\d+", words[0]):
            pairs += [word for word in words[1:] if re.fullmatch(r"NV\d+|PIX|PXB|PHB|NODE|SYS", word)]
    return ", ".join(f"{pairs.count(kind) // 2} pairs {kind}" for kind in dict.fromkeys(pairs))


def torch_facts():
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return {"PyTorch": "not installed", "CUDA": "not installed", "NCCL": "not installed", "GPUs for PyTorch": "0"}
    ready = [name for name in ("gloo", "nccl", "mpi") if dist.is_available() and getattr(dist, f"is_{name}_available")()]
    return {"PyTorch": f"{torch.__version__}, with {', '.join(ready) or 'no back end'}",
            "CUDA": torch.version.cuda or "not installed (PyTorch without CUDA)",
            "NCCL": ".".join(map(str, torch.cuda.nccl.version())) if "nccl" in ready else "not installed",
            "GPUs for PyTorch": str(torch.cuda.device_count() if torch.cuda.is_available() else 0)}


def mpi_facts():
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return {"mpi4py": "not installed", "MPI": "not installed"}
    return {"mpi4py": mpi4py.__version__, "MPI": MPI.Get_library_version().split(",")[0].strip("\0 \n")}


def version_of(package):
    """From its metadata: to load Horovod takes seconds."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def main():
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', read("/etc/os-release"), re.M)
    total = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.M)
    driver = ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
    facts = {
        "operating system": name[1] if name else platform.system(), "kernel": platform.release(),
        "machine": read("/proc/sys/kernel/random/boot_id") or "unknown", "CPU": processor(),
        "memory": f"{int(total[1]) / 2**20:.0f} GiB" if total else "unknown", "network interfaces": interfaces(),
        "InfiniBand or RoCE": fabric(), "GPUs": gpus(), "GPU links": gpu_links(), "GPU driver": driver,
        "Python": f"{platform.python_version()} ({sys.executable})", "NumPy": version_of("numpy"), **torch_facts(), **mpi_facts(),
        "Horovod": version_of("horovod")}
    print(f"@fact host {platform.node()}")
    for name, value in facts.items():
        print(f"@fact {name.replace(' ', '_')} {' '.join(value.split())[:LONGEST] or 'none'}", flush=True)


if __name__ == "__main__":
    main()

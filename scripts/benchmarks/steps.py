"""What the benchmarks share: the machine and the programs, steps whose ranks print lines of JSON, and the shell of an allocation."""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import platform
import subprocess
from contextlib import contextmanager
from datetime import datetime, timezone

from local_cluster import INSIDE, REPOSITORY, slurm_version, stop
from scaling.hostfacts import processor_name
from test_report.report import installed

BUILD = "build/release"
PACKAGES = ("libpmix2", "openmpi-bin", "python3-torch", "libhwloc15")
BUSY = "This machine was busy: other programs have a part in each time below. Measure again on an idle one."
NODES = 4
# With fewer nodes than TreeWidth a fence by Slurm's tree waits for no other node (etc/doc/pmix-facts.md).
CLUSTER = ("--nodes", str(NODES), "--cpus", "16", "--no-plugin", "--set", "TreeWidth=2")


def describe(load):
    """The machine: processor, memory, kernel, and the versions of what is compared."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "processor": processor_name(),
        "cpus": os.cpu_count(), "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release(), "load_at_start": round(load, 1), "is_busy": load > os.cpu_count() / 4,
        "packages": {"slurm": slurm_version()} | {name: version for name, version in installed().items() if name in PACKAGES}}


def headline(machine):
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (f"{machine['date']}: {machine['cpus']} CPUs ({machine['processor']}), {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
            f"load {machine['load_at_start']} at the start\n{packages}" + (f"\n{BUSY}" if machine["is_busy"] else ""))


def built(path):
    """A file of the release build, on this machine."""
    file = REPOSITORY / BUILD / path
    if not file.exists():
        raise FileNotFoundError(f"{BUILD}/{path} is not built; run cmake --preset release && cmake --build --preset release")
    return file


def inside(path):
    """The same file as the hosts of a cluster see it."""
    built(path)
    return f"{INSIDE}/{BUILD}/{path}"


def clocked(name, *arguments):
    """A program that gets the time at which its process was started."""
    return [inside("tests/bench/exchange_clock"), inside(f"tests/bench/{name}"), *arguments]


def shape(ranks, nodes):
    return f"{ranks} ranks on {nodes} {'node' if nodes == 1 else 'nodes'}"


class StepFailed(RuntimeError):
    """The text is one line of the step's errors."""


def run_step(cluster, ranks, *command, nodes=NODES, timeout=60, env=None):
    """The lines of JSON that all ranks printed, at least one each. Raises StepFailed."""
    step = ["srun", "-Q", "--mpi=pmix", f"-N{nodes}", f"-n{ranks}", f"--ntasks-per-node={-(-ranks // nodes)}"]
    line = ["timeout", str(timeout), *step, "--overcommit", "--kill-on-bad-exit=1", *command]
    done = cluster.run(line, env={"SLURM_BOOTSTRAP_TIMEOUT": "20", **(env or {})}, timeout=timeout + 30)
    lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode != 0 or {line["rank"] for line in lines} != set(range(ranks)):
        name = " ".join(str(word).rpartition("/")[2] for word in command)
        # The first line has the reason; the others are of ranks that Slurm ended.
        first = next(iter(done.stderr.strip().splitlines()), "nothing was written")
        raise StepFailed(f"{name}: {shape(ranks, nodes)}: status {done.returncode}: {first}")
    return lines


@contextmanager
def allocated(cluster, *options):
    """Gives a function that runs a line in the bash of an allocation and returns the words that it prints. Fails, and does not wait,
    where the nodes are not free."""
    bash = cluster.start(["salloc", "-Q", "--immediate=60", *options, "bash"], stdin=subprocess.PIPE, stderr=subprocess.STDOUT)

    def ask(line):
        bash.stdin.write(f"{line}\n")
        bash.stdin.flush()
        return bash.stdout.readline().split()

    try:
        yield ask
    finally:
        try:  # with `exit`: salloc 22.05 that gets SIGTERM may wait for bash for ever, and load a core
            bash.communicate("exit\n", timeout=20)
        except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
            stop(bash)

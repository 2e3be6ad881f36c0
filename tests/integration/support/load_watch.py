"""Compares looks at an idle cluster: memory, descriptors, sockets, processes, files."""

# SPDX-License-Identifier: Apache-2.0

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from exchange_steps import leftovers

DAEMONS = ("slurmd", "slurmctld")


@dataclass(frozen=True)
class Look:
    """One look at all hosts; the keys begin with the name of a host."""

    memory: dict  # KiB of RAM of each daemon
    counts: Counter  # descriptors and threads of daemons, sockets, processes by name
    files: set


def host_pids(cluster):
    """For each host the outside id of the process that keeps its namespaces."""
    return {path.name: path.read_text().strip() for path in (cluster.state / "pids").iterdir() if path.name in ("head", *cluster.nodes)}


def network_of(pid):
    """The network namespace of a process; None if it has ended."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/net")
    return None


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def sockets_of(pid):
    """The number of sockets in a network namespace, by kind: 'TCP6 inuse' and so on. TIME_WAIT and orphans do not count."""
    for name in ("sockstat", "sockstat6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines():
            kind, *words = line.split()
            for what, count in zip(words[::2], words[1::2]):
                if what in ("inuse", "used"):
                    yield f"{kind.strip(':')} {what}", int(count)


def look(cluster):
    """Everything, now."""
    memory, counts = {}, Counter()
    hosts = {}
    for host, pid in host_pids(cluster).items():
        hosts[network_of(pid)] = host
        counts.update({f"{host}: sockets, {kind}": count for kind, count in sockets_of(pid)})
    for pid in filter(str.isdigit, os.listdir("/proc")):
        host = hosts.get(network_of(pid))
        # A process may end during the look.
        with suppress(OSError, KeyError):
            if not host:
                continue
            status = status_of(pid)
            name = status["Name"]
            counts[f"{host}: processes {name}"] += 1
            if name in DAEMONS:
                memory[f"{host}: {name}"] = int(status["VmRSS"].split()[0])
                counts[f"{host}: descriptors of {name}"] += len(os.listdir(f"/proc/{pid}/fd"))
                counts[f"{host}: threads of {name}"] += int(status["Threads"])
    return Look(memory, counts, leftovers(cluster))


def more_than(before, after):
    """Everything that has increased, except memory, as sentences."""
    found = [f"{what}: {before.counts[what]} before, {count} now" for what, count in after.counts.items() if count > before.counts[what]]
    return sorted(found) + [f"file {path}" for path in sorted(after.files - before.files)]


def settled(cluster, before, seconds=300):
    """Everything that has increased once the cluster is idle: ([sentences], the last look)."""
    deadline = time.monotonic() + seconds
    while True:
        after = look(cluster)
        more = more_than(before, after)
        if not more or time.monotonic() > deadline:
            return more, after
        time.sleep(0.5)


def growth(before, after, daemon):
    """The growth of a daemon in KiB, on the host where it grew most."""
    return max(after.memory[name] - size for name, size in before.memory.items() if name.endswith(f": {daemon}"))

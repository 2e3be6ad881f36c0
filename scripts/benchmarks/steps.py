"""Steps of a cluster whose ranks print lines of JSON: run, read, and run again where one failed for another's reason."""

# SPDX-License-Identifier: Apache-2.0

import json
import subprocess
from collections import Counter

from benchmarks.programs import inside
from local_cluster import stop

NODES = 4
CLUSTER = ("--nodes", str(NODES), "--cpus", "16", "--no-plugin")
TRIES = 3
ALLOCATE = ("salloc", "-Q", "--immediate=60")  # who cannot have the nodes says so, and does not wait


class StepFailed(RuntimeError):
    """All tries of a step failed; the text is one line of what the last one wrote."""


class Steps:
    """Runs steps over PMIx; `failures` counts by program the tries that failed and were made again. Slurm 22.05 loses a
    message of PMIx in about one of a hundred steps of a busy machine, whoever uses it, and Open MPI was seen to crash."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.failures = Counter()

    def run_once(self, ranks, command, nodes, timeout, env):
        step = ["srun", "-Q", "--mpi=pmix", f"-N{nodes}", f"-n{ranks}", f"--ntasks-per-node={-(-ranks // nodes)}"]
        line = ["timeout", str(timeout), *step, "--overcommit", "--kill-on-bad-exit=1", *command]
        done = self.cluster.run(line, env={"SLURM_BOOTSTRAP_TIMEOUT": "20", **env}, timeout=timeout + 30)
        lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
        if done.returncode != 0 or {entry["rank"] for entry in lines} != set(range(ranks)):
            name = " ".join(str(word).rpartition("/")[2] for word in command)
            raise StepFailed(f"{name}: {shape(ranks, nodes)}: status {done.returncode}: {first_line(done.stderr)}")
        return lines

    def run(self, ranks, *command, nodes=NODES, timeout=60, name=None, env=None):
        """What each rank printed, as a list of all lines; every rank printed some. Raises StepFailed."""
        for left in reversed(range(TRIES)):
            try:
                return self.run_once(ranks, command, nodes, timeout, env or {})
            except StepFailed:
                if left == 0:
                    raise
                self.failures[name or "ours"] += 1

    def notes(self):
        return [f"{count} steps of {name} failed and were run again" for name, count in self.failures.items()]


def leave(shell):
    """Ends the bash of an allocation. By its own word: salloc 22.05 that gets SIGTERM may wait for it for ever, and keeps
    a core busy with it."""
    if shell.poll() is not None:
        return
    try:
        shell.communicate("exit\n", timeout=20)
    except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
        stop(shell)


def first_line(text):
    """All ranks complain of the same; the others of how they were ended."""
    return next(iter(text.strip().splitlines()), "nothing was written")


def shape(ranks, nodes):
    return f"{ranks} ranks on {nodes} {'node' if nodes == 1 else 'nodes'}"


def clocked(name, *arguments):
    """A program that is told when its process was started."""
    return [inside("tests/bench/exchange_clock"), inside(f"tests/bench/{name}"), *arguments]


def latest(lines, name):
    return max(line[name] for line in lines) / 1e6


def start_time(lines):
    """Milliseconds from the start of the last process to the id in the hand of the last rank. When srun starts the
    last one is no matter of any of those that are compared."""
    return latest(lines, "ended") - latest(lines, "started")

"""Steps of a cluster whose ranks print lines of JSON, and the shell of an allocation in which steps are timed."""

# SPDX-License-Identifier: Apache-2.0

import json
import subprocess

from benchmarks.programs import inside
from local_cluster import stop

NODES = 4
# With fewer nodes than TreeWidth a fence by Slurm's tree waits for no other node (etc/doc/pmix-facts.md).
CLUSTER = ("--nodes", str(NODES), "--cpus", "16", "--no-plugin", "--set", "TreeWidth=2")


class StepFailed(RuntimeError):
    """The text is one line of what the step wrote."""


def run_step(cluster, ranks, *command, nodes=NODES, timeout=60, env=None):
    """What each rank printed, as a list of all lines; every rank printed some. Raises StepFailed."""
    step = ["srun", "-Q", "--mpi=pmix", f"-N{nodes}", f"-n{ranks}", f"--ntasks-per-node={-(-ranks // nodes)}"]
    line = ["timeout", str(timeout), *step, "--overcommit", "--kill-on-bad-exit=1", *command]
    done = cluster.run(line, env={"SLURM_BOOTSTRAP_TIMEOUT": "20", **(env or {})}, timeout=timeout + 30)
    lines = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode != 0 or {entry["rank"] for entry in lines} != set(range(ranks)):
        name = " ".join(str(word).rpartition("/")[2] for word in command)
        # All ranks complain of the same; the others of how they were ended.
        said = next(iter(done.stderr.strip().splitlines()), "nothing was written")
        raise StepFailed(f"{name}: {shape(ranks, nodes)}: status {done.returncode}: {said}")
    return lines


class Shell:
    """The bash of an allocation, in which one line after another is run."""

    def __init__(self, cluster, *options):
        # Who cannot have the nodes says so, and does not wait.
        line = ["salloc", "-Q", "--immediate=60", *options, "bash"]
        self.bash = cluster.start(line, stdin=subprocess.PIPE, stderr=subprocess.STDOUT)

    def ask(self, line):
        """Runs a line; the words of the line that it prints."""
        self.bash.stdin.write(f"{line}\n")
        self.bash.stdin.flush()
        return self.bash.stdout.readline().split()

    def close(self):
        """By its own word: salloc 22.05 that gets SIGTERM may wait for bash for ever, and keeps a core busy with it."""
        if self.bash.poll() is None:
            try:
                self.bash.communicate("exit\n", timeout=20)
            except (subprocess.TimeoutExpired, BrokenPipeError, ValueError):
                stop(self.bash)


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

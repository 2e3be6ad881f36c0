"""Steps of the port tests: their shared allocation, the reports of their tasks, and programs beside them."""

import re
from collections import namedtuple
from contextlib import contextmanager

from harness import OF_SLURMSTEPD, TESTS, stop

# -I -S: the fastest start Python has; with PyTorch its packages are needed.
PEER = ["python3", "-I", "-S", f"{TESTS}/ports/port_peer.py"]

REFUSAL = re.compile(
    rf"^{OF_SLURMSTEPD} error: bootstrap: StepId=(?P<step>\d+\.\d+): "
    r"MASTER_PORT (?P<port>\d+) on (?P<host>\w+) (?P<reason>is already in use by another program|cannot be reserved: .+?); (?P<advice>.+)$",
    re.MULTILINE,
)

Peer = namedtuple("Peer", "step port rank word detail")


def teller(sentence):
    """The host whose slurmstepd printed a sentence; Slurm itself names it up to 24.11."""
    return sentence["node"] or sentence["host"]


def peers(text):
    """The reports of the tasks of a step."""
    lines = [line.split(" ", 5) for line in text.splitlines() if line.startswith("peer ")]
    return [Peer(step, int(port), int(rank), word, detail) for _, step, port, rank, word, detail in lines]


@contextmanager
def allocation(cluster, *options):
    """A job in which many steps run at once; gives its id."""
    job = cluster.allocate("--overcommit", *options)
    try:
        yield job
    finally:
        cluster.run(["scancel", job])


def step_line(job, nodes, tasks, *options, asks=True):
    """The line of a step. A step that asks on its own line ends if its port cannot be reserved."""
    shape = ["--overlap", "--overcommit", f"-N{nodes}", f"-n{tasks}"]
    return ["srun", f"--jobid={job}", *shape, *["--bootstrap=on"] * asks, *options]


@contextmanager
def background(cluster, arguments, user="alice", node="node001", ready=False):
    """A program on a node for the time of the block; `ready`: its first line is "ready"."""
    process = cluster.start(arguments, user=user, node=node)
    try:
        if ready:
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        yield process
    finally:
        stop(process)


def in_node(cluster, script, node="node001"):
    """Runs a shell script as root and returns what it printed."""
    return cluster.succeed(["sh", "-c", script], user="root", node=node).stdout

"""Steps for the tests of `slurm-bootstrap status`: starts and controls one, and runs `status`."""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

from built_files import COMMAND
from harness import stop, wait_for

HERE = Path(__file__).parent
DEBIAN_PYTHON = "/usr/bin/python3"  # its PyTorch and mpi4py are Debian's packages
FOUR = ("-N2", "-w", "node001,node002", "--ntasks-per-node=2")
RANK = r"rank {0} \({1}, local rank {2}, pid \d+\)"


def rank(number, node, local_rank):
    """The name of a rank in the first line."""
    return RANK.format(number, node, local_rank)


def status(cluster, *arguments, **more):
    """Runs `status` once; the result has the first line, too."""
    done = cluster.run([COMMAND, "status", *arguments], **more)
    done.first = done.stdout.split("\n", 1)[0]
    return done


def look(cluster, *arguments, **more):
    """Runs `status` once; it must succeed."""
    done = status(cluster, *arguments, **more)
    assert done.returncode == 0, done
    assert not re.search(r"\bhang", done.stdout), "it cannot know that"
    return done


def look_json(cluster, *arguments):
    return json.loads(look(cluster, *arguments, "--json").stdout)


class Step:
    """A running step and the folder of its orders."""

    def __init__(self, cluster, name):
        self.cluster, self.folder, self.process, self.id = cluster, cluster.home / name, None, None

    def order(self, rank, what):
        """Sets what a rank does; None lets it continue."""
        path = self.folder / str(rank)
        if what is None:
            path.unlink(missing_ok=True)
        else:
            path.with_suffix(".new").write_text(what)
            path.with_suffix(".new").rename(path)

    def place(self, rank):
        path = self.folder / f"{rank}.at"
        return path.read_text() if path.exists() else ""

    def wait_until(self, rank, *places):
        wait_for(lambda: self.place(rank) in places, what=f"rank {rank} does not come to {places}: {self.place(rank)!r}")

    def look(self, *options):
        return look(self.cluster, self.id, *options)

    def type_in(self, text):
        """Writes into the step's standard input."""
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def pid_of(self, rank):
        return next(seen["pid"] for seen in look_json(self.cluster, self.id)["ranks"] if seen["rank"] == rank)


@contextmanager
def running(cluster, name, *srun, env=None, orders=None, home=None):
    """A step for the time of the block. Its folder has the same name."""
    step = Step(cluster, name)
    step.folder.mkdir()
    os.chown(step.folder, 10001, 10001)
    for rank, what in (orders or {}).items():
        step.order(rank, what)
    line = ["sh", "-c", f'cd {home or "$HOME"} && exec "$@"', "sh", "srun", "-J", name, "--kill-on-bad-exit=0", *srun]
    with open(step.folder / "output", "w") as output:
        step.process = cluster.start(line, env=env, stdin=-1, stdout=output, stderr=output)
        try:
            wait_for(lambda: started(step), what=f"{name} does not start")
            yield step
        finally:
            cluster.run(["scancel", "-n", name, "-s", "KILL"])
            stop(step.process)


def started(step):
    assert step.process.poll() is None, (step.folder / "output").read_text()
    found = step.cluster.run(["squeue", "-h", "-s", "-u", "alice", "-o", "%i %j %A"]).stdout
    jobs = step.cluster.run(["squeue", "-h", "-n", step.folder.name, "-o", "%A"]).stdout.split()
    for job in jobs:
        match = re.search(rf"^({job}\.\d+) ", found, re.MULTILINE)
        if match:
            step.id = match.group(1)
            return True
    return False


def give_program(cluster, name):
    """Copies a program of this folder into alice's home, which all hosts share."""
    shutil.copy(HERE / name, cluster.home / name)
    return f"/home/alice/{name}"


@contextmanager
def frozen_mount(cluster, folder, node="node002", *words):
    """A file system on which every access waits, for the time of the block; yields its folder in the cluster."""
    inside = f"/home/alice/{folder}"
    (cluster.home / folder).mkdir(exist_ok=True)
    process = cluster.start(["python3", give_program(cluster, "frozen_mount.py"), inside, *words], user="root", node=node)
    try:
        assert process.stdout.readline() == "ready\n", process.communicate()
        yield inside
    finally:
        stop(process)
        cluster.run(["umount", "-l", inside], user="root", node=node)

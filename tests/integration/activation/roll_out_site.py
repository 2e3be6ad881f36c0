"""A site whose hosts have a plugstack.conf each, and the steps that its users start from any host."""

# SPDX-License-Identifier: Apache-2.0

import itertools
import json
import re
from collections import Counter
from pathlib import Path

from built_files import PLUGIN, inside
from harness import wait_for

OWN_FILE = "/run/slurm/plugstack.conf"  # /run is each host's own
NODES = ("node001", "node002", "node003", "node004")
HOSTS = ("head", *NODES)
NO_LINE = "no line"
# A task's place in its world and the world's size; for torchrun's tasks, from torchrun's variables.
SHOW = """#!/usr/bin/python3 -IS
import json, os
print("task", json.dumps([os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "PET_NODE_RANK", "PET_NNODES")]), flush=True)
"""


class Site:
    def __init__(self, cluster):
        self.cluster = cluster
        self.numbers = itertools.count()
        cluster.write_plugstack(f"include {OWN_FILE}\n")
        self.world, self.torchrun = (cluster.write_home(name, SHOW) for name in ("world.py", "torchrun"))

    def set(self, host, state):
        """Replaces the file at once, as `sed -i` does."""
        pid = (self.cluster.state / "pids" / host).read_text().strip()
        file = Path(f"/proc/{pid}/root{OWN_FILE}")
        fresh = file.with_suffix(".new")
        fresh.write_text("" if state == NO_LINE else f"optional {inside(PLUGIN)} when={state} announce=off\n")
        fresh.rename(file)

    def sruns_before(self, host):
        """The output of the page's command: sruns on this host that are older than its file."""
        command = f"ps -C srun -o etimes=,pid=,user= | awk -v age=$(($(date +%s) - $(stat -c %Y {OWN_FILE}))) '$1 >= age'"
        return self.cluster.run(["sh", "-c", command], user="root", node=host).stdout

    def sbatch(self, script, *options):
        """(exit status of its srun, what it printed); None: sbatch has no option of this name."""
        name = f"roll-out-{next(self.numbers)}"
        sent = self.cluster.run(["sbatch", "-Q", "-o", f"{name}.out", *options], stdin=f"{script}\necho status $? > {name}.done\n")
        if sent.returncode:
            assert "unrecognized option" in sent.stderr, sent
            return None
        home = self.cluster.home
        wait_for(lambda: (home / f"{name}.done").is_file() and (home / f"{name}.done").read_text().endswith("\n"))
        return int((home / f"{name}.done").read_text().split()[1]), (home / f"{name}.out").read_text()

    def srun(self, host, *words, env=None):
        done = self.cluster.run(["srun", *words], node=host, env=env, timeout=300)
        if "unrecognized option" in done.stderr:
            return None
        return done.returncode, done.stdout + done.stderr

    def step(self, rng):
        """One step of one kind, from one host, on two nodes."""
        nodes, host = ",".join(rng.sample(NODES, 2)), rng.choice(HOSTS)
        size = ("-w", nodes, "-N2", "--gres=gpu:2")
        two = (*size, "--ntasks-per-node=2")
        kind = rng.choice(["world", "on", "line", "torchrun", "batch", "batch on", "batch option"])
        if kind == "torchrun":
            return self.srun(host, *size, "--ntasks-per-node=1", self.torchrun)
        if kind.startswith("batch"):
            script = {"batch": "#!/bin/sh", "batch on": "#!/bin/sh\nexport SLURM_BOOTSTRAP=on",
                      "batch option": "#!/bin/sh\n#SBATCH --bootstrap=on"}[kind]
            return self.sbatch(f"{script}\nsrun {self.world}", *two)
        env = {"SLURM_BOOTSTRAP": "on"} if kind == "on" else {}
        return self.srun(host, *two, *(["--bootstrap=on"] if kind == "line" else []), self.world, env=env)


def kind_of(outcome):
    """How a step ended. It is half a world if its tasks differ in a value that they must have in common."""
    if outcome is None:
        return "option unknown"
    status, text = outcome
    tasks = [json.loads(line) for line in re.findall(r"^task (.*)$", text, re.MULTILINE)]
    ranks, sizes = {(rank, node_rank) for rank, _, node_rank, _ in tasks}, {(size, nodes) for _, size, _, nodes in tasks}
    if sizes == {(None, None)} and ranks == {(None, None)}:
        return "nothing set" if status == 0 else f"failed: {text}"
    if len(sizes) > 1 or len(ranks) != len(tasks):
        return f"half: {text}"
    size = next(int(size or nodes) for size, nodes in sizes) if tasks else 0
    if status == 0 and size == len(tasks):
        return "whole"
    return f"half: {text}" if tasks else f"refused: {text}"


def count(outcomes):
    """The number of steps of each kind, without the texts."""
    return Counter(outcome.partition(":")[0] for outcome in outcomes)

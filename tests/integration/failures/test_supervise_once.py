"""`slurm-bootstrap supervise`: a training goes on after each kind of failure, and what is not to go on does not."""

# SPDX-License-Identifier: Apache-2.0

import itertools
import os
import re
import signal
import time

import pytest

from built_files import COMMAND
from harness import REPOSITORY, wait_for
from test_report.figures import markdown

OF_NODE = "--ns $$ --nslist net"  # for pkill: hosts of a cluster see each other's processes
NUMBERS = itertools.count()
RESTART = re.compile(r"^slurm-bootstrap: restart (\d+) of \d+: (.*); (without [\w, ]+|on the same nodes); ([\d.]+) s lost.*$", re.M)
STEP = re.compile(r"^step (\d+)  loss \S+ at ([\d.]+)$", re.M)
FINAL = re.compile(r"^final loss (\S+)", re.M)
START = re.compile(r"^start (\d+): rank (\d+) on (\w+)$", re.M)
# A rank of restart COUNT does WHAT after a time: "exit 3", "kill 9".
RANK = """
import os, sys, time
own = os.environ
count, rank = int(own["BOOTSTRAP_RESTART_COUNT"]), own["SLURM_PROCID"]
print(f"start {count}: rank {rank} on {own['SLURMD_NODENAME']}", flush=True)
ranks, seconds, what, number = (sys.argv[1 + count] if len(sys.argv) > 1 + count else "none 0 exit 0").split()
time.sleep(float(seconds) if ranks != "none" else 0)
if rank in ranks.split(","):
    open("progress", "a").write("x")
    os.kill(os.getpid(), int(number)) if what == "kill" else os._exit(int(number))
time.sleep(0 if ranks == "none" else 600)
"""
# What a test does to ranks of the first start, also to one that waits for the others.
OBEY = """
def obey():
    while True:
        time.sleep(0.1)
        ranks, what, number = (open("order").read() if os.path.exists("order") else "none exit 0").split()
        if os.environ["RANK"] in ranks.split(",") and os.environ.get("BOOTSTRAP_RESTART_COUNT", "0") == "0":
            os.kill(os.getpid(), int(number)) if what == "kill" else os._exit(int(number))


import threading, time
threading.Thread(target=obey, daemon=True).start()
"""


def slow_training():
    """The example, which obeys, and takes a while for each step."""
    text = (REPOSITORY / "etc/examples/train_checkpoint.py").read_text()
    for old, new in ((f'signals = []', f"{OBEY}\nsignals = []"), ("step % 100 == 0", "step % 5 == 0"), ("        stopped = is_to", "        time.sleep(0.03)\n        stopped = is_to"),
                     ("{loss.item():.6f}\", flush", "{loss.item():.6f} at {time.time():.2f}\", flush")):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


class Site:
    def __init__(self, cluster):
        self.cluster = cluster

    def folder(self):
        path = self.cluster.home / f"run.{next(NUMBERS)}"
        path.mkdir()
        owner = self.cluster.home.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
        return path

    def submit(self, script, nodes, *options):
        """(number of the job, its folder)"""
        folder = self.folder()
        (folder / "job").write_text(f"#!/bin/bash\n{script}\necho status $?\n")
        words = ["sbatch", "--parsable", f"-N{nodes}", "--no-kill", "--ntasks-per-node=1", "--gres=gpu:1", "--open-mode=append",
                 f"--chdir=/home/alice/{folder.name}", "--output=out", *options, f"/home/alice/{folder.name}/job"]
        done = self.cluster.run(words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), folder

    def supervise(self, options, nodes, tasks, *orders, job_options=(), line="", run="slurm-bootstrap supervise"):
        orders = " ".join(f"'{order}'" for order in orders)
        return self.submit(f"{run} {options} -- srun -N{tasks} -n{tasks} {line} python3 /home/alice/rank.py {orders}", nodes, *job_options)

    def in_node(self, node, text):
        return self.cluster.run(["sh", "-c", text], user="root", node=node)

    def fail(self, node, what):
        kill = f"pkill -KILL {OF_NODE}"
        self.in_node(node, {
            "power cut": f"ip link set eth0 down; {kill} slurm; {kill} python",
            "link cut": "ip link set eth0 down",
            "slurmd": f"{kill} -x slurmd",
            "daemons": f"{kill} slurm"}[what])  # fmt: skip

    def heal(self, node):
        self.in_node(node, f"pkill -KILL {OF_NODE} 'slurm|python'; ip link set eth0 up; while pgrep {OF_NODE} slurm > /dev/null; "
                     "do sleep 0.05; done; slurmd")  # fmt: skip

    def idle(self):
        """All nodes are healthy and idle."""
        self.cluster.run(["sh", "-c", "scancel -u alice; scontrol update nodename=$(sinfo -h -o %N -p main) state=resume"], user="root")
        wait_for(lambda: self.cluster.run(["sinfo", "-h", "-p", "main", "-o", "%T"]).stdout.split() == ["idle"], 120)


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("supervise")
    cluster.asks = False
    cluster.up("--nodes", "8", "--gpus", "1", "--cpus", "8", "--set", "SlurmdTimeout=10")
    cluster.write_home("rank.py", RANK)
    cluster.write_home("train.py", slow_training())
    return Site(cluster)


def text_of(folder):
    return (folder / "out").read_text() if (folder / "out").exists() else ""


def wait_for_end(folder, seconds=300):
    wait_for(lambda: re.search(r"^status \d+$", text_of(folder), re.M), seconds, text_of(folder))
    return text_of(folder)


def status_of(text):
    return int(re.findall(r"^status (\d+)$", text, re.M)[-1])


def ours(text):
    return [line.partition(": ")[2] for line in text.splitlines() if line.startswith("slurm-bootstrap: ")]


def nodes_of(text, count):
    return sorted(node for number, _, node in START.findall(text) if number == str(count))


def test_a_step_is_started_again_after_a_task_has_failed(site):
    _, folder = site.supervise("--grace=1 --progress=progress", 3, 2, "1 2 exit 7")
    text = wait_for_end(folder)
    assert status_of(text) == 0, text
    assert [found[:3] for found in RESTART.findall(text)] == [("1", text.split("restart 1 of 3: ")[1].split("; ")[0], "on the same nodes")]
    assert "restart 1 of 3: task 1 (node002, local rank 0) failed first: exit code 7, " in text
    assert nodes_of(text, 0) == nodes_of(text, 1) == ["node001", "node002"], text


def test_a_node_that_does_not_answer_is_left_out(site):
    _, folder = site.supervise("--grace=1", 3, 2, "5 600 exit 0")
    wait_for(lambda: len(nodes_of(text_of(folder), 0)) == 2, 60, text_of(folder))
    time.sleep(4)  # a look or two
    site.fail("node002", "power cut")
    try:
        text = wait_for_end(folder)
    finally:
        site.heal("node002")
    assert status_of(text) == 0 and nodes_of(text, 1) == ["node001", "node003"], text
    assert re.search(r"restart 1 of 3: node002 does not answer; without node002; ", text), text
    site.idle()


ORDERED = {"a rank exits 1": "3 exit 1", "a rank is killed": "3 kill 9"}
KINDS = [*ORDERED, "the power of a node is cut", "the link of a node is cut", "a node is cut, and a survivor exits 1",
         "a node is cut, and survivors end with 0", "slurmd and slurmstepd are killed", "slurmd is killed", "a node is set DOWN",
         "srun is killed"]  # fmt: skip
TRAINING = 7


def order(folder, text):
    (folder / "order").write_text(text)


def strike(site, folder, kind):
    node = "node003"
    others = ",".join(str(rank) for rank in range(TRAINING) if rank != 2)
    if kind in ORDERED:
        order(folder, ORDERED[kind])
    elif kind == "a node is set DOWN":
        site.cluster.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=test"], user="root")
    elif kind == "srun is killed":
        site.in_node("node001", f"pkill -KILL {OF_NODE} -o -x srun")
    else:
        site.fail(node, {"the link of a node is cut": "link cut", "slurmd and slurmstepd are killed": "daemons",
                         "slurmd is killed": "slurmd"}.get(kind, "power cut"))  # fmt: skip
    if "survivor" in kind:
        time.sleep(1)
        order(folder, f"{others} exit 0" if "end with 0" in kind else "5 exit 1")


def train(site, kind, run="slurm-bootstrap supervise --grace=4 --progress=.", limit=120):
    """(final loss or "", seconds from the failure to the next training step, restarts, text)"""
    line = f"srun -N{TRAINING} -n{TRAINING} --gres=gpu:1 python3 /home/alice/train.py --steps 400"
    _, folder = site.submit(f"{run} {'--' if run else ''} {line}", TRAINING + 1)
    struck = 0.0
    try:
        wait_for(lambda: any(int(step) >= 60 for step, _ in STEP.findall(text_of(folder))), 200, text_of(folder))
        if kind:
            struck = time.time()
            strike(site, folder, kind)
        deadline = time.monotonic() + limit
        while not re.search(r"^status \d+$", text_of(folder), re.M) and time.monotonic() < deadline:
            time.sleep(0.2)
    finally:
        if kind and kind not in (*ORDERED, "srun is killed"):
            site.heal("node003")
        site.idle()
    text = text_of(folder)
    final = FINAL.findall(text)
    after = text.split("slurm-bootstrap: restart 1")
    steps = STEP.findall(after[1]) if len(after) > 1 else []
    return (final[-1] if final and status_of(text + "\nstatus 0") == 0 else ""), (float(steps[0][1]) - struck if steps else None), len(after) - 1, text


@pytest.mark.full
def test_a_training_ends_with_the_same_loss_after_each_kind_of_failure(site, campaign, figure, capsys):
    undisturbed, _, _, text = train(site, "")
    assert undisturbed, text
    rows, same, runs = [], 0, 0
    for kind in campaign.each(KINDS[3:]):
        results = [train(site, kind) for _ in range(1)]
        control = train(site, kind, "", 60)
        same += sum(loss == undisturbed for loss, *_ in results)
        runs += len(results)
        seconds = [f"{took:.1f}" if took else "none" for _, took, _, _ in results]
        said = RESTART.search(results[0][3])
        rows.append([kind, f"{sum(loss == undisturbed for loss, *_ in results)} of {len(results)}", " ".join(seconds),
                     f"{said[2]}; {said[3]}" if said else "not restarted",
                     "ends with the same loss" if control[0] == undisturbed else "lost"])  # fmt: skip
        with capsys.disabled():
            print("\n" + " | ".join(rows[-1]), flush=True)
            if same != runs:
                print(*[result[3] for result in results if result[0] != undisturbed], sep="\n---\n")
    table = markdown(["failure", "same loss", "seconds to the next training step", "line", "without supervise"], rows)
    figure("T3", got=f"{same} of {runs} trainings ended with the same loss", met=same == runs, table=table,
           control=f"without supervise {sum(row[4] != 'lost' for row in rows)} of {len(rows)}")

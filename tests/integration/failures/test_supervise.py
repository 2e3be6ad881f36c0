"""`slurm-bootstrap supervise`: a training continues after each kind of failure, unless it must not restart."""

# SPDX-License-Identifier: Apache-2.0

import itertools
import os
import re
import signal
import time

import pytest

from built_files import COMMAND
from harness import REPOSITORY, slurm_release, wait_for
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
# Lets a test control ranks of the first start, also a rank that waits for the others.
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
    """The example, slowed down, and with ranks that a test can control."""
    text = (REPOSITORY / "etc/examples/train_checkpoint.py").read_text()
    for old, new in ((f'signals = []', f"{OBEY}\nsignals = []"), ("step % 100 == 0", "step % 5 == 0"), ("lr=0.01)", "lr=0.001)"), ("        stopped = is_to", "        time.sleep(0.03)\n        stopped = is_to"),
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
        """(id of the job, its folder); the job has the first nodes"""
        self.idle()
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
        """Waits until all nodes are healthy and idle. After the loss of a node a step manager of Slurm 24.11 does not end, and Slurm itself
        drains the node of the batch script after a minute."""

        def is_idle():
            resume = "scancel -u alice; scontrol update nodename=$(sinfo -h -o %N -p main) state=resume"
            self.cluster.run(["sh", "-c", resume], user="root")
            return self.cluster.run(["sinfo", "-h", "-p", "main", "-o", "%T"]).stdout.split() == ["idle"]

        wait_for(is_idle, 600)


def start_site(cluster, seconds):
    cluster.asks = False
    cluster.up("--nodes", "8", "--gpus", "1", "--cpus", "8", "--set", f"SlurmdTimeout={seconds}")
    cluster.write_home("rank.py", RANK)
    cluster.write_home("train.py", slow_training())
    return Site(cluster)


@pytest.fixture(scope="module")
def site(cluster_factory):
    return start_site(cluster_factory("supervise"), 10)


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


PROGRESSES = "--grace=1 --progress=progress"
# (options, orders, what a shell does 3 s after the ranks have started, the sentence, the status, how often srun was started)
CASES = {
    "its end": (PROGRESSES, [], "", "", 0, 1),
    "a failure at once": ("--grace=1", ["1 1 exit 7"], "", r"task 1 .*exit code 7.*; not restarted: it failed in its first 10 s, .*", 7, 1),
    "too many failures": ("--max-restarts=1 " + PROGRESSES, ["1 1 exit 7", "0 1 exit 8"], "",
                          r"task 0 .*exit code 8.*; not restarted: it has been restarted 1 times \(--max-restarts\)", 8, 2),
    "the same failure twice": ("--grace=1", ["1 11 exit 7", "1 11 exit 7"], "",
                               r"task 1 .*exit code 7.*; not restarted: the same failure came twice without progress .*", 7, 2),
    "scancel of the step": (PROGRESSES, ["9 9 exit 9"], "scancel $SLURM_JOB_ID.0", r"srun ended with 137, and no task failed by itself: .*", 137, 1),
    "SIGTERM": (PROGRESSES, ["9 9 exit 9"], "kill -TERM $!", r"got SIGTERM, as srun does; .*", None, 1),
    "the time limit": (PROGRESSES, ["9 9 exit 9"], "scontrol update StepId=$SLURM_JOB_ID.0 TimeLimit=1",
                       r"srun ended with \d+, and no task failed by itself: .*", None, 1),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_a_step_that_is_not_restarted_ends_with_its_reason(site, case):
    options, orders, what, sentence, status, starts = CASES[case]
    words = " ".join(f"'{order}'" for order in orders)
    after = f"& until grep -qs 'rank 1 on' out; do sleep 0.1; done; sleep 3; {what}; wait $!" if what else ""
    _, folder = site.submit(f"slurm-bootstrap supervise {options} -- srun -N2 -n2 python3 /home/alice/rank.py {words} {after}", 3)
    text = wait_for_end(folder)
    assert re.fullmatch(sentence, ours(text)[-1] if ours(text) else ""), text
    assert status_of(text) == status or status is None and status_of(text) > 128, text
    assert len({number for number, *_ in START.findall(text)}) == starts, text
    site.idle()


@pytest.mark.full
def test_scancel_of_the_job_ends_supervise(site):
    job, folder = site.supervise(PROGRESSES, 3, 2, "9 9 exit 9")
    wait_for(lambda: len(nodes_of(text_of(folder), 0)) == 2, 60, text_of(folder))
    site.cluster.run(["scancel", job])
    site.idle()
    assert ours(text_of(folder)) == ["got SIGTERM, as srun does; there is no restart from now on"], text_of(folder)


@pytest.mark.full
def test_a_signal_is_passed_to_the_step_and_ctrl_c_arrives_once(site):
    """A terminal has already sent Ctrl-C to srun."""
    rank = site.cluster.write_home("typed.py", "import signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\n"
                                   "print('up', flush=True)\nwhile True:\n    time.sleep(1)\n")  # fmt: skip
    line = f"salloc -N2 --ntasks-per-node=1 bash -c 'slurm-bootstrap supervise -- srun -N2 -n2 python3 {rank}; echo status $?'"
    shell = site.cluster.start(["script", "-qefc", line, "/home/alice/typed"], stdin=-1, stdout=-3)

    def seen():
        path = site.cluster.home / "typed"
        return path.read_text(errors="replace") if path.exists() else ""

    wait_for(lambda: seen().count("\nup") == 2, 60, seen())
    site.in_node("head", f"pkill -USR1 {OF_NODE} -o -f ' supervise /'")
    wait_for(lambda: seen().count("got it") == 2, 60, seen())
    def type_interrupt():
        shell.stdin.write("\x03")
        shell.stdin.flush()

    type_interrupt()
    wait_for(lambda: "no restart from now on" in seen() and "srun: interrupt" in seen(), 60, seen())
    time.sleep(2)
    assert seen().count("srun: interrupt") == 1 and "\nstatus" not in seen(), seen()
    while "\nstatus" not in seen():  # two within a second end the step
        type_interrupt()
        time.sleep(0.3)
    shell.wait(60)
    site.idle()


@pytest.mark.full
def test_without_a_spare_node_the_job_is_requeued(site):
    job, folder = site.supervise("--grace=1 --requeue", 2, 2, "9 9 exit 9")
    wait_for(lambda: len(nodes_of(text_of(folder), 0)) == 2, 60, text_of(folder))
    time.sleep(4)
    site.fail("node002", "power cut")
    wait_for(lambda: "the job is requeued" in text_of(folder), 120, text_of(folder))
    site.heal("node002")
    assert ours(text_of(folder))[0].startswith("node002 does not answer, and the job has no spare node; it is left to Slurm")
    wait_for(lambda: len(nodes_of(text_of(folder), 0)) == 4, 120, text_of(folder))
    site.idle()


@pytest.mark.full
def test_a_job_whose_batch_host_is_down_is_requeued(site):
    _, folder = site.supervise("", 3, 2, "9 9 exit 9")
    wait_for(lambda: "slurm-bootstrap-guard" in site.cluster.run(["scontrol", "show", "step"]).stdout, 60)
    site.fail("node001", "power cut")
    wait_for(lambda: len(nodes_of(text_of(folder), 0)) == 4, 180, text_of(folder))
    site.heal("node001")
    site.idle()


@pytest.mark.full
def test_a_drained_node_is_left_out_and_a_step_that_is_not_set_up_is_watched_too(site):
    _, folder = site.supervise("--grace=1", 3, 2, "1 14 exit 7", line="--bootstrap=off --kill-on-bad-exit")
    wait_for(lambda: len(nodes_of(text_of(folder), 0)) == 2, 60, text_of(folder))
    site.cluster.run(["scontrol", "update", "nodename=node001", "state=drain", "reason=test"], user="root")
    text = wait_for_end(folder)
    assert status_of(text) == 0 and nodes_of(text, 1) == ["node002", "node003"], text
    said = ours(text)
    assert len(said) == 2 and said[0].startswith("the plugin does not watch this step") and "; without node001; " in said[1], text
    site.idle()


@pytest.mark.full
def test_fifty_restarts_leave_nothing(site):
    def remains():
        lines = ("ps -eo args= | grep '[r]ank.py\\|[s]upervise\\|[s]run'", "ss -Hltunx | awk '{print $1, $5}' | sort")
        return [site.in_node(node, line).stdout for node in ("node001", "node002") for line in lines]

    before = remains()
    orders = [f"{number % 2} 0 exit {1 + number}" for number in range(50)]
    _, folder = site.supervise("--max-restarts=60 " + PROGRESSES, 3, 2, *orders, "9 9 exit 9")
    descriptors = f"ls /proc/$(pgrep {OF_NODE} -o -f ' supervise /')/fd | wc -l"
    wait_for(lambda: len(nodes_of(text_of(folder), 1)) == 2, 60, text_of(folder))
    first = site.in_node("node001", descriptors).stdout
    wait_for(lambda: len(nodes_of(text_of(folder), 50)) == 2, 900, text_of(folder))
    assert len(RESTART.findall(text_of(folder))) == 50
    assert int(site.in_node("node001", descriptors).stdout) <= int(first) + 1
    site.in_node("node001", f"pkill -TERM {OF_NODE} -o -f ' supervise /'")
    wait_for_end(folder)
    site.idle()
    wait_for(lambda: remains() == before, 60, f"{remains()} {before}")


@pytest.mark.full
def test_two_supervised_worlds_in_one_job(site):
    worlds = " ".join(f"(mkdir {name}; cd {name}; exec slurm-bootstrap supervise {PROGRESSES} -- srun -N2 -n2 --gres=gpu:1 python3 "
                      f"/home/alice/rank.py '{number} 2 exit 7' '0,1 6 exit 0' > out 2>&1) &" for number, name in enumerate("ab"))  # fmt: skip
    _, folder = site.submit(f"{worlds} wait", 5)
    wait_for_end(folder)
    worlds = [(folder / name / "out").read_text() for name in "ab"]
    for text in worlds:
        assert len(RESTART.findall(text)) == 1 and nodes_of(text, 0) == nodes_of(text, 1), text
    assert not set(nodes_of(worlds[0], 1)) & set(nodes_of(worlds[1], 1)), worlds
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
@pytest.mark.parametrize("timeout, kinds", [(10, KINDS), (300, KINDS[:5])], ids=["SlurmdTimeout=10", "SlurmdTimeout=300"])
def test_a_training_ends_with_the_same_loss_after_each_kind_of_failure(site, cluster_factory, timeout, kinds, campaign, figure, capsys):
    place = site if timeout == 10 else start_site(cluster_factory("supervise-300"), timeout)
    undisturbed, _, _, text = train(place, "")
    assert undisturbed, text
    rows, same, runs, kept = [], 0, 0, 0
    times = 5 if timeout == 10 and slurm_release() == (22, 5) else 1
    for kind in campaign.each(kinds):
        results = [train(place, kind) for _ in range(times)]
        control = train(place, kind, "", 40)[0] == undisturbed
        ended = [loss == undisturbed for loss, *_ in results]
        same, runs, kept = same + sum(ended), runs + len(ended), kept + control
        said = RESTART.search(results[0][3])
        rows.append([kind, f"{sum(ended)} of {len(ended)}", " ".join(f"{took:.1f}" if took else "none" for _, took, _, _ in results),
                     f"{said[2]}; {said[3]}" if said else "not restarted", "same loss" if control else "lost"])  # fmt: skip
        with capsys.disabled():
            print("\n" + " | ".join(rows[-1]), *[result[3] for result, is_same in zip(results, ended) if not is_same], sep="\n", flush=True)
    table = markdown(["failure", "same loss", "seconds to the next training step", "line", "without supervise"], rows)
    figure("T3", part=f"SlurmdTimeout={timeout}", got=f"{same} of {runs} trainings ended with the same loss", met=same == runs, table=table,
           control=f"without supervise {kept} of {len(rows)}")  # fmt: skip
    assert same == runs and kept < len(rows), table

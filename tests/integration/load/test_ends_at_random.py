"""Steps are ended at any moment and in any way: their processes and ports are soon gone, and each node can still run jobs."""

# SPDX-License-Identifier: Apache-2.0

import random
import re
import signal
import subprocess
import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

from built_files import program
from harness import command_line, module_cluster, stop
from load_watch import look, settled
from port_steps import REFUSAL

KILL_WAIT = 5  # seconds, as scripts/cluster configures it
LIMIT = KILL_WAIT + 5
EVER = 300  # seconds: what remains then stays for ever
AT_ONCE = 16
TASKS = 8
START_LIMIT = 30  # seconds until a job runs
LONGEST_DELAY = 2.5  # seconds after the start of srun: before, in and after the start of the tasks
LOOK = 0.5  # seconds between two looks at a job
ATTEMPTS, PATIENCE = 3, KILL_WAIT + 4  # attempts to end a step, and seconds for each: srun gives its tasks KillWait + 2
ANOTHER = 10000  # more than there are cases

# While a job is in one of these states its nodes, or some of them, are not free.
BUSY = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "STOPPED", "SUSPENDED"}
WAYS = ("scancel job", "scancel step", "Ctrl-C", "SIGTERM", "time limit")
TELL = 'echo "$MASTER_ADDR $MASTER_PORT"; '
# {} is a mark by which the test finds a process. The shell prints the port and executes the program.
PROGRAMS = {
    "sleeps": TELL + "exec sleep {}",
    "ignores signals": TELL + "trap '' INT TERM; exec sleep {}",
    "listens": TELL + "exec python3 -I -S -c 'import os, socket, time; "
               's = socket.create_server(("", int(os.environ["MASTER_PORT"]) if os.environ["RANK"] == "0" else 0)); '
               "time.sleep({})'",
    "has exchanged": "{ours} --rounds 3; " + TELL + "exec sleep {}",
}
BIND = "import socket, sys; socket.socket(socket.AF_INET6).bind(('::', int(sys.argv[1])))"

Case = namedtuple("Case", "number way what delay")
# `late` is what remained after LIMIT seconds, and `stuck` after EVER. `started` is true if the tasks had printed
# their port.
Ended = namedtuple("Ended", "case seconds late stuck started")


# MinJobAge keeps a job in slurmctld's list long enough for questions after its end, and not for ever.
SIZE = ("--nodes", "4", "--cpus", "64", "--plugin-args", "when=always", "--set", "MinJobAge=60")

ends_cluster = module_cluster("ends", *SIZE)


class NotStarted(Exception):
    """The job of a case stays PENDING, or was refused because it computed the port of another running job, as documented."""


def name_of(case):
    return f"end{case.number}"


def mark_of(case):
    return f"600.{case.number:05}"


def start(cluster, case):
    text = PROGRAMS[case.what].replace("{}", mark_of(case))
    text = text.replace("{ours}", program("exchange_probe"))
    mpi = "--mpi=pmix" if case.what == "has exchanged" else "--mpi=none"
    line = ["srun", "--unbuffered", "-N4", f"--ntasks={TASKS}", "-J", name_of(case), mpi, "/bin/sh", "-c", text]
    return cluster.start(line, stderr=subprocess.PIPE)


def wait_until(condition, seconds, pause=LOOK):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def job_of(cluster, case):
    """The job's id and state; both are empty before srun has submitted it, and after slurmctld has forgotten it."""
    listed = cluster.succeed(["squeue", "-h", "-t", "all", "-n", name_of(case), "-o", "%i %T"], timeout=30)
    return (listed.stdout.split() or ["", ""])[:2]


def remains(cluster, case, number=""):
    """What remains of the job, as sentences. `number` is its job id, which slurmctld forgets after a minute."""
    job, state = job_of(cluster, case)
    job = job or number
    lines = [command_line(pid) for pid in cluster.processes()]
    found = [f"job {job} is {state}"] if state in BUSY else []
    if job and any(line.startswith(b"slurmstepd: [%s." % job.encode()) for line in lines):
        found.append("slurmstepd")
    # The test's own shells around srun also have the mark, and the word srun.
    of_tasks = [line for line in lines if mark_of(case).encode() in line and b"slurmstepd" not in line and b"srun" not in line]
    return found + ([f"{len(of_tasks)} processes such as {of_tasks[0][:80]!r}"] if of_tasks else [])


def interrupt(srun):
    """Ctrl-C twice within a second, at which srun ends the step."""
    srun.send_signal(signal.SIGINT)
    time.sleep(0.3)
    srun.send_signal(signal.SIGINT)


def reach_time_limit(cluster, case, job):
    """Sets the job's end to now, and returns when slurmctld has acted on it."""
    cluster.succeed(["scontrol", "update", f"JobId={job}", "EndTime=now+1seconds"], user="root")
    assert wait_until(lambda: job_of(cluster, case)[1] != "RUNNING", EVER), f"{case}: no time limit"
    return time.monotonic()


def end(cluster, case, srun):
    """Ends the step in the way of the case and returns the time. It tries again after a while, as a user does: a first attempt
    may come before the step or srun exists."""
    job = ""
    if case.way not in ("Ctrl-C", "SIGTERM"):
        runs = wait_until(lambda: job_of(cluster, case)[1] == "RUNNING" or srun.poll() is not None, START_LIMIT)
        if srun.poll() is not None:
            said = srun.communicate()
            assert REFUSAL.search(said[1]), (case, said)
        if srun.poll() is not None or not runs:
            raise NotStarted(case)
        job, _ = job_of(cluster, case)
    if case.way == "time limit":
        return reach_time_limit(cluster, case, job)
    for _ in range(ATTEMPTS):
        began = time.monotonic()
        if case.way == "Ctrl-C":
            interrupt(srun)
        elif case.way == "SIGTERM":
            srun.send_signal(signal.SIGTERM)
        else:
            cluster.run(["scancel", f"{job}.0" if case.way == "scancel step" else job])
        if wait_until(lambda: srun.poll() is not None, PATIENCE, pause=0.05):
            break
    return began


def taken_port(cluster, told):
    """The port that the tasks printed, if it cannot be bound; [] if it can, or if they printed none."""
    for line in told.splitlines():
        host, _, port = line.partition(" ")
        if port.isdigit() and cluster.run(["python3", "-I", "-S", "-c", BIND, port], node=host).returncode != 0:
            return [f"port {port} of {host}"]
    return []


def port_left(cluster, told, deadline):
    """The same at the deadline. Before that, an ending process may have sockets although its command line has gone."""
    is_free = wait_until(lambda: not taken_port(cluster, told), deadline - time.monotonic())
    return [] if is_free else taken_port(cluster, told)


def run_case(cluster, case):
    srun, told = start(cluster, case), ""
    try:
        if case.what == "has exchanged":  # the delay counts from here
            told = "".join(srun.stdout.readline() for _ in range(TASKS))
        time.sleep(case.delay)
        began = end(cluster, case, srun)
        job, _ = job_of(cluster, case)
        late = [] if wait_until(lambda: srun.poll() is not None, LIMIT) else ["srun"]
        wait_until(lambda: not remains(cluster, case, job), began + LIMIT - time.monotonic())
        seconds = time.monotonic() - began
        late += remains(cluster, case, job)
        if late:
            wait_until(lambda: srun.poll() is not None and not remains(cluster, case, job), EVER)
        stuck = remains(cluster, case, job) + ([] if srun.poll() is not None else ["srun"])
        told += "" if "srun" in stuck else srun.communicate()[0]
    finally:
        stop(srun)
    late += port_left(cluster, told, began + LIMIT)
    stuck += port_left(cluster, told, began + EVER)
    return Ended(case, seconds, late, stuck, bool(told))


def random_cases(count, generator):
    """Ways and programs in turn, so that a small number of cases has all of them; moments at random."""
    pairs = [(way, what) for what in PROGRAMS for way in WAYS]
    generator.shuffle(pairs)
    # Slurm looks for jobs over their limit only twice a minute, so these cases come first.
    chosen = sorted((pairs[number % len(pairs)] for number in range(count)), key=lambda pair: pair[0] != "time limit")
    return [Case(number, *pair, round(generator.uniform(0, LONGEST_DELAY), 2)) for number, pair in enumerate(chosen)]


def run_if_it_starts(cluster, case):
    """The ended case, or None if it did not start."""
    try:
        return run_case(cluster, case)
    except NotStarted:
        return None


def run_cases(cluster, cases, campaign, tell):
    """Runs several at once, until all are done or the time is over. A case that did not start runs again at the end:
    on a busy machine slurmctld may leave a job waiting, and a job may compute the port of another."""
    ended, waiting, late_starts = [], list(cases), 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while waiting and not campaign.is_over() and late_starts <= max(1, len(cases) // 20):
            batch, waiting = waiting[:10 * AT_ONCE], waiting[10 * AT_ONCE:]
            for case, step in zip(batch, pool.map(lambda case: run_if_it_starts(cluster, case), batch)):
                if step:
                    ended.append(step)
                else:  # under another name: the end of this job is known
                    waiting.append(case._replace(number=case.number + ANOTHER))
                    late_starts += 1
            tell(f"{len(ended)} of {len(cases)}, {sum(bool(step.late) for step in ended)} left something, "
                 f"{late_starts} did not start and were run again")
    return ended


def test_an_ended_step_soon_frees_everything(ends_cluster, campaign, capsys, figure):
    cases = random_cases(campaign.size(1000, 15), random.Random(campaign.seed))

    def tell(text):
        with capsys.disabled():
            print(f"\nends at random: {text} (seed {campaign.seed})", end="", flush=True)

    ends_cluster.run(["srun", "-N4", "true"])
    before = look(ends_cluster)
    ended = run_cases(ends_cluster, cases, campaign, tell)
    campaign.planned, campaign.done = len(cases), len(ended)
    late, stuck = [step for step in ended if step.late], [step for step in ended if step.stuck]
    more, _ = settled(ends_cluster, before)
    status = ends_cluster.script("status")
    ways = Counter(step.case.way for step in ended)
    slowest = {way: round(max(step.seconds for step in ended if step.case.way == way), 1) for way in ways}
    started = sum(step.started for step in ended)
    left = Counter(f"{step.case.way}, {step.case.what}: {re.sub('[0-9]+', 'N', ', '.join(step.late))}" for step in late)
    figure(
        "B4", got=f"{len(late)} of {len(ended):,} left something {LIMIT} s after their end, {len(stuck)} for longer "
                  f"than {EVER} s; slowest {max(slowest.values())} s; {len(more)} sockets, processes or files more; "
                  f"{'no' if status.returncode == 0 else 'a'} node unfit for jobs",
        met=not late and not more and status.returncode == 0, seed=campaign.seed,
        why=f"most of all: {left.most_common(3)}" if left else "",
        control="a process that has left its step is found",
        table="\n".join(["| way | steps | slowest |", "| --- | --- | --- |",
                         *(f"| {way} | {count} | {slowest[way]} s |" for way, count in ways.items())]),
    )
    assert campaign.is_full or campaign.is_whole, f"{len(cases) - len(ended)} jobs did not start"
    assert not stuck, stuck[:5]
    assert not more
    assert status.returncode == 0, status.stdout
    assert started >= len(ended) // 4, "most were ended before their tasks had started"


def test_control_processes_and_ports_of_a_running_step_are_seen(ends_cluster):
    """The test finds all parts of a running step, and a process that has left its step, which Slurm does not end."""
    case = Case(90001, "scancel job", "sleeps", 0)
    srun = start(ends_cluster, case)
    try:
        told = srun.stdout.readline()
        found = remains(ends_cluster, case)
        assert len(found) == 3 and taken_port(ends_cluster, told), (found, told)
    finally:
        stop(srun)
    leave = f"setsid -f sleep {mark_of(case)} > /dev/null 2>&1 < /dev/null; sleep 1"
    assert ends_cluster.run(["srun", "-N1", "-J", name_of(case), "/bin/sh", "-c", leave]).returncode == 0
    found = remains(ends_cluster, case)
    ends_cluster.run(["pkill", "-f", f"^sleep {mark_of(case)}"], node="node001")
    assert any("processes" in words for words in found), found

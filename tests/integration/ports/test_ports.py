"""MASTER_PORT of real steps: its number, its reservation, and its release. Another user's program takes a port of a step: before the
step, which then ends within seconds with one sentence, or after the reservation, if the system allows it."""

import contextlib
import itertools
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import TESTS, module_cluster
from port_steps import PEER, REFUSAL, allocation, background, in_node, peers, step_line, teller

ECHO = "echo $SLURMD_NODENAME $MASTER_PORT $SLURM_STEP_RESV_PORTS"
PLAIN_BIND = "import socket, sys; socket.socket(socket.AF_INET6).bind(('::', int(sys.argv[1])))"
PORTS = itertools.count(32100, 10)  # new ports for each test that chooses one, since the last test's ports may still be in use

cluster = module_cluster("ports", "--nodes", "3", "--cpus", "16", "--plugin-args", "when=always")


@pytest.fixture(scope="module")
def job(cluster):
    with allocation(cluster, "-N3", "--cpus-per-task=8") as job:
        yield job


def seen(done):
    """(node, port, reserved ports) of each task."""
    assert done.returncode == 0, done.stderr
    return [tuple((line + " ").split(" ", 2)) for line in done.stdout.splitlines()]


def at_once(cluster, lines):
    """Runs steps that all wait until all have started or one is refused; returns the output of each."""
    meeting = f"~/meeting.{next(PORTS)}"
    come = f"mkdir -p {meeting}/$SLURM_JOB_ID.$SLURM_STEP_ID"
    wait = f"for i in $(seq 200); do [ $(ls {meeting} | wc -l) -lt {len(lines)} ] || break; sleep 0.2; done"
    with ThreadPoolExecutor(len(lines)) as pool:
        program = ["sh", "-c", f"{ECHO}; {come}; {wait}"]
        return list(pool.map(lambda line: cluster.run([*line, *program]), lines))


def test_the_port_is_the_same_on_every_node_and_another_in_every_step(cluster, job):
    steps = [seen(cluster.run([*step_line(job, 3, 6), "sh", "-c", ECHO])) for _ in range(5)]
    for tasks in steps:
        assert {node for node, *_ in tasks} == {"node001", "node002", "node003"} and len(tasks) == 6
        assert len({port for _, port, _ in tasks}) == 1
    ports = [int(tasks[0][1]) for tasks in steps]
    assert len(set(ports)) == 5 and all(20000 <= port < 30000 for port in ports)


def test_steps_at_once_share_no_port(cluster, job, campaign, figure):
    """Steps of one job, and one step in each of four jobs with neighbouring ids, all alive at the same time. Computed ports of two
    steps can be the same by chance (120 pairs of 16, 10,000 ports): then the second step reports it. A third would be a fault."""
    of_job, refused = campaign.size(46, 12), 0
    for _ in campaign.each(range(campaign.size(20, 1))):
        steps = at_once(cluster, [step_line(job, 3, 3)] * of_job + [["srun", "-N2", "-n2", "-c1"]] * 4)
        started = [seen(done) for done in steps if done.returncode == 0]
        assert all("is already in use by another program" in done.stderr for done in steps if done.returncode != 0)
        assert all(len({port for _, port, _ in tasks}) == 1 for tasks in started)
        on_node = [(min(node for node, *_ in tasks), tasks[0][1]) for tasks in started]
        assert len(set(on_node)) == len(started) >= campaign.size(46, 15), on_node
        refused += len(steps) - len(started)
    figure("Q2", got=f"{campaign.done} rounds of {of_job + 4} steps: 0 shared ports, {refused} refused", met=True)


def test_reserved_ports_of_slurm_are_used(cluster_factory):
    cluster = cluster_factory("reserved").up("--plugin-args", "when=always", "--set", "MpiParams=ports=12000-12999")
    # A step manager shares the few ports of the job between its steps, and further steps wait.
    with allocation(cluster, "-N2", *["--resv-ports=60"] * bool(cluster.settings)) as job:
        steps = [seen(done) for done in at_once(cluster, [step_line(job, 2, 2)] * 20)]
    masters, reserved = [], []
    for tasks in steps:
        assert len({(port, ports) for _, port, ports in tasks}) == 1
        _, port, ports = tasks[0]
        low, _, high = ports.strip().partition("-")
        assert port == low and 12000 <= int(low) <= 12999
        masters.append(port)
        reserved += range(int(low), int(high or low) + 1)
    assert len(set(masters)) == 20 and len(set(reserved)) == len(reserved)


TASK_PORTS = """
import os, socket
for port in os.environ["BOOTSTRAP_PORTS"].split(","):
    try:
        socket.socket().bind(("", int(port)))
        print("not reserved")
    except OSError:
        socket.create_server(("", int(port)))  # sets SO_REUSEADDR
print(*[os.environ[name] for name in ("SLURMD_NODENAME", "BOOTSTRAP_PORTS", "MASTER_PORT", "JAX_COORDINATOR_PORT")])
"""
TAKEN = """
import socket, time
servers = [socket.create_server(("", port)) for port in range(31200, 31208)]
print("ready", flush=True)
time.sleep(600)
"""


def test_further_ports_are_reserved_for_one_task_each(cluster, job):
    """A port that another program uses is skipped."""
    there = ["-w", "node[001-002]"]  # Slurm 26.05 takes other nodes of the job where those of an earlier step are still busy

    def ports_by_node(count, *options):
        done = cluster.succeed([*step_line(job, 2, 4, *there, f"--bootstrap-ports={count}", *options), "python3", "-c", TASK_PORTS])
        ports = {"node001": [], "node002": []}
        for line in done.stdout.splitlines():
            node, own, *others = line.split()
            ports[node] += own.split(",")
        assert all(len({*of_node, *others}) == 2 * count + 2 for of_node in ports.values()), done.stdout
        return ports

    ports_by_node(3)
    with background(cluster, ["python3", "-c", TAKEN], node="node002", ready=True):
        ports = ports_by_node(2, "--bootstrap-port-range=31200-31215")
        assert min(ports["node002"]) >= "31208", ports
        done = cluster.run([*step_line(job, 2, 4, *there, "--bootstrap-ports=4", "--bootstrap-port-range=31200-31211"), "true"])
        assert done.returncode != 0 and done.stderr.count("too few ports are free for rank 2 on node002") == 1, done.stderr


def test_the_port_is_free_again_as_soon_as_srun_has_ended(cluster, job):
    port = next(PORTS)
    for _ in range(10):
        cluster.succeed([*step_line(job, 3, 3, f"--bootstrap-port={port}"), "true"])
        cluster.succeed(["python3", "-c", PLAIN_BIND, port], node="node001")


def test_a_cancelled_step_gives_the_port_back(cluster, job):
    port = next(PORTS)
    for signal in ("KILL", "TERM"):
        line = [*step_line(job, 3, 3, f"--bootstrap-port={port}"), "sh", "-c", "[ $SLURM_PROCID != 0 ] || echo ready; exec sleep 600"]
        with background(cluster, line, node="head", ready=True):
            assert cluster.run(["python3", "-c", PLAIN_BIND, port], node="node001").returncode != 0
            cluster.run(["sh", "-c", f"scancel -s {signal} $(squeue -h -s -j {job} -o %i | grep -v batch)"])
        cluster.succeed([*step_line(job, 3, 3, f"--bootstrap-port={port}"), "true"])


# Prints the number of sockets of a step's slurmstepd on this node, and the open files of its first task.
DESCRIPTORS = """
pid=$(pgrep --ns $$ --nslist net -f '[s]lurmstepd: .%s]')
ls -l /proc/$pid/fd | grep -c socket:
echo $(ls -l /proc/$(pgrep -P $pid | head -n 1)/fd | awk 'NF > 9 { sub(/:.*/, "", $11); print $9 $11 }' | sort)
"""


def descriptors(cluster, job, *options, asks=True):
    """The open sockets of slurmstepd on node001 and on node002 while a step runs."""
    ready = ["sh", "-c", "[ $SLURM_PROCID = 0 ] && echo ready; exec sleep 600"]
    line = step_line(job, 2, 2, "-w", "node001,node002", *options, asks=asks)
    with background(cluster, [*line, *ready], node="head", ready=True):
        steps = cluster.run(["scontrol", "-o", "show", "step", job]).stdout  # also where the job has a step manager
        step = f"{job}.{max(map(int, re.findall(r'StepId=[0-9]+[.]([0-9]+) ', steps)))}"
        before, now = None, []
        # Waits until all tasks have started, and slurmstepd has closed the descriptors that it needs for this only.
        while before != now or not all(task for _, task in now):
            time.sleep(0.2)
            script = DESCRIPTORS % step
            before, now = now, [in_node(cluster, script, node).splitlines() for node in ("node001", "node002")]
        return now


def test_slurmstepd_holds_two_sockets_and_the_task_none(cluster, job):
    """One for reports to srun, and on the node of rank 0 one for MASTER_PORT."""
    with cluster.other_plugstack():
        (sockets, task), (other_sockets, other_task) = descriptors(cluster, job, asks=False)
    assert int(sockets) > 0 and "2pipe" in task and "socket" not in task
    other = [str(int(other_sockets) + 1), other_task]
    assert descriptors(cluster, job) == [[str(int(sockets) + 2), task], other]
    assert descriptors(cluster, job, "--bootstrap-claim=off") == [[str(int(sockets) + 1), task], other]


def test_pytorch_serves_its_store_on_the_reserved_port(cluster, job):
    line = [*step_line(job, 2, 3), "python3", f"{TESTS}/ports/port_peer.py", "torch"]
    done = cluster.succeed(line, timeout=90)
    assert sorted(peer.word for peer in peers(done.stdout)) == ["joined", "joined", "served"]


# -- other programs at the port


SOON = 5  # seconds within which a step reports the fault and ends
PATIENCE = 300  # half of what its tasks sleep; SOON is reported

HOLDERS = [
    ("::", "listen"),
    ("::", "listen", "reuse"),
    ("::",),
    ("::", "reuse"),
    ("0.0.0.0", "reuse"),
    ("127.0.0.1", "listen", "reuse"),
]


@pytest.fixture(scope="module")
def taken():
    """Seconds until the end of each step that was refused, for the figure."""
    return {}


@contextlib.contextmanager
def held_by_bob(cluster, port, *how, node="node001"):
    with background(cluster, [*PEER, "hold", port, *how], user="bob", node=node, ready=True) as process:
        yield process


def refused(cluster, taken, name, line, **run):
    """The one sentence of a refused step."""
    started = time.monotonic()
    done = cluster.run(line, timeout=PATIENCE, **run)
    taken[name] = time.monotonic() - started
    assert done.returncode != 0, done.stderr
    assert done.stderr.count("bootstrap:") == 1, done.stderr
    return next(text for text in done.stderr.splitlines() if "bootstrap:" in text)


@pytest.mark.parametrize("how", HOLDERS, ids=" ".join)
def test_a_taken_port_ends_the_step_with_one_sentence(cluster, job, taken, how):
    port = next(PORTS)
    line = [*step_line(job, 3, 6, f"--bootstrap-port={port}"), "sleep", "600"]
    with held_by_bob(cluster, port, *how):
        sentence = REFUSAL.search(refused(cluster, taken, f"before, {' '.join(how)}", line))
        assert (teller(sentence), sentence["host"], int(sentence["port"])) == ("node001", "node001", port)
        assert sentence["reason"] == "is already in use by another program" and "--bootstrap-port" in sentence["advice"]
        assert "sleep" not in in_node(cluster, "ps -eo args= | grep '[s]leep 600' || true")
        # The user can switch the claim off.
        assert cluster.run([*line[:-2], "--bootstrap-claim=off", "true"]).returncode == 0
    # Control: without that program the step runs.
    assert cluster.run([*line[:-2], "true"]).returncode == 0


def test_a_taken_port_is_reported_by_the_host_of_rank_0_wherever_it_is(cluster, job, taken):
    port = next(PORTS)
    hosts = cluster.write_home("hosts", "node003\nnode001\nnode002\n")
    options = ["--distribution=arbitrary", f"--bootstrap-port={port}"]
    line = ["srun", f"--jobid={job}", "--overlap", "-n3", *options, "sleep", "600"]
    with held_by_bob(cluster, port, "::", "listen", node="node003"):
        text = refused(cluster, taken, "before, on the last node", line, env={"SLURM_HOSTFILE": hosts})
    sentence = REFUSAL.search(text)
    assert (teller(sentence), sentence["host"]) == ("node003", "node003")


WEAKLY = {"SLURM_BOOTSTRAP": "on"}


def test_a_further_port_that_is_taken_ends_the_step_that_asked_for_it(cluster, job, taken):
    """TensorFlow's workers may choose from three ports, and all are taken."""
    port = next(PORTS)
    told = rf"TF_CONFIG port ({port + 1}|{port + 2}|{port + 3}) on node00\d is already in use"
    there = "--nodelist=node001"  # else Slurm begins with another node while this one still ends the step before
    options = [there, f"--bootstrap-port={port}", f"--bootstrap-port-range={port + 1}-{port + 3}"]
    line = [*step_line(job, 2, 2, "--bootstrap-frameworks=tensorflow", *options), "sleep", "600"]
    with contextlib.ExitStack() as others:
        for other in range(port + 1, port + 4):
            others.enter_context(held_by_bob(cluster, other, "::", "listen"))
        text = refused(cluster, taken, "tensorflow", line)
        assert re.search(told, text), text
        # A step of a job that asked gets the message, and runs.
        settings = WEAKLY | {"SLURM_BOOTSTRAP_FRAMEWORKS": "tensorflow", "SLURM_BOOTSTRAP_PORT": str(port),
                             "SLURM_BOOTSTRAP_PORT_RANGE": f"{port + 1}-{port + 3}"}  # fmt: skip
        done = cluster.run([*step_line(job, 2, 2, there, asks=False), "true"], env=settings)
        assert done.returncode == 0 and done.stderr.count("bootstrap: warning: ") >= 1, done.stderr
        assert re.search(told, done.stderr), done.stderr
    assert cluster.run([*line[:-2], "true"]).returncode == 0, "control: without that program"


def held_step(cluster, job, port, program):
    """A step in the background that has the port; its first word has been read."""
    options = [f"--bootstrap-port={port}", "--kill-on-bad-exit=1"]
    return background(cluster, [*step_line(job, 2, 2, *options), "sh", "-c", program], node="head", ready=True)


def test_only_a_server_that_reuses_addresses_can_bind_a_claimed_port(cluster, job):
    port = next(PORTS)
    with held_step(cluster, job, port, "[ $SLURM_PROCID != 0 ] || echo ready; exec sleep 600"):
        for how in (("::", "listen"), ("0.0.0.0",), ("127.0.0.1", "listen")):
            done = cluster.run(["timeout", "5", *PEER, "hold", port, *how], user="bob", node="node001")
            assert "Address already in use" in done.stderr, (how, done)
        with held_by_bob(cluster, port, "::", "listen", "reuse"):
            pass  # see SECURITY.md


def test_a_stranger_at_the_claimed_port_makes_the_step_fail_and_not_hang(cluster, job, taken, figure):
    """Rank 0's own server then cannot listen and reports it; its exit ends the step."""
    port = next(PORTS)
    peer = " ".join(PEER)
    program = f"""
    [ $SLURM_PROCID != 0 ] || echo ready
    until [ -e ~/taken.{port} ]; do sleep 0.05; done
    exec {peer} meet
    """
    with held_step(cluster, job, port, program) as step, held_by_bob(cluster, port, "::", "listen", "reuse"):
        began = time.monotonic()
        cluster.write_home(f"taken.{port}", "")
        out, err = step.communicate(timeout=PATIENCE)
        taken["after, listening"] = time.monotonic() - began
    words = [peer.word for peer in peers(out)]
    assert step.returncode != 0 and "in-use" in words and "served" not in words, (out, err)
    slowest = max(taken.values())
    got = f"{len(taken)} kinds of holders, each step ended by itself in {slowest:.1f} s at most"
    rows = "\n".join(f"| {name} | {seconds:.1f} s |" for name, seconds in taken.items())
    figure("Q3", got=got, met=slowest <= SOON, is_full=True, control="the same step runs when the other program is gone",
           why="" if slowest <= SOON else "the machine did much else",
           table=f"| who has the port | end of the step |\n| --- | --- |\n{rows}")


def test_every_node_can_still_run_jobs(cluster):
    assert cluster.script("status").returncode == 0

"""Ports of a step that another user's program takes: before the step, which then ends in seconds with one sentence, and
after it holds them, where that is possible at all."""

# SPDX-License-Identifier: Apache-2.0

import contextlib
import itertools
import re
import time

import pytest

from port_steps import PEER, REFUSAL, background, cluster, in_node, job, peers, step_line, teller  # two of them are fixtures

PORTS = itertools.count(32100, 10)  # for each test: what one leaves behind is not the next one's
SOON = 5  # seconds in which a step has said what is wrong, and ended
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
    """The one sentence of a step that is refused."""
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
        # The way round, for whoever knows better.
        assert cluster.run([*line[:-2], "--bootstrap-claim=off", "true"]).returncode == 0
    # Control: it was that program.
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
    """TensorFlow's workers may choose of three ports, and all are taken."""
    port = next(PORTS)
    told = rf"TF_CONFIG port ({port + 1}|{port + 2}|{port + 3}) on node00\d is already in use"
    options = [f"--bootstrap-port={port}", f"--bootstrap-port-range={port + 1}-{port + 3}"]
    line = [*step_line(job, 2, 2, "--bootstrap-frameworks=tensorflow", *options), "sleep", "600"]
    with contextlib.ExitStack() as others:
        for other in range(port + 1, port + 4):
            others.enter_context(held_by_bob(cluster, other, "::", "listen"))
        text = refused(cluster, taken, "tensorflow", line)
        assert re.search(told, text), text
        # A step of a job that asked gets the message, and runs.
        settings = WEAKLY | {"SLURM_BOOTSTRAP_FRAMEWORKS": "tensorflow", "SLURM_BOOTSTRAP_PORT": str(port),
                             "SLURM_BOOTSTRAP_PORT_RANGE": f"{port + 1}-{port + 3}"}  # fmt: skip
        done = cluster.run([*step_line(job, 2, 2, asks=False), "true"], env=settings)
        assert done.returncode == 0 and done.stderr.count("bootstrap: warning: ") >= 1, done.stderr
        assert re.search(told, done.stderr), done.stderr
    assert cluster.run([*line[:-2], "true"]).returncode == 0, "control: it was that program"


def held_step(cluster, job, port, program):
    """A step in the background that holds the port, with its first word read."""
    options = [f"--bootstrap-port={port}", "--kill-on-bad-exit=1"]
    return background(cluster, [*step_line(job, 2, 2, *options), "sh", "-c", program], node="head", ready=True)


def test_after_the_claim_only_reuse_of_addresses_gets_in(cluster, job):
    port = next(PORTS)
    with held_step(cluster, job, port, "[ $SLURM_PROCID != 0 ] || echo ready; exec sleep 600"):
        for how in (("::", "listen"), ("0.0.0.0",), ("127.0.0.1", "listen")):
            done = cluster.run(["timeout", "5", *PEER, "hold", port, *how], user="bob", node="node001")
            assert "Address already in use" in done.stderr, (how, done)
        with held_by_bob(cluster, port, "::", "listen", "reuse"):
            pass  # see SECURITY.md


def test_who_gets_in_after_the_claim_makes_the_step_fail_and_not_hang(cluster, job, taken, figure):
    """Rank 0's own server cannot listen then, and reports it; its exit ends the step."""
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


def test_no_node_suffered(cluster):
    assert cluster.script("status").returncode == 0

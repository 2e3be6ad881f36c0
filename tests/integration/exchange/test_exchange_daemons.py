"""During a call a daemon of Slurm ends (slurmstepd with a node's ranks, or slurmd, which no step needs), or the network
between the nodes fails or is slow."""

# SPDX-License-Identifier: Apache-2.0

import time

import pytest

from built_files import program
from exchange_steps import DONE, FAILED, SENTENCE, are_in_time, are_told_of, reports, run_to_end
from harness import module_cluster, stop, wait_for
from port_steps import in_node

DEADLINE = 4  # seconds of a call
NODES, PER_NODE = 3, 2
RANKS = NODES * PER_NODE
HIT = "node002"  # ranks 2 and 3
ELSEWHERE = {0, 1, 4, 5}
OF_NODE = "--ns $$ --nslist net"  # for pkill and pgrep: hosts of a cluster see each other's processes
RESTART = f"pkill {OF_NODE} -x slurmd; while pgrep {OF_NODE} -x slurmd > /dev/null; do sleep 0.05; done; slurmd"
TALLY_GOALS = {"M4": 320}
TALLY_CONTROL = "nothing fails while all links are up"

daemons_cluster = module_cluster("daemons", "--nodes", str(NODES), "--cpus", "8", "--no-plugin")


def repeats(campaign):
    return campaign.each(range(campaign.size(10, 1)))


def start_step(cluster, label, late, nap, options=(), session="none"):
    """Rank `late` enters the second round `nap` seconds late, while the others wait in it. Ranks report to files in the shared
    home: srun receives nothing from a node that is cut off, or whose slurmstepd has ended."""
    command = f"{program('exchange_probe')} --timeout {DEADLINE * 1000} --rounds 2 --victim {late} --fault sleep --session {session}"
    script = f"exec {command} --seconds {nap} --before 1 > ~/{label}.$SLURM_PROCID.out 2> ~/{label}.$SLURM_PROCID.err"
    return cluster.start(["srun", "--mpi=pmix", *options, f"-N{NODES}", "--ntasks-per-node", str(PER_NODE), "bash", "-c", script])


def wait_for_second_round(cluster, label):
    wait_for(lambda: len(list(cluster.home.glob(f"{label}.*.out"))) == RANKS, what="not all ranks have started")
    time.sleep(0.8)


def failed_ranks(cluster, label):
    """Milliseconds of the failed call, by rank."""
    return {int(rank): int(took) for rank, _, took in FAILED.findall(reports(cluster, label, "out"))}


def done_ranks(cluster, label):
    return len(DONE.findall(reports(cluster, label, "out")))


def wait_for_node(cluster):
    wait_for(lambda: cluster.script("status").returncode == 0, what="the node does not come back")


def assert_nothing_failed(cluster, label, ended):
    status, said = ended
    assert status == 0, (said, reports(cluster, label, "err"))
    assert done_ranks(cluster, label) == RANKS


def kill_slurmstepd(cluster, label, session):
    """Ranks on other nodes fail in time with a message; the step ends."""
    # Without -W srun would wait forever for the node. With it, it ends the step some seconds after the first rank has ended.
    began, step = time.monotonic(), start_step(cluster, label, late=0, nap=3, options=("-W", "6"), session=session)
    try:
        wait_for_second_round(cluster, label)
        in_node(cluster, f"pkill -KILL {OF_NODE} -f '^slurmstepd: .[0-9]+[.][0-9]+.$'", HIT)
        wait_for(lambda: ELSEWHERE <= set(failed_ranks(cluster, label)), what="a rank still waits")
        took = failed_ranks(cluster, label)
        assert are_in_time(time.monotonic() - began, took.values(), DEADLINE * 1000), took
        assert ELSEWHERE <= {int(rank) for rank, _ in SENTENCE.findall(reports(cluster, label, "err"))}
        assert step.wait(timeout=300) != 0
    finally:
        cluster.run(["scancel", "-u", "alice"])
        stop(step)
    # The ranks whose slurmstepd has ended fail at their own deadline.
    wait_for(lambda: "exchange_probe" not in in_node(cluster, "ps -eo args=", HIT), what="ranks are left")
    # They call no rank missing, since they cannot know its state.
    said = dict(SENTENCE.findall(reports(cluster, label, "err")))
    for rank in ("2", "3"):
        assert "missing or state unknown: " in said[rank] and "missing: " not in said[rank], said
        assert said[rank].endswith("; slurmstepd on this node has ended"), said
    wait_for_node(cluster)
    return max(took.values())


@pytest.mark.parametrize("session, part", [("none", "slurmstepd killed"), ("own", "slurmstepd killed under a session of the program")])
def test_ranks_of_other_nodes_fail_in_time_when_slurmstepd_is_killed(daemons_cluster, session, part, campaign, figure):
    slowest = max(kill_slurmstepd(daemons_cluster, f"killed-{session}-{number}", session) for number in repeats(campaign))
    got = f"{campaign.done} steps ended, each other node's ranks with a sentence; slowest call {slowest} ms (deadline {DEADLINE * 1000})"
    figure("M5", part=part, got=got, met=True, control="nothing fails where slurmd alone is restarted")


def test_a_restart_of_slurmd_disturbs_no_call(daemons_cluster, campaign, figure):
    """It is also the control of the test above: the same step without a failure."""
    for number in repeats(campaign):
        label = f"restarted-{number}"
        step = start_step(daemons_cluster, label, late=0, nap=3)
        wait_for_second_round(daemons_cluster, label)
        assert_nothing_failed(daemons_cluster, label, run_to_end(step, lambda: in_node(daemons_cluster, RESTART, HIT)))
        wait_for_node(daemons_cluster)
    figure("M5", part="slurmd restarted", got=f"{campaign.done} steps noticed nothing", met=True)


def cut_off_and_judge(cluster, label):
    """The messages of the node's own ranks depend on the data that had arrived: Slurm's servers form a ring."""
    began, step = time.monotonic(), start_step(cluster, label, late=2, nap=2)
    try:
        wait_for_second_round(cluster, label)
        in_node(cluster, "ip link set eth0 down", node=HIT)
        wait_for(lambda: len(failed_ranks(cluster, label)) + done_ranks(cluster, label) == RANKS, what="a rank still waits")
        seconds = time.monotonic() - began
    finally:
        in_node(cluster, "ip link set eth0 up", node=HIT)
        cluster.run(["scancel", "-u", "alice"])
        stop(step)
    took = failed_ranks(cluster, label)
    assert ELSEWHERE <= set(took) and are_in_time(seconds, took.values(), DEADLINE * 1000), took
    told = {int(rank): text for rank, text in SENTENCE.findall(reports(cluster, label, "err"))}
    assert are_told_of({rank: told[rank] for rank in ELSEWHERE}, f"ranks 2-3 (all of {HIT})"), told
    assert all("(all of node001)" in told[rank] for rank in (2, 3) if rank in told), told
    wait_for_node(cluster)


def test_a_node_that_is_cut_off_is_named(daemons_cluster, campaign, tally):
    for number in repeats(campaign):
        cut_off_and_judge(daemons_cluster, f"cut-{number}")
        tally("M4", "cut off in a fence, ended in the deadline, the node named")


@pytest.mark.parametrize("discipline", ["", "netem delay 100ms loss 5%", "tbf rate 512kbit burst 3000 latency 300ms"])
def test_a_slow_link_is_no_failure(daemons_cluster, discipline, campaign, tally):
    """Without a queueing discipline it is the control of the test above: all links are up."""
    if discipline:
        added = daemons_cluster.run(["sh", "-c", f"tc qdisc add dev eth0 root {discipline}"], user="root", node=HIT)
        if added.returncode != 0:
            pytest.skip(f"this kernel has no {discipline.split()[0]}: {added.stderr.strip()}")
    try:
        for number in repeats(campaign) if discipline else [0]:
            label = f"{(discipline or 'whole').split()[0]}-{number}"
            assert_nothing_failed(daemons_cluster, label, run_to_end(start_step(daemons_cluster, label, late=2, nap=1)))
            if discipline:
                tally("M4", f"done with {discipline}")
    finally:
        if discipline:
            in_node(daemons_cluster, "tc qdisc del dev eth0 root", node=HIT)

"""A daemon of Slurm goes away in the midst of an exchange: slurmstepd with a node's ranks, or slurmd, which no step needs."""

# SPDX-License-Identifier: Apache-2.0

import time

import pytest

from built_files import program
from exchange_steps import DONE, FAILED, SENTENCE, reports, run_to_end
from harness import stop, wait_for
from port_steps import in_node

DEADLINE, GRACE = 4, 2  # seconds of a call, and what it may take beyond
NODES, PER_NODE = 3, 2
HIT = "node002"  # ranks 2 and 3
NAP = 3  # seconds that rank 0 comes late to the second round, in whose fence the others wait meanwhile
OF_NODE = "--ns $$ --nslist net"  # for pkill and pgrep: hosts of a cluster see each other's processes
RESTART = f"pkill {OF_NODE} -x slurmd; while pgrep {OF_NODE} -x slurmd > /dev/null; do sleep 0.05; done; slurmd"


@pytest.fixture(scope="module")
def daemons_cluster(cluster_factory):
    return cluster_factory("daemons").up("--nodes", str(NODES), "--cpus", "8", "--no-plugin")


def start_step(cluster, label, session="none"):
    """Ranks report to files of the shared home: srun gets nothing from a node whose slurmstepd is gone, and would wait for
    it for ever without -W, which ends the step some seconds after the first rank."""
    command = f"{program('exchange_probe')} --timeout {DEADLINE * 1000} --rounds 2 --victim 0 --fault sleep --session {session}"
    script = f"exec {command} --seconds {NAP} --before 1 > ~/{label}.$SLURM_PROCID.out 2> ~/{label}.$SLURM_PROCID.err"
    line = ["srun", "--mpi=pmix", "-W", "6", f"-N{NODES}", "--ntasks-per-node", str(PER_NODE), "bash", "-c", script]
    step = cluster.start(line)
    home = cluster.home
    wait_for(lambda: len(list(home.glob(f"{label}.*.out"))) == NODES * PER_NODE, 20, "not all ranks have started")
    time.sleep(0.8)  # the first round is over
    return step


def failed_ranks(cluster, label):
    """Milliseconds of the failed call, by rank."""
    return {int(rank): int(took) for rank, _, took in FAILED.findall(reports(cluster, label, "out"))}


def kill_slurmstepd(cluster, label, session):
    """Ranks on other nodes fail in time with a message; the step ends."""
    step, elsewhere = start_step(cluster, label, session), {0, 1, 4, 5}
    try:
        in_node(cluster, f"pkill -KILL {OF_NODE} -f '^slurmstepd: .[0-9]+[.][0-9]+.$'", HIT)
        wait_for(lambda: elsewhere <= set(failed_ranks(cluster, label)), NAP + DEADLINE + GRACE + 2, "a rank still waits")
        took = failed_ranks(cluster, label)
        assert max(took.values()) <= (DEADLINE + GRACE) * 1000, took
        assert elsewhere <= {int(rank) for rank, _ in SENTENCE.findall(reports(cluster, label, "err"))}
        assert step.wait(timeout=30) != 0
    finally:
        cluster.run(["scancel", "-u", "alice"])
        stop(step)
    # The ranks whose slurmstepd is gone end by themselves, at their deadline.
    wait_for(lambda: "exchange_probe" not in in_node(cluster, "ps -eo args=", HIT), 20, "ranks are left")
    # And they call no rank missing of which they cannot know.
    said = dict(SENTENCE.findall(reports(cluster, label, "err")))
    for rank in ("2", "3"):
        assert "missing or state unknown: " in said[rank] and "missing: " not in said[rank], said
        assert said[rank].endswith("; slurmstepd on this node has ended"), said
    wait_for(lambda: cluster.script("status").returncode == 0, 30, "the node does not come back")
    return max(took.values())


def restart_slurmd(cluster, label):
    """The step notices nothing."""
    status, said = run_to_end(start_step(cluster, label), lambda: in_node(cluster, RESTART, HIT))
    assert status == 0, (said, reports(cluster, label, "err"))
    assert len(DONE.findall(reports(cluster, label, "out"))) == NODES * PER_NODE
    wait_for(lambda: cluster.script("status").returncode == 0, 30, "the node does not come back")


@pytest.mark.parametrize("session, part", [("none", "slurmstepd killed"), ("own", "slurmstepd killed under a session of the program")])
def test_slurmstepd_of_a_node_is_killed(daemons_cluster, session, part, campaign, figure):
    numbers = campaign.each(range(campaign.size(10, 1)))
    slowest = max(kill_slurmstepd(daemons_cluster, f"killed-{session}-{number}", session) for number in numbers)
    got = f"{campaign.done} steps ended, each other node's ranks with a sentence; slowest call {slowest} ms (deadline {DEADLINE * 1000})"
    figure("M5", part=part, got=got, met=True, control="nothing fails where slurmd alone is restarted")


def test_slurmd_is_restarted(daemons_cluster, campaign, figure):
    """And the control of the test above: the same step, to which nothing is done but this."""
    for number in campaign.each(range(campaign.size(10, 1))):
        restart_slurmd(daemons_cluster, f"restarted-{number}")
    figure("M5", part="slurmd restarted", got=f"{campaign.done} steps noticed nothing", met=True)

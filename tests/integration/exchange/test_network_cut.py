"""The network between the nodes fails or crawls in the midst of a call."""

import time

import pytest

from built_files import program
from exchange_steps import DONE, FAILED, SENTENCE, are_told_of, reports, run_to_end
from harness import stop, wait_for
from port_steps import in_node

DEADLINE = 4  # seconds
TALLY_GOALS = {"M4": 320}
TALLY_CONTROL = "nothing fails while all links are up"
NODES, PER_NODE = 3, 2
CUT = "node002"  # ranks 2 and 3


@pytest.fixture(scope="module")
def network_cluster(cluster_factory):
    return cluster_factory("network").up("--nodes", str(NODES), "--cpus", "8", "--no-plugin")


def start_step(cluster, label, nap):
    """A step that reports to files of the shared home, since srun gets nothing from a node that is cut off. Rank 2
    comes `nap` seconds late to the second round."""
    late = f"--victim 2 --fault sleep --seconds {nap} --before 1"
    command = f"{program('exchange_probe')} --timeout {DEADLINE * 1000} --rounds 2 {late}"
    script = f"exec {command} > ~/{label}.$SLURM_PROCID.out 2> ~/{label}.$SLURM_PROCID.err"
    return cluster.start(["srun", "--mpi=pmix", f"-N{NODES}", "--ntasks-per-node", str(PER_NODE), "bash", "-c", script])


def repeats(campaign):
    return campaign.each(range(campaign.size(10, 1)))


def test_a_node_that_is_cut_off_is_named(network_cluster, campaign, tally):
    for number in repeats(campaign):
        cut_off_and_judge(network_cluster, f"cut-{number}")
        tally("M4", "cut off in a fence, ended in the deadline, the node named")


def cut_off_and_judge(network_cluster, label):
    """The messages of its own ranks depend on what had arrived: they may have all values, as Slurm's servers form a ring."""
    step = start_step(network_cluster, label, nap=2)

    def ended():
        told = reports(network_cluster, label, "out")
        return len(FAILED.findall(told)) + len(DONE.findall(told))

    try:
        wait_for(lambda: len(list(network_cluster.home.glob(f"{label}.*.out"))) == NODES * PER_NODE)
        time.sleep(0.8)  # the first round is over, all but rank 2 wait in the second
        in_node(network_cluster, "ip link set eth0 down", node=CUT)
        wait_for(lambda: ended() == NODES * PER_NODE, 2 + DEADLINE + 2 + 2, "a rank still waits")
    finally:
        in_node(network_cluster, "ip link set eth0 up", node=CUT)
        network_cluster.run(["scancel", "-u", "alice"])
        stop(step)
    took = {int(rank): int(milliseconds) for rank, _, milliseconds in FAILED.findall(reports(network_cluster, label, "out"))}
    assert {0, 1, 4, 5} <= set(took) and max(took.values()) <= (DEADLINE + 2) * 1000, took
    told = {int(rank): text for rank, text in SENTENCE.findall(reports(network_cluster, label, "err"))}
    assert are_told_of({rank: told[rank] for rank in (0, 1, 4, 5)}, f"ranks 2-3 (all of {CUT})"), told
    assert all("(all of node001)" in told[rank] for rank in (2, 3) if rank in told), told
    wait_for(lambda: network_cluster.script("status").returncode == 0, 60, "the node does not come back")


def test_control_nothing_fails_while_all_links_are_up(network_cluster):
    status, said = run_to_end(start_step(network_cluster, "whole", nap=2))
    assert status == 0, (said, reports(network_cluster, "whole", "err"))
    assert len(DONE.findall(reports(network_cluster, "whole", "out"))) == NODES * PER_NODE


@pytest.mark.parametrize("discipline", ["netem delay 100ms loss 5%", "tbf rate 512kbit burst 3000 latency 300ms"])
def test_a_slow_link_is_no_failure(network_cluster, discipline, campaign, tally):
    added = network_cluster.run(["sh", "-c", f"tc qdisc add dev eth0 root {discipline}"], user="root", node=CUT)
    if added.returncode != 0:
        pytest.skip(f"this kernel has no {discipline.split()[0]}: {added.stderr.strip()}")
    try:
        for number in repeats(campaign):
            label = f"{discipline.split()[0]}-{number}"
            status, said = run_to_end(start_step(network_cluster, label, nap=1))
            assert status == 0, (said, reports(network_cluster, label, "err"))
            assert len(DONE.findall(reports(network_cluster, label, "out"))) == NODES * PER_NODE
            tally("M4", f"done with {discipline}")
    finally:
        in_node(network_cluster, "tc qdisc del dev eth0 root", node=CUT)

"""Somebody connects to the port at which NCCL's ranks meet: the communicator is made or given up in the deadline."""

# SPDX-License-Identifier: Apache-2.0

from collections import Counter

import pytest

from exchange_steps import program
from port_steps import HERE, background
from test_communicators import GRACE_MS, answers, failures, run, whole

KINDS = ("close", "bytes", "silent")
DEADLINE_MS = 4000
ROGUE = ["python3", "-I", "-S", f"{HERE}/rogue_peer.py"]


@pytest.fixture(scope="module")
def rogue_cluster(cluster_factory):
    return cluster_factory("rogue").up("--nodes", "2", "--cpus", "8", "--gpus", "4", "--no-plugin")


def run_beside_rogue(cluster, kind):
    """One step of four ranks, and whether the rogue reached a port of its programs."""
    user = cluster.run(["id", "-u"]).stdout.strip()
    with background(cluster, [*ROGUE, kind, user], user="bob", ready=True) as rogue:
        step = run(cluster, 2, 2, program("comm_probe"), "--timeout-ms", str(DEADLINE_MS))
        rogue.terminate()
        return step, "reached" in rogue.communicate(timeout=10)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rogue_peer_ends_nobodys_patience(rogue_cluster, kind, request, capsys, figure):
    count = 20 if request.config.getoption("--full") else 3
    outcomes, reached, slowest = Counter(), 0, 0
    while outcomes.total() < count or not reached and outcomes.total() < 10:
        step, was_reached = run_beside_rogue(rogue_cluster, kind)
        reached += was_reached
        if step.returncode == 0:
            assert answers(step) == whole([range(4)]), step
            outcomes["made"] += 1
            continue
        said = failures(step)
        assert set(said) == set(range(4)), step
        slowest = max(slowest, *(after for _, after in said.values()))
        assert slowest < DEADLINE_MS + GRACE_MS, said
        outcomes["given up with a sentence"] += 1
    got = f"{outcomes.total()} steps, {reached} reached by it: {', '.join(f'{number} {what}' for what, number in outcomes.items())}"
    got += f", slowest {slowest} ms (deadline {DEADLINE_MS})" if slowest else ""
    with capsys.disabled():
        print(f"\nrogue peer, {kind}: {got}")
    figure("Q4", part=kind, got=got, met=True, control="without a rogue all are made")
    assert reached, "the rogue never found the port in time"


def test_control_without_a_rogue(rogue_cluster):
    assert answers(run(rogue_cluster, 2, 2, program("comm_probe"))) == whole([range(4)])

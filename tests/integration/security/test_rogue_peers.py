"""Rogue peers at the ports where NCCL's ranks meet: none holds a communicator up for longer than its deadline.

NCCL's double has NCCL's own rule: it takes connections one after the other, and reads from each until it knows it. As release
2.28 it passes over whoever connects and goes, or says what means nothing, at the root's port, and waits at that of a proxy.
"""

# SPDX-License-Identifier: Apache-2.0

import pytest

from built_files import program
from communicator_steps import GRACE_MS, answers, failures, run, whole
from harness import TESTS
from port_steps import background

DEADLINE_MS = 4000
ROGUE = ["python3", "-I", "-S", f"{TESTS}/security/rogue_peer.py"]
ALICE = 10001
ROUNDS, ROUNDS_IN_FULL = 1, 20

# The last rank comes late: until then the port of rank 0's node is open, as its id was made before.
LATE = ("sh", "-c", '[ $SLURM_PROCID != 7 ] || sleep 1.5; exec "$@"', "sh")


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return cluster_factory("rogues").up("--nodes", "2", "--cpus", "16", "--gpus", "4", "--no-plugin")


def communicate(cluster, way=None):
    """A communicator of eight ranks with a rogue peer on the node; how often that was let in, and the step."""
    command = (*LATE, program("comm_probe"), "--timeout-ms", str(DEADLINE_MS))
    if way is None:
        return 0, run(cluster, 2, 4, *command)
    with background(cluster, [*ROGUE, way, ALICE], user="bob", ready=True) as rogue:
        step = run(cluster, 2, 4, *command)
        rogue.terminate()  # `cluster exec` passes it on
        count = int(rogue.stdout.read() or 0)
    return count, step


@pytest.mark.parametrize("way", ["close", "bytes"])
def test_a_rogue_peer_that_closes_or_sends_garbage_is_passed_over_or_ended(cluster, request, figure, way):
    rounds = ROUNDS_IN_FULL if request.config.getoption("--full") else ROUNDS
    let_in = made = 0
    for _ in range(rounds):
        count, step = communicate(cluster, way)
        assert count > 0, "the rogue peer found no port"
        if step.returncode == 0:
            assert answers(step) == whole([range(8)])
            made += 1
        else:  # it met a proxy
            said = failures(step)
            assert said and all(after < DEADLINE_MS + GRACE_MS for _, after in said.values()), step
            assert any("in the communicator: a rank has not called it, or " in text for text, _ in said.values()), said
        let_in += count
    figure("Q4", way, got=f"{way}: {made} of {rounds} communicators made, the others ended in the deadline; {let_in} strange "
           "connections", met=True, control="a silent one stops NCCL")


def test_a_silent_rogue_peer_is_ended_by_the_watchdog(cluster, request, figure):
    rounds = ROUNDS_IN_FULL if request.config.getoption("--full") else ROUNDS
    assert answers(communicate(cluster)[1]) == whole([range(8)]), "control: nobody waits without the rogue peer"
    slowest = 0
    for _ in range(rounds):
        count, step = communicate(cluster, "silent")
        assert count > 0, "the rogue peer found no port"
        said = failures(step)
        assert len(said) == 8, said
        late = [text for text, _ in said.values() if "in the communicator: a rank has not called it, or " in text]
        # Who is connected to a rank that gave up first sees it close.
        assert late and all(text in late or "closed by remote peer" in text for text, _ in said.values()), said
        slowest = max(slowest, *(after for _, after in said.values()))
        assert slowest < DEADLINE_MS + GRACE_MS, said
    figure("Q4", "silent", got=f"silent: {rounds} of {rounds} ended after {slowest / 1000:.1f} s, deadline {DEADLINE_MS / 1000:.0f} s",
           met=True, control="without the rogue peer the communicator is made")

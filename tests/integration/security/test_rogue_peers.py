"""Rogue peers at the ports where NCCL's ranks meet: the effect of a stranger's connection on each version of NCCL. Our calls
end by their deadline whatever the stranger does.

NCCL's double behaves as NCCL was seen to behave.
"""

# SPDX-License-Identifier: Apache-2.0

import pytest

from built_files import program
from communicator_steps import answers, failures, run, whole
from harness import TESTS, module_cluster
from port_steps import background

DEADLINE_MS = 4000
ROGUE = ["python3", "-I", "-S", f"{TESTS}/security/rogue_peer.py"]
ALICE = "10001"
ROUNDS, ROUNDS_IN_FULL = 1, 20
BEFORE = ["0.5"]  # the rogue peer stops after these seconds, before the last rank calls
WAIT = "all ranks of the communicator wait in ncclCommInitRank: they cannot reach each other"

# The last rank calls late. The id has been made before, so the ports of the other ranks are open until then.
LATE = ("sh", "-c", '[ $SLURM_PROCID != 7 ] || sleep 1.5; exec "$@"', "sh")

cluster = module_cluster("rogues", "--nodes", "2", "--cpus", "16", "--gpus", "4", "--no-plugin")


def communicate(cluster, way=None, when=(), **more):
    """Makes a communicator of eight ranks with a rogue peer on the node; returns the number of its connections, and the step."""
    command = (*LATE, program("comm_probe"), "--timeout-ms", str(DEADLINE_MS), "--linger", "1")
    if way is None:
        return 0, run(cluster, 2, 4, *command, **more)
    with background(cluster, [*ROGUE, way, ALICE, *when], user="bob", ready=True) as rogue:
        step = run(cluster, 2, 4, *command, **more)
        rogue.terminate()  # `cluster exec` passes it on
        count = int(rogue.stdout.read() or 0)
    assert count > 0, "the rogue peer found no port"
    return count, step


def rounds_of(request):
    return range(ROUNDS_IN_FULL if request.config.getoption("--full") else ROUNDS)


@pytest.mark.parametrize("way, version", [("close", "2.28.9"), ("bytes", "2.28.9"), ("bytes", "2.18.3")])
def test_a_rogue_peer_that_comes_before_the_last_rank_is_passed_over(cluster, request, figure, way, version):
    let_in = 0
    for _ in rounds_of(request):
        count, step = communicate(cluster, way, BEFORE, nccl=version)
        assert answers(step) == whole([range(8)])
        let_in += count
    figure("Q4", f"{way} {version}",
           got=f"{way}: {len(rounds_of(request))} communicators made with NCCL {version}, {let_in} strange connections",
           met=True, control="a silent one stops NCCL")


def test_an_old_nccl_fails_where_a_rogue_peer_closes(cluster):
    """A rank notices it at its own ports, and all ranks get the name of this rank."""
    said = failures(communicate(cluster, "close", BEFORE, nccl="2.23.4")[1], DEADLINE_MS)
    assert len(said) == 8, said
    assert all("unhandled system error" in text for text, _ in said.values()), said


@pytest.mark.parametrize("way, when, version", [("silent", [], "2.28.9"), ("close", BEFORE, "2.14.3")])
def test_a_wait_that_a_rogue_peer_causes_ends_in_the_deadline(cluster, request, figure, way, when, version):
    assert answers(communicate(cluster, nccl=version)[1]) == whole([range(8)]), "control: no rank waits without the rogue peer"
    slowest = 0
    for _ in rounds_of(request):
        said = failures(communicate(cluster, way, when, nccl=version)[1], DEADLINE_MS)
        assert len(said) == 8, said
        assert all(WAIT in text for text, _ in said.values()), said
        slowest = max(slowest, *(after for _, after in said.values()))
    figure("Q4", f"{way} {version}", got=f"{way}, NCCL {version}: ended after {slowest / 1000:.1f} s, deadline {DEADLINE_MS / 1000:.0f} s",
           met=True, control="without the rogue peer the communicator is made")


def test_a_rogue_peer_at_the_port_of_a_proxy_makes_the_ranks_of_its_node_wait(cluster):
    """These ports open when the ranks are connected, when a rank of the other node may already have its communicator."""
    slow = {"NCCL_DOUBLE_INIT": "slow"}
    assert answers(communicate(cluster, env=slow)[1]) == whole([range(8)]), "control"
    assert {0, 1, 2, 3} <= set(failures(communicate(cluster, "close", env=slow)[1], DEADLINE_MS))

"""NCCL communicators in real steps: ids over PMIx or PMI-1, the rendezvous of NCCL's double, and every refusal."""

from collections import Counter

import pytest

from built_files import program
from communicator_steps import REAL_NCCL, answers, failures, libraries, run, whole
from exchange_steps import are_told_of, missing_ranks
from harness import module_cluster

DEADLINE_MS = 3000
IN_TIME = ("--timeout-ms", str(DEADLINE_MS))
NOT_OVER_PMI1 = "PMI-1 does not report which rank failed, srun --mpi=pmix does"

comm_cluster = module_cluster("comms", "--nodes", "4", "--cpus", "64", "--gpus", "4", "--no-plugin")


def patient(which, *command):
    """The command, with a deadline long after the end of the step on ranks of this condition: these must not wait for it."""
    return ("sh", "-c", f'[ {which} ] && set -- "$@" --timeout-ms 600000; exec "$@"', "sh", *command)


def calls(cluster, name):
    """The calls of NCCL, from its log in alice's home."""
    lines = (cluster.home / name).read_text().splitlines()
    return [dict(word.split("=") for word in line.split()[1:]) | {"call": line.split()[0]} for line in lines]


@pytest.mark.parametrize("roots", [1, 3])
@pytest.mark.parametrize("mpi, nodes, per_node", [("pmix", 4, 8), ("none", 1, 4), ("none", 4, 4), ("none", 4, 16)])
def test_four_calls_make_a_communicator(comm_cluster, mpi, nodes, per_node, roots):
    log, ranks = f"nccl-{roots}.log", nodes * per_node
    env = {"NCCL_DOUBLE_LOG": f"/home/alice/{log}"}
    step = run(comm_cluster, nodes, per_node, program("world_comm"), str(roots), env=env, options=(f"--mpi={mpi}",))
    assert answers(step) == whole([range(ranks)]), step
    found = calls(comm_cluster, log)
    count = Counter(call["call"] for call in found)
    init = "ncclCommInitRankScalable" if roots > 1 else "ncclCommInitRank"
    assert count == {"ncclGetUniqueId": roots, init: ranks, "ncclCommDestroy": ranks}, "ids are made by roots alone"
    inits = [call for call in found if call["call"] == init]
    assert {int(call["rank"]) for call in inits} == set(range(ranks))
    assert {(call["ranks"], call["ids"]) for call in inits} == {(str(ranks), str(roots))}
    assert len({call["hash"] for call in inits}) == 1, "all ranks have the same ids in the same order"


@pytest.mark.parametrize("mpi, roots", [("pmix", 1), ("pmix", 2), ("none", 1)])
@pytest.mark.parametrize("group, expected", [
    ("node", [range(0, 4), range(4, 8), range(8, 12)]),
    ("cross", [range(first, 12, 4) for first in range(4)]),
    ("11,0,6;1,2", [[11, 0, 6], [1, 2]]),
])
def test_each_group_makes_its_communicator(comm_cluster, group, expected, mpi, roots):
    step = run(comm_cluster, 3, 4, program("comm_probe"), "--group", group, "--roots", str(roots), options=(f"--mpi={mpi}",))
    assert answers(step) == {rank: "in no group" for rank in range(12)} | whole(expected), step


def test_nccl_gets_the_whole_configuration_of_the_caller(comm_cluster):
    """It is longer than the library knows, and requests a non-blocking communicator."""
    step = run(comm_cluster, 2, 2, program("comm_probe"), "--config", env={"NCCL_DOUBLE_LOG": "/home/alice/config.log"})
    assert answers(step) == whole([range(4)]), step
    inits = [call for call in calls(comm_cluster, "config.log") if call["call"].startswith("ncclCommInit")]
    assert [(call["call"], call["config"]) for call in inits] == [("ncclCommInitRankConfig", "56")] * 4


def test_each_list_of_ranks_has_its_unique_ids(comm_cluster):
    found = answers(run(comm_cluster, 2, 3, program("comm_probe"), "--ids", "1", "--group", "5,0;1,2,3"))
    assert found[5] == found[0] and found[1] == found[2] == found[3], found
    assert len({found[0], found[1], found[4]}) == 3, "rank 4 is in no list, and keeps what it had"


def test_ranks_share_a_gpu_where_nccl_sees_two_hosts(comm_cluster):
    """This is how NCCL is tested on one GPU: the guard refuses nothing that NCCL accepts."""
    own = ("sh", "-c", 'NCCL_HOSTID=$SLURM_PROCID exec "$@"', "sh", program("comm_probe"), "--device", "0")
    assert answers(run(comm_cluster, 1, 2, *own)) == whole([range(2)])


def test_each_rank_takes_its_own_gpu(comm_cluster):
    options = ("--mpi=pmix", "--gres", "gpu:4")
    assert answers(run(comm_cluster, 2, 4, program("comm_probe"), options=options)) == whole([range(8)])


def test_a_rank_that_never_comes_is_named(comm_cluster):
    command = (program("comm_probe"), "--absent", "5", *IN_TIME)
    said = failures(run(comm_cluster, 2, 4, *command, options=("--mpi=pmix", "--wait=6")), DEADLINE_MS)
    assert set(said) == set(range(8)) - {5}
    told = {rank: text for rank, (text, _) in said.items()}
    assert are_told_of(told, "rank 5 (node002, local rank 1)"), said


@pytest.mark.parametrize("nonblocking", [False, True])
@pytest.mark.parametrize("roots", [1, 3])
def test_ranks_that_wait_in_nccl_end_at_the_deadline(comm_cluster, roots, nonblocking):
    """One rank is in the call but does nothing. All ranks have called, so none is named."""
    command = (program("comm_probe"), "--stall", "5", *IN_TIME, "--roots", str(roots), "--linger", "4")
    log = f"stall-{roots}-{nonblocking}.log"
    step = run(comm_cluster, 2, 4, *command, *(["--nonblocking"] if nonblocking else []),
               env={"NCCL_DOUBLE_LOG": f"/home/alice/{log}"})
    said = failures(step, DEADLINE_MS)
    assert set(said) == set(range(8))
    call = "ncclCommInitRankScalable" if roots > 1 else "ncclCommInitRankConfig" if nonblocking else "ncclCommInitRank"
    named = f"; all ranks of the communicator wait in {call}: they cannot reach each other"
    # A rank that aborts at its deadline closes its connections, also to ranks with later deadlines. On a busy machine such a rank
    # may report this before the first one has asked for the messages of the others.
    lost = f"{call} failed: remote process exited" if nonblocking else named
    assert all(text.startswith(f"{call} has not finished after ") and named in text or lost in text for text, _ in said.values()), said
    # Each rank's deadline counts from its own start: NCCL has the full time, and no rank ends at the deadline of another one.
    assert all(2000 <= after for _, after in said.values()), said
    aborts = [call for call in calls(comm_cluster, log) if call["call"] == "ncclCommAbort"]
    assert len(aborts) == (8 if nonblocking else 0)


@pytest.mark.parametrize("variable, value, said_of_all", [
    ("NCCL_COMM_ID", "192.0.2.1:4321", "NCCL_COMM_ID=192.0.2.1:4321 is in the environment, so that NCCL starts at this address and"),
    ("NCCL_COMM_ID", "127.0.0.1:4321", "NCCL_COMM_ID=127.0.0.1:4321 is in the environment, so that NCCL starts at this address and"),
    ("NCCL_SOCKET_IFNAME", "lo",
     "they cannot reach each other over the network interface that NCCL chose; NCCL_DEBUG=INFO shows the interface"),
])
def test_an_environment_with_a_wrong_address_for_nccl_is_named(comm_cluster, variable, value, said_of_all):
    """The address belongs to no host, or to each node itself: ranks of the other node connect to a port without a listener."""
    said = failures(run(comm_cluster, 2, 2, program("comm_probe"), *IN_TIME, env={variable: value}), DEADLINE_MS)
    assert set(said) == set(range(4))
    assert all(said_of_all in text for text, _ in said.values()), said


FAILED_ALONE = ("ncclCommInitRank{} failed: unhandled cuda error (run with NCCL_DEBUG=INFO for details) (Failed to CUDA calloc 2097152 "
                "bytes)")


@pytest.mark.parametrize("mpi, nonblocking, rank", [
    ("pmix", False, 0), ("pmix", True, 5), ("pmix", False, 8), ("none", False, 5)])
def test_a_rank_that_fails_alone_is_named_by_all(comm_cluster, mpi, nonblocking, rank):
    """NCCL does not notify the other ranks, which would wait for ever. The failed rank returns at once, and may end."""
    command = patient(f"$SLURM_PROCID = {rank}", program("comm_probe"), *IN_TIME, *["--nonblocking"] * nonblocking, "--linger", "6")
    step = run(comm_cluster, 3, 4, *command, env={"NCCL_DOUBLE_INIT": f"fail:{rank}"}, options=(f"--mpi={mpi}",))
    said = failures(step, DEADLINE_MS)
    own = FAILED_ALONE.format("Config" if nonblocking else "")
    named = f"rank {rank} (node00{rank // 4 + 1}, local rank {rank % 4}): {own}"
    assert set(said) == set(range(12))
    assert said[rank][0] == own, said
    others = [said[other] for other in range(12) if other != rank]
    assert all(text == named if mpi == "pmix" else text.endswith(NOT_OVER_PMI1) for text, _ in others), said


def test_a_rank_that_fails_after_it_has_waited_is_named_by_all(comm_cluster):
    """It has first published that it waits, and then that it failed."""
    command = (program("comm_probe"), "--timeout-ms", "6000", "--linger", "8")
    said = failures(run(comm_cluster, 2, 4, *command, env={"NCCL_DOUBLE_INIT": "late-fail:5"}))
    named = "rank 5 (node002, local rank 1): " + FAILED_ALONE.format("")
    assert all(said[rank][0] == named for rank in set(range(8)) - {5}), said


@pytest.mark.parametrize("mpi, rank, fault", [("pmix", 0, "stop"), ("none", 4, "stop"), ("pmix", 5, "kill")])
def test_a_rank_that_does_not_return_from_nccl_is_named(comm_cluster, mpi, rank, fault):
    options = (f"--mpi={mpi}", "--wait=8")  # else the step waits for the stopped rank
    command = (program("comm_probe"), *IN_TIME, "--linger", "3")
    said = failures(run(comm_cluster, 2, 4, *command, env={"NCCL_DOUBLE_INIT": f"{fault}:{rank}"}, options=options), DEADLINE_MS)
    assert set(said) == set(range(8)) - {rank}
    named = f"ranks stopped, ended, or are done with ncclCommInitRank, in which others wait; look for their last messages; "
    named += f"missing: rank {rank} (node00{rank // 4 + 1}, local rank {rank % 4})"
    assert all(text.endswith(named if mpi == "pmix" else NOT_OVER_PMI1) for text, _ in said.values()), said


MOMENTS = 20
DEADLINE_OF_KILLS = 4500  # long after the last kill


@pytest.mark.full
def test_a_rank_that_is_killed_at_any_moment_is_named(comm_cluster, campaign, figure):
    """NCCL makes the communicator, and another rank never begins. The killed rank may have published that it waits."""
    moments = [(index, index * 0.135) for index in range(MOMENTS)]

    def kill(case):
        index, moment = case
        victim, stalls = index % 8, (index + 3) % 8
        script = f'[ $SLURM_PROCID != {victim} ] || {{ sleep {moment} && kill -9 $$; }} & exec "$@"'
        probe = (program("comm_probe"), "--timeout-ms", str(DEADLINE_OF_KILLS), "--stall", str(stalls), "--linger", "3")
        return victim, run(comm_cluster, 2, 4, "sh", "-c", script, "sh", *probe, options=("--mpi=pmix", "--wait=20"))

    wrong = []
    for (_, moment), (victim, step) in campaign.run(kill, moments, 2):
        said = failures(step)
        named = {rank: missing_ranks(text) for rank, (text, _) in said.items()}
        are_all = set(said) == set(range(8)) - {victim} and all(found == {victim} for found in named.values())
        if not are_all or any("all ranks of the communicator wait" in text for text, _ in said.values()):
            wrong.append((moment, victim, step))
    figure("M12", got=f"a rank killed at {len(moments)} moments: {len(wrong)} not named by all others", met=not wrong, seed=campaign.seed,
           control="a rank that waits is not named")  # fmt: skip
    assert not wrong, wrong[0]


def test_a_missing_nccl_on_one_node_is_named_by_all(comm_cluster):
    script = 'if [ "$SLURM_NODEID" = 0 ]; then export SLURM_BOOTSTRAP_NCCL=/nowhere/libnccl.so.2; fi; exec "$@"'
    command = ("sh", "-c", script, "sh", program("comm_probe"), "--ids", "1")
    said = failures(run(comm_cluster, 2, 2, *command, env={"SLURM_BOOTSTRAP_NCCL": "libnccl.so.2"}))
    assert set(said) == set(range(4)), said
    assert all("/nowhere/libnccl.so.2" in text for text, _ in said.values()), said


def test_the_real_nccl_gives_unique_ids(comm_cluster):
    if REAL_NCCL is None:
        pytest.skip("there is no libnccl.so.2")
    env = {"LD_LIBRARY_PATH": f"{libraries().split(':')[0]}:{REAL_NCCL}"}
    found = answers(run(comm_cluster, 4, 4, program("comm_probe"), "--ids", "2", env=env))
    assert set(found) == set(range(16)) and len(set(found.values())) == 1, found
    assert len(set(found[0].split()[1:])) == 2, "two ids"
    found = answers(run(comm_cluster, 4, 4, program("comm_probe"), "--ids", "1", "--group", "node", env=env))
    assert Counter(Counter(found.values()).values()) == {4: 4}, "another one for each node"

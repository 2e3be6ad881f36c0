"""NCCL communicators of real steps: ids over PMIx or PMI-1, the rendezvous of NCCL's double, every refusal."""

from collections import Counter

import pytest

from built_files import program
from communicator_steps import GRACE_MS, REAL_NCCL, answers, failures, libraries, run, whole
from exchange_steps import are_told_of

VERSIONS = ("2.14.3", "2.18.3", "2.23.4", "2.28.9")


@pytest.fixture(scope="module")
def comm_cluster(cluster_factory):
    return cluster_factory("comms").up("--nodes", "4", "--cpus", "64", "--gpus", "4", "--no-plugin")


def on_node(number, there, elsewhere, *command):
    """The command with other values of a variable on one node: `there` and `elsewhere` are (name, value)."""
    there, elsewhere = "=".join(there), "=".join(elsewhere)
    script = f'if [ "$SLURM_NODEID" = {number} ]; then export {there}; else export {elsewhere}; fi; exec "$@"'
    return ("sh", "-c", script, "sh", *command)


def calls(cluster, name):
    """What NCCL was asked, from its log in alice's home."""
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
def test_groups(comm_cluster, group, expected, mpi, roots):
    step = run(comm_cluster, 3, 4, program("comm_probe"), "--group", group, "--roots", str(roots), options=(f"--mpi={mpi}",))
    assert answers(step) == {rank: "in no group" for rank in range(12)} | whole(expected), step


@pytest.mark.parametrize("distribution", ["cyclic", "plane=2"])
def test_groups_follow_the_ranks(comm_cluster, distribution):
    options = ("--mpi=pmix", f"--distribution={distribution}")
    step = run(comm_cluster, 2, 4, program("comm_probe"), "--group", "node", options=options)
    width = 1 if distribution == "cyclic" else 2
    nodes = [[rank for rank in range(8) if rank // width % 2 == node] for node in (0, 1)]
    assert answers(step) == whole(nodes), step


@pytest.mark.parametrize("nonblocking", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_versions(comm_cluster, version, nonblocking):
    command = (program("comm_probe"), *(["--nonblocking"] if nonblocking else []))
    assert answers(run(comm_cluster, 2, 2, *command, nccl=version)) == whole([range(4)])


def test_many_roots_need_a_version_that_has_them(comm_cluster):
    said = failures(run(comm_cluster, 2, 2, program("comm_probe"), "--roots", "2", nccl="2.18.3"))
    assert set(said) == set(range(4))
    assert all("2 roots need ncclCommInitRankScalable of NCCL 2.23 or newer, but this is NCCL 2.18.3 in " in text
               for text, _ in said.values()), said


def test_two_versions_are_told_apart(comm_cluster):
    names = [("LD_LIBRARY_PATH", libraries(version)) for version in ("2.18.3", "2.28.9")]
    command = on_node(0, *names, program("comm_probe"), "--timeout-ms", "4000", "--nonblocking")
    said = failures(run(comm_cluster, 2, 4, *command))
    named = "NCCL 2.18.3 on rank 0 (node001, local rank 0) and 2.28.9 on rank"
    waited = {rank: text for rank, (text, _) in said.items() if named not in text}
    assert set(said) == set(range(8))
    assert set(waited) == {0, 1, 2, 3}, "the ranks of the root's own node see nothing wrong, and wait in NCCL"
    assert any("has not finished after " in text for text in waited.values()), waited
    # The first that ends, ends the others, and each counts from its own start: one that came later has waited less.
    assert all(after > (3000 if "has not finished after " in text else 1500)
               for rank, (text, after) in said.items() if rank in waited), said
    assert all(after < 4000 + GRACE_MS for _, after in said.values()), said
    assert all(after < 3000 for rank, (_, after) in said.items() if rank not in waited), "the others say so at once"


TWO_ON_ONE_GPU = "rank 0 (node001, local rank 0) and rank 1 (node001, local rank 1) are both on GPU 0000:1a:00.0: "


def test_two_ranks_on_one_gpu(comm_cluster):
    said = failures(run(comm_cluster, 1, 4, program("comm_probe"), "--device", "0"))
    assert set(said) == set(range(4))
    assert all(text.startswith(TWO_ON_ONE_GPU) for text, _ in said.values()), said
    # Control: with a GPU each they have their communicator.
    own = ("sh", "-c", 'exec "$@" --device $SLURM_LOCALID', "sh", program("comm_probe"))
    assert answers(run(comm_cluster, 1, 4, *own)) == whole([range(4)])


def test_ranks_share_a_gpu_where_nccl_is_told_of_two_hosts(comm_cluster):
    """How NCCL is tested on one GPU: the guard refuses nothing that NCCL would do."""
    own = ("sh", "-c", 'NCCL_HOSTID=$SLURM_PROCID exec "$@"', "sh", program("comm_probe"), "--device", "0")
    assert answers(run(comm_cluster, 1, 2, *own)) == whole([range(2)])


def test_each_rank_takes_its_own_gpu(comm_cluster):
    options = ("--mpi=pmix", "--gres", "gpu:4")
    assert answers(run(comm_cluster, 2, 4, program("comm_probe"), options=options)) == whole([range(8)])


def test_a_gpu_that_is_not_there(comm_cluster):
    said = failures(run(comm_cluster, 1, 2, program("comm_probe"), "--device", "7"))
    assert {text for text, _ in said.values()} == {"GPU 7 cannot be used: invalid device ordinal (101)"}


def test_a_rank_that_never_comes_is_named(comm_cluster):
    command = (program("comm_probe"), "--absent", "5", "--timeout-ms", "3000")
    step = run(comm_cluster, 2, 4, *command, options=("--mpi=pmix", "--wait=6"))
    said = failures(step)
    assert set(said) == set(range(8)) - {5}
    told = {rank: text for rank, (text, _) in said.items()}
    assert are_told_of(told, "rank 5 (node002, local rank 1)"), said
    assert all(after < 3000 + GRACE_MS for _, after in said.values()), said


def test_over_pmi1_a_rank_that_never_comes_ends_the_wait(comm_cluster):
    command = (program("comm_probe"), "--absent", "5", "--timeout-ms", "3000")
    said = failures(run(comm_cluster, 2, 4, *command, options=("--mpi=none", "--wait=6")))
    assert set(said) == set(range(8)) - {5}
    assert all("PMI-1 does not report which, srun --mpi=pmix does" in text for text, _ in said.values()), said
    assert all(after < 3000 + GRACE_MS for _, after in said.values()), said


@pytest.mark.parametrize("nonblocking", [False, True])
@pytest.mark.parametrize("roots", [1, 3])
def test_a_rank_whose_nccl_never_begins(comm_cluster, roots, nonblocking):
    command = (program("comm_probe"), "--stall", "5", "--timeout-ms", "3000", "--roots", str(roots))
    log = f"stall-{roots}-{nonblocking}.log"
    step = run(comm_cluster, 2, 4, *command, *(["--nonblocking"] if nonblocking else []),
               env={"NCCL_DOUBLE_LOG": f"/home/alice/{log}"})
    said = failures(step)
    assert set(said) == set(range(8))
    late = {rank for rank, (text, _) in said.items() if " in the communicator: a rank has not called it, or " in text}
    # Deadlines are not quite at the same time, and who is connected to a rank that gave up first sees it close.
    assert 5 in late and all(rank in late or "closed by remote peer" in said[rank][0] for rank in said), said
    # Each counts from its own start, so that who came later sees a peer close after less time.
    assert all((2500 if rank in late else 1000) <= after < 3000 + GRACE_MS for rank, (_, after) in said.items()), said
    aborts = [call for call in calls(comm_cluster, log) if call["call"] == "ncclCommAbort"]
    assert len(aborts) == (8 if nonblocking else 0)


def test_different_calls_are_told_apart(comm_cluster):
    command = ("sh", "-c", 'g=world; [ $SLURM_PROCID = 3 ] && g=node; exec "$@" --group $g --timeout-ms 4000', "sh",
               program("comm_probe"))
    said = failures(run(comm_cluster, 2, 2, *command))
    assert any("communicator node" in text and "communicator world" in text for text, _ in said.values()), said


def test_no_nccl_on_a_node(comm_cluster):
    script = 'if [ "$SLURM_NODEID" = 0 ]; then export SLURM_BOOTSTRAP_NCCL=/nowhere/libnccl.so.2; fi; exec "$@"'
    command = ("sh", "-c", script, "sh", program("comm_probe"), "--ids", "1")
    said = failures(run(comm_cluster, 2, 2, *command, env={"SLURM_BOOTSTRAP_NCCL": "libnccl.so.2"}))
    assert set(said) == set(range(4)), said
    assert all("/nowhere/libnccl.so.2" in text for text, _ in said.values()), said


def test_unique_ids_of_the_real_nccl(comm_cluster):
    if REAL_NCCL is None:
        pytest.skip("there is no libnccl.so.2")
    env = {"LD_LIBRARY_PATH": f"{libraries().split(':')[0]}:{REAL_NCCL}"}
    found = answers(run(comm_cluster, 4, 4, program("comm_probe"), "--ids", "2", env=env))
    assert set(found) == set(range(16)) and len(set(found.values())) == 1, found
    assert len(set(found[0].split()[1:])) == 2, "two ids"
    found = answers(run(comm_cluster, 4, 4, program("comm_probe"), "--ids", "1", "--group", "node", env=env))
    assert Counter(Counter(found.values()).values()) == {4: 4}, "another one for each node"

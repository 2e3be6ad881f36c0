"""Another user on the node of a step cannot reach its environment, its PMIx server, that server's files and the ranks'
meeting. A client with a false user id can connect to the server, unless slurmd is configured to use munge only.
"""

# SPDX-License-Identifier: Apache-2.0

import json
from collections import Counter
from contextlib import contextmanager

import pytest

from built_files import double, program
from harness import TESTS, everything_below, module_cluster, needs_pmix
from port_steps import background, in_node

ROUNDS, ROUNDS_IN_FULL = 6, 50
pytestmark = needs_pmix

DEADLINE = 5  # seconds for an exchange of the step's own
SERVER_DOORS = ("server", "server, by its own word")
OTHER_USER = ["python3", "-I", "-S", f"{TESTS}/security/other_user.py"]

# Rank 1 makes its environment readable for all, which no real program should do. The rest is protected even then.
VICTIM = """
[ $SLURM_PROCID != 1 ] || { env -0 > /tmp/environment; chmod 644 /tmp/environment; echo $$ > /tmp/victim; }
probe=$1; shift
$probe --rounds 1 || exit
[ $SLURM_PROCID != 0 ] || echo ready
until [ -e $1 ]; do sleep 0.1; done
exec $probe --rounds 3
"""


@contextmanager
def step_of_alice(cluster, label):
    """A step on node001 that has made one exchange and makes more before it ends. Yields the facts for the other user;
    `known["end"]` later has the end of the step."""
    flag = cluster.home / f"flag.{label}"
    line = ["srun", "-N1", "-n2", "--mpi=pmix", "sh", "-c", VICTIM, "sh", program("exchange_probe"), f"/home/alice/{flag.name}"]
    step = cluster.start(line, env={"SLURM_BOOTSTRAP_TIMEOUT": DEADLINE})
    said = iter(step.stdout.readline, "")
    assert "ready\n" in said, step.communicate()[1]
    spool = everything_below(cluster.state / "spool" / "node001")
    files = [str(path) for path in spool if "/pmix." in str(path) and path.is_file()]  # of ds21 in PMIx 4
    files += in_node(cluster, "find /tmp -path '/tmp/spmix_appdir_*' -type f").split()  # of shmem2 in PMIx 5
    known = {
        "pid": in_node(cluster, "cat /tmp/victim").strip(),
        "environment": "/tmp/environment",
        "visitor": program("pmix_visitor"),
        "files": files,
        "fake_uid": double("fake_uid"),
    }
    try:
        yield known
    finally:
        flag.touch()
        _, err = step.communicate(timeout=300)
        known["end"] = (step.returncode, err)


def has_stalled(end):
    """libpmix 4.2.2 may stop answering once it has refused a user: the ranks then report this at their deadline."""
    status, text = end
    if status == 0:
        return False
    assert text.count("the PMIx server on this node (node001) does not answer") == 2, end
    return True


def tried(cluster, user, attempts, doors, known, **env):
    line = [*OTHER_USER, attempts, *doors]
    done = cluster.succeed(line, user=user, node="node001", env=env, stdin=json.dumps(known), timeout=120)
    return Counter(json.loads(done.stdout))


cluster = module_cluster("other-users", "--nodes", "1", "--cpus", "256", "--no-plugin")


def test_another_user_is_refused(cluster, request, figure):
    """Each step has one attempt at the server: see has_stalled()."""
    rounds = ROUNDS_IN_FULL if request.config.getoption("--full") else ROUNDS
    let_in, stalled = Counter(), 0
    for number in range(rounds):
        door = SERVER_DOORS[number % len(SERVER_DOORS)]
        with step_of_alice(cluster, number) as known:
            assert len(known["files"]) >= 2, "libpmix keeps what it knows of the step in files"
            let_in.update(tried(cluster, "bob", 1, ["environment", "files", door], known))
        stalled += has_stalled(known["end"])
    with background(cluster, [program("meeting_host"), "100"]) as host:
        meeting = {"meeting": host.stdout.readline().strip()}
        let_in.update(tried(cluster, "bob", rounds, ["meeting"], meeting))
        assert host.poll() is None, "the meeting has ended without the guest that it waits for"
        own = tried(cluster, "alice", 1, ["meeting"], meeting)
        assert host.stdout.readline() == "came\n"
    for door in SERVER_DOORS:
        with step_of_alice(cluster, door.replace(" ", "-")) as known:
            own.update(tried(cluster, "alice", 1, ["environment", "files", door], known))
        assert known["end"][0] == 0, known["end"]
    got = f"let in {sum(let_in.values())} of {rounds} times at each of: environment, files, server, meeting"
    figure("S3", got=got, met=not any(let_in.values()), control="the same user is let in at each",
           why=f"libpmix 4.2.2 stops to answer after a refusal: {stalled} of {rounds} steps ended at their deadline, and said so"
           if stalled else "")
    assert not any(let_in.values()), let_in
    assert set(own) == set(let_in) and all(own.values()), f"control: the same user is let in: {own}"


@pytest.mark.parametrize("options, let_in", [((), 1), (("--slurmd-env", "PMIX_MCA_psec=munge"), 0)], ids=["default", "munge"])
def test_a_false_user_id_is_believed_unless_only_munge_is_asked(cluster_factory, options, let_in, figure):
    """libpmix 4.2 offers munge, and second a method that believes the client's user id. SECURITY.md has the remedy."""
    cluster = cluster_factory("liars").up("--nodes", "1", "--cpus", "8", "--no-plugin", *options)
    with step_of_alice(cluster, "fake_uid") as known:
        result = tried(cluster, "bob", 1, ["server, lying"], known, FAKE_UID="10001")
    assert cluster.close() == ""
    assert result == {"server, lying": let_in}
    if options:
        figure("S3", "fake_uid", got="lies about its uid: refused with PMIX_MCA_psec=munge in slurmd's environment", met=True,
               control="let in with libpmix' defaults")

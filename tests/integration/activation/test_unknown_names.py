"""Node names that no name service knows: Slurm has addresses, and the ranks meet at the address of rank 0's node."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from activation_steps import OF_NODE, ONE, RECORD, TWO, calls_of, is_untouched, srun, told, variables
from preload_steps import preloading
from training_steps import ONE_EACH, TORCHRUN, training_cluster

MEET = """
import os, socket, time
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(place, backlog=16) as server:
        kept = [server.accept() for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
for _ in range(200 * (os.environ["RANK"] != "0")):
    try:
        with socket.create_connection(place):
            break
    except ConnectionRefusedError:
        time.sleep(0.1)
os.write(1, f"met {os.environ['WORLD_SIZE']} {place[0]}\\n".encode())
"""
FIRST = "10.20.1.1"
UNRESOLVED = "it does not resolve where srun runs, or only to a loopback address"


def start(cluster_factory, names):
    cluster = training_cluster(cluster_factory, f"unknown-{names}", "--nodes", "3", "--names", names)
    cluster.write_home("meet.py", MEET)
    cluster.write_home("torchrun", "#!/bin/sh\necho $PET_MASTER_ADDR $MASTER_ADDR\n")
    return cluster


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return start(cluster_factory, "none")


def train(cluster, options, *words, program=("python3", "train.py"), **run):
    return srun(cluster, options, *program, *words, timeout=180, **run)


def sums(done, count, address=FIRST):
    assert done.stdout.split("\n")[:-1] == [f"sum {count} {address}"] * count, done


def check_meetings(cluster):
    for asked in ("", " --bootstrap=on"):
        for shape, count, address in ((TWO, 4, FIRST), (ONE, 2, FIRST), (f"{TWO} -w node002,node003", 4, "10.20.1.2")):
            done = srun(cluster, shape + asked, "python3", "meet.py", timeout=90)
            assert done.stdout.splitlines() == [f"met {count} {address}"] * count and told(done) == [], done


def test_ranks_meet_at_the_address_that_slurm_has(cluster):
    check_meetings(cluster)


def test_ranks_meet_although_the_name_server_does_not_answer(cluster_factory):
    check_meetings(start(cluster_factory, "again"))


@pytest.mark.parametrize("shape, program", [(TWO, ("python3", "train.py")), (ONE_EACH, TORCHRUN)], ids=["world", "torchrun"])
def test_gloo_connects_though_it_does_not_find_its_own_host(cluster, shape, program):
    sums(train(cluster, shape, program=program), 4)


def test_control_ranks_do_not_meet_by_the_name_of_the_host(cluster):
    done = cluster.run(["srun", *TWO.split(), "python3", "meet.py"], env={"SLURM_BOOTSTRAP_ADDR": "%h"}, timeout=90)
    assert done.returncode != 0 and "Name or service not known" in done.stderr and "met" not in done.stdout


def test_a_batch_script_and_explain_use_the_address(cluster):
    script = f"#!/bin/bash\n#SBATCH {TWO}\nsrun python3 meet.py\nsrun --bootstrap=explain true\ntouch done\n"
    cluster.write_home("job.sbatch", script)
    submitted = cluster.run(["sbatch", "--wait", "--output=job.out", "job.sbatch"], timeout=180)
    text = (cluster.home / "job.out").read_text()
    assert submitted.returncode == 0 and text.count(f"met 4 {FIRST}") == 4, text
    assert f"MASTER_ADDR               {FIRST}            NodeAddr of node001, a name that" in text, text


def test_the_address_option_can_contain_the_address(cluster):
    for option in ("--bootstrap-addr=%a", "--bootstrap=on --bootstrap-addr=%a"):
        assert {task["MASTER_ADDR"] for task in variables(srun(cluster, f"{TWO} {option}"))} == {FIRST}
    wrong = srun(cluster, f"{TWO} --bootstrap-addr=%a-x")
    assert len(told(wrong)) == 1 and f"{FIRST}-x does not resolve where srun runs" in told(wrong)[0], wrong.stderr


def test_a_numeric_master_addr_gets_the_interface_of_its_route(cluster):
    done = train(cluster, TWO, env={"MASTER_ADDR": FIRST, "MASTER_PORT": "29511"})
    sums(done, 4)
    assert told(done) == [], done.stderr


def test_a_name_that_does_not_resolve_stays_with_one_line_unless_the_step_asks(cluster):
    """torchrun does not use it: PET_MASTER_ADDR has the address."""
    for shape in (TWO, ONE):
        stays = srun(cluster, shape, env={"MASTER_ADDR": "node001"})
        assert {task["MASTER_ADDR"] for task in variables(stays)} == {"node001"}
        assert len(told(stays)) == 1 and f'MASTER_ADDR="node001" stays as you set it, but {UNRESOLVED}; if the ranks' in told(stays)[0]
        asked = srun(cluster, f"{shape} --bootstrap=on", env={"MASTER_ADDR": "node001"})
        assert {task["MASTER_ADDR"] for task in variables(asked)} == {FIRST}
        assert len(told(asked)) == 1 and f'replaced MASTER_ADDR="node001" ({UNRESOLVED})' in told(asked)[0], asked.stderr
    row = srun(cluster, ONE_EACH, "./torchrun", env={"MASTER_ADDR": "node001"})
    assert row.stdout.splitlines() == [f"{FIRST} node001"] * 2 and told(row) == [], row


def test_the_address_costs_one_call_and_a_step_left_alone_costs_none(cluster):
    for words, count, names in ((["python3", "-c", "1"], 2, {RECORD, OF_NODE}), (["bash", "-c", "true"], 0, set())):
        with cluster.other_plugstack():
            without, _ = calls_of(cluster, *TWO.split(), *words)
        assert calls_of(cluster, *TWO.split(), *words) == (without + count, names)


def test_a_step_without_an_address_is_left_alone_or_refused(cluster):
    """PrivateData=nodes: slurmctld shows no user the address of a node."""
    reason = "where srun runs, the name node001 does not resolve, and Slurm has no other address of that node"
    conf = cluster.state / "etc" / "slurm.conf"
    own = conf.read_text()
    conf.write_text(own + "PrivateData=nodes\n")
    cluster.run(["scontrol", "reconfigure"], user="root")
    try:
        for shape, tasks in ((TWO, 4), (ONE, 2)):
            done = srun(cluster, shape)
            assert is_untouched(done, tasks)
            assert told(done) == [f"bootstrap: warning: StepId=ID: NOT SET UP: {reason}; "
                                  "name an address of that node with --bootstrap-addr"], done.stderr
            refused = cluster.run(["srun", *shape.split(), "--bootstrap=on", "echo", "ran"])
            assert refused.returncode != 0 and "ran" not in refused.stdout
            assert len(told(refused)) == 1 and reason in told(refused)[0] and "error" in told(refused)[0], refused.stderr
            named = srun(cluster, f"{shape} --bootstrap-addr={FIRST}")
            assert {task["MASTER_ADDR"] for task in variables(named)} == {FIRST} and told(named) == []
            users = srun(cluster, shape, env={"MASTER_ADDR": FIRST})
            assert {task["MASTER_ADDR"] for task in variables(users)} == {FIRST} and told(users) == []
    finally:
        conf.write_text(own)
        cluster.run(["scontrol", "reconfigure"], user="root")


def test_slurm_rendezvous_meets_over_pmix_with_and_without_the_plugin(cluster):
    """Over PMIx, since Slurm's own PMI-1 connects by host names. Without the plugin the user has to set Gloo's interface."""
    sums(train(cluster, f"{TWO} --mpi=pmix", "slurm://"), 4)
    with cluster.other_plugstack():
        sums(train(cluster, f"{TWO} --mpi=pmix", "slurm://", env={"GLOO_SOCKET_IFNAME": "eth0"}), 4, None)


def test_the_preloaded_library_accepts_a_numeric_address(cluster):
    with cluster.other_plugstack():
        for name in ("SLURM_BOOTSTRAP_ADDR", "MASTER_ADDR"):
            tasks = variables(srun(cluster, f"{TWO} {preloading()}", env={name: FIRST}))
            assert {(task["MASTER_ADDR"], task["GLOO_SOCKET_IFNAME"]) for task in tasks} == {(FIRST, "eth0")}
        sums(train(cluster, f"{TWO} {preloading()}", env={"SLURM_BOOTSTRAP_ADDR": FIRST}), 4)

"""Variables of frameworks that depend on the node: cores, interfaces. frameworks_test.cc has the other variables, and
test_real_frameworks.py runs the frameworks themselves."""

import os

from harness import module_cluster

FOUR = ("-N2", "--ntasks-per-node=2", "--gres=gpu:2")
AGENTS = ("-N2", "--ntasks-per-node=1", "--gres=gpu:2")

ASKED = {"SLURM_BOOTSTRAP": "on"}

# The options of each row are on its line.
site = module_cluster("frameworks", "--nodes", "4", "--gpus", "4", "--cpus", "16", asks=False)


def run(cluster, *command, env=None):
    return cluster.succeed(["timeout", "80", *command], timeout=120, env=env)


def values(site, expression, *options, env=None):
    """The shell's value of an expression in each of four tasks, in order of rank."""
    done = run(site, "srun", *FOUR, *options, "bash", "-c", f"echo $SLURM_PROCID {expression}", env=env)
    return [line.partition(" ")[2] for line in sorted(done.stdout.splitlines())]


def test_the_number_of_threads_is_that_of_the_tasks_cores(site):
    # The cluster's nodes claim more cores than the machine has, and no task can have more cores than exist.
    cores = len(os.sched_getaffinity(0))
    for options, threads in ((("-c4",), 4), (("-c1",), 1), ((), 1)):
        assert values(site, "$OMP_NUM_THREADS", *options, env=ASKED) == [str(min(threads, cores))] * 4
    assert values(site, "$OMP_NUM_THREADS", "-c4", env=ASKED | {"OMP_NUM_THREADS": "3"}) == ["3"] * 4
    done = run(site, "srun", *AGENTS, "-c8", "bash", "-c", "echo $OMP_NUM_THREADS", env=ASKED)
    assert done.stdout.split() == [str(max(1, min(8, cores) // 2))] * 2  # for each GPU


def test_the_interface_is_the_one_to_the_master(site):
    assert values(site, "$GLOO_SOCKET_IFNAME,$NCCL_SOCKET_IFNAME", env=ASKED) == ["eth0,"] * 4
    for choice in ("auto", "eth0", "10.0.0.0/8"):
        seen = values(site, "$GLOO_SOCKET_IFNAME,$NCCL_SOCKET_IFNAME,$UCX_NET_DEVICES", f"--bootstrap-interface={choice}")
        assert seen == ["eth0,=eth0,eth0"] * 4
    assert values(site, "$GLOO_SOCKET_IFNAME,$NCCL_SOCKET_IFNAME", env=ASKED | {"NCCL_SOCKET_IFNAME": "eth"}) == ["eth0,eth"] * 4
    wrong = site.run(["srun", *FOUR, "--bootstrap-interface=ib7", "true"])
    assert wrong.returncode != 0
    assert "--bootstrap-interface=ib7: node001 has no such interface with an address; it has eth0" in wrong.stderr


def test_a_nested_srun_does_not_get_our_number_of_tasks_per_node(site):
    script = ("[ $SLURM_PROCID = 0 ] || exit 0; echo outer=$SLURM_NTASKS_PER_NODE; "
              "srun --overlap --bootstrap=off -N2 -n3 -l hostname; "
              "srun --overlap --bootstrap=off -N1 -n1 bash -c 'echo inner=$SLURM_NTASKS_PER_NODE'")
    done = run(site, "srun", "--exclusive", "-N2", "-n4", "--gres=gpu:2", "bash", "-c", script, env=ASKED)
    assert "outer=2\n" in done.stdout
    assert "can't honor --ntasks-per-node" not in done.stderr
    assert "inner=\n" in done.stdout

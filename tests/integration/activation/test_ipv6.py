"""Hosts with addresses of IPv6 alone: the ranks meet, and what a node reports reaches srun."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from activation_steps import TWO, srun, told
from preload_steps import preloading
from training_steps import ONE_EACH, TORCHRUN, training_cluster

FAILS = "import os, sys, time; sys.exit(3) if os.environ['RANK'] == '2' else time.sleep(2)"


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return training_cluster(cluster_factory, "ipv6", "--ipv6")


def sums(cluster, options, *program, **run):
    done = srun(cluster, options, *program, timeout=180, **run)
    assert re.findall(r"^sum (\d)", done.stdout, re.M) == ["4"] * 4 and told(done) == [], done


def test_no_host_has_an_address_of_ipv4(cluster):
    done = srun(cluster, "-N2", "ip", "-4", "-o", "addr", "show", "eth0")
    assert done.stdout == ""


@pytest.mark.parametrize("program", [("python3", "train.py"), ("python3", "train.py", "slurm://")], ids=["env", "slurm"])
def test_a_world_meets(cluster, program):
    sums(cluster, f"{TWO} --mpi=pmix", *program)


def test_torchruns_meet(cluster):
    sums(cluster, ONE_EACH, *TORCHRUN)


def test_the_preloaded_library_sets_up_the_same(cluster):
    with cluster.other_plugstack():
        sums(cluster, f"{TWO} {preloading()}", "python3", "train.py")


def test_a_failure_and_an_address_of_another_node_are_named(cluster):
    done = cluster.run(["srun", *TWO.split(), "--bootstrap=on", "python3", "-c", FAILS])
    assert done.returncode == 3 and "task 2 (node002, local rank 0) failed first" in done.stderr, done.stderr
    other = srun(cluster, TWO, "python3", "-c", "1", env={"MASTER_ADDR": "fd20::1:2"})
    assert len(told(other)) == 1 and "it is no address of node001, where rank 0 is" in told(other)[0], other.stderr

"""Hosts with different versions of the plugin, in each order of an upgrade, while steps run. etc/doc/stability.md has the rule."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from built_files import PLUGIN, inside
from harness import module_cluster
from other_versions import FORMAT, build_1_0_0, build_other

HOSTS = ("head", "node001", "node002")
# Each host in turn gets the other plugin, and at the end all have it.
ORDERS = {"nodes first": ("node002", "node001", "head"), "submit host first": ("head", "node001", "node002")}
STEP = ("srun", "-N2", "-w", "node001,node002", "--ntasks-per-node=2")
SHOW = ("sh", "-c", "echo ${RANK:-none}")
TRAIN = ("python3", "-I", "-S", "-c", "import os; print(os.environ.get('RANK', 'none'))")
NOTHING, ALL = ["none"] * 4, list("0123")

site = module_cluster("mixed-versions", "--nodes", "2", "--cpus", "8", "--gpus", "2", asks=False)


def give(cluster, host, plugin):
    cluster.succeed(["mount", "--bind", plugin, inside(PLUGIN)], user="root", node=host)


def take_back(cluster):
    for host in HOSTS:
        cluster.run(["umount", inside(PLUGIN)], user="root", node=host)


def ranks(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def world(cluster):
    return cluster.run([*STEP, "--gres=gpu:2", *TRAIN])


def asked(cluster):
    return cluster.run([*STEP, "--bootstrap=on", *SHOW])


@pytest.mark.full
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("version", ["1.0.0", "1.9.0"])
def test_versions_with_one_format_work_together(site, version, order):
    """0 of all steps fail or are half set up: worlds, farms, shells, and steps that ask."""
    plugin = build_1_0_0() if version == "1.0.0" else build_other(version, FORMAT)
    steps = 0
    try:
        for host in (None, *ORDERS[order]):
            running = site.start([*STEP, "--gres=gpu:2", "python3", "-I", "-S", "-c",
                                  "import os, time; print(flush=True); time.sleep(3); print(os.environ['RANK'])"])
            assert [running.stdout.readline() for _ in range(4)] == ["\n"] * 4
            if host:
                give(site, host, plugin)
            for _ in range(3):
                assert ranks(world(site)) == ALL and ranks(asked(site)) == ALL
                assert ranks(site.run([*STEP, "--gres=gpu:2", *SHOW])) == NOTHING
                assert ranks(site.run([*STEP, *TRAIN])) == NOTHING
            stdout, stderr = running.communicate(timeout=60)
            assert running.returncode == 0 and sorted(stdout.split()) == ALL, stderr
            steps += 13
    finally:
        take_back(site)
    print(f"mixed versions: {steps} steps, 0 failed or half set up")


@pytest.mark.full
@pytest.mark.parametrize("new", [("head",), ("node002",), ("node001", "node002")], ids=" ".join)
def test_another_format_sets_up_nothing(site, new):
    """A major release: no step is half set up, an unasked step runs, and one that asks is refused on all nodes."""
    plugin = build_other("1.9.9", FORMAT + 1)
    try:
        for host in new:
            give(site, host, plugin)
        if new != ("node002",):  # a world is set up on node001 alone
            assert ranks(world(site)) == NOTHING
        refused = asked(site)
        assert refused.returncode != 0 and "another version of the plugin" in refused.stderr, refused
        assert ranks(site.run([*STEP, "--gres=gpu:2", *SHOW])) == NOTHING
    finally:
        take_back(site)

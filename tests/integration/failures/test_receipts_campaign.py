"""srun names no node that has confirmed its tasks: with busy cores, a slow Prolog, other plugins that take long, blocked UDP, nodes
with 1.0.0, and 128 nodes."""

# SPDX-License-Identifier: Apache-2.0

import random
import re
import subprocess
from contextlib import ExitStack, contextmanager

import pytest

from built_files import PLUGIN, double, inside
from harness import TESTS
from other_versions import build_1_0_0

pytestmark = pytest.mark.full
NODES = 4
SHOW = "import os, sys, time; print('rank', os.environ.get('RANK'), flush=True); "
LATE = "node003 30"  # longer than srun waits for a node without the plugin
# The number of steps in 100, options, program, environment, exit status.
KINDS = {
    "short": (40, [], "pass", {}, 0),
    "of 15 s": (10, [], "time.sleep(15)", {}, 0),  # longer than srun waits for a silent node
    "asked": (15, ["--bootstrap=on"], "pass", {}, 0),
    "failed": (15, [], "sys.exit(3)", {}, 3),
    "with a slow TaskProlog": (5, ["--task-prolog=/home/alice/slow.sh"], "pass", {}, 0),
    "-v": (5, ["-v"], "pass", {}, 0),
    "with a late user_init": (5, [], "time.sleep(3)", {"SITE_LATE": f"user_init {LATE}"}, 0),
    "with a late task_init": (5, [], "pass", {"SITE_LATE": f"task_init {LATE}"}, 0),
}


@contextmanager
def busy_cores(number):
    loops = [subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    cluster = cluster_factory("confirm", asks=False).up(
        "--nodes", str(NODES), "--gpus", "16", "--cpus", "64", "--set", f"Prolog={TESTS}/failures/slow_prolog.sh")
    cluster.write_plugstack(f"optional {double('site_spank')} late\n{cluster.plugstack}")
    (cluster.home / "slow.sh").write_text("#!/bin/sh\nsleep 6\n")
    (cluster.home / "slow.sh").chmod(0o755)
    return cluster


def wrong_line(cluster, kind, nodes=NODES, node="head"):
    """What is wrong with a step of this kind, or ''."""
    _, options, program, env, status = KINDS[kind]
    line = ["srun", f"-N{nodes}", "--ntasks-per-node=2", "--gres=gpu:2", *options, "python3", "-c", SHOW + program]
    done = cluster.run(line, env=env, node=node, timeout=600)
    ranks = sorted(int(rank) for rank in re.findall(r"^rank (\d+)$", done.stdout, re.MULTILINE))
    wrong = done.returncode != status or ranks != list(range(2 * nodes)) or " confirmed" in done.stderr
    return f"{kind}: status {done.returncode}, ranks {ranks}, {done.stderr}" if wrong else ""


def wrong_lines(campaign, seed, steps, at_once, work, kinds=tuple(KINDS)):
    chosen = random.Random(seed).choices(kinds, weights=[KINDS[kind][0] for kind in kinds], k=steps)
    return [wrong for _, wrong in campaign.run(work, chosen, at_once) if wrong]


def told(figure, campaign, part, wrong, seed):
    figure("B6", part=part, got=f"{campaign.done} steps, {len(wrong)} with a line, a wrong rank or a wrong status", met=not wrong, seed=seed,
           control="a node without the plugin is named (test_receipts.py)")
    assert not wrong, f"seed {seed}: {wrong[0]}"


def test_busy_and_late_nodes_are_not_named(cluster, campaign, figure, seed):
    with busy_cores(4):
        wrong = wrong_lines(campaign, seed, 700, 8, lambda kind: wrong_line(cluster, kind))
    told(figure, campaign, "busy", wrong, seed)


@pytest.fixture
def drops_udp(cluster):
    """The host of srun drops all incoming UDP, as a firewall does: no process gets an error."""
    change = "ip rule {} pref 0 iif $(ip -o link show type veth | sed 's/^[0-9]*: //; s/[@:].*//; q') ipproto udp blackhole"
    keep = "ip rule add pref 1 lookup local && ip rule del pref 0 lookup local"
    cluster.succeed(["sh", "-ec", f"{keep}; {change.format('add')}"], user="root")
    yield cluster
    cluster.succeed(["sh", "-ec", f"ip rule add pref 0 lookup local; ip rule del pref 1; ip rule del pref 0 ipproto udp; ip rule"],
                    user="root")


def test_no_node_is_named_where_udp_is_dropped(drops_udp, campaign, figure, seed):
    wrong = wrong_lines(campaign, seed, 100, 8, lambda kind: wrong_line(drops_udp, kind))
    with drops_udp.without_plugin("node003"):  # control: no report arrives, so this node is not named
        done = drops_udp.run(["srun", "-N4", "--ntasks-per-node=2", "--gres=gpu:2", "python3", "-c", "1"])
    assert " confirmed" not in done.stderr, "UDP was not dropped"
    told(figure, campaign, "UDP dropped", wrong, seed)


def test_no_node_is_named_where_all_have_1_0_0(cluster, campaign, figure, seed):
    """srun has this version. If only some nodes had 1.0.0, srun would name these, with the old version as a cause."""
    old = build_1_0_0()
    with ExitStack() as mounts:
        for node in cluster.nodes:
            mounts.enter_context(cluster.mounted(old, inside(PLUGIN), node))
        wrong = wrong_lines(campaign, seed, 100, 8, lambda kind: wrong_line(cluster, kind))
    told(figure, campaign, "nodes of 1.0.0", wrong, seed)


def test_no_node_of_128_is_named(cluster_factory, campaign, figure, seed):
    cluster = cluster_factory("confirm128", asks=False).up("--nodes", "128", "--gpus", "2", "--cpus", "8")
    wrong = wrong_lines(campaign, seed, 100, 1, lambda kind: wrong_line(cluster, kind, 128), ["short", "asked", "failed"])
    told(figure, campaign, "128 nodes", wrong, seed)

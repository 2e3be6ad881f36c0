"""`slurm-bootstrap status` with many looks and many nodes: no false alarm, an answer in time, and no cost for the program."""

# SPDX-License-Identifier: Apache-2.0

import re
import time
from collections import Counter

import pytest

from harness import wait_for
from status_steps import DEBIAN_PYTHON, FOUR, give_program, look, running

WORLD = "status_world.py"
# Findings that are also true of a working rank.
HARMLESS = re.compile(r"all \d+ ranks run alike|none of the \d+ ranks stands out|ranks? .* differs?: .*; (it|they) may be slow, in a "
                      r"checkpoint, or stuck")
LOOKS = 100


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("status-load", asks=False).up("--nodes", "2", "--cpus", "64", "--gpus", "2")
    give_program(cluster, WORLD)
    return cluster


@pytest.mark.full
def test_healthy_worlds_under_load_raise_no_false_alarm(site, figure):
    """Worlds that compute, evaluate, save checkpoints or have a slow rank, beside two busy loops."""
    lines = Counter()
    with running(site, "load", "-n2", "sh", "-c", "while :; do :; done"), \
            running(site, "healthy", "--bootstrap=on", *FOUR, DEBIAN_PYTHON, WORLD, "healthy") as step:
        for rank in range(4):
            step.wait_until(rank, "round")
        acts = [{}, {0: "checkpoint"}, {3: "slow"}, {1: "hold"}, dict.fromkeys(range(4), "busy")]
        for number in range(LOOKS):
            for rank in range(4):
                step.order(rank, acts[number * len(acts) // LOOKS].get(rank))
            lines[re.sub(r"\d+", "N", look(site, step.id).first)] += 1
    alarms = {line: count for line, count in lines.items() if not HARMLESS.fullmatch(line.replace("N", "1"))}
    print(dict(lines))
    figure("T1", got=f"{sum(alarms.values())} of {LOOKS}", met=not alarms)
    assert not alarms, alarms


@pytest.mark.full
def test_sixty_four_nodes_are_shown_in_time(cluster_factory, figure):
    cluster = cluster_factory("status-wide", asks=False).up("--nodes", "64", "--cpus", "4", "--gpus", "0")
    give_program(cluster, "status_rank.py")
    with running(cluster, "wide", "-N64", "--ntasks-per-node=4", "/usr/bin/python3", "-I", "-S", "/home/alice/status_rank.py",
                 "/home/alice/wide") as step:
        wait_for(lambda: look(cluster, step.id).first == "all 256 ranks run alike", seconds=120)
        seconds = []
        for _ in range(5):
            begin = time.monotonic()
            assert look(cluster, step.id).first == "all 256 ranks run alike"
            seconds.append(time.monotonic() - begin)
    print(seconds)
    figure("T2", got=f"{max(seconds):.1f} s", met=max(seconds) <= 10)

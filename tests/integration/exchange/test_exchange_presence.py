"""Who has come is found out without a fence, and whoever asked leaves the step unharmed."""

import re

import pytest

from built_files import program
from exchange_steps import run_step


@pytest.fixture(scope="module")
def presence_cluster(cluster_factory):
    return cluster_factory("presence").up("--nodes", "2", "--cpus", "8", "--no-plugin")


def ask(cluster, absent, late):
    step = run_step(cluster, 2, 3, program("exchange_presence"), str(absent), str(late))
    found = re.findall(r"^rank (\d+) after (\d+) ms: (.+)$", step.stdout, re.MULTILINE)
    # The step is as if nobody had asked: also a second after the sessions were closed.
    assert step.returncode == 0 and step.stderr == "", step
    return {int(rank): (int(milliseconds), text) for rank, milliseconds, text in found}


def test_the_one_that_never_comes_is_named_by_all(presence_cluster):
    found = ask(presence_cluster, absent=4, late=-1)
    assert set(found) == {0, 1, 2, 3, 5}
    assert {text for _, text in found.values()} == {"missing: rank 4 (node002, local rank 1)"}
    assert all(3000 <= milliseconds < 5000 for milliseconds, _ in found.values()), found


def test_latecomers_are_found_and_nobody_waits_longer(presence_cluster):
    found = ask(presence_cluster, absent=-1, late=1)
    assert set(found) == set(range(6)) and {text for _, text in found.values()} == {"all are there"}
    assert all(milliseconds < 2800 for milliseconds, _ in found.values()), found


def test_nobody_is_called_absent_for_a_node_that_has_ended(presence_cluster):
    """Its slurmstepd has ended, too, and that of who asks then answers nothing: of the other ranks nothing is known."""
    script = f"if ((SLURM_NODEID == 1)); then exec true; fi; sleep 1; exec {program('exchange_presence')} -1 -1"
    step = run_step(presence_cluster, 2, 1, "bash", "-c", script)
    found = re.findall(r"^rank (\d+) after (\d+) ms: (.+)$", step.stdout, re.MULTILINE)
    assert [(rank, text) for rank, _, text in found] == [("0", "missing: rank 1 (node002, local rank 0), or not heard")], step
    assert 3000 <= int(found[0][1]) < 5000, found


@pytest.mark.parametrize("before", [0, 1, 2, 3, 6])
def test_the_one_that_does_not_come_again_is_named_by_all(presence_cluster, before):
    """From the third round on the servers have values of earlier rounds, which must not be taken for absence."""
    fault = ("--fault", "sleep", "--seconds", "8", "--victim", "4", "--before", str(before))
    step = run_step(presence_cluster, 2, 3, program("exchange_probe"), "--rounds", "7", "--timeout", "3000", *fault)
    told = re.findall(r"missing: .*", step.stdout + step.stderr)
    assert len(told) == 5 and set(told) == {"missing: rank 4 (node002, local rank 1)"}, step

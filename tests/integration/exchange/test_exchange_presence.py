"""Ranks that do not come again are found without a fence, after rounds that succeeded."""

import re

import pytest

from built_files import program
from exchange_steps import HINT, run_step


@pytest.fixture(scope="module")
def presence_cluster(cluster_factory):
    return cluster_factory("presence").up("--nodes", "2", "--cpus", "8", "--no-plugin")


@pytest.mark.parametrize("before", [0, 1, 2, 3, 6])
def test_the_one_that_does_not_come_again_is_named_by_all(presence_cluster, before):
    """From the third round on the servers have values of earlier rounds, which must not be taken for absence."""
    fault = ("--fault", "sleep", "--seconds", "8", "--victim", "4", "--before", str(before))
    step = run_step(presence_cluster, 2, 3, program("exchange_probe"), "--rounds", "7", "--timeout", "3000", *fault, keeps_hint=True)
    told = re.findall(r"missing: .*", step.stdout + step.stderr)
    assert len(told) == 5 and set(told) == {f"missing: rank 4 (node002, local rank 1){HINT}"}, step

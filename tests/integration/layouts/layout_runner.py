"""Runs layouts in a cluster: each of the selected tests once, several at once, those that wait for Slurm first."""

# SPDX-License-Identifier: Apache-2.0

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from case_shell import run_script
from harness import Cluster
from layout_cases import PREAMBLE, Case
from layout_oracle import Report

AT_ONCE = 3


@dataclass
class Outcome:
    case: Case
    reports: list[Report]
    trouble: list[str]

    @property
    def text(self) -> str:
        return "\n  ".join([f"{self.case.name}: {self.case.script}", *self.trouble])


class Runner:
    """Runs scripts of cases in a cluster, each with a folder of its own in alice's home."""

    runs = itertools.count(1)  # of all runners

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.wide = cluster.allocate("-N4", "--ntasks-per-node=16", "--gres=gpu:4")
        self.odd = cluster.allocate("-N4", "-n14")

    def run(self, case: Case, program: str, variables: dict[str, str], **limit):
        """What the shell said, and the folder."""
        out = f"/home/alice/layouts/{next(self.runs)}"
        variables = {"OUT": out, "probe": "unused", "WIDE": self.wide, "ODD": self.odd} | variables
        done = run_script(self.cluster, f"{PREAMBLE}\nPROBE=\"{program}\"\n{case.script}", variables, **limit)
        return done, self.cluster.state / out[1:]


@pytest.fixture(scope="module")
def runner(wide_cluster: Cluster):
    """For a module that imports it; other tests of this cluster need its GPUs afterwards."""
    runner = Runner(wide_cluster)
    yield runner
    wide_cluster.run(["scancel", runner.wide, runner.odd])


@contextmanager
def outcomes_of(request: pytest.FixtureRequest, run: Callable[[Case], Outcome], at_once_waiting: int = 0):
    """{name: future} of the cases of the tests that are selected, which are begun at once. Those that wait for Slurm come
    first, and may have threads of their own."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    cases = {case.name: case for item in items if (case := item.callspec.params.get("outcome"))}
    with ThreadPoolExecutor(AT_ONCE) as quick, ThreadPoolExecutor(at_once_waiting or 1) as waiting:
        pool = {True: waiting if at_once_waiting else quick, False: quick}
        begun = sorted(cases.values(), key=lambda case: not case.slow)
        try:
            yield {case.name: pool[case.slow].submit(run, case) for case in begun}
        finally:
            for each in (quick, waiting):
                each.shutdown(cancel_futures=True)


@pytest.fixture
def outcome(request: pytest.FixtureRequest, outcomes: dict) -> Outcome:
    return outcomes[request.param.name].result()

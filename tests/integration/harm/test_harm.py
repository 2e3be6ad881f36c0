"""The harm suite: ordinary uses of a cluster with the plugin off and on. Exit status, lines and variables are equal; rows that
are known to be worse have a remedy; and a plugin that sets up each step fails many rows."""

# SPDX-License-Identifier: Apache-2.0

import re
from collections import Counter

import pytest

from harm_case import BETTER, EQUAL, KNOWN, trouble_with
from harm_stage import UP, Play, Side, lacking
from harm_table import ALL, TABLE, Result, cases_of, render, write
from normaliser import differences, outcome

CONTROL_FAILS = 12  # rows, at least: 16 of 79 did
CONTROL_TAKES = 3  # each third row, unless all are wanted
CONTROL_SECONDS = 4  # limit for a row of the control without the plugin
RESULTS: dict[str, Result] = {}


@pytest.fixture(scope="module")
def wanted(request):
    """The cases of this run that can be run here."""
    names = {item.callspec.params["case"].name for item in request.session.items
             if item.path == request.path and "case" in getattr(getattr(item, "callspec", None), "params", {})}
    is_full = request.config.getoption("--full")
    chosen = [case for case in ALL if case.name in names or not names]
    return [case for case in chosen if (is_full or not case.is_slow or len(names) == 1) and not lacking(case)]


@pytest.fixture(scope="module")
def sides(request, cluster_factory):
    """A cluster without our plugin and one with it, unless --harm-with=nothing tests the suite itself."""
    off = Side(cluster_factory("harm-off").up("--no-plugin", *UP), "", "")
    cluster = cluster_factory("harm-on", asks=False).up(*UP)
    if request.config.getoption("--harm-with") == "nothing":
        return [off, Side(cluster, "", "")]
    return [off, Side(cluster, cluster.plugstack.strip(), "--bootstrap=off")]


@pytest.fixture(scope="module")
def play(sides, wanted):
    running = Play(sides, wanted)
    yield running
    running.stop()


def verdict(case, off, on):
    """(verdict, message)."""
    if case.relation == BETTER:
        missing = [gives for gives in case.gives if not any(re.search(gives, line) for line in on.lines)]
        if missing:
            return "worse", [f"not in the output: {line}" for line in missing] + list(on.lines)
        has_all = all(any(re.search(gives, line) for line in off.lines) for gives in case.gives)
        return ("equal", ["stock gives the same"]) if has_all else (BETTER, [])
    found = differences(off, on, case.ignores)
    if not found:
        return EQUAL, []
    return (KNOWN if case.relation == KNOWN else "worse"), found


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_harm(case, play, wanted, request):
    if case not in wanted:
        is_full = request.config.getoption("--full")
        pytest.skip("with --full" if case.is_slow and not is_full else f"needs {', '.join(lacking(case))}")
    off, on = play.of(case.name)
    found, told = verdict(case, off, on)
    RESULTS[case.name] = Result(case, off.status, on.status, found, off.seconds)
    if request.config.getoption("--harm-with") == "nothing":
        told = differences(off, on, case.ignores)
        assert not told, "\n".join(told)  # the suite itself is not steady
        return
    assert found == case.relation, f"{case.what} Expected {case.relation}, found {found}:\n" + "\n".join(told[:40])


def test_harm_control_a_plugin_that_sets_up_each_step_fails(play, sides, wanted, request, capsys):
    """The suite finds harm: with when=always, which sets up steps that nobody asked about, many rows differ."""
    if request.config.getoption("--harm-with") != "plugin" or len(wanted) < len(ALL) // 2:
        pytest.skip("needs all rows")
    quick = [case for case in wanted if case.relation == EQUAL and not case.arguments and not case.site.settings
             and play.of(case.name)[0].seconds < CONTROL_SECONDS]  # fmt: skip
    quick = quick if request.config.getoption("--full") else quick[::CONTROL_TAKES]
    control = Side.of(sides[1], f"{sides[1].line} when=always", "")
    again = Play([control], quick)
    try:
        bad = [case.name for case in quick if differences(play.of(case.name)[0], again.of(case.name)[0], case.ignores)]
    finally:
        again.stop()
    with capsys.disabled():
        print(f"\nharm control: {len(bad)} of {len(quick)} rows fail with when=always: {', '.join(bad)}")
    assert len(bad) >= CONTROL_FAILS


def test_harm_table_has_these_cases():
    assert trouble_with(ALL) == []
    assert len(ALL) >= 100
    assert cases_of(TABLE.read_text()) == [(case.group, case.name) for case in ALL]


def test_harm_summary(play, wanted, request, capsys):
    """Prints the table on the terminal, and with --write-harm-table into etc/doc."""
    if len(RESULTS) < len(wanted):
        pytest.skip("some rows did not come to their end")
    counts = Counter(result.verdict for result in RESULTS.values())
    with capsys.disabled():
        print("\n" + render(RESULTS.values()))
        print(f"harm: {len(RESULTS)} rows: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    if request.config.getoption("--write-harm-table"):
        write(RESULTS)


def test_harm_control_differences_are_seen():
    names = {"t12-off": "CLUSTER", "node003": "NODE1"}
    said, errors = "0: A=1\n0: SLURM_JOB_ID=12\nnode003: ok\n", "srun: error: node003: tasks 0-1: Exited with exit code 1\n"
    plain = outcome(0, said, errors, names)
    same = outcome(0, "node003: ok\n0: SLURM_JOB_ID=99\n0: A=1\n",
                   "".join(errors.replace("tasks 0-1", f"task {task}") for task in (1, 0)), names)  # fmt: skip
    assert differences(plain, same) == []
    assert differences(plain, outcome(1, said, errors, names))
    for old, new in (("A=1", "A=2"), ("node003", "0: RANK=0\nnode003"), ("node003", "node004"), ("node003", "node003: ok\nnode003"),
                     ("tasks 0-1", "task 0")):  # fmt: skip
        assert differences(plain, outcome(0, said.replace(old, new), errors.replace(old, new) if "task" in old else errors, names))

"""The table of versions: its counts are those of pytest, and failed tests are no good figure."""

import json

import pytest

from local_cluster import slurm_version
from test_report import report
from test_report.figures import Figure, keep, kept

RESULTS = '<testsuites><testsuite tests="{}" errors="{}" failures="{}" skipped="{}"/></testsuites>'


@pytest.fixture
def results(tmp_path):
    def write(*numbers):
        path = tmp_path / "results.xml"
        path.write_text(RESULTS.format(*numbers))
        return path

    return write


def test_a_table_has_versions_and_counts(results, tmp_path):
    report.keep_versions("debian 12", results(310, 0, 0, 12), tmp_path)
    table = kept(tmp_path)[0].table.splitlines()
    assert table[0] == "| what | debian 12 |" and "| integration tests | 298 passed, 12 skipped |" in table
    assert f"| Slurm | {slurm_version() or 'none'} |" in table


@pytest.mark.parametrize("numbers, met", [((9, 0, 0, 1), True), ((9, 1, 0, 1), False), ((9, 0, 1, 1), False), ((1, 0, 0, 1), False)])
def test_failed_or_no_tests_do_not_meet_the_goal(results, tmp_path, numbers, met):
    report.keep_versions("here", results(*numbers), tmp_path)
    kept = json.loads((tmp_path / "m9-here.json").read_text())
    assert kept["met"] is met and bool(kept["why"]) is not met


def test_a_short_form_never_takes_the_place_of_the_full_one(tmp_path):
    for got, is_full in (("short", False), ("shorter", False), ("full", True), ("short", False)):
        keep(Figure("B1", "", got, met=True, is_full=is_full), tmp_path)
    assert [figure.got for figure in kept(tmp_path)] == ["full"]
    keep(Figure("B1", "", "full again", met=True, is_full=True), tmp_path)
    assert [figure.got for figure in kept(tmp_path)] == ["full again"]

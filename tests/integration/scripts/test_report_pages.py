"""Pages about test runs: the page of scripts/gpu-check with tests that ran, failed and did not run, and its refusal without a GPU; the
table of versions with pytest's counts, in which failed tests do not meet the goal."""

# SPDX-License-Identifier: Apache-2.0

import json
import os

import pytest

from harness import REPOSITORY, driver_gpus, run_here
from local_cluster import slurm_version
from test_report import gpu_page, report
from test_report.figures import Figure, keep, kept

SCRIPT = REPOSITORY / "scripts" / "gpu-check"
RESULTS = """<testsuites><testsuite tests="4" failures="1" errors="1" skipped="1">
<testcase name="test_one"><properties><property name="says" value="One | two"/><property name="measured" value="2 GB/s"/></properties>
</testcase>
<testcase name="test_two"><failure message="assert 1 == 2&#10;more">long</failure></testcase>
<testcase name="test_three"><properties><property name="says" value="Three"/></properties><skipped message="needs two GPUs"/></testcase>
<testcase name="test_four"><error message="no cluster">long</error></testcase>
</testsuite></testsuites>"""


def test_the_page_has_what_ran_and_what_did_not(tmp_path):
    (tmp_path / "results.xml").write_text(RESULTS)
    lines = "\n".join(gpu_page.page(list(gpu_page.rows(tmp_path / "results.xml")), [("GPU", "H200")], "2026-11-26")).splitlines()
    assert "2026-11-26: 1 passed, 2 failed, 1 not run." in lines and "| GPU | H200 |" in lines
    ran, not_run = lines.index("| what was run |  | measured |"), lines.index("| not run | why |")
    assert lines[ran + 2 : not_run - 1] == ["| One \\| two | passed | 2 GB/s |", "| test_two | failed | assert 1 == 2 |",
                                            "| test_four | failed | no cluster |"]
    assert lines[not_run + 2 :] == ["| Three | needs two GPUs |"]


@pytest.mark.parametrize("chosen, said", [
    ("explain_knows", "1 not run"),
    ("no_such_test", "ended with status 5"),  # pytest's status if there is no test
])
def test_nothing_run_is_no_success(tmp_path, chosen, said):
    if driver_gpus():
        pytest.skip("this machine has a GPU")
    path = {"PATH": f"/usr/bin:{os.environ['PATH']}"}
    done = run_here([SCRIPT, "--out", "page.md", "--", "-k", chosen], cwd=tmp_path, env=os.environ | path)
    assert done.returncode == 1 and said in done.stdout + done.stderr
    assert (tmp_path / "page.md").exists() == (said == "1 not run")


# -- versions


COUNTS = '<testsuites><testsuite tests="{}" errors="{}" failures="{}" skipped="{}"/></testsuites>'


@pytest.fixture
def results(tmp_path):
    def write(*numbers):
        path = tmp_path / "results.xml"
        path.write_text(COUNTS.format(*numbers))
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

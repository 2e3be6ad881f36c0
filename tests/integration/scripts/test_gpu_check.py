"""scripts/gpu-check without a GPU: its page of tests that ran, failed and were not run, and how it refuses."""

# SPDX-License-Identifier: Apache-2.0

import os

import pytest

from harness import REPOSITORY, driver_gpus, run_here
from test_report import gpu_page

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
    ("no_such_test", "ended with status 5"),  # of pytest, where there is no test
])
def test_nothing_run_is_no_success(tmp_path, chosen, said):
    if driver_gpus():
        pytest.skip("this machine has a GPU")
    path = {"PATH": f"/usr/bin:{os.environ['PATH']}"}
    done = run_here([SCRIPT, "--out", "page.md", "--", "-k", chosen], cwd=tmp_path, env=os.environ | path)
    assert done.returncode == 1 and said in done.stdout + done.stderr
    assert (tmp_path / "page.md").exists() == (said == "1 not run")

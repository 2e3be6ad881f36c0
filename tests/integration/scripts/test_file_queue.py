"""Tests that several pytest run at once: each test runs once, all failures are reported, and the results are in one file."""

# SPDX-License-Identifier: Apache-2.0

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from file_queue import BUSY, LONGEST
from harness import REPOSITORY, run_here

SCRIPT = REPOSITORY / "scripts/checks/run_tests.py"
QUICK = "tests/integration/scripts/test_campaign.py"  # so that pytest knows the options of these tests


def test_the_listed_files_exist():
    """A wrong name would have no effect."""
    folder = REPOSITORY / "tests/integration"
    assert [name for name in (*BUSY, *LONGEST) if not any(folder.rglob(f"test_{name}.py"))] == []


def run(tmp_path, *files):
    results = tmp_path / "results.xml"
    for number, text in enumerate(files):
        (tmp_path / f"test_given_{number}.py").write_text(text)
    given = sorted(map(str, tmp_path.glob("test_given_*.py")))
    done = run_here([sys.executable, SCRIPT, results, QUICK, *given, "-c", "tests/integration/pytest.ini", "--rootdir=/"], timeout=120)
    cases = [] if not results.exists() else list(ElementTree.parse(results).getroot().iter("testcase"))
    return done, [f"{case.get('classname').rpartition('.')[2]}.{case.get('name')}" for case in cases]


RIGHT = "def test_one(): pass\ndef test_two(): print('said')\n"
SKIPPED = "import pytest\ndef test_three(): pytest.skip('why')\n"


def test_the_summary_counts_all_tests(tmp_path):
    done, ran = run(tmp_path, RIGHT, SKIPPED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"test_given_0.test_one", "test_given_0.test_two", "test_given_1.test_three"} < set(ran)
    assert len(set(ran)) == len(ran)
    assert done.stdout.splitlines()[-1] == f"{len(ran) - 1} passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("wrong, status", [
    ("def test_wrong(): assert 'this' == 'that'\n", 1),
    ("import no_such_module\n", 3),
    ("import os\ndef test_kills(): os.kill(os.getpid(), 9)\n", 3),
])
def test_each_failure_is_reported(tmp_path, wrong, status):
    done, _ = run(tmp_path, RIGHT, wrong)
    assert done.returncode == status, done.stdout + done.stderr
    if status == 1:
        assert "assert 'this' == 'that'" in done.stdout and re.search(r"^\d+ passed, 1 failed, 0 skipped$", done.stdout, re.M)
    else:
        assert "a pytest ended before its tests" in done.stderr and " passed, " not in done.stdout.splitlines()[-1]

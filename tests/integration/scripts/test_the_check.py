"""scripts/check: the tests that it runs, its cleanup when it is ended at any moment, and the workflow that calls it."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from default_cases import ROWS
from harness import REPOSITORY, STATE_ROOT, run_here, succeed_here, wait_for

from checks.run_tests import STARTED_BY

CHECK = REPOSITORY / "scripts/check"
RUN_TESTS = REPOSITORY / "scripts/checks/run_tests.py"
WORKFLOW = REPOSITORY / ".github/workflows/check.yml"
WITH_A_CLUSTER = "test_status_shows_a_drained_node"


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def clusters_below(pid):
    """The clusters of a check: [(name, process that started it)]."""
    found = [(path.name, int(re.search(r"^t(\d+)-", path.name)[1])) for path in STATE_ROOT.glob("t[0-9]*-*")]
    return [(name, owner) for name, owner in found if pid in (parent_of(owner), parent_of(parent_of(owner)))]


@pytest.fixture
def check_with_a_cluster():
    """(a check, the name of its cluster, the pytest that started it), as soon as the cluster exists."""
    line = [CHECK, "--only", "integration", "--", "-k", WITH_A_CLUSTER]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        wait_for(lambda: clusters_below(process.pid) or process.poll() is not None, 300, "no cluster was started")
        assert process.poll() is None, process.stdout.read()
        yield process, *clusters_below(process.pid)[0]
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("sent, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_it_leaves_nothing_when_it_is_ended(check_with_a_cluster, sent, status):
    check, name, owner = check_with_a_cluster
    check.send_signal(sent)
    assert check.wait(300) == status
    wait_for(lambda: not Path(f"/proc/{owner}").exists(), 300, "its pytest goes on")
    assert not (STATE_ROOT / name).exists()


def test_the_next_run_removes_the_cluster_of_a_run_that_was_killed(check_with_a_cluster, cluster_factory, tmp_path):
    _, name, owner = check_with_a_cluster
    other = cluster_factory("other").up("--nodes", "1", "--no-plugin")
    os.kill(owner, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{owner}").exists(), what="it goes on")
    assert (STATE_ROOT / name).exists()
    (tmp_path / "test_given.py").write_text("def test_nothing(): pass\n")
    line = [RUN_TESTS, tmp_path / "results.xml", "tests/integration/scripts/test_campaign.py", tmp_path / "test_given.py",
            "-c", "tests/integration/pytest.ini", "--rootdir=/"]  # fmt: skip
    done = run_here(line, stdin=subprocess.DEVNULL, timeout=300)
    assert done.returncode == 0 and f"removes cluster {name}," in done.stderr, done.stderr
    assert not (STATE_ROOT / name).exists() and other.state.exists()


def test_a_signal_before_the_first_test_ends_the_run(tmp_path):
    lines = ["import os, signal, sys, run_tests", "run_tests.PYTEST = ['true']", f"arguments = ['{tmp_path}/results.xml', 'tests']",
             "run_tests.remove_left_clusters = lambda: os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(run_tests.main(arguments))"]
    done = run_here([sys.executable, "-B", "-c", "; ".join(lines)], cwd=RUN_TESTS.parent, timeout=60)
    assert done.returncode == 3 and "exit statuses [2, 2" in done.stderr, done.stderr


def test_the_clusters_of_all_scripts_are_known_by_their_names():
    names = set()
    for path in (REPOSITORY / "scripts").rglob("*"):
        if path.is_file():
            names |= set(re.findall(r"\b(?:running\(|LocalCluster\(f)\"(\w+)", path.read_text(errors="replace")))
    assert {"bench", "scale"} <= names
    assert [name for name in names if not STARTED_BY.fullmatch(f"{name}-12345")] == []


def test_a_step_that_fails_ends_what_it_has_in_the_background(tmp_path):
    """Its last line is in the report, even if the copy of its output is slow."""
    subprocess.run(["cp", "-r", "--parents", "scripts", tmp_path], cwd=REPOSITORY, check=True)
    script = tmp_path / "scripts/check"
    step = ["step_units() { sleep 600 & echo the last line; false; }", 'tee() { sleep 1; command tee "$@"; }', "mkdir -p build/report",
            "run_noted_step units", "cat build/report/steps.tsv", ""]
    script.write_text(script.read_text().replace('\nmain "$@"\n', "\n" + "\n".join(step)))
    done = run_here([script], stdin=subprocess.DEVNULL, timeout=60)
    assert re.search(r"^units\t\d+\tfailed\tthe last line$", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_each_promise_of_security_md_is_tested_by_default():
    line = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-q", "--collect-only", "--default", "tests/integration"]
    done = succeed_here(line, cwd=REPOSITORY)
    promised = set(re.findall(r"\btest_\w+", (REPOSITORY / "SECURITY.md").read_text()))
    assert len(promised) > 30
    assert promised - set(re.findall(r"::(test_\w+)", done.stdout)) == set()


def test_each_row_names_a_test_or_a_file():
    texts = {path.stem: path.read_text() for path in (REPOSITORY / "tests/integration").rglob("test_*.py")}
    rows = [(row, *row.partition("::")[::2]) for row in ROWS]
    assert [row for row, file, test in rows if f"def {test}" not in texts.get(file, "")] == []


def test_the_workflow_calls_what_is_there(tmp_path):
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert any("--quick" in line for line in lines) and ".ci/run" in lines
    for word in (word for line in lines for word in shlex.split(line) if word.startswith(("scripts/", ".ci/"))):
        assert os.access(REPOSITORY / word, os.X_OK), word
    (tmp_path / "lines.sh").write_text("\n".join(["#!/bin/sh", *lines, ""]))
    succeed_here(["shellcheck", tmp_path / "lines.sh"])

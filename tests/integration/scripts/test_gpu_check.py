"""scripts/gpu-check without a GPU: its page of tests that ran, failed and were not run, and how it refuses."""

# SPDX-License-Identifier: Apache-2.0

import os
import subprocess

import pytest

from harness import REPOSITORY, driver_gpus
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


def test_versions_of_this_machine_are_named():
    found = dict(gpu_page.versions())
    assert found["Slurm"].startswith("slurm") and found["kernel"] == os.uname().release


@pytest.mark.parametrize("words, reason", [
    (["--frobnicate"], "option --frobnicate is not known"),
    (["--out"], "option --out needs a file"),
])
def test_a_wrong_command_line_is_one_sentence(words, reason):
    done = subprocess.run([SCRIPT, *words], capture_output=True, text=True)
    assert done.returncode == 2 and reason in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("chosen, said", [
    ("explain_knows", "1 not run"),
    ("no_such_test", "ended with status 5"),  # of pytest, where there is no test
])
def test_nothing_run_is_no_success(tmp_path, chosen, said):
    if driver_gpus():
        pytest.skip("this machine has a GPU")
    path = {"PATH": f"/usr/bin:{os.environ['PATH']}"}
    done = subprocess.run([SCRIPT, "--out", "page.md", "--", "-k", chosen], capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | path)
    assert done.returncode == 1 and said in done.stdout + done.stderr
    assert (tmp_path / "page.md").exists() == (said == "1 not run")


def test_a_file_that_cannot_be_packed_is_an_error(tmp_path):
    subprocess.run(["cp", "-r", "--parents", "scripts", tmp_path], cwd=REPOSITORY, check=True)
    command = tmp_path / "build/release/libbootstrap/slurm-bootstrap"
    command.parent.mkdir(parents=True)
    for program, text in ((command, ""), (tmp_path / "apt-get", "true"), (tmp_path / "strip", "false"), (tmp_path / "cp", "false")):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    (tmp_path / "build/release/last.so").write_text("")
    done = subprocess.run([tmp_path / "scripts/gpu-check", "--pack"], capture_output=True, text=True,
                          env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 1 and "packed" not in done.stderr, done.stderr

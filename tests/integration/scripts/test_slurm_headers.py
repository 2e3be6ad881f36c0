"""The headers of Slurm that a build folder uses: the current ones, whatever it was configured with before."""

import os
import re

import pytest

from harness import REPOSITORY, run_here

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(reader NONE)
list(APPEND CMAKE_MODULE_PATH {REPOSITORY}/scripts/cmake)
find_package(SlurmHeaders REQUIRED)
message(STATUS "headers of ${{SlurmHeaders_VERSION}} in ${{SlurmHeaders_INCLUDE_DIR}}.")
"""


def make_slurm(prefix, number, said):
    """The parts of an installed Slurm that are read: its headers, and the version that slurmd prints."""
    for folder in ("include/slurm", "sbin"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "include/slurm/spank.h").touch()
    (prefix / "include/slurm/slurm_version.h").write_text(f"#define SLURM_VERSION_NUMBER 0x{number}\n")
    slurmd = prefix / "sbin/slurmd"
    slurmd.write_text(f"#!/bin/sh\necho slurm {said}\n")
    slurmd.chmod(0o755)
    return prefix


@pytest.fixture
def old(tmp_path):
    return make_slurm(tmp_path / "old", "170208", "23.02.8")


@pytest.fixture
def new(tmp_path):
    return make_slurm(tmp_path / "new", "190b07", "25.11.7")


@pytest.fixture
def configure(tmp_path):
    """Configures one build folder repeatedly; the result's `found` has the headers."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(PROJECT)

    def run(*words, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "SLURM_ROOT"}
        done = run_here(["cmake", "-S", project, "-B", tmp_path / "build", *words], env=environment | variables)
        found = re.search(r"headers of (\S+) in (\S+)\.$", done.stdout, re.MULTILINE)
        done.found = found and found.groups()
        return done

    return run


def test_another_slurm_root_replaces_the_headers_of_a_build_folder_and_is_reported(configure, old, new):
    first = configure(SLURM_ROOT=str(old))
    assert first.found == ("23.02.8", f"{old}/include") and "is now for" not in first.stdout
    again = configure(SLURM_ROOT=str(new))
    assert again.found == ("25.11.7", f"{new}/include")
    assert "This build folder was for Slurm 23.02.8, and is now for 25.11.7" in again.stdout
    # `cmake --build` may configure again by itself, in a shell without the variable.
    assert configure().found == again.found and configure(f"-DSLURM_ROOT={old}").found == first.found


def test_an_upgrade_below_the_same_prefix_is_seen(configure, old):
    assert configure(SLURM_ROOT=str(old)).found[0] == "23.02.8"
    (old / "include/slurm/slurm_version.h").write_text("#define SLURM_VERSION_NUMBER 0x180b05\n")
    assert configure().found[0] == "24.11.5"


def test_a_prefix_without_headers_or_their_version_is_refused_and_not_replaced_by_another(configure, old, new, tmp_path):
    assert configure(SLURM_ROOT=str(old)).returncode == 0
    (new / "include/slurm/slurm_version.h").unlink()
    for prefix in (tmp_path, new):
        refused = configure(SLURM_ROOT=str(prefix))
        assert refused.returncode != 0 and "set SLURM_ROOT to the prefix" in " ".join(refused.stderr.split())


def test_headers_of_another_release_than_the_slurm_of_this_machine_are_reported(configure, old, new):
    path = f"{new}/sbin:{os.environ['PATH']}"
    told = configure(f"-DCMAKE_INCLUDE_PATH={old}/include", PATH=path)
    assert told.found[0] == "23.02.8"
    words = " ".join(told.stderr.split())
    assert f"built for Slurm 23.02.8, whose headers are in {old}/include, but {new}/sbin/slurmd is of Slurm 25.11" in words
    # No report if they have the same release, or if the user named the Slurm.
    assert configure(f"-DCMAKE_INCLUDE_PATH={new}/include", PATH=path).stderr == ""
    assert configure(SLURM_ROOT=str(old), PATH=path).stderr == ""

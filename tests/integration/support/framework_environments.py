"""The environments of scripts/frameworks, as the tests use them."""

# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
from functools import cache

import pytest

from harness import REPOSITORY, run_here

MAKE = REPOSITORY / "scripts" / "frameworks"
NO_INDEX = 3
LOCKED_FOR = (3, 11)  # Debian 12's Python: the versions in the lock files have wheels for it


@cache
def programs_of(name):
    """Makes the environment at its first use; returns the folder of its programs, or None if it cannot be made."""
    if sys.version_info[:2] != LOCKED_FOR:
        return None
    done = subprocess.run([MAKE, "install", name], stderr=subprocess.PIPE, text=True)
    assert done.returncode in (0, NO_INDEX), done.stderr
    path = run_here([MAKE, "path", name], check=True).stdout.strip()
    return path if done.returncode == 0 else None


@pytest.fixture(scope="session")
def environments():
    def get(name):
        folder = programs_of(name)
        if folder is None:
            pytest.skip(f"{name} is not installed: PyPI cannot be reached, or this Python is not {'.'.join(map(str, LOCKED_FOR))}")
        return folder

    return get

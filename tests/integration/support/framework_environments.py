"""The environments of scripts/frameworks, as the tests use them."""

# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

import pytest

from harness import REPOSITORY

MAKE = REPOSITORY / "scripts" / "frameworks"
NO_INDEX = 3
LOCKED_FOR = (3, 11)  # Debian 12's Python: the versions in the lock files have wheels for it


@pytest.fixture(scope="session")
def environments():
    """Makes the environment of a name when it is first asked for; returns the folder of its programs."""
    folders = {}

    def get(name):
        if sys.version_info[:2] != LOCKED_FOR:
            pytest.skip(f"the lock files are for Python {'.'.join(map(str, LOCKED_FOR))}")
        if name not in folders:
            done = subprocess.run([MAKE, "install", name], stderr=subprocess.PIPE, text=True)
            assert done.returncode in (0, NO_INDEX), done.stderr
            path = subprocess.run([MAKE, "path", name], capture_output=True, text=True, check=True).stdout.strip()
            folders[name] = path if done.returncode == 0 else None
        if folders[name] is None:
            pytest.skip(f"PyPI cannot be reached, so {name} is not installed")
        return folders[name]

    return get

"""The paths of built files on this machine and in a cluster."""

# SPDX-License-Identifier: Apache-2.0

import os

import pytest

from harness import INSIDE, REPOSITORY, TESTS

BUILD = os.environ.get("BOOTSTRAP_BUILD", "build/release")  # a folder of the repository, since clusters see nothing else
LIBRARY = "libbootstrap/libbootstrap.so.0"
PLUGIN = "spank_plugin/spank_bootstrap.so"
TRAIN = "etc/train"
# Paths in a cluster; the files need not exist.
BUILT_INSIDE = f"{INSIDE}/{BUILD}"
COMMAND = f"{BUILT_INSIDE}/libbootstrap/slurm-bootstrap"
PROBE = f"{TESTS}/support/probe.py"


def built(path: str) -> str:
    """The path of a built file on this machine."""
    if not (REPOSITORY / BUILD / path).exists():
        pytest.fail(f"{BUILD}/{path} is not built; run cmake --preset release && cmake --build --preset release")
    return str(REPOSITORY / BUILD / path)


def inside(path: str) -> str:
    """Its path in every cluster."""
    built(path)
    return f"{BUILT_INSIDE}/{path}"


def program(name: str) -> str:
    """The path of a test program in every cluster."""
    return inside(f"tests/integration/{name}")


def double(name: str) -> str:
    """The path of a double, a plugin or a library, in every cluster."""
    return inside(f"tests/doubles/{name}.so")

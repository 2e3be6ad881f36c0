"""The built files, as paths of this machine and of a cluster."""

# SPDX-License-Identifier: Apache-2.0

import os

import pytest

from harness import INSIDE, REPOSITORY, TESTS

BUILD = os.environ.get("BOOTSTRAP_BUILD", "build/release")  # a folder of the repository, since clusters see nothing else
LIBRARY = "libbootstrap/libbootstrap.so.0"
PLUGIN = "spank_plugin/spank_bootstrap.so"
TRAIN = "etc/train"
# As a cluster knows them, whether they are built or not.
BUILT_INSIDE = f"{INSIDE}/{BUILD}"
COMMAND = f"{BUILT_INSIDE}/libbootstrap/slurm-bootstrap"
PROBE = f"{TESTS}/support/probe.py"


def built(path: str) -> str:
    """On this machine."""
    if not (REPOSITORY / BUILD / path).exists():
        pytest.fail(f"{BUILD}/{path} is not built; run cmake --preset release && cmake --build --preset release")
    return str(REPOSITORY / BUILD / path)


def inside(path: str) -> str:
    """In every cluster."""
    built(path)
    return f"{BUILT_INSIDE}/{path}"


def program(name: str) -> str:
    """One of the tests' own, in every cluster."""
    return inside(f"tests/integration/{name}")


def double(name: str) -> str:
    """Another plugin, or a library, in every cluster."""
    return inside(f"tests/doubles/{name}.so")

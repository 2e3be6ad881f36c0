"""Where the programs are that the benchmarks run, on this machine and in a cluster."""

# SPDX-License-Identifier: Apache-2.0

from local_cluster import INSIDE, REPOSITORY

BUILD = "build/release"


class NotBuilt(RuntimeError):
    """A program is not there; the text says how to get it."""


def built(path):
    """A file of the release build, on this machine; raises NotBuilt."""
    file = REPOSITORY / BUILD / path
    if not file.exists():
        raise NotBuilt(f"{BUILD}/{path} is not built; run cmake --preset release && cmake --build --preset release")
    return file


def inside(path):
    """The same file as the hosts of a cluster see it; raises NotBuilt."""
    built(path)
    return f"{INSIDE}/{BUILD}/{path}"

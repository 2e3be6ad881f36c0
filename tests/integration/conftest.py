"""Fixtures of the integration tests: real clusters in namespaces of this machine."""

import os
import shutil
import signal

import pytest

from harness import Cluster


def pytest_configure(config):
    # SIGTERM ends pytest as Ctrl-C does: through the fixtures, which take their clusters down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def cluster_factory():
    """Makes clusters; each has a name that no other test run on this machine uses, and is gone at the end."""
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    if not shutil.which("slurmctld"):
        pytest.skip("a cluster needs slurmctld; run scripts/setup")
    made = []

    def make(label):
        cluster = Cluster(f"t{os.getpid()}-{label}")
        made.append(cluster)
        return cluster

    try:
        yield make
    finally:
        # A second Ctrl-C shall not stop the cleaning.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        troubles = [cluster.close() for cluster in made]
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert not any(troubles), "\n".join(filter(None, troubles))


@pytest.fixture(scope="session")
def cluster(cluster_factory):
    """The cluster most tests share: two nodes, two GPUs each, no plugin."""
    return cluster_factory("plain").up("--no-plugin")

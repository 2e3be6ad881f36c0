"""What the tests of the preloaded library share: the built files as paths of this machine and of a cluster."""

import os

import pytest

from harness import REPOSITORY, Cluster

BUILD = os.environ.get("BOOTSTRAP_BUILD", "build/release")  # a folder of the repository, since clusters see nothing else
LIBRARY = "libbootstrap/libbootstrap.so.0"
PLUGIN = "spank_plugin/spank_bootstrap.so"
RENDEZVOUS = "libbootstrap/slurm-bootstrap-rendezvous"


# Before the library's path, so that the loader of another libc does not find it (spank_plugin/slurmstepd/preload_path).
FOR_GLIBC = "/$LIB/../../../../../../../.."


def built(path: str) -> str:
    """On this machine."""
    if not (REPOSITORY / BUILD / path).exists():
        pytest.fail(f"{BUILD}/{path} is not built; run cmake --preset release && cmake --build --preset release")
    return str(REPOSITORY / BUILD / path)


def inside(path: str) -> str:
    """In every cluster."""
    built(path)
    return f"/opt/slurm-bootstrap/{BUILD}/{path}"


def preloading(*libraries: str) -> str:
    """The option of srun that preloads libraries, ours if none is named."""
    return f"--export=ALL,LD_PRELOAD={':'.join(libraries or (inside(LIBRARY),))}"


def sentences(stderr: str) -> list[str]:
    """What we said, without what Slurm said."""
    return [line for line in stderr.splitlines() if line.startswith("bootstrap:")]


def run_steps(cluster: Cluster, script: str, env: dict[str, str] | None = None, timeout: int = 90):
    """A shell script on the login host, which starts steps; its result has returncode, stdout and stderr."""
    return cluster.run(["timeout", str(timeout), "bash", "-c", script], env=env, timeout=timeout + 20)

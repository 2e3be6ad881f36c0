"""Steps of the preloaded library: the option that preloads it, how a script of steps is run, and what is said."""

from built_files import LIBRARY, inside
from harness import Cluster

# Before the library's path, so that the loader of another libc does not find it (spank_plugin/slurmstepd/user_init).
FOR_GLIBC = "/$LIB/../../../../../../../.."


def preloading(*libraries: str) -> str:
    """The option of srun that preloads libraries, ours if none is named."""
    return f"--export=ALL,LD_PRELOAD={':'.join(libraries or (inside(LIBRARY),))}"


def sentences(stderr: str) -> list[str]:
    """What we said, without what Slurm said."""
    return [line for line in stderr.splitlines() if line.startswith("bootstrap:")]


def run_steps(cluster: Cluster, script: str, env: dict[str, str] | None = None, timeout: int = 90):
    """A shell script on the login host, which starts steps; its result has returncode, stdout and stderr."""
    return cluster.run(["timeout", str(timeout), "bash", "-c", script], env=env, timeout=timeout + 20)

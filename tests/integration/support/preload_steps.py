"""Steps with the preloaded library: the option that preloads it, a runner for scripts of steps, and our messages."""

from built_files import LIBRARY, inside
from harness import Cluster

# Before the library's path, so that the loader of another libc does not find it (spank_plugin/slurmstepd/user_init).
FOR_GLIBC = "/$LIB/../../../../../../../.."


def preloading(*libraries: str) -> str:
    """srun's option that preloads libraries, by default ours."""
    return f"--export=ALL,LD_PRELOAD={':'.join(libraries or (inside(LIBRARY),))}"


def sentences(stderr: str) -> list[str]:
    """Our messages, without Slurm's."""
    return [line for line in stderr.splitlines() if line.startswith("bootstrap:")]


def run_steps(cluster: Cluster, script: str, env: dict[str, str] | None = None, timeout: int = 90):
    """A shell script on the login host, which starts steps; its result has returncode, stdout and stderr."""
    return cluster.run(["timeout", str(timeout), "bash", "-c", script], env=env, timeout=timeout + 20)

"""Another Debian: commands run in it as on a separate machine, and nothing of them stays, however they end."""

import itertools
import os
import signal
import subprocess

import pytest

from harness import CGROUP_VERSIONS, STATE_ROOT, machine_traces, process_namespaces, run_here, wait_for
from debian import ROOT_SCRIPT, root_of, slurm_of_debians

SLURM_OF = slurm_of_debians()

# Starts a cluster and prints a word when it is up; then its command runs for minutes. The word comes last: a shell that gets
# SIGINT while it waits for a command continues if that command has ended well.
CLUSTER = """scripts/cluster up --name inside --no-plugin --nodes 1 $OPTIONS >/dev/null 2>&1 || exit
word=$(scripts/cluster exec --name inside -- srun hostname)
echo $word
exec sleep 600
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module", params=SLURM_OF)
def release(request):
    """A Debian release that has been made on this machine."""
    if not root_of(request.param):
        pytest.skip(f"there is no Debian {request.param}; make it with scripts/debian/root.sh {request.param} make")
    return request.param


def run(release, *command):
    return run_here([ROOT_SCRIPT, release, "run", *command], stdin=subprocess.DEVNULL, timeout=60)


def processes_in(namespaces):
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if process_namespaces(pid) & namespaces]


def cgroups():
    """The cgroups of commands in another Debian, and of their clusters."""
    return {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if "/slurm-bootstrap-debian" in folder}


@pytest.fixture
def command(release):
    """Starts a command in it that prints one word; the command is ended at the end of the test."""
    made = []

    def start(*words):
        made.append(subprocess.Popen([ROOT_SCRIPT, release, "run", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     stdin=subprocess.DEVNULL, start_new_session=True))
        return made[-1], made[-1].stdout.readline().strip()

    yield start
    for process in made:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


def namespaces_of(process):
    """The PID and mount namespaces of a command: those of its session's processes, without ours."""
    found = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            found |= process_namespaces(pid) if os.getsid(pid) == process.pid else set()
        except ProcessLookupError:
            pass
    return {(kind, inode) for kind, inode in found - process_namespaces("self") if kind in ("mnt", "pid")}


@pytest.mark.parametrize("name, version", zip(["SIGINT", "SIGTERM", "SIGKILL"], itertools.cycle(CGROUP_VERSIONS or [None])))
def test_a_cluster_in_it_ends_with_its_command(release, command, name, version):
    """Also if the script that started it is killed, so that no process remains to clean up."""
    before, others = machine_traces(), cgroups()
    options = f"--constrain-devices={version}" if version else ""
    process, word = command("env", f"OPTIONS={options}", "bash", "-c", CLUSTER)
    assert word == "node001"
    namespaces = namespaces_of(process)
    assert {kind for kind, _ in namespaces} == {"mnt", "pid"}
    # Control: processes of the command and its cgroups exist now, and nothing else of it on the machine.
    assert len(processes_in(namespaces)) > 1
    assert any("slurm-bootstrap-inside/node001" in folder for folder in cgroups() - others) == bool(options)
    assert machine_traces() - before == set() and not (STATE_ROOT / "inside").exists()
    if name == "SIGKILL":
        process.kill()
    else:
        os.killpg(process.pid, getattr(signal, name))
    process.communicate(timeout=60)
    assert process.returncode != 0
    wait_for(lambda: not processes_in(namespaces), what="processes in it outlive their command")
    assert machine_traces() - before == set()
    # The next run of the script removes cgroups of a killed one.
    assert run(release, "true").returncode == 0
    assert cgroups() - others == set()

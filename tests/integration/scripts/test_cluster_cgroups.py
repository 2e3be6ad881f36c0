"""scripts/cluster constrains devices by cgroups of version 1 and 2: the kernel refuses a step all GPUs of others, and no cgroup
stays, however the cluster ends."""

import os
import re
import signal
from pathlib import Path

import pytest

from harness import CGROUP_VERSIONS, wait_for

# Prints one word for each GPU: the result of open().
OPEN_GPUS = """import errno, glob, os
for path in sorted(glob.glob("/dev/nvidia[0-9]")):
    try:
        os.close(os.open(path, os.O_RDWR))
        print(path[-1], "opened")
    except OSError as error:
        print(path[-1], errno.errorcode[error.errno])
"""
needs_both_versions = pytest.mark.skipif(len(CGROUP_VERSIONS) < 2, reason="needs a machine with cgroups of both versions")


@pytest.fixture(scope="module", params=CGROUP_VERSIONS)
def constrained(request, cluster_factory):
    cluster = cluster_factory(f"constrained-{request.param}").up("--no-plugin", f"--constrain-devices={request.param}", "--nodes", "1")
    cluster.write_home("open_gpus.py", OPEN_GPUS)
    cluster.version = request.param
    return cluster


def cgroups_of(cluster):
    return [trace for trace in cluster.traces() if trace.startswith("cgroup")]


def test_both_versions_work_where_the_kernel_has_both():
    """Else a version that `scripts/cluster` does not find would only skip its tests. Debian's Slurm has both plugins."""
    mounts = Path("/proc/mounts").read_text()
    wanted = [version for version, mount in (("v2", r"^\S+ \S+ cgroup2 "), ("v1", r"^\S+ \S+ cgroup \S*\bdevices\b"))
              if re.search(mount, mounts, re.MULTILINE)]
    assert CGROUP_VERSIONS == wanted


def test_hidden_device_is_refused_and_allowed_one_reaches_the_driver(constrained):
    assert constrained.run(["srun", "--gres=gpu:1", "python3", "open_gpus.py"]).stdout == "0 ENXIO\n1 EPERM\n"
    assert constrained.run(["srun", "--gres=gpu:2", "python3", "open_gpus.py"]).stdout == "0 ENXIO\n1 ENXIO\n"
    assert constrained.run(["srun", "python3", "open_gpus.py"]).stdout == "0 EPERM\n1 EPERM\n"


def test_a_batch_script_is_constrained_as_its_job(constrained):
    done = constrained.run(["sbatch", "--quiet", "--wait", "--gres=gpu:1", "-o", "batch.out", "--wrap", "python3 open_gpus.py"])
    assert done.returncode == 0 and (constrained.home / "batch.out").read_text() == "0 ENXIO\n1 EPERM\n"


def test_the_requested_version_constrains_the_task(constrained):
    """A task is in a cgroup of its step in this version, and in no cgroup of ours in the other version."""
    lines = constrained.run(["srun", "--gres=gpu:1", "cat", "/proc/self/cgroup"]).stdout.splitlines()
    places = {"v2" if hierarchy == "0" else controllers: path for hierarchy, controllers, path in (line.split(":") for line in lines)}
    if constrained.version == "v2":
        assert re.search(r"/system\.slice/node001_slurmstepd\.scope/(job_\d+|s[0-9A-Z]+)/step_0/user/task_0$", places["v2"])
        assert places.get("devices", "/") == "/"
    else:
        assert re.search(r"/slurm_node001/uid_10001/job_\d+/step_0/task_0$", places["devices"])
        assert "slurm" not in places.get("v2", "/")
    assert f"CgroupPlugin=cgroup/{constrained.version}\n" in (constrained.state / "etc/cgroup.conf").read_text()


def test_a_task_does_not_inherit_the_preloaded_filter(constrained):
    assert "LD_PRELOAD" not in constrained.run(["srun", "env"]).stdout


def test_constrained_nodes_may_have_more_cpus_than_the_machine(constrained):
    # More tasks than the machine may have cores: task/affinity would bind each to a core of its own.
    done = constrained.run(["srun", "-n4", "hostname"])
    assert (done.stdout, done.stderr, done.returncode) == ("node001\n" * 4, "", 0)


@pytest.mark.parametrize("version", CGROUP_VERSIONS)
def test_cgroups_of_a_killed_cluster_are_removed(cluster_factory, version):
    """The next `up` and `down` remove them."""
    cluster = cluster_factory(f"killed-{version}")
    for _ in range(2):
        cluster.up("--no-plugin", "--nodes", "1", f"--constrain-devices={version}")
        assert not any("step_0" in trace for trace in cgroups_of(cluster))
        job = cluster.start(["srun", "sleep", "600"])
        wait_for(lambda: any("step_0" in trace for trace in cgroups_of(cluster)))
        os.kill(int((cluster.state / "pids/init").read_text()), signal.SIGKILL)
        job.communicate(timeout=60)
        assert any("step_0" in trace for trace in cgroups_of(cluster))  # Control: the kernel removes none by itself.
    assert cluster.close() == "" and cluster.traces() == []


def without(*commands):
    """The words before a command that hide commands from it in a mount namespace."""
    return ["unshare", "--mount", "sh", "-ec", "\n".join([*commands, 'exec "$@"']), "sh"]


NO_V2 = "umount -l $(awk '$3 == \"cgroup2\" { print $2 }' /proc/mounts)"
NO_V1 = "umount -l $(awk '$3 == \"cgroup\" && $4 ~ /devices/ { print $2 }' /proc/mounts)"


@needs_both_versions
def test_the_other_version_is_taken_where_one_does_not_work(cluster_factory):
    cluster = cluster_factory("other-version")
    cluster.prefix = without(NO_V2)
    refused = cluster.script("up", "--no-plugin", "--constrain-devices=v2")
    assert refused.returncode == 1 and "no cgroup2 mount; say --constrain-devices, which" in refused.stderr
    cluster.up("--no-plugin", "--nodes", "1", "--constrain-devices")
    assert "CgroupPlugin=cgroup/v1\n" in (cluster.state / "etc/cgroup.conf").read_text()
    assert cluster.close() == ""
    cluster.prefix = without(NO_V2, NO_V1)
    refused = cluster.script("up", "--no-plugin", "--constrain-devices")
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and "leave the option out" in refused.stderr
    assert "no cgroup2 mount" in refused.stderr and "no cgroup v1 devices controller" in refused.stderr

"""What the plugin costs a step: system calls of slurmstepd between its start and the program's."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from harness import REPOSITORY
from step_trace import traced

STEP = ["srun", "-w", "node001", "-n2", "--gres=gpu:2"]
TRACED = ("openat", "socket", "bind", "connect", "listen", "execve", "execveat", "clone", "clone3", "fork", "vfork", "unlink", "mkdir")


@pytest.fixture(scope="module")
def small_cluster(cluster_factory):
    return cluster_factory("footprint").up("--nodes", "1")


def trace_step(cluster, mode, log, *options):
    """System calls of slurmd's new children in one step, as strace writes them."""
    with traced(cluster, "node001", "-e", "trace=" + ",".join(TRACED), "-o", log):
        asks = [f"--bootstrap={mode}"] if mode else []
        done = cluster.run([*STEP, *asks, *options, "true"], env={"SLURM_BOOTSTRAP": ""})
        assert done.returncode == 0, done.stderr
    return Path(log).read_text().splitlines()


def calls_before_programs(lines):
    """What slurmstepd and its children did, without the programs: they begin at their execve. Names and families only:
    descriptors, process ids and step ids differ from step to step."""
    counts, programs = Counter(), set()
    for line in lines:
        match = re.match(r"(\d+) +(\w+)\((.*)", line)
        if not match or match.group(1) in programs:
            continue
        pid, call, rest = match.groups()
        if call == "execve" and "/true" in rest:
            programs.add(pid)
            continue
        what = re.search(r'AF_\w+|"[^"]*"', rest)
        name = what.group() if what else ""
        counts[call, name if name.startswith("AF_") else re.sub(r"\d+", "N", name)] += 1
    return counts


# Where the kernel lists the cores near a GPU. These files alone are read, and none is written.
KERNEL_FILES = ('"/proc/driver/nvidia/gpus', '"/sys/bus/pci/devices', '"/sys/class/drm', '"/sys/devices/system/')


def added_calls(cluster, tmp_path, *options, mode="on"):
    """Calls of a step with the plugin that one without it does not make, beside the holder of MASTER_PORT."""
    trace_step(cluster, "off", tmp_path / "warm")
    without = calls_before_programs(trace_step(cluster, "off", tmp_path / "off"))
    with_plugin = calls_before_programs(trace_step(cluster, mode, tmp_path / "on", *options))
    assert sum(without.values()) > 100, "strace saw too little to compare"
    added = with_plugin - without
    # Slurm itself connects with AF_UNIX and AF_INET a varying number of times.
    assert added.pop(("socket", "AF_INET6")) == 1
    assert added.pop(("bind", "AF_INET6")) == 1
    return {call for call in added if call not in without and not call[1].startswith('"/proc/N')}


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_slurmstepd_makes_one_socket_more_and_asks_the_kernel_for_gpus(small_cluster, tmp_path):
    new = added_calls(small_cluster, tmp_path, "--bootstrap-frameworks=none")
    other = {call for call in new if call[0] != "openat" or not call[1].startswith(KERNEL_FILES)}
    assert not other, f"calls that a step without the plugin does not make: {other}"
    assert new, "the kernel was not asked, so this test would not notice what is read"


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_world_that_no_user_asked_for_costs_slurmstepd_that_socket_alone(small_cluster, tmp_path):
    assert added_calls(small_cluster, tmp_path, mode="") == set()


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_with_a_topology_file_slurmstepd_reads_that_alone(cluster_factory, tmp_path):
    cluster = cluster_factory("topology")
    file = f"{cluster.state}/etc/topology.txt"
    cluster.up("--nodes", "1", "--plugin-args", f"topology={file}")
    shutil.copyfile(REPOSITORY / "tests/data/topologies/two-socket-4gpu.txt", file)
    assert added_calls(cluster, tmp_path, "--bootstrap-frameworks=none") == {("openat", re.sub(r"\d+", "N", f'"{file}"'))}
    cluster.close()

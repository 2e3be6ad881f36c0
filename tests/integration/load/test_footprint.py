"""What the plugin costs a step: variables, and system calls of slurmstepd between its start and the program's."""

import os
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from harness import REPOSITORY
from step_trace import slurmd_of, traced

STEP = ["srun", "-w", "node001", "-n2", "--gres=gpu:2"]
TRACED = ("openat", "socket", "bind", "connect", "listen", "execve", "execveat", "clone", "clone3", "fork", "vfork", "unlink", "mkdir")


@pytest.fixture(scope="module")
def small_cluster(cluster_factory):
    return cluster_factory("footprint").up("--nodes", "1")


def environment(cluster, mode):
    done = cluster.run([*STEP, "-n1", f"--bootstrap={mode}", "env", "-0"])
    assert done.returncode == 0, done.stderr
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)


def test_adds_few_and_short_variables(small_cluster, capsys):
    without = environment(small_cluster, "off")
    added = {name: value for name, value in environment(small_cluster, "on").items() if name not in without}
    size = sum(len(name) + len(value) + 2 for name, value in added.items())
    with capsys.disabled():
        print(f"\nadded to each task: {len(added)} variables, {size} bytes")
    assert "RANK" in added and "MASTER_PORT" in added
    assert len(added) <= 40
    assert size <= 4096


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


def test_nothing_of_a_step_is_left(small_cluster):
    """Twenty steps later slurmd has as many descriptors, and the node as many sockets and processes, as before."""

    def state():
        pid = slurmd_of(small_cluster, "node001")
        sockets = small_cluster.run(["cat", "/proc/net/sockstat"], node="node001", user="root").stdout
        stepds = small_cluster.run(["pgrep", "-c", "slurmstepd"], node="node001", user="root").stdout
        return len(os.listdir(f"/proc/{pid}/fd")), re.search(r"TCP: inuse (\d+)", sockets).group(1), stepds

    small_cluster.run([*STEP, "true"])
    # What that step still has on its way out is not to be compared with: so no slurmstepd, and three times the same.
    seen = []
    deadline = time.monotonic() + 20
    while len(seen) < 3 or len(set(seen[-3:])) > 1 or int(seen[-1][2]) > 0:
        assert time.monotonic() < deadline, f"the node does not come to rest: {seen}"
        time.sleep(0.2)
        seen.append(state())
    before = seen[-1]
    for _ in range(20):
        assert small_cluster.run([*STEP, "true"]).returncode == 0
    deadline = time.monotonic() + 10
    while state() != before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert state() == before

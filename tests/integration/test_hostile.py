"""Environments that no one means well with: the step runs with right values or is refused with one line."""

import json
import random
import re

import pytest

# Runs srun with an environment from standard input, in which any byte may stand.
RUN = """#!/usr/bin/python3
import json, os, sys
for name, value in json.load(sys.stdin).items():
    os.environb[name.encode("latin-1")] = value.encode("latin-1")
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
ECHO = "echo task $SLURM_PROCID $SLURMD_NODENAME $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT"
SHOW = ["/bin/sh", "-c", ECHO]

OURS = ["BOOTSTRAP_EXPORTS", "BOOTSTRAP_STEP", "BOOTSTRAP_SETTINGS", "SLURM_BOOTSTRAP_LAYOUT", "SRUN_EXPORT_ENV"]
SLURMS = ["SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_PROCID",
          "SLURM_DISTRIBUTION", "SLURM_DIST_PLANESIZE", "SLURM_RESTART_COUNT", "SLURM_STEP_GPUS", "SLURMD_NODENAME",
          "SLURM_TASKS_PER_NODE", "SLURM_GTIDS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_RESV_PORTS"]  # fmt: skip
# Options on their way from srun to slurmstepd, which srun has not looked at.
SMUGGLED = [f"_SLURM_SPANK_OPTION_bootstrap_bootstrap{name}" for name in ("", "_port", "_addr", "_claim")]
SETTINGS = ["BOOTSTRAP_MODE", "BOOTSTRAP_PORT", "BOOTSTRAP_PORT_RANGE", "BOOTSTRAP_ADDR", "BOOTSTRAP_CLAIM"]
NAMES = OURS + SLURMS + SMUGGLED + SETTINGS

LONGEST = 131072 - 64  # the kernel's limit for one string, less the name
VALUES = {
    "empty": "",
    "word": "garbage",
    "equals": "=",
    "lines": "\n\n1\nbootstrap: nothing\n",
    "formats": "%n%s%n%s%99999999d%h",
    "bytes": "\xff\xfe\x80\x01\x1b[31m",
    "negative": "-1",
    "large": "4294967296",
    "list": "node[001-99999999],node[[",
    "commas": "," * 60000,
    "64 KiB": "1" * 65536,
    "128 KiB": "x" * LONGEST,
}


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return cluster_factory("hostile").up("--cpus", "16", "--plugin-args", "when=always")


@pytest.fixture(scope="module", params=["optional", "required"])
def how(request, cluster):
    if request.param == "required" and not request.config.getoption("--full"):
        pytest.skip("only with --full")
    path = cluster.state / "etc" / "plugstack.conf"
    cluster.write_plugstack(re.sub("^(optional|required)", request.param, path.read_text()))
    yield request.param
    assert cluster.script("status").returncode == 0
    for node in cluster.nodes:
        assert not re.search("segfault|signal 11|abort", cluster.log(f"slurmd.{node}"), re.IGNORECASE)


def run(cluster, variables, *options):
    program = cluster.write_home("hostile", RUN)
    line = [program, "srun", "-N2", "-n4", "--ntasks-per-node=2", *options, *SHOW]
    return cluster.run(line, stdin=json.dumps(variables), timeout=40)


def trouble(done, address=""):
    """What is wrong with the outcome; '' when it is right, or one line says why there is none.

    `address` is the user's own, in place of the host of rank 0.
    """
    lines = [line for line in done.stderr.splitlines() if re.search("error: bootstrap: ", line)]
    if done.returncode != 0:
        # srun itself may refuse such an environment, before any plugin sees it.
        return "" if len(lines) == 1 and len(lines[0]) < 500 or not lines and done.stderr else "not one line"
    tasks = [line.split() for line in done.stdout.splitlines() if line.startswith("task ")]
    if sorted(task[1] for task in tasks) != list("0123"):
        return "exit status 0, but not every task ran"
    host_of_0 = next(task[2] for task in tasks if task[1] == "0")
    for task in tasks:
        if len(task) != 8:
            return f"values are missing: {task}"
        _, procid, _, rank, size, local, told, port = task
        if (rank, size, local) != (procid, "4", str(int(procid) % 2)):
            return f"wrong ranks: {task}"
        if told != (address or host_of_0):
            return f"wrong address: {task}"
        if not port.isdigit() or not 1024 <= int(port) <= 65535:
            return f"wrong port: {task}"
    return "" if len({task[-1] for task in tasks}) == 1 else "different ports"


@pytest.mark.parametrize("kind", VALUES)
def test_no_value_of_any_variable_does_harm(cluster, how, kind, request):
    full = request.config.getoption("--full")
    value = VALUES[kind]
    found = []
    # Each alone in --full; otherwise some alone, and all those together that do not stop srun itself.
    alone = NAMES if full else random.sample(NAMES, 3)
    for name in alone:
        done = run(cluster, {name: value})
        # A word, and a number as well, may be the name of a host.
        what = trouble(done) and trouble(done, value if name.lower().endswith("_addr") else "")
        if what:
            found.append(f"{name}: {what}: exit {done.returncode}: {done.stderr[:600]!r}")
    if len(value) < 100000:  # or the environment as a whole is too large for Linux
        done = run(cluster, dict.fromkeys(OURS + SLURMS, value))
        what = trouble(done)
        if what:
            found.append(f"all together: {what}: exit {done.returncode}: {done.stderr[:600]!r}")
    assert not found, "\n".join(found)


def test_ten_thousand_variables(cluster, how):
    assert trouble(run(cluster, {f"VARIABLE_{i}": "x" * 60 for i in range(10000)})) == ""


def test_odd_names(cluster, how):
    odd = {"with space": "1", "RANK\n": "9", "%s%n": "1", "\xff": "1", "BOOTSTRAP_": "1", "bootstrap_port": "1"}
    assert trouble(run(cluster, odd)) == ""


@pytest.mark.parametrize("export", ["NONE", "NIL", "HOME", "ALL,BOOTSTRAP_EXPORTS=x", "BOOTSTRAP_STEP=1.0.0"])
def test_environment_cut_by_export(cluster, how, export):
    done = run(cluster, dict.fromkeys(OURS, "garbage"), f"--export={export}")
    assert done.returncode == 0 and trouble(done) == "", done.stderr

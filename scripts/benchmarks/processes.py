"""What needs no cluster: the preload constructor, what the binaries need, and host lists beside scontrol."""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.programs import built
from benchmarks.table import Group

LIBRARIES = {"preload library": "libbootstrap/libbootstrap.so.0", "plugin": "spank_plugin/spank_bootstrap.so"}
# A child of a rank that has been set up: stamp and identity agree.
RANK = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_BOOTSTRAP_STEP": "12.0.0"}
ROLES = {"no step": {}, "child of a rank": RANK | {"RANK": "1", "WORLD_SIZE": "2"}}
HOSTS = 100_000
OF_LIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def without_slurm(environment):
    return {name: value for name, value in environment.items() if not name.startswith(("SLURM", "PMI", "BOOTSTRAP", "LD_"))}


def constructor_times(rounds, environment):
    """Microseconds that a trivial program takes: without a preload, with an empty one, with ours; in turn."""
    ways = ["-", str(built("tests/integration/preload_empty.so")), str(built(LIBRARIES["preload library"]))]
    program = built("tests/integration/preload_trivial")
    line = [built("tests/integration/preload_cost"), str(rounds), program, *ways]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120 + rounds)
    assert done.returncode == 0, done.stderr
    return list(zip(*([float(time) for time in line.split()] for line in done.stdout.splitlines())))


def needed(library):
    text = subprocess.run(["readelf", "-d", built(library)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def measure_preload(_, size):
    group = Group("Preload: a trivial program with it, and what is loaded with it")
    for role, variables in ROLES.items():
        none, empty, ours = constructor_times(10 * size.steps, without_slurm(os.environ) | variables)
        row = group.add(f"start and end, {role}", "us", ours, empty, "an empty library", added_limit=60)
        row.why_not = f"the library has more pages to map than the empty one; the whole start took {row.peer.median:.0f} us"
        group.add(f"start and end, {role}", "us", ours, none, "no preload")
    for what, library in LIBRARIES.items():
        others = [name for name in needed(library) if name not in OF_LIBC]
        group.add(f"libraries beside libc that the {what} needs", "", len(others), limit=0)
    return group


def google_benchmark(name, pattern, seconds):
    """Nanoseconds of each case of a Google Benchmark program, with its counters."""
    line = [built(f"tests/bench/{name}_bench"), f"--benchmark_filter={pattern}", "--benchmark_format=json"]
    done = subprocess.run([*line, f"--benchmark_min_time={seconds}"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    unit = {"ns": 1, "us": 1e3, "ms": 1e6}
    return {
        case["name"]: case | {"nanoseconds": case["cpu_time"] * unit[case["time_unit"]]}
        for case in json.loads(done.stdout)["benchmarks"]
    }


def scontrol_times(text, rounds):
    """Milliseconds of `scontrol show hostnames`, which needs a configuration and no daemon."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder, "slurm.conf")
        conf.write_text("ClusterName=bench\nSlurmctldHost=localhost\nNodeName=localhost\n")
        times = []
        for _ in range(rounds):
            began = time.monotonic()
            line = ["scontrol", "show", "hostnames", text]
            done = subprocess.run(line, env={"SLURM_CONF": str(conf)}, capture_output=True, text=True, timeout=60)
            times.append((time.monotonic() - began) * 1000)
            assert done.returncode == 0, done.stderr
    return times, len(done.stdout.split())


def measure_host_lists(_, size):
    group = Group(f"Host lists of {HOSTS:,} names")
    cases = google_benchmark("hostlist", f"(expand|copy)/.*/{HOSTS}$", size.seconds)
    for form in ("one_range", "every_second", "racks", "long_names"):
        ours, floor = (cases[f"{what}/{form}/{HOSTS}"]["nanoseconds"] / HOSTS for what in ("expand", "copy"))
        row = group.add(f"expansion of a host, {form.replace('_', ' ')}", "ns", ours, floor, "a copy of one name", limit=50)
        if form == "long_names":  # each takes memory of its own
            row.ratio_limit = 1.25
    if not shutil.which("scontrol"):
        group.notes.append("scontrol is not there to be compared with")
        return group
    # Slurm takes no more than 65,536 hosts in a bracket.
    times, names = scontrol_times("node[00001-50000],rack[00001-50000]", size.pairs)
    assert names == HOSTS
    ours = cases[f"expand/racks/{HOSTS}"]["nanoseconds"] / 1e6
    group.add(f"{HOSTS:,} names", "ms", ours, times, "scontrol show hostnames, with its start", ratio_limit=1)
    return group


def measure_plans(_, size):
    """What user_init computes. Not judged: the goal is for the whole of user_init."""
    group = Group("Making a plan, in the process, by number of nodes with 8 tasks")
    for name, case in google_benchmark("plan", ".", size.seconds).items():
        group.add(name.replace("_", " "), "us", case["nanoseconds"] / 1000)
    return group

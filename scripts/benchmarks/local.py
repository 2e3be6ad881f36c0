"""Without a cluster: the preload constructor, and NCCL's root."""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import subprocess
import time
from collections import defaultdict
from statistics import median

from benchmarks.steps import built
from benchmarks.table import Group

# A child of a rank that has been set up: stamp and identity agree.
RANK = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_BOOTSTRAP_STEP": "12.0.0"}
ROLES = {"no step": {}, "child of a rank": RANK | {"RANK": "1", "WORLD_SIZE": "2"}}
ROOT_NOT_MEASURED = 77  # exit status
ROOT_SHAPES = ((1, 64), (1, 256), (1, 1024), (4, 1024))  # roots, ranks
ROOT_LIMIT, RANKS_OF_A_ROOT = 50, 256  # milliseconds for the ranks of one root, and how many they are at most


def output_of(*line, timeout=120, **options):
    done = subprocess.run(line, capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without(environment, *prefixes):
    return {name: value for name, value in environment.items() if not name.startswith(prefixes)}


def measure_preload(_, size):
    group = Group("Preload: a trivial program with it")
    # Of a trivial program: without a preload, with an empty one, with ours; in turn.
    ways = ["-", built("tests/integration/preload_empty.so"), built("libbootstrap/libbootstrap.so.0")]
    rounds = 10 * size.steps
    line = [built("tests/integration/preload_cost"), str(rounds), built("tests/integration/preload_trivial"), *ways]
    for role, variables in ROLES.items():
        text = output_of(*line, env=without(os.environ, "SLURM", "PMI", "BOOTSTRAP", "LD_") | variables, timeout=120 + rounds)
        none, empty, ours = zip(*([float(time) for time in line.split()] for line in text.splitlines()))
        row = group.add(f"start and end, {role}", "us", ours, empty, "an empty library", added_limit=60)
        row.why_not = f"the library has more pages to map than the empty one; the whole start took {median(row.peer):.0f} us"
        group.add(f"start and end, {role}", "us", ours, none, "no preload")
    return group


def measure_roots(_, size):
    """By the real libnccl, which needs no GPU for it."""
    group = Group("NCCL's root: from the first rank that checks in to the last answer, libnccl of this machine")
    line = [built("tests/bench/root_rate"), str(size.pairs), *(f"{roots}x{ranks}" for roots, ranks in ROOT_SHAPES)]
    done = subprocess.run(line, env=without(os.environ, "NCCL_"), capture_output=True, text=True, timeout=60 + 10 * size.pairs)
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    if done.returncode == ROOT_NOT_MEASURED:
        group.notes.append(f"not measured: {lines[0]['not_measured']}")
        return group
    assert done.returncode == 0, done.stderr
    found = defaultdict(list)  # milliseconds to the last answer
    for entry in lines:
        found[entry["roots"], entry["ranks"]].append(entry["last_ms"])
    for (roots, ranks), values in found.items():
        peer = (found[1, ranks], "one root") if roots > 1 and (1, ranks) in found else ()
        row = group.add(f"{ranks} ranks, {roots} {'root' if roots == 1 else 'roots'}", "ms", values, *peer)
        if (roots, ranks) == (1, RANKS_OF_A_ROOT):
            row.limit, row.why_not = ROOT_LIMIT, f"root and ranks share {os.cpu_count()} CPUs here"
    rates = ", ".join(f"{ranks / median(values) * 1000:.0f}" for (_, ranks), values in found.items())
    group.notes = [f"ranks a second, in this order: {rates}; ranks and roots share {os.cpu_count()} CPUs",
                   "NCCL lets rank i of a root with more than 256 ranks wait i/7000 s before it checks in; not in these"]
    return group

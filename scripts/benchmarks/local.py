"""The preload constructor, without a cluster."""

# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
from statistics import median

from benchmarks.steps import built
from benchmarks.table import Group

# A child of a rank that has been set up: stamp and identity agree.
RANK = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_BOOTSTRAP_STEP": "12.0.0"}
ROLES = {"no step": {}, "child of a rank": RANK | {"RANK": "1", "WORLD_SIZE": "2"}}


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

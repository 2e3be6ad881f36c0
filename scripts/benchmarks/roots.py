"""What NCCL's root serves, in ranks for each second, by the real libnccl: needs no GPU."""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import subprocess
from collections import defaultdict
from statistics import median

from benchmarks.programs import built
from benchmarks.table import Group

NOT_MEASURED = 77
SHAPES = ((1, 64), (1, 256), (1, 1024), (4, 1024))  # roots, ranks
LIMIT = 50  # milliseconds for the ranks of one root, of which there are 256 at most
RANKS_OF_A_ROOT = 256


def times(rounds):
    """Milliseconds to the last answer, by shape; or why there are none."""
    line = [built("tests/bench/root_rate"), str(rounds), *(f"{roots}x{ranks}" for roots, ranks in SHAPES)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60 + 10 * rounds)
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    if done.returncode == NOT_MEASURED:
        return {}, lines[0]["not_measured"]
    assert done.returncode == 0, done.stderr
    found = defaultdict(list)
    for entry in lines:
        found[entry["roots"], entry["ranks"]].append(entry["last_ms"])
    return found, ""


def measure(_, size):
    group = Group("NCCL's root: from the first rank that checks in to the last answer, libnccl of this machine")
    found, group.skipped = times(size.pairs)
    for (roots, ranks), values in found.items():
        name = f"{ranks} ranks, {roots} {'root' if roots == 1 else 'roots'}"
        is_peer = roots > 1 and (1, ranks) in found
        row = group.add(name, "ms", values, found[1, ranks] if is_peer else None, "one root" if is_peer else "")
        if ranks // roots == RANKS_OF_A_ROOT and roots == 1:
            row.limit = LIMIT
            row.why_not = f"root and ranks share {os.cpu_count()} CPUs here"
    if found:
        rates = ", ".join(f"{ranks / median(values) * 1000:.0f}" for (_, ranks), values in found.items())
        group.notes.append(f"ranks a second, in this order: {rates}; ranks and roots share {os.cpu_count()} CPUs")
        group.notes.append("NCCL lets rank i of a root with more than 256 ranks wait i/7000 s before it checks in; not in these")
    return group

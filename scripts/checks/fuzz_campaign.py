#!/usr/bin/env python3
"""Runs all fuzz targets of a build for a time, some at once, adds up their runs, and keeps the figure F1. A target that fails leaves its
input in BUILD/tests/fuzz/found."""

# SPDX-License-Identifier: Apache-2.0

import argparse
import concurrent.futures
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

from test_report.figures import Figure, keep, markdown  # noqa: E402

CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus"
GOAL = 100_000_000
AT_ONCE = 2
SLOWEST, LARGEST = 5, 64  # of one input: seconds by the clock, on a busy machine, too; MiB
# Short inputs run up to ten times as fast, and reach most of the code; long ones, which find its limits, have the rest of the time.
SHORT, LONG, SHARE_OF_SHORT = 256, 4096, 0.75


@dataclass
class Outcome:
    name: str
    runs: int
    status: int
    seconds: float
    last_lines: str


def fuzz(target, seconds, longest):
    """One target for so long with inputs of `longest` bytes at most; new inputs go to found/NAME, a failing input beside that."""
    name = target.name.removesuffix("_fuzz")
    found = target.parent / "found" / name
    found.mkdir(parents=True, exist_ok=True)
    # LeakSanitizer looks after each input that left more memory allocated than freed.
    line = [target, f"-max_total_time={seconds}", f"-max_len={longest}", f"-timeout={SLOWEST}", f"-malloc_limit_mb={LARGEST}",
            "-rss_limit_mb=2048", "-detect_leaks=1", "-verbosity=0", "-print_final_stats=1",
            f"-artifact_prefix={found.parent}/{name}-", found, CORPUS / name]
    began = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    return Outcome(name, int(runs[1]) if runs else 0, done.returncode, time.monotonic() - began, "\n".join(done.stderr.splitlines()[-30:]))


def fuzz_both_lengths(target, seconds):
    """Fuzzes with short inputs, then with long ones; returns both as one outcome."""
    short = fuzz(target, max(1, round(seconds * SHARE_OF_SHORT)), SHORT)
    if short.status != 0 or short.runs == 0:
        return short
    long = fuzz(target, max(1, seconds - round(short.seconds)), LONG)
    return Outcome(short.name, short.runs + long.runs if long.runs else 0, long.status, short.seconds + long.seconds, long.last_lines)



def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="build/clang, with the target fuzz_targets built")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    arguments = parser.parse_args()
    targets = sorted((arguments.build / "tests" / "fuzz").glob("*_fuzz"))
    missing = {path.name for path in CORPUS.iterdir()} - {target.name.removesuffix("_fuzz") for target in targets}
    if missing:
        parser.error(f"{', '.join(sorted(missing))} not built; run cmake --build {arguments.build} --target fuzz_targets")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda target: fuzz_both_lengths(target, arguments.seconds), targets))
    failed = [outcome for outcome in outcomes if outcome.status != 0 or outcome.runs == 0]
    for outcome in failed:
        print(f"{outcome.name} failed:\n{outcome.last_lines}", file=sys.stderr)
    runs = sum(outcome.runs for outcome in outcomes)
    table = markdown(["target", "runs", "time", "failed"], (
        [one.name, f"{one.runs:,}", f"{one.seconds:.0f} s", "no" if one.status == 0 else "yes"] for one in outcomes))
    got = f"{runs:,} runs of {len(outcomes)} targets, {len(failed)} failed"
    print(f"{table}\nfuzz: {got}")
    keep(Figure("F1", "", got, not failed, runs >= GOAL, "a target stops at a broken property (tests/fuzz/property.h)", table=table,
                why="" if runs >= GOAL else f"{arguments.seconds} s for each target"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

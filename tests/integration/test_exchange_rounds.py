"""Ten thousand times open, exchange and close in one process: no memory of ours is lost, and no file stays open.

Without Slurm: exchange_server is the PMIx server of a step of one node, on this machine.
"""

import os
import re
import signal
import subprocess

import pytest

from exchange_steps import BUILD
from harness import REPOSITORY

LINE = re.compile(r"^\w+: (\d+) rounds, (-?\d+) KiB more after (\d+), files (\d+) before and (\d+) after$", re.MULTILINE)

ATTEMPTS = 3  # of the reference


def run_rounds(who, rounds):
    """Of two ranks: KiB that were added after the warm-up, and whether as many files are open as then; None if they
    did not come through, and what happened."""
    folder = REPOSITORY / BUILD / "tests" / "integration"
    if not (folder / "exchange_server").exists():
        pytest.skip("the headers of libpmix were not there when the tests were built")
    line = [folder / "exchange_server", "2", folder / "exchange_rounds", who, str(rounds)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        done = process.communicate(timeout=100 + rounds // 7)
    except subprocess.TimeoutExpired:
        return None, f"{who}: a round does not end"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks, too
            process.wait()
    found = LINE.findall(done[0])
    if process.returncode != 0 or len(found) != 2:
        return None, (process.returncode, *done)
    return ([int(added) for _, added, *_ in found], [before == after for *_, before, after in found]), done


def test_memory_and_files_stay_as_they_are(request, capsys, figure):
    """libpmix loses memory with every session (4.2.2: 150 KiB), so that only the difference to it alone is ours."""
    rounds = 10000 if request.config.getoption("--full") else 200
    result, done = run_rounds("ours", rounds)
    assert result, done
    ours, files = result
    # The pause between the rounds of the reference makes a lost fence (openpmix #3931) rare, and does not prevent it.
    for attempt in range(1, ATTEMPTS + 1):
        result, done = run_rounds("bare", rounds)
        if result:
            break
    assert result, done
    bare, _ = result
    more = max(ours) - min(bare)
    with capsys.disabled():
        print(f"\nexchange, {rounds} rounds in a process: {max(ours)} KiB more, bare PMIx {min(bare)} "
              f"(attempt {attempt}): {more} KiB are ours")
    figure("M10", part="memory", got=f"{rounds:,} exchanges in a process: {more} KiB more than with bare PMIx, which loses "
                                     f"{min(bare):,}; descriptors {'as before' if all(files) else 'more'}",
           met=all(files) and more < 1024, control="bare PMIx beside it")  # fmt: skip
    assert all(files)
    assert more < 1024

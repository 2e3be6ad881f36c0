"""Ten thousand times open, exchange and close in one process: no memory of ours is lost, and no file stays open.

Without Slurm: exchange_server is the PMIx server of a step of one node, on this machine.
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from exchange_steps import BUILD
from harness import REPOSITORY

LINE = re.compile(r"^\w+: (\d+) rounds, (-?\d+) KiB more after (\d+), files (\d+) before and (\d+) after$", re.MULTILINE)


def run_rounds(who, rounds):
    """Of two ranks: KiB that were added after the warm-up, and whether as many files are open as then."""
    folder = REPOSITORY / BUILD / "tests" / "integration"
    if not (folder / "exchange_server").exists():
        pytest.skip("the headers of libpmix were not there when the tests were built")
    line = [folder / "exchange_server", "2", folder / "exchange_rounds", who, str(rounds)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=1500)
    found = LINE.findall(done.stdout)
    assert done.returncode == 0 and len(found) == 2, done
    return [int(added) for _, added, *_ in found], [before == after for *_, before, after in found]


def test_memory_and_files_stay_as_they_are(request, capsys):
    """libpmix loses memory with every session (4.2.2: 150 KiB), so that only the difference to it alone is ours."""
    rounds = 10000 if request.config.getoption("--full") else 200
    with ThreadPoolExecutor(2) as pool:
        (ours, files), (bare, _) = pool.map(lambda who: run_rounds(who, rounds), ("ours", "bare"))
    more = max(ours) - min(bare)
    with capsys.disabled():
        print(f"\nexchange, {rounds} rounds in a process: {max(ours)} KiB more, bare PMIx {min(bare)}: {more} KiB are ours")
    assert all(files)
    assert more < 1024

"""Open, exchange and close, again and again in a process: no file stays open, and ThreadSanitizer reports nothing.
AddressSanitizer looks for lost memory in the unit test `exchange_rounds`.

Without Slurm: exchange_server is the PMIx server of a step of one node, on this machine.
"""

import os
import subprocess

import pytest

from built_files import BUILD
from harness import REPOSITORY

TSAN_ROUNDS, TSAN_ROUNDS_IN_FULL = 30, 10000
SUPPRESSIONS = REPOSITORY / "tests/integration/exchange/tsan.supp"


def run_rounds(mode, rounds, build=BUILD, **variables):
    """The exit status of a server and its two ranks, and what they said."""
    folder = REPOSITORY / build / "tests" / "integration"
    if not (folder / "exchange_server").exists():
        pytest.skip(f"{build} has no exchange_server: it was not built, or libpmix' headers were not there")
    line = ["timeout", "-k", "5", str(300 + rounds), folder / "exchange_server", "2", folder / "exchange_rounds", mode, str(rounds)]
    done = subprocess.run(line, capture_output=True, text=True, env=os.environ | variables)
    return done.returncode, done.stdout + done.stderr


def run_under_tsan(mode, rounds):
    """A helper process has no standard error: it ends with its first report, and the round of its rank fails."""
    options = f"suppressions={SUPPRESSIONS}:exitcode=66:print_suppressions=0:halt_on_error=1"
    return run_rounds(mode, rounds, "build/tsan", TSAN_OPTIONS=options)


@pytest.mark.parametrize("mode, variables", [
    ("ours", {}),
    # As libpmix 5 always does: what a session has once read of a rank of its node it gets again, whatever was put since.
    ("ours", {"PMIX_MCA_gds": "hash"}),
    ("threads", {}),
])
def test_rounds_are_right_and_leave_no_file_open(mode, variables):
    assert run_rounds(mode, 20, **variables) == (0, "")


def test_no_data_race_between_threads():
    status, said = run_under_tsan("threads", TSAN_ROUNDS)
    assert status == 0 and "WARNING: ThreadSanitizer" not in said, said[-6000:]


def test_no_data_race_in_exchanges(request, figure):
    rounds = TSAN_ROUNDS_IN_FULL if request.config.getoption("--full") else TSAN_ROUNDS
    status, said = run_under_tsan("ours", rounds)
    reports = said.count("WARNING: ThreadSanitizer")
    assert status == 0 and reports == 0, said[-6000:]
    figure("M10", "tsan", got=f"{reports} reports in {rounds} rounds of two ranks in a process", met=reports == 0,
           control="a race in the same program is reported")


def test_control_a_data_race_is_reported():
    status, said = run_under_tsan("racy", 5)
    assert status == 66 and "WARNING: ThreadSanitizer: data race" in said, said

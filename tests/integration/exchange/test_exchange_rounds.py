"""Ten thousand times open, exchange and close, as often in a process as libpmix allows: no memory of ours is lost and no
file stays open, and under ThreadSanitizer none of it is reported.

Without Slurm: exchange_server is the PMIx server of a step of one node, on this machine.
"""

import os
import re
import signal
import subprocess

import pytest

from built_files import BUILD
from harness import REPOSITORY

LINE = re.compile(r"^\w+: (\d+) rounds, (-?\d+) KiB more after (\d+), files (\d+) before and (\d+) after$", re.MULTILINE)

ATTEMPTS = 3  # of the reference
ROUNDS, ROUNDS_IN_FULL = 200, 10000
# libpmix before openpmix #4017 (2026) keeps a thread-specific key of each session, of which a process has 1,024. Under
# ThreadSanitizer it loses 0.8 MiB each, too.
ROUNDS_OF_A_PROCESS, TOO_MANY_ROUNDS = 900, 1100
TOLD = re.compile(r"^round (\d+): bootstrap: .*: PMIx \S+ uses up one of the 1,024 thread-specific keys .* are left; ", re.MULTILINE)
TSAN_ROUNDS, TSAN_ROUNDS_IN_FULL = 30, 10000
SUPPRESSIONS = REPOSITORY / "tests/integration/exchange/tsan.supp"


def folder_of(build):
    folder = REPOSITORY / build / "tests" / "integration"
    if not (folder / "exchange_server").exists():
        pytest.skip(f"{build} has no exchange_server: it was not built, or libpmix' headers were not there")
    return folder


def run_rounds(who, rounds):
    """Of two ranks: KiB that were added after the warm-up, and whether as many files are open as then; None if they
    did not come through, and what happened."""
    folder = folder_of(BUILD)
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


def test_rounds_where_libpmix_keeps_what_it_has_read(monkeypatch):
    """As libpmix 5 always does: what a session has once read of a rank of its node it gets again, whatever was put since."""
    monkeypatch.setenv("PMIX_MCA_gds", "hash")
    result, done = run_rounds("ours", 20)
    assert result, done


def test_calls_of_two_threads_follow_each_other():
    result, done = run_rounds("threads", 20)
    assert result, done


def test_a_process_gets_an_error_when_libpmix_has_no_session_left():
    result, done = run_rounds("ours", TOO_MANY_ROUNDS)
    if not result:  # of a libpmix that keeps keys
        rounds = TOLD.findall(done[2])
        assert len(rounds) == 2 and rounds[0] == rounds[1], done


def processes_of(rounds):
    """How many rounds in each process, so that there are `rounds` of them in all."""
    return [min(ROUNDS_OF_A_PROCESS, rounds - begun) for begun in range(0, rounds, ROUNDS_OF_A_PROCESS)]


def test_memory_and_files_stay_as_they_are(request, figure, capsys):
    """libpmix loses memory with every session (4.2.2: 150 KiB) and with what it is asked without blocking, so that only the
    difference to the same calls of it alone is ours."""
    processes = processes_of(ROUNDS_IN_FULL if request.config.getoption("--full") else ROUNDS)
    ours, files = [], []
    for rounds in processes:
        result, done = run_rounds("ours", rounds)
        assert result, done
        ours, files = ours + result[0], files + result[1]
    # The pause between the rounds of the reference makes a lost fence (openpmix #3931) rare, and does not prevent it.
    for attempt in range(1, ATTEMPTS + 1):
        result, done = run_rounds("bare", processes[0])
        if result:
            break
    assert result, done
    bare, _ = result
    more = max(ours) - min(bare)
    with capsys.disabled():
        print(f"\nexchange, {sum(processes)} rounds, {processes[0]} in a process: {max(ours)} KiB more, bare PMIx {min(bare)} "
              f"(attempt {attempt}): {more} KiB are ours")
    figure("M10", "memory", got=f"{more} KiB more than bare PMIx after {processes[0]} rounds in a process, {sum(processes):,} "
           f"rounds in all, files constant: {all(files)}", met=more < 1024 and all(files),
           why="libpmix has no more sessions for a process" if len(processes) > 1 else "",
           control=f"bare PMIx in the same loop adds {min(bare)} KiB, which are seen")  # fmt: skip
    assert all(files)
    assert more < 1024


def run_under_tsan(mode, rounds):
    """The exit status, and what was said, of a server and two ranks under ThreadSanitizer."""
    folder = folder_of("build/tsan")
    options = f"suppressions={SUPPRESSIONS}:exitcode=66:print_suppressions=0"
    line = [folder / "exchange_server", "2", folder / "exchange_rounds", mode, str(rounds)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300 + rounds,
                          env={**os.environ, "TSAN_OPTIONS": options})
    return done.returncode, done.stdout + done.stderr


def test_no_data_race_between_threads():
    status, said = run_under_tsan("threads", TSAN_ROUNDS)
    assert status == 0 and "WARNING: ThreadSanitizer" not in said, said[-6000:]


def test_no_data_race_in_exchanges(request, figure, capsys):
    rounds = TSAN_ROUNDS_IN_FULL if request.config.getoption("--full") else TSAN_ROUNDS
    reports, done = 0, 0
    while done < rounds:
        status, said = run_under_tsan("ours", min(rounds, ROUNDS_OF_A_PROCESS))
        reports += said.count("WARNING: ThreadSanitizer")
        assert status == 0 and reports == 0, said[-6000:]
        done += min(rounds, ROUNDS_OF_A_PROCESS)
    with capsys.disabled():
        print(f"\nexchange under ThreadSanitizer: {done} rounds of two ranks, {reports} reports")
    figure("M10", "tsan", got=f"{reports} reports in {done} rounds of two ranks, {min(rounds, ROUNDS_OF_A_PROCESS)} in a process",
           met=reports == 0, control="a race in the same program is reported")


def test_control_a_data_race_is_reported():
    status, said = run_under_tsan("racy", 5)
    assert status == 66 and "WARNING: ThreadSanitizer: data race" in said, said

"""One rank fails: the step ends soon, and the last line says which rank it was, where, and how it ended."""

import re
import time

import pytest

EIGHT = ("-N2", "--ntasks-per-node=4", "--gres=gpu:4")
SENTENCE = re.compile(r"srun: error: bootstrap: StepId=(\d+\.\d+): rank (\d+) \((\w+), local rank (\d+)\) was the first to fail: (.*), "
                      r"(\d+\.\d) s after the step began")


@pytest.fixture(scope="module")
def site(cluster_factory):
    return cluster_factory("failure").up("--nodes", "2", "--gpus", "4", "--cpus", "16")


def step(cluster, script, *options, timeout=60):
    """Every task runs the shell script; (result, seconds it took)."""
    start = time.monotonic()
    done = cluster.run_once(["srun", *EIGHT, *options, "bash", "-c", script], "alice", "head", None, timeout, "")
    return done, time.monotonic() - start


def told(done):
    """What the sentence says, which must be the last line; None when there is none."""
    lines = done.stderr.splitlines()
    found = [line for line in lines if "first to fail" in line]
    if not found:
        return None
    assert found == lines[-1:], done.stderr
    return SENTENCE.fullmatch(lines[-1]).groups()[1:]


def test_one_of_eight_raises_after_three_seconds(site):
    program = "import os, time\ntime.sleep(3 if os.environ['RANK'] == '5' else 60)\nraise RuntimeError('no more data')"
    done, seconds = step(site, f'exec python3 -c "{program}"')
    assert done.returncode != 0
    assert seconds < 3 + 5
    rank, host, local_rank, cause, after = told(done)
    assert (rank, host, local_rank, cause) == ("5", "node002", "1", "exit code 1")
    assert 3 <= float(after) < 8


@pytest.mark.parametrize("end, cause", [
    ("exit 77", "exit code 77"),
    ("kill -SEGV $$", "killed by signal 11 (SIGSEGV)"),
    ("kill -KILL $$", "killed by signal 9 (SIGKILL), which is what happens when memory runs out"),
])
def test_the_cause_is_told(site, end, cause):
    done, _ = step(site, f"if [ $RANK = 2 ]; then sleep 0.3; {end}; fi; sleep 60")
    assert told(done)[:4] == ("2", "node001", "2", cause)


def test_those_that_fail_after_it_are_not_taken_for_the_first(site):
    """As ranks do that lose their connection to the one that died."""
    done, _ = step(site, "case $RANK in 6) sleep 1; exit 3;; *) sleep 1.1; exit 1;; esac")
    assert told(done)[:4] == ("6", "node002", "2", "exit code 3")


def test_a_step_that_goes_on_names_it_too(site):
    done, seconds = step(site, "if [ $RANK = 1 ]; then exit 4; fi; sleep 2", "-K0")
    assert told(done)[:4] == ("1", "node001", "1", "exit code 4")
    assert seconds >= 2


def test_no_word_where_nothing_failed_by_itself(site):
    for script, options in (("true", ()), ("exit 5", ("--bootstrap=off",)), ("exit 5", ("-N1", "-n1", "--ntasks-per-node=1"))):
        done, _ = step(site, script, *options)
        assert told(done) is None, done.stderr
    done, _ = step(site, "[ $RANK = 0 ] && { sleep 1; scancel $SLURM_JOB_ID; }; exec sleep 60")
    assert done.returncode != 0 and told(done) is None, done.stderr


def test_tasks_do_not_see_where_srun_listens(site):
    done, _ = step(site, "env")
    assert "RANK=7\n" in done.stdout
    assert "SLURM_BOOTSTRAP_FAILURE" not in done.stdout


def test_in_a_heterogeneous_step(site):
    part = ["-n2", "--gres=gpu:2", "bash", "-c", "[ $RANK = 3 ] && exit 9; sleep 30"]
    done = site.run_once(["srun", "-N1", *part, ":", "-N1", *part], "alice", "head", None, 60, "")
    rank, _, local_rank, cause, _ = told(done)
    assert (rank, local_rank, cause) == ("3", "1", "exit code 9")

"""Steps of the exchange tests: starts them, reads the reports of their ranks, and finds files that they leave behind."""

import re
import time
from collections import namedtuple

from built_files import LIBRARY, inside, program
from harness import INSIDE, TESTS, everything_below, stop, wait_for

Step = namedtuple("Step", "returncode stdout stderr seconds")
Failure = namedtuple("Failure", "rank round milliseconds")

DONE = re.compile(r"^rank (\d+) of (\d+): (\d+) rounds in \S+ ms, files (\d+) before and (\d+) after$", re.MULTILINE)
STAY = 3  # seconds that a rank of exchange_probe lives on after a failed call
FAILED = re.compile(r"^rank (\d+) failed in round (\d+) after (\d+) ms$", re.MULTILINE)
SENTENCE = re.compile(r"^bootstrap: StepId=\d+\.\d+ rank (\d+): (.+)$", re.MULTILINE)


# Ways of program_ends.
ENDS = ("return", "exit3", "_exit", "_exit4", "exec", "abort", "term", "quick_exit", "thread", "pthread_exit", "child", "daemon", "workers")

# Arguments of exchange_probe, in a script that each of four ranks runs, so that they make different calls.
DIFFERENT_CALLS = {
    "a size for each node": "--bytes $((64 + SLURM_PROCID / 2))",
    "a size of one rank": "--bytes $((64 + SLURM_PROCID / 3))",
    "a function of one rank": '--mode $( ((SLURM_PROCID == 3)) && echo barrier || echo exchange)',
}

# The end of each error about a passed deadline. test_exchange_faults compares it; other tests read the text before it.
HINT = "; slurm-bootstrap status shows where each rank is"


def run_step(cluster, nodes, per_node, *command, options=("--mpi=pmix",), env=None, limit=300, keeps_hint=False):
    """Runs one step; after `limit` seconds it is killed, with exit status 124 or 137. Calls without their own deadline give up
    well before that, so that they can report the reason."""
    env = {"SLURM_BOOTSTRAP_TIMEOUT": str(limit // 2), **(env or {})}
    # For this step only.
    fresh = ["sh", "-c", 'rm -f "$NCCL_DOUBLE_LOG"; exec "$@"', "sh"] if "NCCL_DOUBLE_LOG" in env else []
    line = [*fresh, "srun", f"-N{nodes}", "--ntasks-per-node", str(per_node), *options, *command]
    began = time.monotonic()
    done = cluster.run(["timeout", "--verbose", "--kill-after=5", str(limit), *line], env=env, timeout=limit + 30)
    out, err = (text if keeps_hint else text.replace(HINT, "") for text in (done.stdout, done.stderr))
    return Step(done.returncode, out, err, time.monotonic() - began)


def run_python(cluster, name, *words, options=("--mpi=pmix",)):
    """Runs a program from the folder of the exchange tests on four ranks, with the Python package."""
    line = ["/usr/bin/python3", f"{TESTS}/exchange/{name}", inside(LIBRARY), *words]
    return run_step(cluster, 2, 2, *line, options=options, env={"PYTHONPATH": f"{INSIDE}/libbootstrap/python"})


def reports(cluster, label, kind):
    """The texts that the ranks of a step wrote into alice's home, also ranks of a node that is cut off."""
    return "".join(path.read_text() for path in sorted(cluster.home.glob(f"{label}.*.{kind}"))).replace(HINT, "")


def run_to_end(step, meanwhile=lambda: None):
    """The exit status and the errors of a started step; `meanwhile` runs before its end."""
    try:
        meanwhile()
        said = step.communicate(timeout=300)[1]
    finally:
        stop(step)
    return step.returncode, said.replace(HINT, "")


def successes(step):
    """The ranks that succeeded in all rounds."""
    return {int(rank) for rank, *_ in DONE.findall(step.stdout)}


def failures(step):
    return [Failure(*map(int, found)) for found in FAILED.findall(step.stdout)]


def sentences(step):
    """The messages of the ranks, as (rank, sentence)."""
    return [(int(rank), text) for rank, text in SENTENCE.findall(step.stderr)]


def are_in_time(seconds, milliseconds, deadline):
    """True if calls ended by their deadline (milliseconds): late by less than two seconds, as bootstrap(3) promises, plus the time
    that their step needed for everything else. The latter is the control: on a busy machine its start takes long, too."""
    longest = max(milliseconds, default=0)
    return longest - deadline <= 2000 + max(0, 1000 * seconds - longest)


def assert_different_calls_fail_at_once(cluster, different, mpi):
    """All four ranks get the error at once, since their deadline is after the end of the step, and no byte of another rank."""
    script = f"exec {program('exchange_probe')} --timeout 600000 {DIFFERENT_CALLS[different]}"
    step = run_step(cluster, 2, 2, "bash", "-c", script, options=(mpi,))
    assert step.returncode != 0 and not successes(step), step
    told = sentences(step)
    assert len(told) == 4 and all("all ranks must make the same calls in the same order" in text for _, text in told), step


def missing_ranks(text, surely=False):
    """The ranks that a sentence calls missing, or only those that it calls missing for sure; a whole node is one item."""
    if surely:
        _, _, listed = text.partition("missing: ")
        listed, _, _ = listed.partition("missing or state unknown: ")
    else:
        listed = text[text.find("missing"):]
    items = re.findall(r"\branks? (\d+)(?:-(\d+))? \(", listed)
    return {rank for first, last in items for rank in range(int(first), int(last or first) + 1)}


def are_told_of(told, missing):
    """True if all sentences (by rank) name the missing ranks, none calls another rank missing for sure, and at least one names
    no other rank: a query for missing ranks lasts a second, in which some ranks may not get the answer of another."""
    named = missing_ranks(f"missing: {missing}")
    return (
        bool(named)
        and all(named <= missing_ranks(text) and missing_ranks(text, surely=True) <= named for text in told.values())
        and any(missing_ranks(text) == named for text in told.values())
    )


def leftovers(cluster):
    """The files that a step could leave: in every host's /tmp and /dev/shm, and in the spool folders. Without the sockets of
    extern steps: a step manager of Slurm 24.11 may not unlink its own, also without us."""
    spools = (cluster.state / "spool").glob("node*")
    slurms = ("cred_state", ".4294967292")
    found = {str(path) for spool in spools for path in everything_below(spool) if not any(name in path.name for name in slurms)}
    for host in ("head", *cluster.nodes):
        listed = cluster.run(["find", "/tmp", "/dev/shm", "-mindepth", "1"], user="root", node=host)
        found |= {f"{host}:{path}" for path in listed.stdout.split()}
    return found


def wait_until_nothing_is_left(cluster, before):
    left = set()  # the message of a failure

    def is_clean():
        left.clear()
        left.update(leftovers(cluster) - before)
        return not left

    wait_for(is_clean, what=left)

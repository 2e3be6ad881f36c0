"""Exchanges in steps without PMIx: over PMI-1, by a helper process, which leaves nothing in the program."""

import re
import shlex

import pytest

from built_files import LIBRARY, inside, program
from exchange_steps import (DIFFERENT_CALLS, STAY, are_in_time, assert_different_calls_fail_at_once, failures, run_python, run_step,
                            sentences, successes)
from harness import module_cluster, slurm_release, wait_for

NO_PMIX = ("--mpi=none",)
LEFT = re.compile(r"^rank \d+ left: (.+)$", re.MULTILINE)
NOTHING = "threads 0, files 0, objects 0, handlers 0, children 0, signals 0, alarm 1"
TOOK = re.compile(r"^bootstrap: StepId=\d+\.\d+ rank (\d+): exchange of 128 bytes: \S+ ms over (.+)$", re.MULTILINE)
DEADLINE_MS = 2000
TOO_LATE = "not all ranks joined the call before the deadline; PMI-1 does not report which, srun --mpi=pmix does"
SPOILED = "and ranks may count calls differently since then; start a new step"

pmi1_cluster = module_cluster("pmi1", "--nodes", "4", "--cpus", "64")


def probe(cluster, nodes, per_node, *words, options=NO_PMIX, **more):
    return run_step(cluster, nodes, per_node, program("exchange_probe"), *words, options=options, **more)


def run_program(cluster, *words):
    return run_python(cluster, "pmi1_program.py", *words, options=NO_PMIX)


def is_complete(step, ranks):
    return step.returncode == 0 and step.stderr == "" and successes(step) == set(range(ranks))


@pytest.mark.parametrize("nodes, per_node", [(1, 2), (1, 16), (2, 1), (2, 3), (3, 2), (4, 4), (4, 16)])
def test_all_ranks_have_all_values(pmi1_cluster, nodes, per_node):
    step = probe(pmi1_cluster, nodes, per_node, "--rounds", "3", "--timeout", "30000")
    assert is_complete(step, nodes * per_node), step


@pytest.mark.parametrize("size", [0, 1, 600, 750, 4096, 65536])
def test_values_of_each_size_arrive(pmi1_cluster, size):
    """PMI-1 limits values to less than 1,024 characters."""
    step = probe(pmi1_cluster, 2, 2, "--rounds", "2", "--bytes", str(size), "--timeout", "20000")
    assert is_complete(step, 4), step


def test_components_of_a_heterogeneous_step_exchange(pmi1_cluster):
    """Each component has its own job id, and one srun serves all."""
    command = [program("exchange_probe"), "--rounds", "2"]
    done = pmi1_cluster.run(["srun", "-Q", "-N1", "-n2", *command, ":", "-N2", "-n4", *command])
    assert done.returncode == 0 and len(re.findall(r"^rank \d of 6: 2 rounds", done.stdout, re.MULTILINE)) == 6, done


def test_two_steps_of_a_job_exchange_at_once(pmi1_cluster):
    step = f"srun --exact -n2 {program('exchange_probe')} --rounds 20"
    done = pmi1_cluster.run(["salloc", "-Q", "-n4", "bash", "-c", f"{step} & first=$!; {step} && wait $first"])
    assert done.returncode == 0 and done.stdout.count("of 2: 20 rounds") == 4, done


def test_pmix_is_preferred_and_each_exchange_reports_its_transport(pmi1_cluster):
    for options, engine in ((NO_PMIX, "PMI-1"), (("--mpi=pmix",), r"PMIx \d\S+")):
        step = probe(pmi1_cluster, 2, 2, options=options, env={"SLURM_BOOTSTRAP_TIMING": "1"})
        told = dict(TOOK.findall(step.stderr))
        assert set(told) == set("0123") and all(re.fullmatch(engine, name) for name in told.values()), step


# A false libpmi beside an srun in PATH.
DECOY = ("mkdir -p /tmp/$SLURM_PROCID/bin /tmp/$SLURM_PROCID/lib; ln -sf $(command -v srun) /tmp/$SLURM_PROCID/bin/; "
         "ln -sf /lib/x86_64-linux-gnu/libz.so.1 /tmp/$SLURM_PROCID/lib/libpmi.so.0; export PATH=/tmp/$SLURM_PROCID/bin:$PATH")
OTHER = "22.05.8" if slurm_release() > (22, 5) else "26.05.1"  # a release whose srun does not answer this libpmi

# Shell commands before the program starts, in a step without a usable PMIx.
LEFTOVERS = {
    "an earlier step's": "export PMIX_NAMESPACE=slurm.pmix.1.0 PMIX_RANK=$SLURM_PROCID "
                         "PMIX_SERVER_URI41='pmix-server.1;tcp4://127.0.0.1:9'",
    "another launcher's": "export PMIX_NAMESPACE=prrte-1 PMIX_RANK=0 PMIX_SERVER_URI41='pmix-server.1;tcp4://127.0.0.1:9'",
    "no server": "export PMIX_NAMESPACE=slurm.pmix.$SLURM_JOB_ID.$SLURM_STEP_ID PMIX_RANK=$SLURM_PROCID",
}  # fmt: skip


@pytest.mark.parametrize("name", LEFTOVERS)
def test_leftovers_of_pmix_are_not_used(pmi1_cluster, name):
    script = f"{LEFTOVERS[name]}; exec {program('exchange_probe')}"
    assert is_complete(run_step(pmi1_cluster, 2, 2, "bash", "-c", script, options=NO_PMIX), 4)


def test_pmix_of_an_outer_step_is_not_used(pmi1_cluster):
    inner = f"srun --overlap --mpi=none -n2 {program('exchange_probe')}"
    done = pmi1_cluster.run(["srun", "--mpi=pmix", "-n2", "bash", "-c", f"[ $SLURM_PROCID = 1 ] || {inner}"])
    assert done.returncode == 0 and done.stdout.count("of 2: 1 rounds") == 2, done


RELATIVE = """import ctypes, os
os.chdir({folder!r})
bootstrap = ctypes.CDLL("./libbootstrap.so.0")
os.chdir("/")
job = ctypes.c_void_p()
assert bootstrap.bootstrap_open(ctypes.byref(job), None) == 0
print("barrier", bootstrap.bootstrap_barrier(job))
"""


def test_the_library_may_have_been_opened_by_a_relative_path(pmi1_cluster):
    """Also opened as Python does it, with symbols that only Python sees."""
    script = RELATIVE.format(folder=inside(LIBRARY).rsplit("/", 1)[0])
    step = run_step(pmi1_cluster, 1, 2, "/usr/bin/python3", "-c", script, options=NO_PMIX)
    assert step.returncode == 0 and step.stdout.split() == ["barrier", "0"] * 2, step


def test_an_exchange_leaves_nothing_in_the_program(pmi1_cluster):
    step = run_program(pmi1_cluster, *["ours"] * 5)
    assert step.returncode == 0 and LEFT.findall(step.stdout) == [NOTHING] * 4, step
    # Control: a program that uses PMI-1 itself keeps its libraries.
    step = run_program(pmi1_cluster, "own")
    assert step.returncode == 0 and all("objects 0" not in left for left in LEFT.findall(step.stdout)), step
    assert len(LEFT.findall(step.stdout)) == 4


def test_a_program_that_inherits_orphans_sees_no_child(pmi1_cluster):
    """A subreaper, like process 1 of a container: it could receive SIGCHLD, and wait(2) could return the helper."""
    step = run_program(pmi1_cluster, "subreaper", *["ours"] * 5)
    assert step.returncode == 0 and LEFT.findall(step.stdout) == [NOTHING] * 4, step


# A copy of the library, which is upgraded, removed or made writable while the program runs.
UPGRADED = """import ctypes, os, shutil, sys
bootstrap = ctypes.CDLL(sys.argv[1])
bootstrap.bootstrap_last_error.restype = ctypes.c_char_p
job = ctypes.c_void_p()
assert bootstrap.bootstrap_open(ctypes.byref(job), None) == 0
for when in sys.argv[2].split(","):
    if when == "open":
        os.chmod(sys.argv[1], 0o666)
    elif when == "remove":
        os.unlink(sys.argv[1])
    elif when == "replace":
        shutil.copy(sys.argv[1], sys.argv[1] + ".new")
        os.rename(sys.argv[1] + ".new", sys.argv[1])
    else:
        print(bootstrap.bootstrap_barrier(job), bootstrap.bootstrap_last_error().decode())
"""
GONE = "the file of libbootstrap was deleted after the program had loaded it; start the program with srun --mpi=pmix"


UNKNOWN = "the file of this library, or of its loader, is not known"


def upgraded(cluster, words):
    copy = "/tmp/upgraded.$SLURM_PROCID.so"
    script = f"cp {inside(LIBRARY)} {copy}; exec /usr/bin/python3 -c {shlex.quote(UPGRADED)} {copy} {words}"
    step = run_step(cluster, 2, 2, "bash", "-c", script, options=NO_PMIX)
    assert step.returncode == 0 and step.stderr == "", step
    return step.stdout.splitlines()


def test_an_exchange_works_after_an_upgrade_of_the_library(pmi1_cluster):
    assert upgraded(pmi1_cluster, "replace,call,replace,call") == ["0 "] * 8


def test_a_deleted_library_is_named_in_each_call(pmi1_cluster):
    """No call reached srun, so no message says that srun still counts the rank."""
    lines = upgraded(pmi1_cluster, "remove,call,call")
    assert len(lines) == 8 and all(line.startswith("4 bootstrap: ") and line.endswith(GONE) for line in lines), lines


def test_a_library_that_others_can_write_is_not_started(pmi1_cluster):
    lines = upgraded(pmi1_cluster, "replace,open,call")
    assert len(lines) == 4 and all(line.startswith("4 bootstrap: ") and UNKNOWN in line for line in lines), lines


def test_no_process_of_ours_outlives_an_abandoned_call(pmi1_cluster):
    """If the rank continues, and if it is killed in the call."""

    def ours(node):
        return "slurm-bootstrap-helper" in pmi1_cluster.run(["ps", "-eo", "args"], node=node, user="root").stdout

    given_up = f"{program('exchange_probe')} --timeout 1000; sleep 100"
    killed = f"{program('exchange_probe')} & sleep 1; kill -9 $!; sleep 100"
    for command in (given_up, killed):
        script = f"[ $SLURM_PROCID = 1 ] && exec sleep 100; {command}"
        step = pmi1_cluster.start(["srun", "-N2", "--ntasks-per-node=1", "bash", "-c", script])
        try:
            wait_for(lambda: ours("node001"))
            wait_for(lambda: not ours("node001"))
            assert step.poll() is None, "the rank must still run"
        finally:
            pmi1_cluster.run(["scancel", "--user", "alice"])
            step.communicate(timeout=30)


def test_after_a_killed_helper_the_next_call_is_refused(pmi1_cluster):
    """srun may still count its rank: a helper that has loaded libpmi has begun. Rank 1 never joins, so no call ends before."""
    kill = "until kill -9 $(grep -ls '/libpmi[.]so' /proc/[0-9]*/maps | cut -d/ -f3); do sleep 0.1; done 2> /dev/null"
    script = f"[ $SLURM_PROCID = 1 ] && exit; {kill} & exec /usr/bin/python3 -c {shlex.quote(UPGRADED)} {inside(LIBRARY)} call,call"
    step = run_step(pmi1_cluster, 2, 1, "bash", "-c", script, options=NO_PMIX)
    killed, refused = step.stdout.splitlines()
    assert "it ended without an answer" in killed and refused.endswith(SPOILED), step


def test_a_program_can_use_pmi1_itself_before_and_after_an_exchange(pmi1_cluster):
    words = ("own", "ours", "own", "ours", "ours", "own")
    step = run_program(pmi1_cluster, *words)
    assert step.returncode == 0 and step.stderr == "" and step.stdout.count(" right after ") == 4 * len(words), step


def test_a_program_can_use_pmi1_itself_after_a_late_rank(pmi1_cluster):
    words = ("ours", "late", "ours", "ours", "wait", "own")
    step = run_program(pmi1_cluster, *words)
    for rank in range(4):
        lines = re.findall(rf"^rank {rank} (own|ours) (right|failed) after (\d+) ms(.*)$", step.stdout, re.MULTILINE)
        ends = ["ours right", "ours failed", "ours failed", "own right"]
        assert [f"{who} {how}" for who, how, *_ in lines] == ends, step
        first, second = lines[1:3]
        assert first[3].endswith(TOO_LATE) and int(first[2]) >= DEADLINE_MS and are_in_time(step.seconds, [int(first[2])], DEADLINE_MS), step
        assert second[3].endswith(SPOILED) and int(second[2]) < int(first[2]), step


@pytest.mark.parametrize("bootstrap", ["off", "on"])
@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$"])
def test_a_rank_that_ends_is_named_where_srun_has_the_plugin(pmi1_cluster, end, bootstrap):
    script = f"if [ $SLURM_PROCID = 3 ]; then {end}; fi; exec {program('exchange_probe')} --timeout {DEADLINE_MS}"
    grace = ["--bootstrap-grace=off"] if bootstrap == "on" else []
    options = (*NO_PMIX, f"--bootstrap={bootstrap}", *grace)
    step = run_step(pmi1_cluster, 2, 2, "bash", "-c", script, options=options)
    told = dict(sentences(step))
    assert set(told) == {0, 1, 2} and all(text.endswith(TOO_LATE) for text in told.values()), step
    took = [failure.milliseconds for failure in failures(step)]
    assert min(took) >= DEADLINE_MS and are_in_time(step.seconds - STAY, took, DEADLINE_MS), step
    how = "ended before that with exit code 0" if end == "exit 0" else "failed first: "
    named = f"task 3 (node002, local rank 1) {how}"
    assert (named in step.stderr) == (bootstrap == "on"), step


@pytest.mark.parametrize("different", DIFFERENT_CALLS)
def test_different_calls_fail_at_once_over_pmi1(pmi1_cluster, different):
    assert_different_calls_fail_at_once(pmi1_cluster, different, *NO_PMIX)


# The shell commands before the program starts, and the message.
REFUSALS = {
    "neither, beside leftovers": ("export PMIX_NAMESPACE=slurm.pmix.1.0 PMIX_SERVER_URI41='x;tcp4://127.0.0.1:9'; unset "
                                  "SLURM_SRUN_COMM_PORT",
                                  r'this step has no PMIx \(PMIX_NAMESPACE is "slurm.pmix.1.0", but would be slurm.pmix.\d+.0 in this '
                                  r'step: the PMIX_\* variables '
                                  r"belong to another step or launcher\): start the program with srun --mpi=pmix; PMI-1 is not available "
                                  r"either: SLURM_SRUN_COMM_PORT .*"),
    "no srun": ("unset SLURM_SRUN_COMM_PORT",
                r"this step has no PMIx \(PMIX_NAMESPACE is not set\): start the program with srun --mpi=pmix; "
                "PMI-1 is not available either: SLURM_SRUN_COMM_PORT is not set, which PMI-1 needs to reach srun"),
    "no configuration": ("export SLURM_CONF=/nowhere/slurm.conf", "PMI-1 needs Slurm's configuration, and this task cannot read "
                         "SLURM_CONF=/nowhere/slurm.conf; start the program with srun --mpi=pmix"),
    "an unusable configuration": ("export SLURM_CONF=/etc/hostname",
                                  "Slurm's PMI-1 library ended the process: .*fatal: .*; start the program with srun --mpi=pmix"),
    "a libpmi of another Slurm": (f"export SLURM_BOOTSTRAP_SETTINGS=site:slurm={OTHER}:", r"/\S+/libpmi.so.0 is Slurm \d\d\.\d\d's, and the "
                                  rf"step is Slurm {OTHER}'s, whose srun does not answer it; install that Slurm's libpmi on the nodes, .*; "
                                  "start the program with srun --mpi=pmix"),
    "another libpmi": (f"{DECOY}; unset SLURM_BOOTSTRAP_SETTINGS",
                       r"/tmp/\d/bin/../lib/libpmi.so.0 does not have all functions of PMI-1; start the program with srun --mpi=pmix"),
}  # fmt: skip


def test_the_libpmi_of_the_steps_slurm_is_preferred(pmi1_cluster):
    """Its slurmstepd names that libpmi. Without this name the same step is refused (below)."""
    assert is_complete(run_step(pmi1_cluster, 2, 2, "bash", "-c", f"{DECOY}; exec {program('exchange_probe')}", options=NO_PMIX), 4)


@pytest.mark.parametrize("name", REFUSALS)
def test_an_unusable_pmi1_is_one_sentence_at_once(pmi1_cluster, name):
    before, sentence = REFUSALS[name]
    step = run_step(pmi1_cluster, 2, 2, "bash", "-c", f"{before}; exec {program('exchange_probe')} --timeout 600000", options=NO_PMIX)
    told = sentences(step)
    assert step.returncode != 0 and sorted(rank for rank, _ in told) == [0, 1, 2, 3], step
    assert all(re.search(f": {sentence}$", text) for _, text in told), step


def test_without_libpmi_the_error_names_what_to_install(pmi1_cluster):
    hide = ("for file in /usr/lib/*/libpmi.so.0 $(dirname $(command -v srun))/../lib/libpmi.so.0; do "
            "[ ! -e $file ] || mount --bind /dev/null $(readlink -f $file) || exit; done; "
            "exec setpriv --reuid 10001 --regid 10001 --clear-groups")  # fmt: skip
    step = pmi1_cluster.run(["srun", "-Q", "-n2", "unshare", "-m", "sh", "-c", f"{hide} {program('exchange_probe')}"], user="root")
    assert step.returncode != 0, step
    assert ("cannot load Slurm's PMI-1 library: " in step.stderr
            and "install it (Debian: libpmi0); start the program with srun --mpi=pmix" in step.stderr), step

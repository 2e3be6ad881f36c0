"""The cost of srun's decision on a step, and steps where slurmctld does not answer, a node has no plugin or no decision arrives."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from activation_steps import (LAYOUT, OF_JOB, ONE, PYTHON, RECORD, TWO, WORLD, calls_of, cluster, is_untouched, site, srun,  # two are fixtures
                              told, variables)  # fmt: skip
from harness import command_line, wait_for

FREE = (["-n1", "--gres=gpu:1", "true"], [*TWO.split(), "bash", "-c", "true"], ["-N2", "-n3", "--gres=gpu:2", "true"],
        [*TWO.split(), "--bootstrap=off", "true"], [*TWO.split(), "mpirun", "--version"])  # fmt: skip
ASKED = ([*TWO.split(), "python3", "-c", "1"], ["-N2", "-n4", "python3", "-c", "1"], [*ONE.split(), "python3", "-c", "1"])


def test_srun_asks_slurmctld_only_what_the_decision_needs(cluster):
    """It asks for the layout only if the record does not show it."""
    lines = [*((line, set()) for line in FREE), *((line, {RECORD}) for line in ASKED),
             (["-m", "cyclic:fcyclic", *ASKED[0]], {RECORD}), (["-m", "plane=2", *ASKED[0]], {RECORD}),
             (["-m", "arbitrary", "-n4", "-w", "node002,node002,node001,node001", "--gres=gpu:2", "python3", "-c", "1"], {RECORD, LAYOUT}),
             (["-lE", *ASKED[0]], {RECORD, LAYOUT}), (["--bootstrap=on", *ASKED[0]], {LAYOUT}),
             (["-N2", "-n4", "--gpus=4", "python3", "-c", "1"], {RECORD, OF_JOB})]  # fmt: skip
    for line, expected in lines:
        count, names = calls_of(cluster, *line)
        with cluster.other_plugstack():
            without, _ = calls_of(cluster, *[word for word in line if not word.startswith("--bootstrap")])
        assert (count - without, names) == (len(expected), expected), line


def test_when_never_costs_no_call_and_no_socket(cluster, site):
    line = [*TWO.split(), "python3", "-c", "1"]
    with cluster.other_plugstack():
        without, traced = calls_of(cluster, *line)[0], network_calls(cluster, *line)
    for arguments, is_free in (("when=never", True), ("", False)):
        site(arguments)
        count, names = calls_of(cluster, "--bootstrap=on", *line)
        assert ((count, names) == (without, set())) == is_free, (count, without, names)
        assert (network_calls(cluster, "--bootstrap=on", *line) == traced) == is_free


TRACED = "connect,socket,sendto,sendmsg"


def network_calls(cluster, *line):
    """srun's calls with sockets, without file descriptors and addresses, which differ from run to run."""
    path = cluster.home / "srun.trace"
    path.unlink(missing_ok=True)
    cluster.succeed(["strace", "-f", "-qq", "-o", "srun.trace", "-e", f"trace={TRACED}", "srun", "-Q", *line])
    calls = re.findall(r"^\d+\s+(socket|connect)\(.*?(AF_\w+)", path.read_text(), re.M)
    return {name: calls.count(name) for name in {("socket", "AF_INET"), ("connect", "AF_INET"), ("socket", "AF_INET6")}}


def test_a_step_that_is_decided_without_calls_costs_no_socket(cluster):
    lines = (*FREE[:3], ASKED[0])
    with cluster.other_plugstack():
        without = [network_calls(cluster, *line) for line in lines]
    *ours, control = [network_calls(cluster, *line) for line in lines]
    assert ours == without[:3] and all(calls["connect", "AF_INET"] > 0 for calls in without)
    assert control["connect", "AF_INET"] >= without[3]["connect", "AF_INET"] + 1


# Makes our first call fail, take long, or wait until slurmctld is stopped; and plays a program on a file server that
# does not answer.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
int open(const char* path, int flags, ...) {
  if (strcmp(path, "/home/alice/slow") == 0) sleep(600);
  va_list more;
  va_start(more, flags);
  const int mode = va_arg(more, int);
  va_end(more);
  return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}
int slurm_get_job_steps(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e) {
  if (SECONDS >= 0) { sleep(SECONDS); errno = 5; return -1; }
  close(open("/home/alice/asking", O_CREAT | O_WRONLY, 0600));
  while (access("/home/alice/stopped", F_OK) != 0) usleep(10000);
  return ((int (*)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t))dlsym(RTLD_NEXT, "slurm_get_job_steps"))(a, b, c, d, e);
}
"""


@pytest.fixture
def shimmed(cluster, tmp_path):
    """The words before srun that change its first call."""

    def build(seconds):
        (tmp_path / "shim.c").write_text(SHIM)
        library = Path(cluster.state, "home", "alice", f"shim{seconds}.so")
        subprocess.run(["gcc", "-shared", "-fPIC", f"-DSECONDS={seconds}", tmp_path / "shim.c", "-o", library], check=True)
        return ["env", f"LD_PRELOAD=/home/alice/{library.name}"]

    return build


NOT_TOLD = "bootstrap: warning: StepId=ID: NOT SET UP: {}; use --bootstrap=on to set it up, or --bootstrap=off"
NO_ANSWER, FAILED = "slurmctld did not answer within 5 s", "slurmctld did not provide the GPUs and the nodes of the step"


@pytest.mark.parametrize("seconds, reason", [(0, FAILED), (600, NO_ANSWER)])
def test_a_call_that_fails_costs_five_seconds_at_most_and_one_line(cluster, shimmed, seconds, reason):
    done = cluster.run([*shimmed(seconds), "srun", *TWO.split(), "--export=PATH", *PYTHON], timeout=300)
    assert is_untouched(done, 4) and told(done) == [NOT_TOLD.format(reason)], done.stderr
    # A step that asks is set up without a call.
    done = cluster.run([*shimmed(seconds), "srun", *TWO.split(), "--bootstrap=on", "--export=PATH", *PYTHON], timeout=300)
    assert len(variables(done)) == 4 and all(set(task) > WORLD for task in variables(done)), done


def test_a_limit_on_requests_has_its_own_deadline_and_message(cluster, shimmed):
    """srun reads the limit in slurm.conf. Nodes refuse a credential that is 10 s old, which bounds the wait."""
    conf = cluster.state / "etc" / "slurm.conf"
    own = conf.read_text()
    conf.write_text(f"{own}\nSlurmctldParameters=rl_enable\n")
    try:
        done = cluster.run([*shimmed(600), "srun", *TWO.split(), "--export=PATH", *PYTHON], timeout=300)
    finally:
        conf.write_text(own)
    limited = "slurmctld did not answer in time, and limits the requests of each user (SlurmctldParameters=rl_enable)"
    assert is_untouched(done, 4) and told(done) == [NOT_TOLD.format(limited)], done.stderr


def test_a_program_that_cannot_be_read_costs_the_same_five_seconds(cluster, shimmed):
    """All work of srun before its decision has one limit, and no other call follows."""
    program = cluster.home / "slow"
    shutil.copy("/usr/bin/env", program)
    line = [*shimmed(600), "srun", *TWO.split(), "--export=PATH", "/home/alice/slow", "PATH=/usr/bin:/bin", *PYTHON]
    done = cluster.run(line, timeout=300)
    assert is_untouched(done, 4) and told(done) == [NOT_TOLD.format('srun could not read "/home/alice/slow" in time')], done.stderr
    program.unlink()


def slurmctld_of(cluster):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        words = command_line(pid)
        if words.startswith(b"slurmctld\0") and f"{cluster.state}/".encode() in words:
            return int(pid)
    raise AssertionError("no slurmctld")


def test_a_step_runs_although_slurmctld_stops_before_the_calls(cluster, shimmed):
    """The step runs as without the plugin."""
    home, controller = cluster.home, slurmctld_of(cluster)
    process = cluster.start([*shimmed(-1), "srun", *TWO.split(), "--export=PATH", *PYTHON])
    try:
        wait_for((home / "asking").exists, what="srun does not ask")
        os.kill(controller, signal.SIGSTOP)
        cluster.write_home("stopped", "")
        lines = [process.stdout.readline() for _ in range(4)]  # while it is stopped
        assert lines == ["{}\n"] * 4, lines
    finally:
        os.kill(controller, signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        for name in ("asking", "stopped"):
            (home / name).unlink(missing_ok=True)
    done = subprocess.CompletedProcess([], process.returncode, out, err)
    assert process.returncode == 0 and told(done) == [NOT_TOLD.format(NO_ANSWER)], done


def test_nodes_obey_only_a_decision_of_the_same_version_and_step(cluster):
    """If srun has another version, or the decision is of another step, all nodes leave all tasks alone."""
    rest = "\t2\t0\t0\t31\t\t0\t\tx\t"
    texts = {"5\t{}.{}" + rest: True, "4\t{}.{}" + rest: False, "6\t{}.{}" + rest: False, "5\t{}.9" + rest: False,
             "5\t{}.{}": False, "on": False}  # fmt: skip
    with cluster.without_plugin():
        job = cluster.allocate("-N2", "--ntasks-per-node=2", "--gres=gpu:2")
        line = ["srun", f"--jobid={job}", "-n4", "--ntasks-per-node=2"]
        for step, (text, is_heard) in enumerate(texts.items()):
            done = cluster.run([*line, *PYTHON], env={"SLURM_BOOTSTRAP_DECISION": text.format(job, step)})
            if is_heard:
                assert sorted(task["RANK"] for task in variables(done)) == ["0", "1", "2", "3"], done
            else:
                assert is_untouched(done, 4), (text, done)
            assert told(done) == []
        # A decision of another version for a step that asks on its own line. A decision left over from another step is ignored.
        strong = "6\t{}.{}\tanything\t2\tmore"
        done = cluster.run([*line, *PYTHON], env={"SLURM_BOOTSTRAP_DECISION": strong.format(job, 99)})
        assert is_untouched(done, 4) and told(done) == [], done
        done = cluster.run([*line, *PYTHON], env={"SLURM_BOOTSTRAP_DECISION": strong.format(job, len(texts) + 1)})
        assert done.returncode != 0 and "cannot set up the step: srun has another version of the plugin" in done.stderr, done
        # Our option arrives on the nodes without srun's decision: the nodes report that it is lost.
        done = cluster.run([*line, *PYTHON], env={"_SLURM_SPANK_OPTION_bootstrap_bootstrap": "on"})
        assert is_untouched(done, 4) and len(told(done)) == 1, done
        assert "NOT SET UP: no decision from srun arrived on the nodes" in told(done)[0], done.stderr
        cluster.run(["scancel", job])


def test_a_decision_with_a_line_break_is_refused(cluster):
    """slurmd's log contains the reason of an observed step, and a user can forge the decision."""
    with cluster.without_plugin():
        job = cluster.allocate("-N1", "-n1", "--gres=gpu:2")
        for step, reason in enumerate(("SEEN", "x\nFORGED error: uid 0", "x" * 3000)):
            decision = {"SLURM_BOOTSTRAP_DECISION": f"5\t{job}.{step}\t0\t0\t1\t0\t\t0\t\t{reason}\t"}
            assert cluster.run(["srun", f"--jobid={job}", "true"], env=decision).returncode == 0
        cluster.run(["scancel", job])
    log = "".join(cluster.log(f"slurmd.{node}") for node in cluster.nodes)
    assert "SEEN" in log and "x" * 100 not in log and "FORGED" not in log


def test_a_node_without_the_plugin_sets_nothing_and_the_other_nodes_are_right(cluster):
    """So a site installs the plugin on all nodes before the submit hosts. test_receipts.py has srun's line about such a node."""
    with cluster.without_plugin("node002"):
        tasks = variables(srun(cluster, TWO))
    assert sorted("RANK" in task for task in tasks) == [False, False, True, True]
    assert sorted(task["RANK"] for task in tasks if "RANK" in task) == ["0", "1"]


def test_every_node_can_still_run_jobs(cluster):
    assert cluster.script("status").returncode == 0

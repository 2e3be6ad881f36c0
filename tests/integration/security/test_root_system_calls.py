"""Inside slurmstepd, while any of its user ids is root's, the plugin opens, executes and connects only what SECURITY.md
lists.

strace shows each system call with its stack, so a call is ours if our object is on the stack. Its user ids follow from the
changes of ids before it.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from built_files import double
from harness import command_line, process_namespaces, run_here, wait_for
from step_shapes import UP, Shape, ShapeRunner, fixed, generated

IN_SHORT, IN_FULL = 4, 100
TOGETHER = 20  # steps in one trace

# The effective user id is root's.
AS_ROOT = (
    ("slurm_spank_init", "openat", r'AT_FDCWD, "/proc/self/status", O_RDONLY\|'),  # shows if memory is locked
    ("slurm_spank_init", "socket", r"AF_INET6?, SOCK_DGRAM\|SOCK_CLOEXEC\|SOCK_NONBLOCK, "),  # reports to srun
    ("slurm_spank_init", "newfstatat", r'\d+, "", '),  # of that socket
    ("slurm_spank_init", "sendto", r".* MSG_NOSIGNAL, \{sa_family=AF_INET6?, "),
    ("slurm_spank_task_exit", "socket", r"AF_INET6?, SOCK_DGRAM\|SOCK_CLOEXEC\|SOCK_NONBLOCK, "),
    ("slurm_spank_task_exit", "openat", r'AT_FDCWD, "/(proc/self/cgroup|sys/fs/cgroup/[^"]*)", O_RDONLY\|'),
    # After the first killed task: finds out if other tasks still run, and if slurmstepd's own threads do.
    ("slurm_spank_task_exit", "openat", r'AT_FDCWD, "/proc/(\d+/(status|stat)|self/task(/\d+/stat)?)", O_RDONLY\|'),
    ("slurm_spank_task_exit", "readlink", r'"/proc/thread-self"'),
    ("slurm_spank_task_exit", "newfstatat", r'\d+, "", '),
    ("slurm_spank_task_exit", "sendto", r".* MSG_NOSIGNAL, \{sa_family=AF_INET6?, "),
)

# The effective user id is the job's, and the real one still root's, so that slurmstepd can return to it.
AS_USER_FOR_A_WHILE = (
    ("slurm_spank_user_init", "socket", r"AF_INET6?, SOCK_STREAM\|SOCK_CLOEXEC, "),
    ("slurm_spank_user_init", "sendto", r".* MSG_NOSIGNAL, \{sa_family=AF_INET6?, "),
    ("slurm_spank_user_init", "setsockopt", r"\d+, (SOL_SOCKET, SO_REUSEADDR|SOL_IPV6, IPV6_V6ONLY), "),
    ("slurm_spank_user_init", "bind", r"\d+, \{sa_family=AF_INET6?, "),
    ("slurm_spank_user_init", "faccessat2", r'AT_FDCWD, "/dev/nvidia\d+", R_OK.*AT_EACCESS'),
    ("slurm_spank_user_init", "openat", r'AT_FDCWD, "/(proc/driver/nvidia/gpus|proc/net|sys)/[^"]*", O_RDONLY\|'),
    ("slurm_spank_user_init", "newfstatat", r'\d+, "", '),  # of open descriptors
)

needs_stacks = pytest.mark.skipif(
    not shutil.which("strace") or "stack-trace=" not in run_here(["strace", "-V"]).stdout,
    reason="needs strace that shows stacks (-k)",
)


def slurmd_of(cluster, node):
    """The process id, outside the cluster's namespaces, of the slurmd on `node`."""
    host = process_namespaces((cluster.state / "pids" / node).read_text().strip())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if command_line(pid).startswith(b"slurmd\0") and process_namespaces(pid) == host:
            return pid
    raise AssertionError(f"no slurmd on {node}")


def is_traced(pid, tracer):
    """True if all threads of a process are traced; asks again if a thread ends meanwhile."""
    try:
        states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return False
    return bool(states) and all(f"\nTracerPid:\t{tracer}\n" in state for state in states)


@contextmanager
def traced(cluster, node, *options):
    """strace traces slurmd of the node and all its children while the block runs."""
    slurmd = slurmd_of(cluster, node)
    line = ["strace", "-f", "-qq", "-p", slurmd, *map(str, options)]
    tracer = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # strace does not report that it has attached; the kernel shows it.
        wait_for(lambda: tracer.poll() is not None or is_traced(slurmd, tracer.pid), 20, "strace does not attach")
        assert tracer.poll() is None, "strace could not attach"
        yield
        time.sleep(0.5)
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)


# All calls that name a file, open a socket, start a process or change ids; `close` and memory are left out.
WITH_STACKS = ("-ff", "-k", "--decode-pids=pidns", "-e",
               "trace=%file,%network,%process,kill,setuid,setreuid,setresuid,setfsuid,pidfd_open,bpf")


@dataclass(frozen=True)
class Call:
    hook: str  # the entry point that Slurm called
    effective: int
    real: int
    name: str
    arguments: str  # as strace writes them, with the result

    def __str__(self):
        return f"{self.hook} as {self.effective} (real {self.real}): {self.name}({self.arguments}"


START = re.compile(r"^(\w+)\((.*)$")
CHILD = re.compile(r"^(?:clone|clone3|fork|vfork)\(.* = \d+ /\* (\d+) in strace's PID NS \*/$")
SETUID = re.compile(r"^setre(?:s)?uid\((-?\d+), (-?\d+)(?:, -?\d+)?\) += 0$")
FRAME = re.compile(r"^ > (\S+?)\((\S*?)(?:\(.*)?\+0x")


def stanzas(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields each call with its stack as (object, function), the innermost frame first."""
    call, frames = "", []
    for line in text.splitlines():
        if line.startswith(" > "):
            match = FRAME.match(line)
            frames.append((match.group(1), match.group(2)) if match else (line[3:], ""))
            continue
        if call:
            yield call, frames
        call, frames = line, []
    if call:
        yield call, frames


EXECUTED = re.compile(r'^execve\("([^"]*)".* = 0$')


class UidTrace:
    """The files of `strace -ff -k`, one for each thread: the calls of an object in slurmstepd, with their user ids."""

    def __init__(self, prefix: Path, name: str):
        found = prefix.parent.glob(f"{prefix.name}.*")
        self.texts = {path.suffix[1:]: path.read_text(errors="replace") for path in found}
        self.name = name
        self.calls: list[Call] = []
        self.changes = 0  # of user ids, in all threads
        children = set()
        for text in self.texts.values():
            children |= {match.group(1) for match in map(CHILD.match, text.splitlines()) if match}
        for pid in self.texts.keys() - children:
            self.follow(pid, 0, 0)

    def follow(self, pid: str, real: int, effective: int) -> None:
        """A thread begins with the ids of its parent, slurmd's threads as root. Stops at a program of the user."""
        for call, frames in stanzas(self.texts.get(pid, "")):
            ours = [function for path, function in frames if path.endswith(f"/{self.name}")]
            if ours and (start := START.match(call)):
                hook = next((function for function in reversed(ours) if function.startswith("slurm_spank_")), ours[-1])
                self.calls.append(Call(hook, effective, real, *start.groups()))
            if match := SETUID.match(call):
                new_real, new_effective = map(int, match.groups())
                real = real if new_real == -1 else new_real
                effective = effective if new_effective == -1 else new_effective
                self.changes += 1
            elif match := CHILD.match(call):
                self.follow(match.group(1), real, effective)
            elif (match := EXECUTED.match(call)) and "slurmstepd" not in match.group(1):
                return


def is_documented(call):
    if call.name == "bind" and any(int(port) < 1024 for port in re.findall(r"htons\((\d+)\)", call.arguments)):
        return False
    return any(call.hook == hook and call.name == name and re.match(arguments, call.arguments)
               for hook, name, arguments in (AS_ROOT if call.effective == 0 else AS_USER_FOR_A_WHILE))


def of_root(trace):
    """Calls while the effective or the real user id is 0."""
    return [call for call in trace.calls if 0 in (call.effective, call.real)]


@pytest.fixture(scope="module")
def runner(cluster_factory):
    return ShapeRunner(cluster_factory("rootcalls").up(*UP))


def trace_of(runner, shapes, folder, name):
    """One trace of steps that run one after the other, on node001 or on other nodes."""
    folder.mkdir()
    with traced(runner.cluster, "node001", *WITH_STACKS, "-o", folder / "trace"):
        for shape in shapes:
            assert runner.run(shape).returncode != 124, f"{shape.name} does not end"
    trace = UidTrace(folder / "trace", name)
    shutil.rmtree(folder)  # some hundred megabytes in the long form
    return trace


def table_of(calls):
    """A table of the calls in Markdown, without the numbers in arguments."""
    counts = Counter()
    for call in calls:
        what = re.search(r'(AF_\w+)|"[^"]*"', call.arguments)
        who = "root" if call.effective == 0 else "the user"
        name = what.group(1) or re.sub(r"\d+", "N", what.group()) if what else ""
        counts[call.hook, who, call.name, name] += 1
    rows = [f"| {hook} | {who} | {name} | {of} | {count} |" for (hook, who, name, of), count in sorted(counts.items())]
    return "\n".join(["| hook | effective user | call | of what | times |", "| --- | --- | --- | --- | --- |", *rows])


@needs_stacks
def test_root_code_does_what_is_documented(runner, tmp_path, request, seed, figure):
    shapes = fixed()[:IN_SHORT]
    if request.config.getoption("--full"):
        shapes = fixed() + generated(IN_FULL - len(fixed()), seed)
    calls, changes = [], 0
    for first in range(0, len(shapes), TOGETHER):
        trace = trace_of(runner, shapes[first:first + TOGETHER], tmp_path / str(first), "spank_bootstrap.so")
        calls += of_root(trace)
        changes += trace.changes
    strange = [str(call) for call in calls if not is_documented(call)]
    got = f"{len(strange)} of {len(calls)} calls in {len(shapes)} steps are not documented"
    figure("S1", got=got, met=not strange, seed=seed, table=table_of(calls),
           control="a file opened and a connection tried by another plugin are noticed")
    assert not strange, f"seed {seed}\n" + "\n".join(strange[:20])
    # Control: the trace has the calls for the port, the kernel's files, and the report of a failed task.
    assert changes > 0
    assert {("bind", False), ("openat", False), ("sendto", True)} <= {(call.name, call.effective == 0) for call in calls}
    text = "\n".join(call.arguments for call in calls)
    assert "/proc/net/route" in text and "/sys/class/net" in text and re.search(r"/proc/\d+/status", text)


KILLED = 24  # tasks


@needs_stacks
def test_the_cost_of_a_killed_task_does_not_grow(runner, tmp_path):
    """Each task's end costs the same, however many tasks ended before it."""
    shape = Shape("all are killed", f"srun -w node001 -n{KILLED} --overcommit --bootstrap=on sh -c 'kill -KILL $$'")
    calls = [call for call in of_root(trace_of(runner, [shape], tmp_path / "killed", "spank_bootstrap.so"))
             if call.hook == "slurm_spank_task_exit"]  # fmt: skip
    assert sum(call.name == "sendto" for call in calls) == KILLED, "control: srun receives each of them"
    assert sum(call.name == "openat" for call in calls) < 6 * KILLED


@needs_stacks
def test_control_calls_of_another_plugin_are_noticed(runner, tmp_path):
    other = f"optional {double('misbehaving_spank')} open=task_post_fork connect=user_init open=task_init\n"
    # Else Slurm uses other nodes while this one still ends the tasks of the test before.
    there = Shape("on the traced node", "srun -w node001 -n2 --gres=gpu:2 true")
    with runner.cluster.other_plugstack(runner.cluster.plugstack + other):
        trace = trace_of(runner, [there], tmp_path / "control", "misbehaving_spank.so")
    seen = {(call.hook, call.name, call.effective == 0) for call in of_root(trace) if not is_documented(call)}
    assert ("slurm_spank_task_post_fork", "openat", True) in seen
    assert ("slurm_spank_user_init", "connect", False) in seen
    assert not any(hook == "slurm_spank_task_init" for hook, *_ in seen), "the task has no user id of root by then"
    assert any(call.hook == "slurm_spank_task_init" for call in trace.calls)

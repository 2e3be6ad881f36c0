"""What the plugin opens, executes and connects inside slurmstepd while any user id of it is root's: nothing that
SECURITY.md does not list.

strace shows each system call with its stack, so that a call is ours when our object is on the stack, whatever Slurm
does beside it; and who made it follows from the changes of user ids before.
"""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import subprocess
from collections import Counter

import pytest

from built_files import double
from step_shapes import UP, Shape, ShapeRunner, fixed, generated
from step_trace import WITH_STACKS, UidTrace, traced

IN_SHORT, IN_FULL = 4, 100
TOGETHER = 20  # steps in one trace

# The effective user id is root's.
AS_ROOT = (
    ("slurm_spank_init", "openat", r'AT_FDCWD, "/proc/self/status", O_RDONLY\|'),  # whether memory is locked
    ("slurm_spank_task_exit", "socket", r"AF_INET6?, SOCK_DGRAM\|SOCK_CLOEXEC\|SOCK_NONBLOCK, "),
    ("slurm_spank_task_exit", "openat", r'AT_FDCWD, "/(proc/self/cgroup|sys/fs/cgroup/[^"]*)", O_RDONLY\|'),
    # After the first task that was killed: whether the others go on, and slurmstepd's own threads.
    ("slurm_spank_task_exit", "openat", r'AT_FDCWD, "/proc/(\d+/(status|stat)|self/task(/\d+/stat)?)", O_RDONLY\|'),
    ("slurm_spank_task_exit", "readlink", r'"/proc/thread-self"'),
    ("slurm_spank_task_exit", "newfstatat", r'\d+, "", '),
    ("slurm_spank_task_exit", "sendto", r".* MSG_NOSIGNAL, \{sa_family=AF_INET6?, "),
)

# The effective user id is the job's, the real one still root's, so that slurmstepd can go back.
AS_USER_FOR_A_WHILE = (
    ("slurm_spank_user_init", "socket", r"AF_INET6?, SOCK_STREAM\|SOCK_CLOEXEC, "),
    ("slurm_spank_user_init", "setsockopt", r"\d+, (SOL_SOCKET, SO_REUSEADDR|SOL_IPV6, IPV6_V6ONLY), "),
    ("slurm_spank_user_init", "bind", r"\d+, \{sa_family=AF_INET6?, "),
    ("slurm_spank_user_init", "faccessat2", r'AT_FDCWD, "/dev/nvidia\d+", R_OK.*AT_EACCESS'),
    ("slurm_spank_user_init", "openat", r'AT_FDCWD, "/(proc/driver/nvidia/gpus|proc/net|sys)/[^"]*", O_RDONLY\|'),
    ("slurm_spank_user_init", "newfstatat", r'\d+, "", '),  # of what is open
)

needs_stacks = pytest.mark.skipif(
    not shutil.which("strace") or "stack-trace=" not in subprocess.run(["strace", "-V"], capture_output=True, text=True).stdout,
    reason="needs strace that shows stacks (-k)",
)


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
    """One trace of steps that run one after the other, with node001 among their nodes or not."""
    folder.mkdir()
    with traced(runner.cluster, "node001", *WITH_STACKS, "-o", folder / "trace"):
        for shape in shapes:
            runner.run(shape)
    trace = UidTrace(folder / "trace", name)
    shutil.rmtree(folder)  # some hundred megabytes in the long form
    return trace


def table_of(calls):
    """What was seen, as Markdown: numbers in arguments are left out."""
    counts = Counter()
    for call in calls:
        what = re.search(r'(AF_\w+)|"[^"]*"', call.arguments)
        who = "root" if call.effective == 0 else "the user"
        name = what.group(1) or re.sub(r"\d+", "N", what.group()) if what else ""
        counts[call.hook, who, call.name, name] += 1
    rows = [f"| {hook} | {who} | {name} | {of} | {count} |" for (hook, who, name, of), count in sorted(counts.items())]
    return "\n".join(["| hook | effective user | call | of what | times |", "| --- | --- | --- | --- | --- |", *rows])


@needs_stacks
def test_root_code_does_what_is_documented(runner, tmp_path, request, seed, figure, capsys):
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
    with capsys.disabled():
        print(f"\ncalls as root: {got}; seed {seed}")
    figure("S1", got=got, met=not strange, seed=seed, table=table_of(calls),
           control="a file opened and a connection tried by another plugin are noticed")
    assert not strange, f"seed {seed}\n" + "\n".join(strange[:20])
    # What must have been seen, or the test is blind: the port, the kernel's files, the word about a task that failed.
    assert changes > 0
    assert {("bind", False), ("openat", False), ("sendto", True)} <= {(call.name, call.effective == 0) for call in calls}
    text = "\n".join(call.arguments for call in calls)
    assert "/proc/net/route" in text and "/sys/class/net" in text and re.search(r"/proc/\d+/status", text)


KILLED = 24  # tasks


@needs_stacks
def test_a_node_of_killed_tasks_takes_no_longer(runner, tmp_path):
    """Each task that ends costs the same, however many ended before it."""
    shape = Shape("all are killed", f"srun -w node001 -n{KILLED} --overcommit --bootstrap=on sh -c 'kill -KILL $$'")
    calls = [call for call in of_root(trace_of(runner, [shape], tmp_path / "killed", "spank_bootstrap.so"))
             if call.hook == "slurm_spank_task_exit"]  # fmt: skip
    assert sum(call.name == "sendto" for call in calls) == KILLED, "control: srun receives each of them"
    assert sum(call.name == "openat" for call in calls) < 6 * KILLED


@needs_stacks
def test_control_calls_of_another_plugin_are_noticed(runner, tmp_path):
    other = f"optional {double('misbehaving_spank')} open=task_post_fork connect=user_init open=task_init\n"
    with runner.cluster.other_plugstack(runner.cluster.plugstack + other):
        trace = trace_of(runner, fixed()[4:5], tmp_path / "control", "misbehaving_spank.so")
    seen = {(call.hook, call.name, call.effective == 0) for call in of_root(trace) if not is_documented(call)}
    assert ("slurm_spank_task_post_fork", "openat", True) in seen
    assert ("slurm_spank_user_init", "connect", False) in seen
    assert not any(hook == "slurm_spank_task_init" for hook, *_ in seen), "the task is the user's alone by then"
    assert any(call.hook == "slurm_spank_task_init" for call in trace.calls)

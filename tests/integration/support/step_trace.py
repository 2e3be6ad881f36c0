"""System calls of slurmd's new children, by strace: of all of them, or of those that an object of ours makes, and as whom."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import command_line, process_namespaces, wait_for


def slurmd_of(cluster, node):
    """The process id, outside the cluster's namespaces, of the slurmd on `node`."""
    host = process_namespaces((cluster.state / "pids" / node).read_text().strip())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if command_line(pid).startswith(b"slurmd\0") and process_namespaces(pid) == host:
            return pid
    raise AssertionError(f"no slurmd on {node}")


def is_traced(pid, tracer):
    """Whether all threads of a process are; a thread that ends meanwhile is asked for again."""
    try:
        states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return False
    return bool(states) and all(f"\nTracerPid:\t{tracer}\n" in state for state in states)


@contextmanager
def traced(cluster, node, *options):
    """slurmd of the node and all that it starts are under strace while the block runs."""
    slurmd = slurmd_of(cluster, node)
    line = ["strace", "-f", "-qq", "-p", slurmd, *map(str, options)]
    tracer = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # strace does not report that it is attached; the kernel does.
        wait_for(lambda: tracer.poll() is not None or is_traced(slurmd, tracer.pid), 20, "strace does not attach")
        assert tracer.poll() is None, "strace could not attach"
        yield
        time.sleep(0.5)
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)


# Everything that names a file, opens a socket, makes a process or changes who one is; `close` and memory are left out.
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
    """Each call with its stack as (object, function), the innermost first."""
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
    """The files of `strace -ff -k`, one for each thread: who made which call of an object in slurmstepd."""

    def __init__(self, prefix: Path, name: str):
        found = prefix.parent.glob(f"{prefix.name}.*")
        self.texts = {path.suffix[1:]: path.read_text(errors="replace") for path in found}
        self.name = name
        self.calls: list[Call] = []
        self.changes = 0  # of uids that were seen, in all threads
        children = set()
        for text in self.texts.values():
            children |= {match.group(1) for match in map(CHILD.match, text.splitlines()) if match}
        for pid in self.texts.keys() - children:
            self.follow(pid, 0, 0)

    def follow(self, pid: str, real: int, effective: int) -> None:
        """A thread begins as who its parent was, and slurmd's as root; a program of the user's is no slurmstepd."""
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

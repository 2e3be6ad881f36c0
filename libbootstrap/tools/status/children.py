"""Child processes, and their output within a time limit."""
# SPDX-License-Identifier: Apache-2.0
import os
import select
import time
from contextlib import suppress

SIGKILL = 9


class Child:
    """A program in PATH. Its standard error joins the output, or is dropped. It may wait in the kernel for ever; this process goes
    on. It has a process group of its own, so that the processes that it starts end with it."""

    def __init__(self, words, joins_errors=False, most=65536, environment=None):
        self.pid, self.parts, self.left = 0, [], most
        try:
            self.output, output = os.pipe()
            self.pid = os.fork()
        except OSError:
            return  # no process, no output
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                nothing = os.open("/dev/null", os.O_RDWR)
                os.dup2(nothing, 0)
                os.dup2(output, 1)
                os.dup2(output if joins_errors else nothing, 2)
                os.execvpe(words[0], words, os.environ if environment is None else environment)
            finally:
                os._exit(127)  # as in shells
        os.close(output)

    def text(self):
        """What it has written. Each byte is one character: names of files and variables need not be UTF-8."""
        return b"".join(self.parts).decode("latin-1")

    def end(self, seconds=0):
        """Its exit status. None if a signal ended it, or if it has not ended in time: then it is killed."""
        if not self.pid:
            return None
        os.close(self.output)
        deadline = time.monotonic() + seconds
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        for pid in (-self.pid, self.pid):  # it may have no group yet
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        # A process that waits for a dead file system does not end, and is left to init.
        os.waitpid(self.pid, os.WNOHANG)
        return None


def read_all(children, seconds):
    """Reads from all until each has ended; False if one has not ended in time. The turn that begins after the deadline is the
    last one, even if a child prints without a pause."""
    deadline = time.monotonic() + seconds
    reading = {child.output: child for child in children if child.pid and child.left}
    poll = select.poll()
    for descriptor in reading:
        poll.register(descriptor, select.POLLIN)
    ready = left = 1
    while reading and ready and left:
        left = max(0, deadline - time.monotonic())
        ready = poll.poll(left * 1000)
        for descriptor, _ in ready:
            child = reading[descriptor]
            part = os.read(descriptor, min(65536, child.left))
            child.parts.append(part)
            child.left = child.left - len(part) if part else 0
            if not child.left:
                poll.unregister(descriptor)
                del reading[descriptor]
    return not reading


def output_of(words, seconds, **more):
    """What a program prints within this time, and its exit status or None."""
    deadline = time.monotonic() + seconds
    child = Child(words, **more)
    read_all([child], seconds)
    status = child.end(deadline - time.monotonic())
    return child.text(), status


def write_all(output, text):
    data = memoryview(text.encode("latin-1"))
    while data:
        data = data[os.write(output, data):]

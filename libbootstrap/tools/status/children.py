"""Processes beside this one, and their output within a limit of time."""
# SPDX-License-Identifier: Apache-2.0
import os
import select
import signal
import subprocess
import time
from contextlib import suppress


class Child:
    """A program that is found in PATH; its standard error is a part of the output, or goes nowhere. It may wait in the kernel for
    ever: this process goes on. It has a process group of its own, so that what it starts ends with it."""

    def __init__(self, words, joins_errors=False, most=65536, environment=None):
        self.process, self.parts, self.left = None, [], most
        errors = subprocess.STDOUT if joins_errors else subprocess.DEVNULL
        with suppress(OSError):  # no process, no output
            # Popen waits until the program has started, and its file system may be dead. A shell starts at once.
            self.process = subprocess.Popen(["/bin/sh", "-c", 'exec "$@"', "sh", *words], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True)

    def text(self):
        """What it has written. Each byte is one character: names of files and variables need not be UTF-8."""
        return b"".join(self.parts).decode("latin-1")

    def end(self, seconds=0):
        """Its exit status. None where a signal ended it, or it has not ended in time: then it is killed."""
        if not self.process:
            return None
        self.process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            status = self.process.wait(max(0, seconds))
            return status if status >= 0 else None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.poll()  # if it waits for a dead file system it does not end, and is left to init
        return None


def read_all(children, seconds):
    """Reads from all until each has ended; False where one has not in time. The turn that begins after the deadline is the
    last one, also where a child prints without a pause."""
    deadline = time.monotonic() + seconds
    reading = {child.process.stdout.fileno(): child for child in children if child.process and child.left}
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

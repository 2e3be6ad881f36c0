"""A copy of this machine that a test may change, for example by installing packages; and a cluster on it."""

# SPDX-License-Identifier: Apache-2.0

import subprocess
from pathlib import Path

from harness import REPOSITORY, run_here

SCRIPT = Path(__file__).with_name("throwaway-machine.sh")


class ThrowawayMachine:
    """Its changed files end with it; processes, devices and networks are those of the real machine."""

    def __init__(self):
        line = ["unshare", "--mount", str(SCRIPT), str(REPOSITORY)]
        self.keeper = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "ready\n":
            raise OSError(self.keeper.communicate()[1].strip())
        self.enter = ["nsenter", "--target", str(self.keeper.pid), "--mount", f"--wdns={REPOSITORY}", "--"]

    def run(self, words, timeout=300):
        """Runs a line of sh, or a list of words, in it as root."""
        line = ["sh", "-c", words] if isinstance(words, str) else list(map(str, words))
        return run_here([*self.enter, *line], timeout=timeout, stdin=subprocess.DEVNULL)

    def succeed(self, words):
        """Like run(), but it must succeed; returns the output."""
        done = self.run(words)
        assert done.returncode == 0, f"{words}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        return done.stdout

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait(20)

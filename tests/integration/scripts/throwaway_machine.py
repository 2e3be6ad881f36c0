"""A copy of this machine that a test may change, such as by installing packages; and a cluster on it."""

# SPDX-License-Identifier: Apache-2.0

import subprocess
from pathlib import Path

from harness import REPOSITORY, run_here

SCRIPT = Path(__file__).with_name("throwaway-machine.sh")


class ThrowawayMachine:
    """Its files are gone with it; processes, devices and networks are those of the real machine."""

    def __init__(self):
        line = ["unshare", "--mount", str(SCRIPT), str(REPOSITORY)]
        self.keeper = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "ready\n":
            raise OSError(self.keeper.communicate()[1].strip())
        self.enter = ["nsenter", "--target", str(self.keeper.pid), "--mount", f"--wdns={REPOSITORY}", "--"]

    def run(self, words, timeout=300):
        """A line of sh, or a list of words, run there as root."""
        line = ["sh", "-c", words] if isinstance(words, str) else list(map(str, words))
        return run_here([*self.enter, *line], timeout=timeout, stdin=subprocess.DEVNULL)

    def succeed(self, words):
        """As run(), for what the test needs; what it printed."""
        done = self.run(words)
        assert done.returncode == 0, f"{words}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        return done.stdout

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait(20)

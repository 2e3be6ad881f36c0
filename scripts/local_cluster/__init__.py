"""A Slurm cluster on this machine, as Python programs use it: `scripts/cluster` behind a small class."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "cluster"
STATE_ROOT = Path("/run/slurm-bootstrap")
INSIDE = "/run/slurm-bootstrap-tree"  # the repository, as every host of a cluster sees it


def slurm_prefix():
    """The prefix of the Slurm that a cluster starts by default, the one in PATH; None if there is none."""
    slurmctld = shutil.which("slurmctld")
    return Path(slurmctld).parent.resolve().parent if slurmctld else None


def slurm_version():
    """The version that this Slurm prints, such as 24.11.5; '' where there is none."""
    prefix = slurm_prefix()
    said = subprocess.run([prefix / "sbin/slurmd", "-V"], capture_output=True, text=True).stdout.split() if prefix else []
    return said[-1] if said else ""


class ClusterError(RuntimeError):
    """`scripts/cluster` could not do what it was asked; the text is its message."""


@dataclass
class LocalCluster:
    """One cluster; `up` starts it, `down` removes everything of it, in any state."""

    name: str
    prefix: list = field(default_factory=list)  # words before `scripts/cluster`, such as those that enter a namespace

    @property
    def state(self):
        """The state folder: etc, log, spool and home of the cluster."""
        return STATE_ROOT / self.name

    @property
    def nodes(self):
        return sorted(path.name for path in (self.state / "pids").glob("node[0-9][0-9][0-9]"))

    def script(self, command, *arguments, timeout=90):
        """Runs `scripts/cluster COMMAND --name NAME ...`."""
        line = [*self.prefix, str(SCRIPT), command, "--name", self.name, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def up(self, *options):
        """Starts it; raises ClusterError."""
        done = self.script("up", *options, timeout=None)  # it gives up by itself, after a time for each node
        if done.returncode != 0:
            raise ClusterError(f"cluster up {' '.join(options)}: {done.stderr.strip()}")
        return self

    def down(self):
        """Takes it down; raises ClusterError when something is left on the machine."""
        done = self.script("down")
        if done.returncode != 0:
            raise ClusterError(f"cluster down --name {self.name}: {done.stderr.strip()}")

    def command(self, arguments, user="alice", node="head", env=None):
        """The command line that runs `arguments` in the cluster, for callers that start it themselves."""
        line = [str(SCRIPT), "exec", "--name", self.name, "--user", user, "--node", node]
        for name, value in (env or {}).items():
            line += ["--env", f"{name}={value}"]
        return [*line, "--", *map(str, arguments)]

    def start(self, arguments, user="alice", node="head", env=None, **popen):
        """Starts a command in a session of its own, so that a signal sent to it is passed on (and Ctrl-C is not)."""
        popen = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        popen = {"text": True, "errors": "surrogateescape", **popen}  # what users type need not be UTF-8
        return subprocess.Popen(self.command(arguments, user, node, env), start_new_session=True, **popen)

    def run(self, arguments, user="alice", node="head", env=None, timeout=60, stdin=""):
        """Runs a command to its end; the result has returncode, stdout and stderr. At the timeout it is stopped."""
        process = self.start(arguments, user, node, env, stdin=subprocess.PIPE)
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout)
        except BaseException:
            stop(process)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def write_plugstack(self, text):
        """Replaces plugstack.conf at once: Slurm reads it at every step, and would see a half-written one."""
        fresh = self.state / "etc" / "plugstack.conf.new"
        fresh.write_text(text)
        fresh.rename(self.state / "etc" / "plugstack.conf")

    def write_home(self, name, text, user="alice"):
        """Puts a file into a user's home and returns its path inside the cluster."""
        path = self.state / "home" / user / name
        path.write_text(text)
        path.chmod(0o755)
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
        return f"/home/{user}/{name}"


@contextmanager
def running(name, *options):
    """A cluster of this process for the time of the block. No signal interrupts its end, so that nothing of it is left."""
    cluster = LocalCluster(f"{name}-{os.getpid()}")
    try:
        yield cluster.up(*options)
    finally:
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            cluster.down()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def stop(process):
    """Ends a started command by SIGTERM, which `cluster exec` passes on so that srun cancels its step, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        try:
            process.communicate(timeout=10)
            return
        except subprocess.TimeoutExpired:
            pass
    # A program below it has its output open, such as srun that waits for a slurmstepd that has died. It ends with the cluster.
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        pipe.close()

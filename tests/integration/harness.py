"""A cluster as the integration tests see it: `scripts/cluster` behind a small class, and what it would leave behind."""

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "cluster"
STATE_ROOT = Path("/run/slurm-bootstrap")
NAMESPACES = ("mnt", "net", "pid", "uts", "ipc")

# A message of PMIx between nodes that slurmstepd has lost, as it says itself, or as we conclude from a fence that does
# not end although all ranks are in it. It happens with and without us: CONTRIBUTING.md has more.
LOST_BY_SLURM = re.compile("error: Munge decode failed: Unauthorized credential|or slurmstepd lost a message")
steps_run_again = []


@dataclass
class Cluster:
    """One cluster; `up` starts it, `close` removes everything of it in whatever state it is."""

    name: str
    options: list = field(default_factory=list)

    @property
    def state(self):
        """The state folder: etc, log, spool and home of the cluster."""
        return STATE_ROOT / self.name

    @property
    def nodes(self):
        return sorted(path.name for path in (self.state / "pids").glob("node???"))

    def script(self, command, *arguments, timeout=90):
        """Runs `scripts/cluster COMMAND --name NAME ...`."""
        line = [str(SCRIPT), command, "--name", self.name, *arguments]
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def up(self, *options):
        self.options = list(options)
        done = self.script("up", *options)
        assert done.returncode == 0, f"cluster up {' '.join(options)}: {done.stderr}"
        return self

    def close(self):
        """Takes it down; returns what went wrong, since that leaves something on the machine, or ''."""
        done = self.script("down")
        return "" if done.returncode == 0 else f"cluster down --name {self.name}: {done.stderr}"

    def command(self, arguments, user="alice", node="head", env=None):
        """The command line that runs `arguments` in the cluster, for tests that start it themselves."""
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
        """Runs a command to its end; the result has returncode, stdout and stderr. At the timeout it is killed."""
        for _ in range(3):
            done = self.run_once(arguments, user, node, env, timeout, stdin)
            if not LOST_BY_SLURM.search(done.stderr):
                break
            steps_run_again.append(" ".join(map(str, arguments)))
        return done

    def run_once(self, arguments, user, node, env, timeout, stdin):
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

    def write_home(self, name, text, user="alice", mode=0o755):
        """Puts a file into a user's home and returns its path inside the cluster."""
        path = self.state / "home" / user / name
        path.write_text(text)
        path.chmod(mode)
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
        return f"/home/{user}/{name}"

    def log(self, name):
        return (self.state / "log" / f"{name}.log").read_text(errors="replace")

    def namespaces(self):
        """Every namespace of the hosts that is not the machine's, as (kind, inode)."""
        found = set()
        for path in (self.state / "pids").iterdir():
            if path.name != "init.new":
                found |= process_namespaces(path.read_text().strip())
        return found - process_namespaces("self")

    def traces(self, namespaces=()):
        """What of this cluster is on the machine now, as readable lines; [] when there is nothing."""
        found = [f"file {path}" for path in ([self.state] if self.state.exists() else [])]
        for folder, _, _ in os.walk("/sys/fs/cgroup"):
            if f"slurm-bootstrap-{self.name}" in folder:
                found.append(f"cgroup {folder}")
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self.state) in line:
                found.append(f"mount {line}")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if process_namespaces(pid) & set(namespaces) or f"{self.state}".encode() in command_line(pid):
                found.append(f"process {pid} {command_line(pid)!r}")
        return found


def process_namespaces(pid):
    try:
        return {(kind, os.readlink(f"/proc/{pid}/ns/{kind}")) for kind in NAMESPACES}
    except OSError:
        return set()


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def everything_below(folder):
    """All files and folders; os.walk goes on where one has vanished meanwhile, and Path.glob raises an error."""
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            yield Path(place, name)


def stop(process):
    """Ends a started command: politely, so that `cluster exec` passes it on and srun cancels its step, then by force."""
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def wait_for(condition, seconds=10, what="waited too long"):
    """Asks again until it is so; `what` tells a reader what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def machine_traces():
    """What a cluster could change outside its own folder: network devices, mounts, named namespaces, stray files."""
    found = {f"interface {name}" for name in os.listdir("/sys/class/net")}
    found |= {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {f"netns {path}" for path in Path("/run/netns").glob("*")}
    suspect = re.compile(r"slurm|munge|pmix|ompi\.|nvidia", re.IGNORECASE)
    for top in ("/run", "/tmp", "/var/tmp", "/var/run", "/var/spool", "/var/log", "/var/lib", "/dev"):
        for path in Path(top).glob("*"):
            if suspect.search(path.name) and path.resolve() != STATE_ROOT:  # /var/run is another name of /run
                found.add(f"file {path}")
    return found

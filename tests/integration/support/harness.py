"""A cluster for the integration tests, and its traces on the machine."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from local_cluster import INSIDE, REPOSITORY, SCRIPT, STATE_ROOT, ClusterError, LocalCluster, slurm_prefix, slurm_version, stop

TESTS = f"{INSIDE}/tests/integration"  # this folder, as every host of a cluster sees it
NAMESPACES = ("mnt", "net", "pid", "uts", "ipc")

# PyTorch uses libuv since 2.4, unless the environment forbids it. Debian builds it without libuv.
TORCH = next((found.version for found in importlib.metadata.distributions(name="torch")), "0.0")
ASKS_FOR_LIBUV = tuple(map(int, TORCH.split(".")[:2])) >= (2, 4)


# Debian builds Slurm 26.05 without PMIx.
PLUGINS = [folder for pattern in ("*/slurm-wlm", "slurm") for folder in (slurm_prefix() or Path("/usr")).glob(f"lib*/{pattern}")]
HAS_PMIX = not PLUGINS or any(next(folder.glob("mpi_pmix*.so"), None) for folder in PLUGINS)
needs_pmix = pytest.mark.skipif(not HAS_PMIX, reason="this Slurm was built without PMIx")

# Open MPI 6.0.0rc2 of the next Debian fails or hangs in its first collective, also without us.
OPEN_MPI = next(iter(subprocess.run(["sh", "-c", "mpirun --version 2>&1 | head -n 1"], capture_output=True, text=True).stdout.split()[-1:]),
                "")
needs_mpirun = pytest.mark.skipif(OPEN_MPI.startswith("6.0.0rc"), reason=f"Open MPI {OPEN_MPI} does not start by itself")

# The versions with which `scripts/cluster up --constrain-devices` works here, its default first.
USABLE = "slurm_prefix=$1; source scripts/local_cluster/cgroup.sh; for v in v2 v1; do [[ -n $(obstacle_to $v) ]] || echo $v; done"
CGROUP_VERSIONS = subprocess.run(["bash", "-c", USABLE, "sh", str(slurm_prefix())], cwd=REPOSITORY, capture_output=True,
                                 text=True).stdout.split()
needs_device_cgroups = pytest.mark.skipif(not CGROUP_VERSIONS, reason="this machine has no device cgroups")


# The begin of slurmstepd's lines on standard error: its name, with the node's name if Slurm was built with
# --enable-multiple-slurmd, and from Slurm 25.05 on only the time.
OF_SLURMSTEPD = r"(?:slurmstepd(?:-(?P<node>\w+))?:|\[[\d.:T-]+\])"

# Differences between releases of Slurm, with the first release that has each.
SINCE = {
    # Of 512 ranks of bare PMIx 5.0.7 (Debian 13) on two cores ten died of SIGPIPE, and the others did not end in 110 s.
    "512 ranks of bare PMIx do not end": (24, 5),
    # "Requested node configuration is not available", also without a plugin.
    "-m plane=1 is refused beside --gpus-per-task": (24, 5),
    "a missing plugin that is optional is not told": (25, 11),
    "an extern step may have no process": (26, 5),
    "srun has --async": (26, 5),
    "slurmctld limits requests": (23, 2),
    # Since then srun has handlers, and does not show that it got a signal: tasks that it then signals seem to fail by themselves.
    "srun waits for signals in no thread": (26, 5),
}


def slurm_release():
    """The release of the Slurm that clusters run, as (26, 5)."""
    return tuple(int(number) for number in slurm_version().split(".")[:2])


def since(what):
    """True if the Slurm that clusters run has this difference."""
    return slurm_release() >= SINCE[what]


def driver_gpus():
    """UUIDs in the order of `nvidia-smi -L`, which is that of the PCI addresses; [] without a driver."""
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or "MIG" in done.stdout:
        return []
    return re.findall(r"UUID: (GPU-[0-9a-f-]+)", done.stdout)


# Slurm's own messages: the nodes of the step before are not free yet, as on a busy machine.
WAITED = re.compile(r"^srun: job \d+ (queued and waiting for|has been allocated) resources\n", re.MULTILINE)


class Cluster(LocalCluster):
    """A cluster of a test, which can list its traces on the machine."""

    # Most tests are about steps that ask. Tests of other steps switch this off.
    asks = True
    settings = ()  # options of all clusters
    has_step_managers = False

    def up(self, *options):
        self.asks = self.asks and "--no-plugin" not in options
        super().up(*self.settings, *options)
        self.plugin = next(iter(re.findall(r"\S+\.so\b", self.plugstack)), "")
        return self

    def close(self):
        """Takes it down; returns '', or the error, after which something stays on the machine."""
        try:
            self.down()
        except ClusterError as error:
            return str(error)
        return ""

    def command(self, arguments, user="alice", node="head", env=None):
        if not HAS_PMIX and "--mpi=pmix" in " ".join(map(str, arguments)):
            pytest.skip("this Slurm was built without PMIx")
        defaults = {"USE_LIBUV": "0"} if ASKS_FOR_LIBUV else {}
        if self.asks:
            defaults["SLURM_BOOTSTRAP"] = "on"
        return super().command(arguments, user, node, defaults | (env or {}))

    def run(self, *arguments, **options):
        done = super().run(*arguments, **options)
        done.stderr = WAITED.sub("", done.stderr)
        if self.has_step_managers:
            self.wait_for_completing_jobs()
        return done

    def wait_for_completing_jobs(self):
        """A job with a step manager ends later than its srun; else Slurm would give the next job another node than the first."""
        deadline = time.monotonic() + 10  # a node may have failed
        while super().run(["squeue", "-h", "-t", "CG"], user="root").stdout and time.monotonic() < deadline:
            time.sleep(0.05)

    def succeed(self, *arguments, **options):
        """Like run(), but it must succeed."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def allocate(self, *options):
        """The id of a job that has resources for steps from elsewhere, until scancel."""
        done = self.succeed(["salloc", "--no-shell", *options])
        return re.search(r"Granted job allocation (\d+)", done.stderr).group(1)

    @property
    def home(self):
        """alice's home, which all hosts share."""
        return self.state / "home" / "alice"

    @property
    def plugstack(self):
        return (self.state / "etc" / "plugstack.conf").read_text()

    @contextmanager
    def other_plugstack(self, text=""):
        """Sets plugstack.conf to this text for the time of the block."""
        own = self.plugstack
        self.write_plugstack(text)
        try:
            yield
        finally:
            self.write_plugstack(own)

    def configure(self, arguments="", how="optional"):
        """Puts only our plugin into plugstack.conf, with these arguments."""
        self.write_plugstack(f"{how} {self.plugin} {arguments}\n")

    @contextmanager
    def mounted(self, source, target, node="head"):
        """Mounts another file over this one on one host, for the time of the block."""
        self.succeed(["mount", "--bind", source, target], user="root", node=node)
        try:
            yield
        finally:
            self.run(["umount", target], user="root", node=node)

    @contextmanager
    def without_plugin(self, node="head"):
        """One host has no plugin for the time of the block, since each host may have its own configuration."""
        files = f"{self.state}/etc/plugstack.conf /etc/slurm/plugstack.conf"
        self.run(["sh", "-c", f"for file in {files}; do mount --bind /dev/null $file; done"], user="root", node=node)
        try:
            yield
        finally:
            self.run(["umount", *files.split()], user="root", node=node)

    def log(self, name):
        return (self.state / "log" / f"{name}.log").read_text(errors="replace")

    def namespaces(self):
        """Every namespace of the hosts, except the machine's, as (kind, inode)."""
        found = set()
        for path in (self.state / "pids").iterdir():
            if path.name != "init.new":
                found |= process_namespaces(path.read_text().strip())
        return found - process_namespaces("self")

    def processes(self):
        """The ids of all processes on its hosts, as seen outside, found by their network or mount namespaces."""
        wanted = self.namespaces()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found = {(kind, os.readlink(f"/proc/{pid}/ns/{kind}")) for kind in ("net", "mnt")}
            except OSError:
                continue
            if found & wanted:
                yield pid

    def traces(self, namespaces=()):
        """The traces of this cluster on the machine now, as readable lines; [] if there are none."""
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


def module_cluster(label, *options, asks=True):
    """The fixture `cluster` of a file of tests."""

    @pytest.fixture(scope="module")
    def cluster(cluster_factory):
        return cluster_factory(label, asks).up(*options)

    return cluster


def run_here(line, **options):
    """Runs a command on this machine."""
    return subprocess.run(line, capture_output=True, text=True, **options)


def succeed_here(line, **options):
    """Like run_here(), but it must succeed."""
    done = run_here(line, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


def our_lines(done):
    """The lines with our name on standard error."""
    return [line for line in done.stderr.splitlines() if "bootstrap:" in line]


def load_script(name):
    """Loads a script of ours as a module."""
    loader = SourceFileLoader(name, str(REPOSITORY / "scripts" / name))
    module = module_from_spec(spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


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
    """All files and folders. os.walk continues if one vanishes meanwhile; Path.glob would raise an error."""
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            yield Path(place, name)


def wait_for(condition, seconds=300, what="waited too long"):
    """Waits until the condition is true; `what` is the message of a failure. The bound is for conditions that never come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def machine_traces():
    """Everything that a cluster could change outside its folder: network devices, mounts, named namespaces, stray files."""
    found = {f"interface {name}" for name in os.listdir("/sys/class/net")}
    found |= {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {f"netns {path}" for path in Path("/run/netns").glob("*")}
    suspect = re.compile(r"slurm|munge|pmix|ompi\.|nvidia", re.IGNORECASE)
    for top in ("/run", "/tmp", "/var/tmp", "/var/run", "/var/spool", "/var/log", "/var/lib", "/dev"):
        for path in Path(top).glob("*"):
            if suspect.search(path.name) and path.resolve() != STATE_ROOT:  # /var/run is another name of /run
                found.add(f"file {path}")
    return found

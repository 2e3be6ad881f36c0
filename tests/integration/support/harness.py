"""A cluster as the integration tests see it, and what it would leave behind."""

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

# PyTorch asks for libuv since 2.4, unless the environment forbids it. Debian builds it without.
TORCH = next((found.version for found in importlib.metadata.distributions(name="torch")), "0.0")
ASKS_FOR_LIBUV = tuple(map(int, TORCH.split(".")[:2])) >= (2, 4)


# Debian builds Slurm 26.05 without PMIx.
PLUGINS = [folder for pattern in ("*/slurm-wlm", "slurm") for folder in (slurm_prefix() or Path("/usr")).glob(f"lib*/{pattern}")]
HAS_PMIX = not PLUGINS or any(next(folder.glob("mpi_pmix*.so"), None) for folder in PLUGINS)
needs_pmix = pytest.mark.skipif(not HAS_PMIX, reason="this Slurm was built without PMIx")

# Open MPI 6.0.0rc2 of the coming Debian fails in its first collective, or does not end, by itself.
OPEN_MPI = next(iter(subprocess.run(["sh", "-c", "mpirun --version 2>&1 | head -n 1"], capture_output=True, text=True).stdout.split()[-1:]),
                "")
needs_mpirun = pytest.mark.skipif(OPEN_MPI.startswith("6.0.0rc"), reason=f"Open MPI {OPEN_MPI} does not start by itself")

# With which `scripts/cluster up --constrain-devices` works here, its default first.
USABLE = "slurm_prefix=$1; source scripts/local_cluster/cgroup.sh; for v in v2 v1; do [[ -n $(obstacle_to $v) ]] || echo $v; done"
CGROUP_VERSIONS = subprocess.run(["bash", "-c", USABLE, "sh", str(slurm_prefix())], cwd=REPOSITORY, capture_output=True,
                                 text=True).stdout.split()
needs_device_cgroups = pytest.mark.skipif(not CGROUP_VERSIONS, reason="this machine has no device cgroups")


# Before slurmstepd's lines on standard error: its name, which has the node's where Slurm was built with
# --enable-multiple-slurmd, and from Slurm 25.05 on the time alone.
OF_SLURMSTEPD = r"(?:slurmstepd(?:-(?P<node>\w+))?:|\[[\d.:T-]+\])"

# What differs between releases of Slurm for the tests: the first one of which it is true.
SINCE = {
    # Of 512 ranks of bare PMIx 5.0.7 (Debian 13) on two cores ten died of SIGPIPE, and the others did not end in 110 s.
    "512 ranks of bare PMIx do not end": (24, 5),
    # "Requested node configuration is not available", also without a plugin.
    "-m plane=1 is refused beside --gpus-per-task": (24, 5),
    "a missing plugin that is optional is not told": (25, 11),
    "an extern step may have no process": (26, 5),
    "srun has --async": (26, 5),
    "slurmctld limits requests": (23, 2),
    # Since then srun has handlers, and nothing shows that it was sent one: what it passes on is taken for a failure.
    "srun waits for signals in no thread": (26, 5),
}


def slurm_release():
    """Of the Slurm that clusters run, as (26, 5)."""
    return tuple(int(number) for number in slurm_version().split(".")[:2])


def since(what):
    """Whether it is true of the Slurm that clusters run."""
    return slurm_release() >= SINCE[what]


def driver_gpus():
    """UUIDs in the order of `nvidia-smi -L`, which is that of the PCI addresses; [] without a driver."""
    if not shutil.which("nvidia-smi"):
        return []
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or "MIG" in done.stdout:
        return []
    return re.findall(r"UUID: (GPU-[0-9a-f-]+)", done.stdout)


# Slurm's own: the nodes of the step before are not free yet, as on a busy machine.
WAITED = re.compile(r"^srun: job \d+ (queued and waiting for|has been allocated) resources\n", re.MULTILINE)


class Cluster(LocalCluster):
    """A cluster of a test: what it would leave behind can be asked for."""

    # Most tests are about what a step gets that asks. Tests of steps that do not ask switch this off.
    asks = True
    settings = ()  # of all clusters
    has_step_managers = False

    def up(self, *options):
        self.asks = self.asks and "--no-plugin" not in options
        super().up(*self.settings, *options)
        self.plugin = next(iter(re.findall(r"\S+\.so\b", self.plugstack)), "")
        return self

    def close(self):
        """Takes it down; returns what went wrong, since that leaves something on the machine, or ''."""
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
        """A job with a step manager ends later than its srun, and Slurm would give the next one another node than the first."""
        deadline = time.monotonic() + 10  # a node may have failed
        while super().run(["squeue", "-h", "-t", "CG"], user="root").stdout and time.monotonic() < deadline:
            time.sleep(0.05)

    def succeed(self, *arguments, **options):
        """As run(), for what the test needs."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def allocate(self, *options):
        """The id of a job that holds resources for steps from elsewhere, until scancel."""
        done = self.succeed(["salloc", "--no-shell", *options])
        return re.search(r"Granted job allocation (\d+)", done.stderr).group(1)

    @property
    def home(self):
        """alice's, which all hosts share."""
        return self.state / "home" / "alice"

    @property
    def plugstack(self):
        return (self.state / "etc" / "plugstack.conf").read_text()

    @contextmanager
    def other_plugstack(self, text=""):
        """For the time of the block."""
        own = self.plugstack
        self.write_plugstack(text)
        try:
            yield
        finally:
            self.write_plugstack(own)

    def configure(self, arguments="", how="optional"):
        """Our plugin is alone in plugstack.conf, with these arguments."""
        self.write_plugstack(f"{how} {self.plugin} {arguments}\n")

    @contextmanager
    def mounted(self, source, target, node="head"):
        """On one host another file is in the place of this one for the time of the block."""
        self.succeed(["mount", "--bind", source, target], user="root", node=node)
        try:
            yield
        finally:
            self.run(["umount", target], user="root", node=node)

    @contextmanager
    def without_plugin(self, node="head"):
        """One host has no plugin for the time of the block: hosts may be configured apart."""
        files = f"{self.state}/etc/plugstack.conf /etc/slurm/plugstack.conf"
        self.run(["sh", "-c", f"for file in {files}; do mount --bind /dev/null $file; done"], user="root", node=node)
        try:
            yield
        finally:
            self.run(["umount", *files.split()], user="root", node=node)

    def log(self, name):
        return (self.state / "log" / f"{name}.log").read_text(errors="replace")

    def namespaces(self):
        """Every namespace of the hosts that is not the machine's, as (kind, inode)."""
        found = set()
        for path in (self.state / "pids").iterdir():
            if path.name != "init.new":
                found |= process_namespaces(path.read_text().strip())
        return found - process_namespaces("self")

    def processes(self):
        """The ids, outside the cluster, of all processes on its hosts, by their network or mount namespaces."""
        wanted = self.namespaces()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found = {(kind, os.readlink(f"/proc/{pid}/ns/{kind}")) for kind in ("net", "mnt")}
            except OSError:
                continue
            if found & wanted:
                yield pid

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


def module_cluster(label, *options, asks=True):
    """The fixture `cluster` of a file of tests."""

    @pytest.fixture(scope="module")
    def cluster(cluster_factory):
        return cluster_factory(label, asks).up(*options)

    return cluster


def run_here(line, **options):
    """A command on this machine."""
    return subprocess.run(line, capture_output=True, text=True, **options)


def succeed_here(line, **options):
    """As run_here(), for what the test needs."""
    done = run_here(line, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done


def our_lines(done):
    """What we said on standard error, in lines that have our name."""
    return [line for line in done.stderr.splitlines() if "bootstrap:" in line]


def load_script(name):
    """A script of ours as a module."""
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
    """All files and folders; os.walk goes on where one has vanished meanwhile, and Path.glob raises an error."""
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            yield Path(place, name)


def wait_for(condition, seconds=300, what="waited too long"):
    """Asks again until it is so; `what` is the message of a failure. The bound is for what never happens."""
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

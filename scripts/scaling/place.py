"""The Slurm cluster that srun reaches, on which the cells are run, and the facts of its nodes."""

# SPDX-License-Identifier: Apache-2.0

import math
import os
import re
import subprocess
from collections import namedtuple
from pathlib import Path

from local_cluster import INSIDE, REPOSITORY, stop

from scaling.hostfacts import ask
from scaling.steps import DONE, Output

USABLE = re.compile(r"idle|mixed|allocated|completing|reserved|planned", re.IGNORECASE)
LIBRARY = "libbootstrap.so.0"
LIMIT = 180  # seconds in which a step must give the facts of all nodes
# Options of the enclosing job, which srun would add to ours.
OF_THE_JOB = re.compile(r"SLURM_(GPUS|GPUS_PER_\w+|NTASKS_PER_\w+|CPUS_PER_\w+|NTASKS|NPROCS|TRES_PER_TASK)")


Node = namedtuple("Node", "cpus gpus")


class PlaceError(RuntimeError):
    """There is no cluster that can be used; the text is one sentence."""


class Place:
    """A cluster: what Slurm knows of it, and how a step is started on it."""

    no_gpu = "the nodes have no GPU that PyTorch can use, and NCCL needs one for each process"
    gpus = machines = 0  # GPUs of a node that PyTorch can use, machines behind the nodes; known when the nodes have sent their facts

    def __init__(self, options):
        self.repository, self.python = str(REPOSITORY), options.python or "python3"
        self.waits_in_queue = "SLURM_JOB_NODELIST" not in os.environ

    def start(self, words):
        """Starts a command in a session of its own, so that Ctrl-C reaches us alone; its errors are in its output."""
        variables = {name: value for name, value in os.environ.items() if not OF_THE_JOB.fullmatch(name)}
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                errors="replace", start_new_session=True, env=variables)

    def look(self):
        """Asks Slurm what there is."""
        if not ask("sinfo", "-h", "-o", "%N"):
            raise PlaceError(f"asked sinfo for a Slurm cluster, and none answers here; run it on a host of a cluster, or start one on this "
                             f"machine: scripts/cluster up, then scripts/cluster exec -- {INSIDE}/scripts/scaling-report ...")
        self.nodes = self.usable_nodes() if self.waits_in_queue else self.nodes_of_job()
        if not self.nodes:
            raise PlaceError("asked sinfo for nodes of the partition, and none is up; see sinfo")
        self.has_plugin = "--bootstrap=" in ask("srun", "--help")
        self.has_pmix = "pmix" in ask("srun", "--mpi=list")
        self.slurm = ask("srun", "--version") or "unknown"
        found = re.search(r"^ClusterName\s*=\s*(\S+)", ask("scontrol", "show", "config"), re.M)
        self.cluster = found[1] if found else "unknown"
        self.world_options = self.way_to_set_up()

    def usable_nodes(self):
        """The usable nodes of the default partition."""
        lines = [line.split("|") for line in ask("sinfo", "-h", "-N", "-o", "%N|%c|%G|%T|%P").splitlines()]
        default = [line for line in lines if line[-1].endswith("*")]
        nodes = {name: Node(int(cpus), gpus_in(gres)) for name, cpus, gres, state, _ in default or lines if USABLE.match(state)}
        return list(nodes.values())

    def nodes_of_job(self):
        """The nodes of this job, with the CPUs and GPUs that it has at least on each of them."""
        cpus = min(map(int, re.findall(r"(?:^|,)(\d+)", os.environ["SLURM_JOB_CPUS_PER_NODE"])))
        job = ask("scontrol", "show", "job", "-d", os.environ["SLURM_JOB_ID"])
        gpus = min(map(gpus_in, re.findall(r"^\s*Nodes=.*\bGRES=(\S*)", job, re.M)), default=0)
        return [Node(cpus, gpus) for _ in ask("scontrol", "show", "hostnames").split()]

    def way_to_set_up(self):
        """The options of srun with which each rank gets its place: the plugin's, or one that preloads the library."""
        if self.has_plugin:
            return ["--bootstrap=on"]
        folders = [Path(self.repository, "build/release/libbootstrap"), Path("/usr/local/lib"), *Path("/usr/lib").glob("*-linux-gnu")]
        if library := next((folder / LIBRARY for folder in folders if (folder / LIBRARY).exists()), None):
            return [f"--export=ALL,LD_PRELOAD={library}"]
        raise PlaceError(f"looked for slurm-bootstrap on this cluster, its plugin is not loaded (srun --help) and {LIBRARY} is not in "
                         f"{folders[0]}; install the plugin, or build the library")

    def step(self, nodes, tasks, words, mpi="none", gpus=0, world=True):
        """The command line that starts `words` on so many nodes, with the number of the rank before every line of output."""
        if world and not self.has_plugin:
            mpi = "pmix"  # the preloaded library asks the PMIx server
        # Within a job a step that asks for no GPU gets those of the job, and the plugin refuses to share one.
        asked = [f"--gres=gpu:{gpus}"] if gpus else [] if self.waits_in_queue else ["--gres=none"]
        return ["srun", "--label", f"--nodes={nodes}", f"--ntasks={nodes * tasks}", f"--ntasks-per-node={tasks}", "--cpus-per-task=1",
                f"--mpi={mpi}", "--kill-on-bad-exit=1", "--job-name=scaling-report", *asked, *(self.world_options if world else []), *words]

    def program(self, name, *arguments):
        """The command that runs a program of this folder with the nodes' Python."""
        return [self.python, "-B", f"{self.repository}/scripts/scaling/{name}", *arguments]


def gpus_in(gres):
    """How many GPUs these generic resources hold, such as gpu:a100:4(S:0-1),shard:8."""
    return sum(map(int, re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", gres)))


def gather(place, nodes):
    """Facts of each node, as {host: {name: value}}, from a step with one task on each."""
    gpus = min((node.gpus for node in place.nodes), default=0)
    process = place.start(place.step(nodes, 1, place.program("hostfacts.py"), gpus=gpus, world=False))
    try:
        printed, _ = process.communicate(timeout=None if place.waits_in_queue else LIMIT)
    except BaseException as error:
        stop(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise PlaceError(f"asked {nodes} nodes what they have, and they did not answer within {LIMIT} s; see sinfo") from None
        raise
    hosts = read(printed)
    if process.returncode != 0 or len(hosts) != nodes:
        output = Output()
        for line in printed.splitlines():
            if "@fact " not in line:
                output.take(line)
        reason = output.reason() or "nothing was said"
        if "hostfacts.py" in reason and "No such file" in reason:
            reason += "; put the checkout into a folder that all nodes see"
        raise PlaceError(f"asked {nodes} nodes what they have with {place.python}, {len(hosts)} answered: {reason}")
    return hosts


def read(printed):
    """The lines of hostfacts.py, of all nodes."""
    ranks = {}
    for rank, name, value in re.findall(r"^\s*(\d+): ?@fact (\S+) ?(.*)", printed, re.M):
        ranks.setdefault(int(rank), {})[name.replace("_", " ")] = value.strip()
    return {facts.pop("host"): facts for _, facts in sorted(ranks.items()) if "host" in facts}


def usable_gpus(hosts):
    """GPUs that PyTorch finds on every node."""
    return min((int(facts.get("GPUs for PyTorch", "0")) for facts in hosts.values()), default=0)


def machines(hosts):
    """The number of machines behind the hosts: hosts with the same boot id are one."""
    return len({facts.get("machine") for facts in hosts.values()})


def loads(results):
    """The load of the busiest machine when the first cell began, and when the last one did."""
    seen = [max(rank.get("load", math.nan) for rank in result.ranks) for result in results if result.status == DONE]
    return f"{seen[0]:.1f} before the first training, {seen[-1]:.1f} before the last one" if seen else "no training ran"


def table(hosts, place, command, when, load):
    """Rows (what, value) for the page. Where nodes differ, each value has the names of its nodes."""
    rows = [("made", when), ("command", command),
            ("cluster", place.cluster), ("Slurm", place.slurm),
            ("slurm-bootstrap", "plugin, --bootstrap=on" if place.has_plugin else "library, LD_PRELOAD"),
            ("load average of a minute", load),
            ("hosts", f"{len(hosts)}: {', '.join(hosts)}")]
    if (count := machines(hosts)) < len(hosts):
        rows.append(("machines", f"{count}, by their boot ids: what goes between hosts of one machine does not leave its memory"))
    for name in dict.fromkeys(name for facts in hosts.values() for name in facts if name != "machine"):
        groups = {}
        for host, facts in hosts.items():
            groups.setdefault(facts.get(name, "unknown"), []).append(host)
        rows += [(name if len(groups) == 1 else f"{name} ({', '.join(members)})", value) for value, members in groups.items()]
    return rows

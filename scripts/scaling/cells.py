"""What the report measures: one cell for each back end, model and layout, and the order in which they are run."""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import dataclass
from itertools import groupby

BACKENDS = ("gloo", "mpi", "horovod-gloo", "horovod-mpi", "nccl")
OVER_MPI = ("mpi", "horovod-mpi")
MODELS = ("mlp", "cnn", "rnn", "resnet50")

DONE, FAILED, NOT_RUN = "done", "failed", "not run"


@dataclass(frozen=True)
class Cell:
    """One training: a model through a back end on `nodes` servers with `tasks` processes each."""

    backend: str
    model: str
    nodes: int
    tasks: int

    @property
    def ranks(self):
        return self.nodes * self.tasks

    @property
    def key(self):
        """Its name in files and messages."""
        return f"{self.backend}-{self.model}-{self.layout}"

    @property
    def layout(self):
        return f"{self.nodes}x{self.tasks}"

    @property
    def group(self):
        """Cells of a group differ in the model alone, and share one step: Python and PyTorch start once for all."""
        return self.backend, self.nodes, self.tasks


def make_cells(backends, models, nodes, tasks):
    """All cells, small worlds first, and the back ends of a layout one after the other: what else the machine does
    changes slowly, and so meets all of them alike."""
    layouts = sorted(((n, t) for n in nodes for t in tasks), key=lambda layout: (layout[0] * layout[1], layout[0]))
    return [Cell(backend, model, n, t) for n, t in layouts for backend in backends for model in models]


def in_groups(cells):
    """Lists of cells that share a step, in order."""
    return [list(group) for _, group in groupby(cells, key=lambda cell: cell.group)]


def why_impossible(cell, parameters, place):
    """A sentence when this cell cannot be run on this cluster, else ''."""
    nodes = len(place.nodes)
    if cell.nodes > nodes:
        return f"the cluster has {nodes} {'node' if nodes == 1 else 'nodes'} that can be used"
    wide = sum(node.cpus >= cell.tasks * parameters["threads"] for node in place.nodes)
    if wide < cell.nodes:
        return (f"{cell.tasks} processes with {parameters['threads']} CPUs each need nodes of "
                f"{cell.tasks * parameters['threads']} CPUs, and {wide} of the cluster's nodes have so many")
    if parameters["scaling"] == "strong" and 0 < parameters["batch"] < cell.ranks:
        return f"{cell.ranks} processes cannot share a batch of {parameters['batch']} samples"
    if cell.backend == "nccl" and parameters["device"] != "cuda":
        return place.no_gpu
    if parameters["device"] == "cuda":
        if cell.tasks > place.gpus:
            return f"each process needs a GPU of its own, {cell.tasks} on a node, and the nodes have {place.gpus}"
        if place.one_machine and cell.nodes > 1:
            return "all nodes of the one-machine cluster have the same GPUs, which two processes would then share"
    if cell.backend in OVER_MPI and not place.has_pmix:
        return f"back end {cell.backend} is started with srun --mpi=pmix, and this Slurm has no PMIx (srun --mpi=list)"
    return ""

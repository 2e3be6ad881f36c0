"""The command line of scripts/scaling-report, and the cells that it asks for."""

# SPDX-License-Identifier: Apache-2.0

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

BACKENDS = ("gloo", "mpi", "horovod-gloo", "horovod-mpi", "nccl")
OVER_MPI = ("mpi", "horovod-mpi")
MODELS = ("mlp", "cnn", "rnn", "resnet50")
DEFAULTS = {"nodes": [1, 2, 4], "tasks_per_node": [1, 2], "backends": ["gloo", "mpi", "nccl"], "models": [*MODELS], "steps": 20}
QUICK = {"nodes": [1, 2], "tasks_per_node": [1, 2], "backends": ["gloo", "mpi"], "models": ["mlp", "cnn"], "steps": 10}
LEAST_STEPS = 4  # of the losses, the first round through the four batches is compared with the last

EXAMPLES = """
examples:
  scripts/scaling-report --quick --out report          a look in about a minute
  salloc -N4 --exclusive --gpus-per-node 8 scripts/scaling-report --nodes 1,2,4 --tasks-per-node 1,2,4,8 \\
      --backends nccl --models resnet50 --steps 100 --out report
  scripts/scaling-report --out report --resume         after Ctrl-C, or to run failed cells again

It trains on GPUs where PyTorch finds one on every node, with larger models, and else on one CPU for each process.
Give the same options with --resume: a cell that was done with others is run again. The report is DIR/report.html and
DIR/report.md; numbers are in steps.csv and cells.json beside it. Exit status: 0 when no cell failed, 1 when one did (the
report is there all the same), 2 for a wrong command line, 130 after Ctrl-C.
"""


@dataclass(frozen=True)
class Cell:
    """One training: a model through a back end on `nodes` servers with `tasks` processes each."""

    backend: str
    model: str
    nodes: int
    tasks: int

    ranks = property(lambda self: self.nodes * self.tasks)
    layout = property(lambda self: f"{self.nodes}x{self.tasks}")
    key = property(lambda self: f"{self.backend}-{self.model}-{self.layout}")  # its name in files and messages
    # Cells of a group differ in the model alone, and share one step: Python and PyTorch start once for all of them.
    group = property(lambda self: (self.backend, self.nodes, self.tasks))


def make_cells(backends, models, nodes, tasks):
    """All cells, small worlds first, and the back ends of a layout one after the other: the other load of the machine changes
    slowly, and so it is alike for all of them."""
    layouts = sorted(((n, t) for n in nodes for t in tasks), key=lambda layout: (layout[0] * layout[1], layout[0]))
    return [Cell(backend, model, n, t) for n, t in layouts for backend in backends for model in models]


def why_impossible(cell, device, place):
    """A sentence when this cell cannot be run on this cluster, else ''."""
    nodes = len(place.nodes)
    if cell.nodes > nodes:
        return f"the cluster has {nodes} {'node' if nodes == 1 else 'nodes'} that can be used"
    wide = sum(node.cpus >= cell.tasks for node in place.nodes)
    if wide < cell.nodes:
        return f"{cell.tasks} processes need nodes of {cell.tasks} CPUs, and {wide} of the cluster's nodes have so many"
    if cell.backend == "nccl" and device != "cuda":
        return place.no_gpu
    if device == "cuda" and cell.tasks > place.gpus:
        return f"each process needs a GPU of its own, {cell.tasks} on a node, and the nodes have {place.gpus}"
    if device == "cuda" and cell.nodes > place.machines:
        return "several nodes are one machine here and have the same GPUs, which two processes would then share"
    if cell.backend in OVER_MPI and not place.has_pmix:
        return f"back end {cell.backend} is started with srun --mpi=pmix, and this Slurm has no PMIx (srun --mpi=list)"
    return ""


class Parser(argparse.ArgumentParser):
    """Prints an error as one sentence."""

    def error(self, message):
        self.exit(2, f"scaling-report: {message}; `scaling-report --help` shows the options\n")


def numbers(text):
    """1,2,4 as a list in order, each once."""
    words = text.split(",")
    if not all(re.fullmatch("[1-9][0-9]{0,4}", word) for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers such as 1,2,4")
    return sorted(set(map(int, words)))


def names_of(what, known):
    def parse(text):
        words = list(dict.fromkeys(text.split(",")))
        if unknown := [word for word in words if word not in known]:
            raise argparse.ArgumentTypeError(f"there is no {what} '{unknown[0]}'; there are {', '.join(known)}")
        return words

    return parse


def steps(text):
    if not text.isdecimal() or int(text) < LEAST_STEPS:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of steps, {LEAST_STEPS} at least")
    return int(text)


def make_parser():
    parser = Parser(
        prog="scaling-report", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES,
        description="Trains the same models through several back ends and layouts of a Slurm cluster, and writes a report on how they "
                    "scale.")
    add = parser.add_argument
    add("--nodes", type=numbers, metavar="N,...", help="servers (1,2,4)")
    add("--tasks-per-node", type=numbers, metavar="N,...", help="processes on each server (1,2)")
    add("--backends", type=names_of("back end", BACKENDS), metavar="NAME,...",
        help="gloo, nccl: of torch.distributed; mpi: of mpi4py; horovod-gloo, horovod-mpi: of Horovod (gloo,mpi,nccl)")
    add("--models", type=names_of("model", MODELS), metavar="NAME,...", help="mlp, cnn, rnn (an LSTM), resnet50 (mlp,cnn,rnn,resnet50)")
    add("--steps", type=steps, metavar="N", help="steps measured in each cell (20)")
    add("--scaling", choices=("weak", "strong"), default="weak",
        help="weak: each process has a batch of its own; strong: all share one (weak)")
    add("--quick", action="store_true", help="1,2 nodes, gloo,mpi, mlp,cnn and 10 steps, unless said otherwise")
    add("--python", metavar="FILE", help="Python with PyTorch, and mpi4py or Horovod, on the nodes (python3)")
    add("--out", required=True, type=Path, metavar="DIR", help="folder for the report, made when it is not there")
    add("--resume", action="store_true", help="go on in DIR: run what is not done there with these options")
    return parser


def parse(arguments=None):
    parser = make_parser()
    parser.set_defaults(**DEFAULTS)
    if parser.parse_args(arguments).quick:
        parser.set_defaults(**QUICK)
    options = parser.parse_args(arguments)
    # A report that found no cluster has left empty folders.
    if not options.resume and any(path.is_file() for path in options.out.rglob("*")):
        parser.error(f"--out {options.out} is not empty; say --resume to go on with the report there, or name another folder")
    return options

"""The command line of scripts/scaling-report."""

# SPDX-License-Identifier: Apache-2.0

import argparse
import os
import shlex
from pathlib import Path

from scaling.cells import BACKENDS, MODELS

DEFAULTS = {"nodes": [1, 2, 4], "tasks_per_node": [1, 2], "backends": ["gloo", "mpi", "nccl"],
            "models": ["mlp", "cnn", "rnn", "resnet50"], "steps": 20}
QUICK = {"nodes": [1, 2], "tasks_per_node": [1, 2], "backends": ["gloo", "mpi"], "models": ["mlp", "cnn"], "steps": 10}
LEAST_STEPS = 4  # of the losses, the first round through the four batches is compared with the last

EXAMPLES = """
examples:
  scripts/scaling-report --out report                  all back ends and models; on a one-machine cluster where
                                                       no Slurm answers (as root, since it starts one)
  scripts/scaling-report --quick --out report          a look in about a minute
  salloc -N4 --exclusive --gpus-per-node 8 scripts/scaling-report --nodes 1,2,4 --tasks-per-node 1,2,4,8 \\
      --backends nccl --models resnet50 --steps 100 --out report
                                                       on GPUs, in an allocation of its own
  scripts/scaling-report --out report --resume         after Ctrl-C, or to run failed cells again

Give the same options with --resume: a cell that was done with others is run again. The report is DIR/report.html and
DIR/report.md; numbers are in steps.csv, ranks.csv, cells.json and environment.json beside it. Exit status: 0 when no cell
failed, 1 when one did (the report is there all the same), 2 for a wrong command line, 130 after Ctrl-C.
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message):
        self.exit(2, f"scaling-report: {message}; `scaling-report --help` shows the options\n")


def numbers(text):
    """1,2,4 as a list in order, each once."""
    try:
        found = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers such as 1,2,4") from None
    if found[0] < 1 or found[-1] > 65536:
        raise argparse.ArgumentTypeError(f"'{text}' holds a number outside 1 to 65536")
    return found


def names_of(what, known):
    def parse(text):
        words = list(dict.fromkeys(text.split(",")))
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"there is no {what} '{word}'; there are {', '.join(known)}")
        return words

    return parse


def at_least(least):
    def parse(text):
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too little, the least is {least}")
        return value

    return parse


def words(text):
    """Words as a shell would take them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' cannot be taken apart into words: {error}") from None


def make_parser():
    parser = Parser(
        prog="scaling-report", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES,
        description="Trains the same models through several back ends and layouts of a Slurm cluster, and writes a report "
        "on how they scale.")
    what = parser.add_argument_group("what is run")
    what.add_argument("--nodes", type=numbers, metavar="N,...", help="servers (1,2,4)")
    what.add_argument("--tasks-per-node", type=numbers, metavar="N,...", help="processes on each server (1,2)")
    what.add_argument("--backends", type=names_of("back end", BACKENDS), metavar="NAME,...",
                      help="gloo, nccl: of torch.distributed; mpi: of mpi4py; horovod-gloo, horovod-mpi: of Horovod (gloo,mpi,nccl)")
    what.add_argument("--models", type=names_of("model", MODELS), metavar="NAME,...",
                      help="mlp, cnn, rnn (an LSTM), resnet50 (mlp,cnn,rnn,resnet50)")
    what.add_argument("--steps", type=at_least(LEAST_STEPS), metavar="N", help="steps measured in each cell (20)")
    what.add_argument("--warm-up", type=at_least(0), default=4, metavar="N", help="steps before those (4)")
    what.add_argument("--scaling", choices=("weak", "strong"), default="weak",
                      help="weak: each process has a batch of its own; strong: all share one (weak)")
    what.add_argument("--batch", type=at_least(1), default=0, metavar="N", help="samples of a process, with --scaling strong of all "
                      "(the model's own, with strong eight times that)")
    what.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto",
                      help="auto: GPUs where PyTorch finds one on every node (auto)")
    what.add_argument("--size", choices=("auto", "small", "full"), default="auto",
                      help="of models and samples; auto: full on GPUs, small on CPUs (auto)")
    what.add_argument("--threads", type=at_least(1), default=1, metavar="N", help="CPUs and computing threads of a process (1)")
    what.add_argument("--quick", action="store_true", help="1,2 nodes, gloo,mpi, mlp,cnn and 10 steps, unless said otherwise")
    where = parser.add_argument_group("where")
    where.add_argument("--partition", metavar="NAME", help="of Slurm (its default)")
    where.add_argument("--srun-options", type=words, default=[], metavar="TEXT", help="more options of srun: --srun-options='--account x'")
    where.add_argument("--python", metavar="FILE", help="Python with PyTorch, and mpi4py or Horovod, on the nodes (python3; on the "
                       "one-machine cluster /usr/bin/python3)")
    where.add_argument("--preload", metavar="FILE", help="libbootstrap.so.0, where the plugin is not (as built or installed)")
    where.add_argument("--cell-timeout", type=at_least(1), default=120, metavar="S",
                       help="seconds without a sign of life after which a cell has failed (120)")
    out = parser.add_argument_group("the report")
    out.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for it, made when it is not there")
    out.add_argument("--resume", action="store_true", help="go on in DIR: run what is not done there with these options")
    return parser


def parse(arguments=None):
    parser = make_parser()
    parser.set_defaults(**DEFAULTS)
    if parser.parse_args(arguments).quick:
        parser.set_defaults(**QUICK)
    options = parser.parse_args(arguments)
    check_folder(parser, options)
    return options


def check_folder(parser, options):
    """Before a cluster is started for what cannot be written."""
    out = options.out
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {out} cannot be made a folder: {error.strerror}")
    if not os.access(out, os.W_OK | os.X_OK):
        parser.error(f"--out {out} is not writable for uid {os.geteuid()}")
    if (out / "cells").exists() and not options.resume:
        parser.error(f"--out {out} holds cells of an earlier run; say --resume to go on there, or name another folder")
    if not (out / "cells").exists() and any(out.iterdir()) and not options.resume:
        parser.error(f"--out {out} is not empty and holds no report; name another folder")

"""Figures that tests and checks measure, kept one file each for the report of `scripts/check --full`."""

# SPDX-License-Identifier: Apache-2.0

import datetime
import json
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "report"

# What is measured, and the goal. The order is that of the report.
GOALS = {
    "G1": ("names and needs of the plugin", "libc alone, our entry points alone"),
    "G2": ("names and needs of the library", "libc alone, the functions of bootstrap.h alone"),
    "G4": ("calls that the plugin must not make", "0"),
    "F1": ("libFuzzer on every parser", "1e8 runs, 0 crashes, 0 leaks"),
    "F2": ("host lists against libslurm", "1e6 lists, 0 differences"),
    "F3": ("steps with malformed environments", "2,000 steps, one line each, 0 nodes drained"),
    "F4": ("option abuses", "100 cases, the text and status expected"),
    "F5": ("steps with hostile values", "slurmstepd within 4 MiB of off, 0 nodes drained, 0 lines forged"),
    "C2": ("release plugin, each of its own calls failing", "0 drained, 0 dead slurmstepd, 0 'exit 0 but not run'"),
    "C3": ("layouts against an oracle", "500 layouts, 5,000 tasks, 0 differences"),
    "C4": ("poor installations", "commands work, texts as documented"),
    "C5": ("ASan and UBSan in slurmstepd and srun", "1,000 steps, 0 reports with our frames"),
    "C6": ("GPU layouts against an oracle", "200 layouts, each task its own GPU, peers visible"),
    "M1": ("exchange of 128 bytes", "1,000 steps, all equal, p99 <= 1 s, nothing left"),
    "M2": ("a rank killed during an exchange", "480 runs ended in the deadline + 2 s, the rank named"),
    "M3": ("a rank stopped during an exchange", "as M2"),
    "M4": ("network down, loss, slow", "ended in the deadline; 5 % loss: success"),
    "M5": ("slurmstepd killed, slurmd restarted", "ended in the deadline; not noticed"),
    "M6": ("no PMIx, a stale or a silent one", "refused or done in 5 s, a clear line"),
    "M7": ("with Open MPI: before, between, after", "6 orders x 50, 0 failures"),
    "M8": ("ways to end, with and without the library", "12 ways x 50, 0 differences"),
    "M9": ("PMIx releases", "table"),
    "M10": ("10,000 exchanges in one process; TSan", "0 reports, memory and descriptors flat"),
    "M11": ("calls after a rank is gone, late or stopped", "0 of 300 wrong"),
    "M12": ("a rank killed while NCCL makes a communicator, at 20 moments", "all others name it"),
    "L1": ("preload in processes that are no rank", "output and status equal, no call of ours"),
    "L2": ("the user's own LD_PRELOAD", "kept, ours once, at the end"),
    "L3": ("cost of the preload", "<= 0.1 ms a process"),
    "Q2": ("50 steps at once x 20", "0 shared ports; a collision is a clear failure"),
    "Q3": ("another user's program on the port", "clear failure in 5 s, or documented; never a hang"),
    "Q4": ("a rogue peer at NCCL's bootstrap", "ended in the deadline"),
    "S1": ("what root code opens, executes, connects", "100 steps, nothing but the holder of the port"),
    "S2": ("the unique id looked for everywhere", "100 steps, 0 hits"),
    "S3": ("another user and the PMIx server", "refused 50 of 50"),
    "S4": ("files that others can write", "refused with a line"),
    "T1": ("looks of `status` at healthy worlds under load", "0 of 100 call a healthy rank stopped, gone or late"),
    "T2": ("a look of `status` at 64 nodes with 4 ranks each", "<= 10 s"),
    "T3": ("a supervised training after each kind of failure", "all end with the same loss; the grace + 2 s"),
    "B1": ("load", "10,000 steps, 0 failures, memory, descriptors and processes flat"),
    "B2": ("latency of a step with and without", "median difference <= 5 ms"),
    "B3": ("512 tasks on 4 nodes, oversubscribed", "done, or a clean failure in the deadline"),
    "B4": ("scancel, Ctrl-C, time limit at random moments", "1,000 steps, all free within KillWait + 5 s"),
    "B5": ("steps while the plugin is switched on and off host by host", "500 steps, 0 half worlds"),
    "B6": ("lines about nodes that have confirmed their tasks", "1,000 steps, 0 lines"),
}


@dataclass
class Figure:
    """One measured figure. `why` is for a goal that was not reached: the reason, and what was measured instead."""

    id: str
    part: str  # where a figure has several parts, such as "scancel" of B4; "" else
    got: str
    met: bool
    is_full: bool  # of the size that the goal names
    control: str = ""  # what failed as it must, without the protection
    seed: int = 0
    why: str = ""
    table: str = ""  # Markdown, for a section of its own
    date: str = ""

    name = property(lambda self: f"{self.id}, {self.part}" if self.part else self.id)


def markdown(head, lines):
    """A table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def keep(figure, folder=None):
    """Writes a figure, in place of an earlier one of the same id and part; but a short form never in place of the full one."""
    assert figure.id in GOALS, f"{figure.id} is not in the list of figures"
    folder = Path(folder or FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    figure.date = datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    path = folder / (figure.name.lower().replace(", ", "-").replace(" ", "-").replace("/", "-") + ".json")
    if path.exists() and not figure.is_full and json.loads(path.read_text())["is_full"]:
        return
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(figure), indent=1) + "\n")
    fresh.rename(path)


def kept(folder=None):
    """All figures, in the order of the list."""
    order = list(GOALS)
    found = [Figure(**json.loads(path.read_text())) for path in Path(folder or FOLDER).glob("*.json")]
    return sorted(found, key=lambda figure: (order.index(figure.id), figure.part))

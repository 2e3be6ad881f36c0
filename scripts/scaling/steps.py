"""Steps that train the cells, one for each group of them, with a deadline: their output, whether a result can be right, and its file."""

# SPDX-License-Identifier: Apache-2.0

import csv
import io
import json
import math
import queue
import re
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from scaling.options import OVER_MPI, Cell

DONE, FAILED, NOT_RUN = "done", "failed", "not run"
TIMES = ("forward", "backward", "communication", "update")
COLUMNS = ("backend", "model", "nodes", "tasks", "rank", "step", "samples", *TIMES, "loss")  # of steps.csv
WARM_UP = 4  # steps, which have negative numbers
BATCHES = 4  # of a rank, in turn: models.py has the same
SILENCE = 120  # seconds without a sign of life after which a step is stopped
TOLERANCE = 1e-5  # between the parameters of ranks, relative to the largest

LABEL = re.compile(r"^\s*(\d+): ?")  # that `srun --label` puts before each line
# Lines that Slurm and the launcher add to the end of every step that fails: they do not name the reason.
NOISE = re.compile(r"^(srun: (error: .*(: tasks? |Job step|Timed out|Unable to)|launch/slurm|Job step|job \d+|Force Term|"
                   r"interrupt|sending|Terminating|error: \*\*\*)|slurmstepd.*(CANCELLED|\*\*\* STEP|mpi/pmix)|\s*$|-{5}|"
                   r"Traceback|  )|^\s*$")
FIRST = re.compile(r"task (\d+) \([^)]*\) (?:failed )?first: .*")


@dataclass
class Result:
    """A cell and what became of it."""

    cell: Cell
    status: str
    reason: str = ""
    notes: list = field(default_factory=list)
    parameters: dict = field(default_factory=dict)
    ranks: list = field(default_factory=list)
    rows: list = field(default_factory=list)


class Output:
    """The lines of a step, in the order of their arrival."""

    def __init__(self):
        self.rows = {}  # model -> list of rows
        self.ends = {}  # model -> rank -> fields
        self.ranks = {}  # rank -> fields
        self.begun, self.errors = [], []

    def take(self, line):
        """A line of standard output; True when it is a sign of life of the training."""
        text = LABEL.sub("", line.rstrip("\n"), count=1)
        try:
            fields = json.loads(text[1:]) if text.startswith("@{") else None
        except ValueError:  # of a process that was killed while it wrote
            fields = None
        if fields is None:
            self.errors.append(line.rstrip("\n"))
            return False
        kind = fields.pop("kind")
        if kind == "step":
            self.rows.setdefault(fields.pop("model"), []).append(fields)
        elif kind == "end":
            self.ends.setdefault(fields.pop("model"), {})[fields.pop("rank")] = fields
        elif kind == "begin":
            self.begun.append(fields["model"])
        elif kind == "rank":
            self.ranks[fields.pop("rank")] = fields
        return True

    def finished(self, model, ranks):
        """True if all ranks have ended the training."""
        return len(self.ends.get(model, {})) == ranks

    def reason(self):
        """Why a step failed, in one sentence: the last line of the rank that failed first, which the plugin names."""
        first = next((found for line in reversed(self.errors) if (found := FIRST.search(line))), None)
        lines = [line for line in self.errors if not NOISE.match(LABEL.sub("", line, count=1)) and not FIRST.search(line)]
        if first:
            lines = [line for line in lines if (label := LABEL.match(line)) and int(label[1]) == int(first[1])]
        last = LABEL.sub("", lines[-1], count=1).strip() if lines else ""
        return ": ".join(filter(None, (first[0] if first else "", last)))[:500]


def judge(output, model, ranks, steps):
    """Why the result of a finished training cannot be right, or ''."""
    rows, ends = output.rows.get(model, []), output.ends[model]
    wanted = {(rank, step) for rank in range(ranks) for step in range(-WARM_UP, steps)}
    there = [(row["rank"], row["step"]) for row in rows]
    if len(there) != len(wanted) or set(there) != wanted:
        return f"{len(set(there) & wanted)} of {len(wanted)} lines of steps came from the ranks"
    difference, scale = ([fields[name] for fields in ends.values()] for name in ("difference", "scale"))
    if not all(map(math.isfinite, (*difference, *scale))):
        return "the parameters are not finite numbers in the end"
    difference, scale = max(difference), max(scale)
    if difference > TOLERANCE * scale:
        return f"the ranks do not hold the same parameters in the end: they differ by {difference:.3g}"
    if difference == 0 and len({fields["digest"] for fields in ends.values()}) > 1:
        return "the ranks say that their parameters are the same, and the checksums of these differ"
    before, after = losses(rows, steps)
    if not after < before:
        return f"the loss did not fall: {before:.4g} in the first {BATCHES} steps, {after:.4g} in the last"
    return ""


def losses(rows, steps):
    """Mean over all ranks, in the first round through the batches and in the last whole one, on the same batches."""
    first = [row["loss"] for row in rows if row["step"] < BATCHES - WARM_UP]
    last = [row["loss"] for row in rows if row["step"] >= steps - BATCHES]
    return sum(first) / len(first), sum(last) / len(last)


class Runner:
    """Runs groups of cells; `report` is called with each result as soon as it is known."""

    def __init__(self, place, parameters, report, silence=SILENCE):
        self.place, self.parameters, self.report, self.silence = place, parameters, report, silence

    def run_group(self, cells):
        """Starts steps until each cell of the group has a result. A cell that fails ends its step: the cells behind it go on in a new
        one. No cell is run twice, so that a failure that occurs now and then is seen."""
        waiting = list(cells)
        while waiting:
            output, trouble = self.run_step(waiting)
            done = [cell for cell in waiting if output.finished(cell.model, cell.ranks)]
            for cell in done:
                result = self.result_of(cell, output)
                if trouble and cell == waiting[-1]:
                    result.notes.append(f"its step failed after that: {trouble}")
                self.report(result)
            waiting = [cell for cell in waiting if cell not in done]
            # A step that ended before the first model began would do so for the others as well; later, one cell did it.
            failed = waiting[:1] if output.begun else waiting
            for cell in failed:
                reason = trouble or "the step ended before this training did, and said nothing"
                self.report(Result(cell, FAILED, reason, [], self.parameters))
            waiting = waiting[len(failed):]

    def result_of(self, cell, output):
        steps, ends, rows = self.parameters["steps"], output.ends[cell.model], output.rows.get(cell.model, [])
        ranks = [{"rank": rank, **output.ranks.get(rank, {}), **ends[rank]} for rank in sorted(ends)]
        if wrong := judge(output, cell.model, cell.ranks, steps):
            return Result(cell, FAILED, wrong, [], self.parameters, ranks, rows)
        before, after = losses(rows, steps)
        return Result(cell, DONE, "", [f"loss {before:.3g} -> {after:.3g}"], self.parameters, ranks, rows)

    def command(self, cells):
        cell, parameters = cells[0], self.parameters
        words = self.place.program("training/train.py", cell.backend, ",".join(c.model for c in cells), parameters["device"],
                                   parameters["scaling"], str(WARM_UP), str(parameters["steps"]))
        if cell.backend == "horovod-gloo":
            words = ["slurm-bootstrap", "run", "--horovod", *words]
        return self.place.step(cell.nodes, cell.tasks, words, mpi="pmix" if cell.backend in OVER_MPI else "none",
                               gpus=cell.tasks if parameters["device"] == "cuda" else 0)

    def run_step(self, cells):
        """The output of the step, and why it failed: '' when it did not."""
        output, lines = Output(), queue.SimpleQueue()
        process = self.place.start(self.command(cells))
        threading.Thread(target=pass_lines, args=(process.stdout, lines), daemon=True).start()
        try:
            silent = self.follow(process, lines, output)
        finally:
            if process.poll() is None:
                stop_step(process)
        try:
            while silent and (line := lines.get(timeout=5)):
                output.take(line)
        except queue.Empty:
            pass  # a process that outlived srun has its output open
        reason = output.reason()
        if silent:
            at = f"after '{output.begun[-1]}' began" if output.begun else "at its start"
            return output, f"no sign of life for {self.silence} s {at}, so it was stopped" + (f": {reason}" if reason else "")
        return output, "" if process.returncode == 0 else reason or f"srun ended with {process.returncode} and said nothing"

    def follow(self, process, lines, output):
        """Waits for the end; True when the step was silent for too long. Time in Slurm's queue does not count."""
        last = None if self.place.waits_in_queue else time.monotonic()
        while True:
            try:
                line = lines.get(timeout=last and max(0, last + self.silence - time.monotonic()))
            except queue.Empty:
                return True
            if not line:
                process.wait()
                return False
            if output.take(line):
                last = time.monotonic()


def pass_lines(stream, lines):
    """Passes lines to a reader that has a deadline; '' is the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def stop_step(process):
    """srun cancels its step when it gets SIGTERM; a process that does not end is killed."""
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
    finally:
        process.kill()
        process.wait()


def write(path, text):
    """Whole or not at all: --resume after a full disk or a kill reads no half of a file."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


def as_json(value):
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


class Folder:
    """DIR of --out: a file for each cell when it has a result, and the raw numbers of all cells at the end."""

    def __init__(self, path):
        self.path = path
        (path / "cells").mkdir(parents=True, exist_ok=True)

    def save(self, result):
        write(self.path / "cells" / f"{result.cell.key}.json", as_json(asdict(result)))

    def load(self, cell, parameters):
        """The result of a cell that was done with these parameters before, or None."""
        try:
            found = json.loads((self.path / "cells" / f"{cell.key}.json").read_text(encoding="utf-8"))
            result = Result(**{**found, "cell": Cell(**found["cell"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None  # not there, or of another program: it is run again
        return result if result.status == DONE and result.cell == cell and result.parameters == parameters else None

    def write_raw(self, results, table):
        """steps.csv, from which every number can be computed again, and cells.json, with the numbers of `table`."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({**asdict(result.cell), **row} for result in results if result.status == DONE for row in result.rows)
        write(self.path / "steps.csv", text.getvalue())
        numbers = json.loads(table.to_json(orient="records", double_precision=12))  # null for nan
        of_cell = {Cell(*(line[name] for name in ("backend", "model", "nodes", "tasks"))): line for line in numbers}
        write(self.path / "cells.json", as_json([
            {**asdict(result.cell), "status": result.status, "reason": result.reason, "notes": result.notes, "ranks": result.ranks,
             "parameters": result.parameters, **of_cell.get(result.cell, {})} for result in results]))

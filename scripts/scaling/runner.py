"""Runs the cells, one step for each group of them, with a deadline, and keeps what they gave."""

# SPDX-License-Identifier: Apache-2.0

import json
import queue
import subprocess
import threading
import time
from dataclasses import dataclass, field

from scaling import output as outputs
from scaling.cells import DONE, FAILED, OVER_MPI


@dataclass
class Result:
    """A cell and what became of it."""

    cell: object
    status: str
    reason: str = ""
    notes: list = field(default_factory=list)
    parameters: dict = field(default_factory=dict)
    ranks: list = field(default_factory=list)
    rows: list = field(default_factory=list)


class Runner:
    """Runs groups of cells; `report` is called with each result as soon as it is known."""

    def __init__(self, place, parameters, timeout, report):
        self.place, self.parameters, self.timeout, self.report = place, parameters, timeout, report

    def run_group(self, cells):
        """Starts steps until each cell of the group has a result. A cell that fails ends its step: those behind it go on
        in a new one. None is run twice, so that what fails now and then is seen."""
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
        steps, warm_up = self.parameters["steps"], self.parameters["warm_up"]
        wrong = outputs.judge(output, cell.model, cell.ranks, steps, warm_up)
        ends, rows = output.ends[cell.model], output.rows.get(cell.model, [])
        ranks = [{"rank": rank, **output.ranks.get(rank, {}), **ends[rank]} for rank in sorted(ends)]
        if wrong:
            return Result(cell, FAILED, wrong, [], self.parameters, ranks, rows)
        before, after = outputs.losses(rows, steps, warm_up)
        note = f"loss {before:.3g} -> {after:.3g}; parameters of all ranks {outputs.parameters_are(output, cell.model)}"
        return Result(cell, DONE, "", [note], self.parameters, ranks, rows)

    def command(self, cells):
        cell, parameters = cells[0], self.parameters
        words = self.place.program("training/train.py", cell.backend, ",".join(c.model for c in cells), json.dumps(parameters))
        if cell.backend == "horovod-gloo":
            words = ["slurm-bootstrap", "run", "--horovod", *words]
        return self.place.step(cell.nodes, cell.tasks, words, threads=parameters["threads"],
                               mpi="pmix" if cell.backend in OVER_MPI else "none",
                               gpus=cell.tasks if parameters["device"] == "cuda" else 0)

    def run_step(self, cells):
        """What the step printed, and why it failed: '' when it did not."""
        output, lines = outputs.Output(), queue.SimpleQueue()
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
            pass  # a process that outlived srun holds its output
        reason = output.reason()
        if silent:
            at = f"after '{output.begun[-1]}' began" if output.begun else "at its start"
            return output, f"no sign of life for {self.timeout} s {at}, so it was stopped" + (f": {reason}" if reason else "")
        return output, "" if process.returncode == 0 else reason or f"srun ended with {process.returncode} and said nothing"

    def follow(self, process, lines, output):
        """Waits for the end; True when the step was silent for too long. Time in Slurm's queue does not count."""
        last = None if self.place.waits_in_queue else time.monotonic()
        while True:
            try:
                line = lines.get(timeout=last and max(0, last + self.timeout - time.monotonic()))
            except queue.Empty:
                return True
            if not line:
                process.wait()
                return False
            if output.take(line):
                last = time.monotonic()


def pass_lines(stream, lines):
    """To those who read them with a deadline; '' is the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def stop_step(process):
    """srun cancels its step when it gets SIGTERM; what does not end is killed."""
    process.terminate()
    try:
        process.wait(10)
    except BaseException as error:
        process.kill()
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise

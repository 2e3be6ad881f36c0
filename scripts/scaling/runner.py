"""Runs the cells, one step for each group of them, with a deadline and a second try, and keeps what they gave."""

# SPDX-License-Identifier: Apache-2.0

import queue
import subprocess
import threading
import time
from dataclasses import dataclass, field

from scaling import output as outputs
from scaling.cells import DONE, FAILED, NOT_RUN

TRIES = 2  # Slurm 22.05 loses a message of PMIx in about 1 of 100 starts: CONTRIBUTING.md


@dataclass
class Result:
    """A cell and what became of it."""

    cell: object
    status: str
    reason: str = ""
    tries: int = 1
    notes: list = field(default_factory=list)
    parameters: dict = field(default_factory=dict)
    ranks: list = field(default_factory=list)
    rows: list = field(default_factory=list)


class Runner:
    """Runs groups of cells; `report` is called with each result as soon as it is known."""

    def __init__(self, place, parameters, timeout, report):
        self.place, self.parameters, self.timeout, self.report = place, parameters, timeout, report

    def run_group(self, cells):
        """Starts steps until each cell of the group has a result. A cell that fails ends its step: the others go on
        in a new one."""
        waiting, failures = list(cells), {cell: [] for cell in cells}
        while waiting:
            output, trouble = self.run_step(waiting)
            done = [cell for cell in waiting if output.finished(cell.model, cell.ranks)]
            for cell in done:
                result = self.result_of(cell, output, failures[cell])
                if trouble and cell == waiting[-1]:
                    result.notes.append(f"its step failed after that: {trouble}")
                self.report(result)
            waiting = [cell for cell in waiting if cell not in done]
            # A step that ended before the first model began would do so for the others as well; later, one cell did it.
            for cell in waiting[:1] if output.begun else list(waiting):
                failures[cell].append(trouble or "the step ended before this training did, and said nothing")
                if len(failures[cell]) == TRIES:
                    waiting.remove(cell)
                    self.report(Result(cell, FAILED, failures[cell][-1], TRIES, self.notes(failures[cell][:-1]), self.parameters))

    @staticmethod
    def notes(failures):
        return [f"try {number} failed: {reason}" for number, reason in enumerate(failures, 1)]

    def result_of(self, cell, output, failures):
        steps, warm_up = self.parameters["steps"], self.parameters["warm_up"]
        wrong = outputs.judge(output, cell.model, cell.ranks, steps, warm_up)
        ends = output.ends[cell.model]
        ranks = [{"rank": rank, **output.ranks.get(rank, {}), **ends[rank]} for rank in sorted(ends)]
        notes = self.notes(failures)
        if not wrong:
            before, after = outputs.losses(output.rows[cell.model], steps, warm_up)
            notes.append(f"loss {before:.3g} -> {after:.3g}; parameters of all ranks {outputs.parameters_are(output, cell.model)}")
        return Result(cell, FAILED if wrong else DONE, wrong, len(failures) + 1, notes, self.parameters, ranks,
                      output.rows.get(cell.model, []))

    def command(self, cells):
        cell, parameters = cells[0], self.parameters
        words = self.place.program(
            "train.py", "--backend", cell.backend, "--models", ",".join(c.model for c in cells),
            *(word for name in ("steps", "warm_up", "batch", "scaling", "size", "device", "threads")
              for word in (f"--{name.replace('_', '-')}", str(parameters[name]))))
        return self.place.step(cell.nodes, cell.tasks, words, threads=parameters["threads"],
                               mpi="pmix" if cell.backend == "mpi" else "none",
                               gpus=cell.tasks if parameters["device"] == "cuda" else 0)

    def run_step(self, cells):
        """What the step printed, and why it failed: '' when it did not."""
        output = outputs.Output()
        process = self.place.start(self.command(cells))
        lines = queue.SimpleQueue()
        readers = [threading.Thread(target=drain, args=(stream, lines, kind), daemon=True)
                   for stream, kind in ((process.stdout, "out"), (process.stderr, "err"))]
        for reader in readers:
            reader.start()
        try:
            silent = self.follow(process, lines, output)
        finally:
            if process.poll() is None:
                stop_step(process)
            for reader in readers:
                reader.join(5)
        take_all(lines, output)
        reason = output.reason()
        if silent:
            at = f"after '{output.begun[-1]}' began" if output.begun else "at its start"
            return output, f"no sign of life for {self.timeout} s {at}, so it was stopped" + (f": {reason}" if reason else "")
        return output, "" if process.returncode == 0 else reason or f"srun ended with {process.returncode} and said nothing"

    def follow(self, process, lines, output):
        """Waits for the end; True when the step was silent for too long. Time in Slurm's queue does not count."""
        counting = not self.place.waits_in_queue
        last = time.monotonic()
        while process.poll() is None:
            try:
                kind, line = lines.get(timeout=0.2)
            except queue.Empty:
                if counting and time.monotonic() - last > self.timeout:
                    return True
                continue
            if kind == "err":
                output.errors.append(line.rstrip("\n"))
            elif output.take(line):
                counting, last = True, time.monotonic()
        return False


def drain(stream, lines, kind):
    try:
        for line in stream:
            lines.put((kind, line))
    except ValueError:
        pass  # the stream was closed when its process was stopped


def take_all(lines, output):
    while not lines.empty():
        kind, line = lines.get()
        if kind == "err":
            output.errors.append(line.rstrip("\n"))
        else:
            output.take(line)


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


def not_run(cell, reason, parameters):
    return Result(cell, NOT_RUN, reason, 0, [], parameters)

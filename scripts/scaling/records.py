"""The files of a report's folder: a file for each cell while it runs, and the raw numbers of all of them at the end."""

# SPDX-License-Identifier: Apache-2.0

import csv
import io
import json
import math
import os
from dataclasses import asdict

from scaling.cells import DONE, Cell
from scaling.output import ROW_FIELDS
from scaling.runner import Result

CELL_COLUMNS = ("backend", "model", "nodes", "tasks")
RANK_COLUMNS = ("rank", "host", "machine", "cores", "device", "digest", "parameters")


def write(path, text):
    """Whole or not at all: who resumes after a full disk or a kill reads no half of a file."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def as_json(value):
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


class Folder:
    """DIR of --out."""

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
            return None  # not there, or not ours: it is run again
        return result if result.status == DONE and result.cell == cell and result.parameters == parameters else None

    def write_raw(self, results, rows, environment):
        """steps.csv and ranks.csv, from which every number can be computed again, and both JSON files."""
        write(self.path / "steps.csv", as_csv((*CELL_COLUMNS, *ROW_FIELDS), (
            {**asdict(result.cell), **row} for result in results if result.status == DONE for row in result.rows)))
        write(self.path / "ranks.csv", as_csv((*CELL_COLUMNS, *RANK_COLUMNS), (
            {**asdict(result.cell), **rank} for result in results if result.status == DONE for rank in result.ranks)))
        figures = {row.cell: figures_as_dict(row) for row in rows}
        write(self.path / "cells.json", as_json([
            {**asdict(result.cell), "status": result.status, "reason": result.reason,
             "notes": result.notes, "parameters": result.parameters, **figures.get(result.cell, {})} for result in results]))
        write(self.path / "environment.json", as_json(environment))


def figures_as_dict(row):
    figures = row.figures
    values = {"step_seconds": figures.step, "samples_per_second": figures.throughput, "speedup": row.speedup, "efficiency": row.efficiency}
    numbers = {name: value.mean for name, value in values.items()} | {f"{name}_spread": value.spread for name, value in values.items()} | {
        "compute_seconds": figures.compute, "transfer_seconds": figures.transfer, "wait_seconds": figures.wait,
        "core_share": row.core_share, "samples_per_step": figures.samples}
    numbers = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    return {**numbers, "speedup_relative_to": row.base.layout, "oversubscribed": row.oversubscribed, "disturbed": row.disturbed,
            "processes_on_a_machine": row.load[0], "cores_of_it": row.load[1]}


def as_csv(columns, rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

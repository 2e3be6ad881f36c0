"""Where a SPANK plugin can fail, and how: the cells of the table of what Slurm makes of it, and the table's file."""

# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import astuple, dataclass, fields

from built_files import BUILT_INSIDE

FAULTS = ("-1", "+1", "throw", "abort", "segv", "exit(0)", "exit(1)", "block")
PLUGINS = ("required", "optional")

# Command -> the places that a start by it comes through. What a start by salloc has on a node, srun has as well; the
# epilog of a batch job is that of any other. slurmd: it is started, runs a step and is stopped.
PLACES = {
    "srun": (
        *("init.local", "option.local", "init_post_opt.local", "local_user_init.local", "exit.local"),
        *("job_prolog.job_script", "init.remote", "option.remote", "init_post_opt.remote", "user_init.remote"),
        *("task_init_privileged.remote", "task_post_fork.remote", "task_init.remote", "task_exit.remote"),
        *("exit.remote", "job_epilog.job_script"),
    ),
    "sbatch": (
        *("init.allocator", "init_post_opt.allocator", "exit.allocator", "job_prolog.job_script", "init.remote"),
        *("init_post_opt.remote", "user_init.remote", "task_init_privileged.remote", "task_post_fork.remote"),
        *("task_init.remote", "task_exit.remote", "exit.remote"),
    ),
    "salloc": ("init.allocator", "init_post_opt.allocator", "exit.allocator"),
    "slurmd": ("init.slurmd", "slurmd_exit.slurmd"),
}


@dataclass(frozen=True)
class Cell:
    """One fault at one place, in a plugin that plugstack.conf calls required or optional."""

    command: str
    place: str
    plugin: str
    fault: str

    @property
    def plugstack(self):
        double = f"{BUILT_INSIDE}/tests/doubles/fault_spank.so"
        return f"{self.plugin} {double} place={self.place} fault={self.fault}\n"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell; words, so that two runs can be compared, and so that a table of them can be read."""

    status: str  # of the command; "waits" when it was given up
    ran: str  # whether the program did
    job: str  # its state in slurmctld when nothing changed any more
    node: str
    died: str  # daemons that a signal ended or that ended when they were not to; "-" for none


def all_cells():
    return [
        Cell(command, place, plugin, fault)
        for command, places in PLACES.items()
        for place in places
        for plugin in PLUGINS
        for fault in FAULTS
    ]


HEADINGS = ("command", "callback and context", "faults", "status", "program", "job", "node", "died")


def _words_of(cells):
    """Faults of one outcome, as in "required: -1 throw; optional: throw"."""
    parts = []
    for plugin in PLUGINS:
        faults = [fault for fault in FAULTS if any((cell.plugin, cell.fault) == (plugin, fault) for cell in cells)]
        if faults:
            parts.append(f"{plugin}: {' '.join(faults)}")
    return "; ".join(parts)


def write_table(outcomes):
    """Markdown of {cell: outcomes}: a row for each place and outcome. A cell that varies is in several rows."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS)]
    for command, places in PLACES.items():
        for place in places:
            groups = {}
            for cell in all_cells():
                if (cell.command, cell.place) == (command, place):
                    for outcome in sorted(outcomes.get(cell, ()), key=astuple):
                        groups.setdefault(outcome, []).append(cell)
            rows += [(command, place, _words_of(cells), *astuple(outcome)) for outcome, cells in groups.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def read_table(text):
    """{cell: set of outcomes}, as `write_table` wrote it into a page."""
    outcomes = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.strip("|").split("|")]
        if len(words) != len(HEADINGS) or words[0] not in PLACES:
            continue
        command, place, faults, *outcome = words
        assert len(outcome) == len(fields(Outcome))
        for part in faults.split("; "):
            plugin, names = re.fullmatch(r"(\w+): (.*)", part).groups()
            for fault in names.split():
                outcomes.setdefault(Cell(command, place, plugin, fault), set()).add(Outcome(*outcome))
    return outcomes


# When slurmstepd goes away, or a prolog fails, it is a matter of moments who notices first: srun, slurmd or slurmctld.
SUDDEN = {"throw", "abort", "segv", "exit(0)", "exit(1)"}


def is_as_published(published, cell, outcome):
    """Whether it is one of the outcomes of this cell, or, where moments decide, one of a like fault at this place."""
    if outcome in published[cell]:
        return True
    alike = SUDDEN | ({"-1"} if cell.place == "job_prolog.job_script" else set())
    own = {(way.ran, way.died) for way in published[cell]}
    if cell.fault not in alike or (outcome.ran, outcome.died) not in own:
        return False
    return any(
        (way.status, way.ran, way.job, way.node) == (outcome.status, outcome.ran, outcome.job, outcome.node)
        for other, ways in published.items()
        if (other.command, other.place) == (cell.command, cell.place) and other.fault in alike
        for way in ways
    )

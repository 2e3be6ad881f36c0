"""All rows of the harm suite, and their table in etc/doc/harm.md, which a run writes and a test reads."""

# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import dataclass

import cases_everyday_programs
import cases_frameworks
import cases_gpus
import cases_single_tasks
import cases_srun_options
import cases_step_ends
import cases_torchrun
import cases_wrapped_programs
from harm_case import BETTER, EQUAL, KNOWN, Case
from harness import REPOSITORY

MODULES = (cases_single_tasks, cases_torchrun, cases_gpus, cases_step_ends, cases_frameworks, cases_everyday_programs, cases_srun_options,
           cases_wrapped_programs)
ALL = [case for module in MODULES for case in module.CASES]
TABLE = REPOSITORY / "etc" / "doc" / "harm.md"
HEAD = """# What the plugin changes for other programs of a site

Each row is an ordinary use of a cluster. It was run on two clusters that differ in one line of plugstack.conf, and compared:
exit status, and lines of output in any order. Variables are compared only where the row's script prints them; the rows about
the environment print all. `off` and `on` are the exit statuses.

* equal: nothing that is compared differs. A world gets its variables all the same: [activation.md](activation.md).
* better: a training program that stock Slurm leaves alone is one world.
* known worse: differs; the row that is named shows what helps.

A source is an issue of the named project, or one of these:

* "public reports" with a letter: many reports of one kind; the letter is the kind, and there is no list of them
* "framework trial": seen when the real framework was started; the row here may run code written from its sources
* "rules": a rule of this project about which steps are set up
* "a site's week": a use that no public report stands behind, chosen because sites do it every week
* "fine already": a use that worked from the start, kept so that it stays so

The rows are data in `tests/integration/harm`. `scripts/check --full --only integration -- -k harm --write-harm-table` writes this page.
"""
COLUMNS = "| case | what | source | off | on | verdict |\n| --- | --- | --- | --- | --- | --- |\n"
ROW = re.compile(r"\| `(\w+)` \|")


@dataclass(frozen=True)
class Result:
    case: Case
    off: int
    on: int
    verdict: str
    seconds: float


def line(case: Case, result: Result | None) -> str:
    told = result.verdict if result else "not run"
    if case.relation == KNOWN:
        told += f"; `{case.remedy}` helps"
    if case.relation == BETTER and told != BETTER:
        told += ", expected better"
    return f"| `{case.name}` | {case.what} | {case.source} | {result.off if result else ''} | {result.on if result else ''} | {told} |"


def write(results: dict[str, Result]) -> None:
    TABLE.parent.mkdir(exist_ok=True)
    text, group = HEAD, ""
    for case in ALL:
        if case.group != group:
            group = case.group
            text += f"\n## {group}\n\n{COLUMNS}"
        text += line(case, results.get(case.name)) + "\n"
    TABLE.write_text(text)


def cases_of(text: str) -> list[tuple[str, str]]:
    """[(group, name), ...] of a written table."""
    found, group = [], ""
    for row in text.splitlines():
        if row.startswith("## "):
            group = row[3:]
        elif match := ROW.match(row):
            found.append((group, match.group(1)))
    return found


def render(results) -> str:
    """The rows for a terminal, without the equal ones."""
    return "\n".join(f"{result.case.name:32} {result.case.group:30} off {result.off:3} on {result.on:3}  {result.verdict}"
                     for result in results if result.verdict != EQUAL)

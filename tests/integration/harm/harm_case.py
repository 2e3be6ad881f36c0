"""One row of the harm suite: an ordinary use of a cluster, as data."""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import dataclass, field

EQUAL = "equal"  # exit status, output and variables are the same with and without the plugin
KNOWN = "known worse"  # documented; the row that `remedy` names shows what helps
BETTER = "better"  # the output has the lines of `gives` only with the plugin
RELATIONS = (EQUAL, KNOWN, BETTER)

# If the step has a world's shape, srun reports in one line that it cannot see the program.
UNSEEN = {"ignores": "srun cannot see"}
WEEK = "a site's week"  # the source of rows without a public report


@dataclass(frozen=True)
class Site:
    """An administrator's configuration beside our line: other plugins before and behind it, and lines of slurm.conf. Both
    clusters have it; {doubles} is the folder of our stand-ins for other plugins."""

    name: str
    before: str = ""
    after: str = ""
    settings: tuple[str, ...] = ()


STOCK = Site("stock")


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    source: str  # "Project issue", WEEK, or what harm_table.py explains
    what: str  # one short sentence for the table
    script: str  # bash, as alice on the login host; {off} becomes --bootstrap=off if a plugin registers it
    relation: str = EQUAL
    remedy: str = ""  # the name of another case
    gives: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)  # of the user's shell
    arguments: str = ""  # of our plugin in plugstack.conf
    site: Site = STOCK
    ignores: str = ""  # regular expression of lines that we may print: a warning, a first failure
    is_slow: bool = False  # only with --full
    needs: tuple[str, ...] = ()  # programs without which it is skipped
    environment: str = ""  # of scripts/frameworks; its programs come first
    seconds: int = 60  # limit, after which it is ended; this is an outcome like any other


def rows(group: str, *cases: tuple) -> list[Case]:
    """Cases of one group, each as (name, source, what, script, {other fields})."""
    made = []
    for name, source, what, script, *more in cases:
        made.append(Case(name, group, source, what, script.strip(), **(more[0] if more else {})))
    return made


def trouble_with(cases: list[Case]) -> list[str]:
    """Mistakes in the table itself."""
    by_name = {case.name: case for case in cases}
    found = [] if len(by_name) == len(cases) else ["two cases have one name"]
    for case in cases:
        remedy = by_name.get(case.remedy)
        if case.relation not in RELATIONS:
            found.append(f"{case.name}: no relation {case.relation}")
        if (case.relation == KNOWN) != (remedy is not None and remedy.relation == EQUAL):
            found.append(f"{case.name}: a row that is known to be worse, and no other, names a remedy that is equal")
        if (case.relation == BETTER) != bool(case.gives):
            found.append(f"{case.name}: a row that is better, and no other, says what the plugin gives")
        if "|" in case.name + case.what + case.source or not case.what.endswith("."):
            found.append(f"{case.name}: its text does not fit into a table")
    return found

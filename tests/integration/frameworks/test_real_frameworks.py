"""The real frameworks, from their packages: with the plugin, with the preload alone, and as users start them today.

Prints the table of etc/doc/frameworks-run.md at its end; --write-frameworks-table writes it there.
"""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from built_files import LIBRARY, inside
from framework_rows import NODES, NOT_RUN, QUICK_WITHOUT, ROWS, Row
from harness import REPOSITORY

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = REPOSITORY / "etc" / "examples"
PAGE = REPOSITORY / "etc" / "doc" / "frameworks-run.md"
FINAL = re.compile(r"final loss (\S+) \(it was (\S+)\).* on (?:all )?(\d+) ranks")
RANK = re.compile(r"rank (\d+) of (\d+)[ :](?:.*? on (\S+))?")

outcomes: dict = {}  # (name of the row, how): the cell of the table


HEAD = ["| framework | with the plugin | plugin | preload alone | neither | line with neither |", "| --- | --- | --- | --- | --- | --- |"]
HOWS = ("plugin", "preload", "off")
BEGIN, END = "<!-- the table of the tests -->\n", "<!-- its end -->\n"


@pytest.fixture(scope="module", autouse=True)
def table(request):
    yield
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    for line in [*HEAD, *filter(None, map(run_line, ROWS))]:
        terminal.write_line(line)
    if request.config.getoption("--write-frameworks-table"):
        before, rest = PAGE.read_text().split(BEGIN)
        old, after = rest.split(END)
        PAGE.write_text(f"{before}{BEGIN}\n{new_table(old)}\n{END}{after}")


def run_line(row):
    """The table's line for a row that this run has tried."""
    cells = [outcomes.get((row.name, how)) for how in HOWS]
    return f"| {row.name} | `{shown(row.plugin)}` | {' | '.join(cell or '' for cell in cells)} | {row.instead} |" if any(cells) else ""


def new_table(old):
    """The new table; rows that this run has not tried stay as they were."""
    cells = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[-4:-1] for line in old.splitlines() if " | " in line}
    lines = list(HEAD)
    for row in ROWS:
        before = cells.get(row.name, [""] * 3)
        if not row.preload:
            before[1] = row.no_preload
        now = [outcomes.get((row.name, how)) or before[place] for place, how in enumerate(HOWS)]
        lines.append(f"| {row.name} | `{shown(row.plugin)}` | {' | '.join(now)} | {row.instead} |")
    return "\n".join(lines) + "\n"


def shown(line):
    """A line as a cell of the table, with the names of the shapes, which are explained above it."""
    return line.replace("|", "\\|")


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("real", asks=False).up("--nodes", "2", "--gpus", "4", "--cpus", "16")  # the lines stand for themselves
    for path in [*PROGRAMS.glob("*.*"), *EXAMPLES.glob("train_*.*")]:
        cluster.write_home(path.name, path.read_text())
    (cluster.home / "ssh-by-srun").mkdir()
    shutil.copy(EXAMPLES / "ssh-by-srun" / "ssh", cluster.home / "ssh-by-srun")
    return cluster


def run(cluster, folder, row, line):
    variables = {"VIRTUAL_ENV": str(Path(folder).parent), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    activated = f"export PATH={folder}:$PATH; {line}"
    try:
        return cluster.run(["timeout", str(row.seconds), "bash", "-c", activated], env=variables, timeout=row.seconds + 30)
    finally:
        cluster.run(["scancel", "--user", "alice"])
        cluster.run(["bash", "-c", "for i in {1..100}; do [[ -n $(squeue -h) ]] || break; sleep 0.1; done"])


def check(row: Row, done, nodes):
    """The worlds that the framework itself saw, the loss that fell, and the same model on all ranks."""
    ranks = row.ranks if nodes == NODES or not row.one_node else row.ranks // NODES
    said = f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    assert done.returncode == 0, said
    lines = [(int(rank), int(size)) for rank, size, _ in RANK.findall(done.stdout)]
    seen = Counter(set(lines) if row.repeats else lines)
    if seen:  # the example of DDP prints a table instead
        assert seen == Counter({(rank, ranks): row.worlds for rank in range(row.shown or ranks)}), said
    if not row.trains:
        assert seen, said
        return f"{ranks} rank{'s' * (ranks > 1)}"
    ends = [(float(final), float(first), int(size)) for final, first, size in FINAL.findall(done.stdout)]
    assert len(ends) == row.worlds and all(size == ranks and final < first for final, first, size in ends), said
    return f"{ranks} rank{'s' * (ranks > 1)}" if row.worlds == 1 else f"{row.worlds} worlds of {ranks}"


def preloaded(line):
    """The line with the library preloaded as a user does it: for one srun, or for all programs of the line."""
    setting = f"LD_PRELOAD={inside(LIBRARY)}"
    return line.replace("srun ", f"srun --export=ALL,{setting} ", 1) if "srun " in line else f"export {setting}; {line}"


def rows_for(how):
    for row in ROWS:
        if how == "preload" and not row.preload or how == "off" and not row.off and row.instead != "the same line":
            continue
        yield pytest.param(row, id=row.name, marks=[] if row.is_quick(how) else [pytest.mark.full])


@pytest.mark.parametrize("row", rows_for("plugin"))
def test_a_framework_starts_with_the_plugin(site, environments, row, is_full):
    folder = environments(row.environment)
    said = check(row, run(site, folder, row, row.command(row.plugin)), NODES)
    if row.one_node and (is_full or row.name in QUICK_WITHOUT):
        check(row, run(site, folder, row, row.command(row.plugin, 1)), 1)
    outcomes[row.name, "plugin"] = said


@pytest.mark.parametrize("row", rows_for("preload"))
def test_a_framework_starts_with_the_preload_alone(site, environments, row):
    folder = environments(row.environment)
    line = row.command(preloaded(row.plugin))
    with site.other_plugstack():
        outcomes[row.name, "preload"] = check(row, run(site, folder, row, line), NODES)


@pytest.mark.parametrize("row", rows_for("off"))
def test_a_framework_starts_with_neither(site, environments, row):
    """As users start it today: a control of the programs, and the last column of the table."""
    folder = environments(row.environment)
    with site.other_plugstack():
        outcomes[row.name, "off"] = check(row, run(site, folder, row, row.command(row.off or row.plugin)), NODES)


def test_a_world_needs_the_plugin_or_the_preload(site, environments):
    """The control: a line that makes a world of four with the plugin makes four worlds of one, or fails, without it."""
    row = next(row for row in ROWS if row.name.startswith("Accelerate 0.29"))
    folder = environments(row.environment)
    with site.other_plugstack():
        done = run(site, folder, row, row.command(row.plugin))
    with pytest.raises(AssertionError):
        check(row, done, NODES)


def test_the_page_has_these_rows():
    text = PAGE.read_text()
    for row in ROWS:
        assert f"| {row.name} | `{shown(row.plugin)}` |" in text, row.name
    for name, why in NOT_RUN.items():
        assert f"| {name} | {why} |" in text, name

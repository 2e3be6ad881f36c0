"""What `slurm-bootstrap status` prints: the first line, ranks that are alike as one row each, and JSON."""
# SPDX-License-Identifier: Apache-2.0
import json
import textwrap

from plain_text import counted
from rank_groups import cpu_range, group_ranks, list_ranks, name_group, nodes_of, range_of

WIDTH = 80
MAX_CELL = 26
MAX_ROWS = 40
HEAD = ("RANK", "HOST", "PID", "PHASE", "CPU", "MEMORY", "GPU", "WAITS IN")
GPU = HEAD.index("GPU")
PHASES = {"launcher_only": "shell or launcher", "no_framework": "no framework yet", "communicating_or_computing": "running"}


def write_memory(kib):
    return f"{kib >> 10} MiB" if kib < 10 << 20 else f"{kib >> 20} GiB"


def row_of(group):
    first, is_alone, nodes = group[0], len(group) == 1, nodes_of(group)
    place = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node") if nodes else "-"
    row = [list_ranks(group), place, "-", PHASES.get(first.phase, first.phase.replace("_", " ")), "-", "-", "-", "-"]
    if first.pid == 0:
        return row
    if is_alone:
        row[2] = str(first.pid)
    row[4], row[5] = cpu_range(group), range_of(group, "memory_kib", write_memory)
    with_gpu = sum(bool(rank.gpus) for rank in group)
    if with_gpu:
        row[GPU] = first.gpus if is_alone else counted(with_gpu, "GPU")
    if first.is_still and first.waits_in:
        row[7] = first.waits_in
    if first.cpu_wait_percent > max(first.cpu_percent, 10):
        row[7] = "run queue"
    if first.phase in ("launcher_only", "no_framework"):
        row[7] += f" ({first.chain})"
    return row


def table_of(groups):
    rows = [list(HEAD)] + [row_of(group) for group in groups[:MAX_ROWS]]
    if all(row[GPU] == "-" for row in rows[1:]):
        rows = [row[:GPU] + row[GPU + 1:] for row in rows]
    rows = [[cell if len(cell) <= MAX_CELL else cell[:MAX_CELL - 3] + "..." for cell in row[:-1]] + row[-1:] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows]
    more = len(groups) - MAX_ROWS
    return "".join(lines) + (f"and {more} more groups; --json has all ranks\n" if more > 0 else "")


def note(text):
    """The answer of NCCL's RAS has lines of its own."""
    if "\n" in text:
        return "".join(f"  {line}\n" for line in text.split("\n") if line)
    return textwrap.fill(text, WIDTH, initial_indent="Also: ", subsequent_indent=" " * 6, break_long_words=False,
                         break_on_hyphens=False) + "\n"


def stacks_of(judgement, groups):
    return "".join(f"\n{name_group(judgement.ranks, group)}:\n" + "".join(f"    {frame}\n" for frame in group[0].stack)
                   for group in groups if group[0].stack)


def status_text(judgement, step, has_stacks):
    """The first line, a table of the ranks, and what else was seen."""
    groups = group_ranks(judgement.ranks)
    first, *others = [finding.sentence for finding in judgement.findings]
    text = f"{first}\n\n{table_of(groups)}\n" + "".join(map(note, others + judgement.also))
    text += f"StepId={step}: {counted(len(judgement.ranks), 'rank')} on {counted(judgement.nodes, 'node')}."
    if has_stacks:
        return text + "\n" + stacks_of(judgement, groups)
    has_python = any(rank.program.startswith("python") for rank in judgement.ranks)
    return text + (" With --stacks: the Python code that each rank is in.\n" if has_python else "\n")


def status_json(judgement, step):
    """One object of JSON on one line."""
    return json.dumps({
        "step": step,
        "nodes": judgement.nodes,
        "first_line": judgement.findings[0].sentence,
        "findings": [vars(finding) for finding in judgement.findings],
        "also": judgement.also,
        "ranks": [vars(rank) for rank in judgement.ranks],
    }) + "\n"


def add_durations(judgement, since, now):
    """Adds "for at least 12 s" to sentences of the look before, with the same ranks. Returns since when each was seen."""
    seen = {}
    for finding in judgement.findings:
        if finding.kind in ("alike", "none"):
            continue
        key = (finding.kind, *finding.ranks)
        seen[key] = since.get(key, now)
        if key in since:
            finding.sentence += f", for at least {int(now - seen[key])} s"
    return seen

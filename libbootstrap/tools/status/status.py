"""`slurm-bootstrap status`: looks at a running step from outside, and prints which rank is out of step."""
# SPDX-License-Identifier: Apache-2.0
import json
import signal
import sys
import textwrap
import time

from children import write_all
from findings import cpu_range, group_ranks, list_ranks, name_group, nodes_of, range_of
from judge import Judgement
from look_step import look_at_step
from plain_text import counted
from step_choice import NotRunning, Refusal, find_program, find_step, parse_step_argument, say, use_commands
from where import show_place

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


def status_text(judgement, step, has_stacks):
    """The first line, a table of the ranks, and what else was seen."""
    groups = group_ranks(judgement.ranks)
    first, *others = [finding.sentence for finding in judgement.findings]
    text = f"{first}\n\n{table_of(groups)}\n" + "".join(map(note, others + judgement.also))
    text += f"StepId={step}: {counted(len(judgement.ranks), 'rank')} on {counted(judgement.nodes, 'node')}."
    if has_stacks:
        text += "\n"
        for group in (one for one in groups if one[0].stack):
            text += f"\n{name_group(judgement.ranks, group)}:\n" + "".join(f"    {frame}\n" for frame in group[0].stack)
        return text
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


def explain_no_answer(state, step, own_path):
    """Why the look shows nothing; empty: it does."""
    if not state.nodes and "execve" in state.complaint:
        return (f"started {own_path} with srun on the nodes of step {step.name}, which do not have it; install it there, or "
                "start one from a folder that all nodes share")
    if not state.nodes and state.complaint:
        ours, begin, sentence = state.complaint.partition("slurm-bootstrap: ")  # of a node without Python
        return sentence if begin and not ours else f"started the looking step with srun, which failed: {state.complaint}"
    if step.tasks > 1 or len(state.ranks) > 1:
        return ""
    if not step.step.isdigit():
        return (f"job {step.name.partition('.')[0]} runs no step of srun, only its batch script or shell; is srun in front of the "
                "program?")
    who = "".join(f" ({rank.program}, pid {rank.pid} on {rank.node})" for rank in state.ranks)
    return f"step {step.name} has one task{who}, so there is no other rank to compare it with"


def show_status(own_path, name, options):
    """With `watch` it looks again after so many seconds, until the step ends."""
    job, number = parse_step_argument(name)
    has_json, has_stacks, asks_ras = (options[flag] == "true" for flag in ("json", "stacks", "nccl"))
    seconds = float(options["watch"] or 0)
    if asks_ras and seconds:
        raise Refusal("--nccl asks NCCL once, and --watch looks again and again; use one of them", 2)
    use_commands(own_path)
    py_spy = find_program("py-spy") if has_stacks else ""
    if has_stacks and not py_spy:
        say("looked for py-spy in PATH, which has none, so --stacks shows no code; install it with: pip install py-spy")
        has_stacks = False
    since, is_first = {}, True
    while is_first or seconds:
        try:
            step = find_step(job, number)
            job, number = step.name.split(".")  # later looks are at the same step
            state = look_at_step(own_path, step, "ras" if asks_ras else "-", py_spy)
            why = explain_no_answer(state, step, own_path)
            if why:
                find_step(job, number)  # it may have ended meanwhile
                raise Refusal(why)
        except NotRunning as refusal:
            refusal.status = 1 if is_first else 0
            raise
        judgement = Judgement(state, step.tasks)
        since = add_durations(judgement, since, time.monotonic())
        text = status_json(judgement, step.name) if has_json else status_text(judgement, step.name, has_stacks)
        try:
            write_all(1, text if is_first or has_json else "\n" + text)
        except OSError as error:
            raise Refusal(f"could not write to standard output: {error.strerror}")
        is_first = False
        time.sleep(seconds)


def main(command, own_path, *words):
    """`words`: NAME=VALUE of each option, and of the step."""
    options = dict(word.partition("=")[::2] for word in words)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as in other commands
    try:
        name = options["step"].encode("utf-8", "surrogateescape").decode("latin-1")
        (show_place if command == "where" else show_status)(own_path, name, options)
    except Refusal as refusal:
        say(refusal)
        sys.exit(refusal.status)

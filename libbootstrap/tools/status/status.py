"""`slurm-bootstrap status`: which rank of a running step is out of step, looked at from outside."""
# SPDX-License-Identifier: Apache-2.0
import signal
import sys
import time

from children import write_all
from judge import Judgement
from look_step import look_at_step
from report import add_durations, status_json, status_text
from step_choice import NotRunning, Refusal, find_program, find_step, parse_step_argument, say, use_commands

from where import show_place


def explain_no_answer(state, step, own_path):
    """Why the look shows nothing; empty: it does."""
    if not state.nodes and "execve" in state.complaint:
        return (f"started {own_path} with srun on the nodes of step {step.name}, which do not have it; install it there, or "
                "start one from a folder that all nodes share")
    if not state.nodes and state.complaint.startswith("slurm-bootstrap: "):  # a node without Python
        return state.complaint.partition(": ")[2]
    if not state.nodes and state.complaint:
        return f"started the looking step with srun, which failed: {state.complaint}"
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

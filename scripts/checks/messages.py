#!/usr/bin/env python3
"""Each reason of NOT SET UP in the C++ sources needs a heading in etc/doc/troubleshooting.md, and each heading there a reason."""

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = "etc/doc/troubleshooting.md"
REASON_SECTION = "## Reasons of NOT SET UP\n"
# Sources of the reasons, the argument of a call that is one, functions that return one, variables that keep one.
REASONS = ("libbootstrap/core/activation/*.cc", "libbootstrap/core/program/*.cc", "libbootstrap/core/step/rank_layout.cc",
           "libbootstrap/core/plan/plan.cc", "libbootstrap/preload/constructor.cc", "libbootstrap/preload/rank_detection.cc",
           "spank_plugin/srun/*.cc", "spank_plugin/slurmstepd/user_init.cc")
REASON_OF = {"not_set_up": 0, "leave_alone": 1, "refuse_or_leave_alone": 1, "without_number": 0, "decide_without_answers": 1,
             "decide_without_address": 1, "judged": 2, "stay_out": 2}  # fmt: skip
REASON_RETURNED = ("describe_spread", "torchrun_reason", "why_not_asked", "share_of_job")
REASON_KEPT = ("reason", "why_not", "sentence")
FEWEST_WORDS = 2  # of a reason: below that it is a part of one

TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?P<text>(?:[^\"\\\n]|\\.)*)\"|'(?:[^'\\]|\\.)'|#[^\n]*|"
                   r"(?P<word>[A-Za-z_0-9]+)|(?P<sign>->|::|\S)", re.DOTALL)
TEXT = "\0"  # marks a token that is a string
IN_A_MESSAGE = f"{TEXT}NOT SET UP: "


def tokens_of(source):
    tokens = []
    for found in TOKEN.finditer(source):
        if found["text"] is not None:
            text = found["text"].replace('\\"', '"').replace("\\n", "").replace("\\\\", "\\")
            if tokens and tokens[-1].startswith(TEXT):
                tokens[-1] += text
            else:
                tokens.append(TEXT + text)
        elif found["word"] or found["sign"]:
            tokens.append(found[0])
    return tokens


def end_of(tokens, at):
    """The place of the bracket that closes the one at this place."""
    depth = 0
    for place in range(at, len(tokens)):
        depth += tokens[place] in "([{" and len(tokens[place]) == 1
        depth -= tokens[place] in ")]}" and len(tokens[place]) == 1
        if depth == 0:
            return place
    return len(tokens)


def split_at(tokens, sign):
    parts, start, place = [], 0, 0
    while place < len(tokens):
        if tokens[place] == sign:
            parts.append(tokens[start:place])
            start = place + 1
        elif tokens[place] in ("(", "[", "{"):
            place = end_of(tokens, place)
        place += 1
    return [*parts, tokens[start:]]


def arguments_of(tokens, name):
    """(tokens of each argument, tokens behind it) of each call and definition."""
    for place, token in enumerate(tokens[:-1]):
        if token == name and tokens[place + 1] == "(":
            close = end_of(tokens, place + 1)
            yield split_at(tokens[place + 2:close], ","), tokens[close + 1:]


def up_to_end(tokens):
    return split_at(tokens, ";")[0]


def expressions_of(tokens):
    """Each expression of a file that is a reason, or a part of one."""
    for name, number in REASON_OF.items():
        for arguments, _ in arguments_of(tokens, name):
            if len(arguments) > number and (name != "judged" or arguments[0][-1] not in ("kTraining", "kTorchrun")):
                yield arguments[number]
    for name in REASON_RETURNED:
        for _, behind in arguments_of(tokens, name):
            start = next((place for place, token in enumerate(behind[:2]) if token == "{"), None)  # of a definition
            body = behind[start:end_of(behind, start)] if start is not None else []
            yield from (up_to_end(body[place:]) for place, token in enumerate(body) if token == "return")
    for place, (token, following) in enumerate(zip(tokens, tokens[1:])):
        if token in REASON_KEPT and following == "=":
            kept = up_to_end(tokens[place:])
            yield from [] if "?" in kept else [kept]  # a choice is between reasons of SET UP
        if token == "{" and following in ("K", "ProgramKind"):  # {K::kUnseen, name, reason} of a program
            inner = split_at(tokens[place + 1:end_of(tokens, place)], ",")
            yield from [inner[-1]] if len(inner) > 2 else []


def constants_of(tokens):
    for token, sign, text in zip(tokens, tokens[1:], tokens[2:]):
        if re.fullmatch(r"k[A-Z]\w*", token) and sign == "=" and text.startswith(TEXT):
            yield token, text[1:]


def all_reasons():
    """The words of each reason that do not vary; where it has several parts, each of them."""
    parts = set()
    for text in sources(*REASONS).values():
        tokens = tokens_of(text)
        constants = dict(constants_of(tokens))
        parts |= {kind for kind in constants.values() if re.match(" [a-z]", kind)}  # "bash" + " is a shell"
        parts |= {token.removeprefix(IN_A_MESSAGE) for token in tokens if token.startswith(IN_A_MESSAGE)}
        for expression in expressions_of(tokens):
            parts |= {token[1:] if token.startswith(TEXT) else constants.get(token, "") for token in expression}
    cut = {re.split(r", although |; ", part)[0].strip(" ,(") for part in parts}
    return {part for part in cut if len(re.findall(r"\b[a-z]{2,}", part)) >= FEWEST_WORDS}


def check_reasons(reasons, headings):
    yield from (f"{PAGE}: a reason of NOT SET UP has no heading: {reason}" for reason in sorted(reasons)
                if not any(reason in heading for heading in headings))
    yield from (f"{PAGE}: a heading has no reason of NOT SET UP: {heading}" for heading in headings
                if not any(reason in heading for reason in reasons))


def sources(*patterns):
    """Name and text of each file that git has."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=TOP, check=True, text=True,
                          stdout=subprocess.PIPE)
    return {name: (TOP / name).read_text(encoding="utf-8") for name in done.stdout.split() if (TOP / name).is_file()}


def main():
    section = (TOP / PAGE).read_text(encoding="utf-8").partition(REASON_SECTION)[2].partition("\n## ")[0]
    reasons, headings = all_reasons(), re.findall(r"^### (.*)", section, re.M)
    problems = list(check_reasons(reasons, headings))
    if len(list(check_reasons({"the step has no nodes"}, ["the step has one GPU"]))) != 2:
        problems.append("control: a reason without a heading, and a heading without a reason, are not noticed")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"messages: {len(reasons)} reasons of NOT SET UP, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

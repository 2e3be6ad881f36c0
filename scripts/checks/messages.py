#!/usr/bin/env python3
"""The list of all messages in etc/doc/troubleshooting.md, made from the C++ sources: compares it, or with --write renews it. Each reason of
NOT SET UP needs a heading there. Words with a plainer one are refused in messages, and in the comments and test names of FOLDERS."""

import argparse
import ast
import io
import itertools
import pathlib
import re
import subprocess
import sys
import tokenize

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = "etc/doc/troubleshooting.md"
BEGIN, END = "<!-- messages begin -->", "<!-- messages end -->"

# Where a message is printed -> folders whose sources have it.
AREAS = {
    "In srun, by the plugin": ("spank_plugin/srun/", "spank_plugin/spank_options", "libbootstrap/core/step/failure"),
    "On the nodes, by the plugin: in the errors of the step, or in the log of slurmd": ("spank_plugin/",),
    "By the plugin or the library: settings, ranks, GPUs and ports": ("libbootstrap/core/", "libbootstrap/probe/"),
    "In a task, by the library: its standard error, or `bootstrap_last_error()`":
        ("libbootstrap/core/exchange/", "libbootstrap/comm/", "libbootstrap/api/", "libbootstrap/preload/"),
}
# Sources of the reasons of NOT SET UP, the argument of a call that is one, functions that return one, variables that keep one.
REASONS = ("libbootstrap/core/activation/*.cc", "libbootstrap/core/program/*.cc", "libbootstrap/core/step/rank_layout.cc",
           "libbootstrap/core/plan/plan_from_environment.cc", "libbootstrap/preload/constructor.cc", "libbootstrap/preload/rank_detection.cc",
           "spank_plugin/srun/*.cc")
REASON_OF = {"nothing": 0, "leave_alone": 1, "refuse": 1, "decide_without_answers": 1, "judged": 2, "stay_out": 2}
REASON_RETURNED = ("describe_spread", "why_not_asked", "set_up_process")
REASON_KEPT = (("reason", "="), ("why_not", "="))
REASON_SECTION = "## Reasons of NOT SET UP\n"
# Their sentences are answers of explain and of the command, which other pages show.
LEFT_OUT = ("libbootstrap/tools/", "libbootstrap/core/activation/", "libbootstrap/core/program/", "libbootstrap/core/plan/explain",
            "libbootstrap/core/util/text", "libbootstrap/core/step/step_id", "libbootstrap/core/step/failure.cc")

# Words of no message and no comment: they are pictures, or have a plainer word.
BANNED = re.compile(r"\b(told|tells?|hears?|heard|came|nobody|says?|held|cures?|kin)\b", re.IGNORECASE)
# Whose comments and names of tests are checked.
FOLDERS = ("scripts/", "tests/", "libbootstrap/", "spank_plugin/", "etc/")

# A call of these prints its last argument, or keeps it as the sentence of an error.
SINKS = {"fail", "say", "print_line", "warn", "log_error", "log_warning", "log_info", "log_verbose", "log_debug", "report", "slurm_error",
         "slurm_info", "push_back", "emplace_back", "Error", "explain_absence"}
FEWEST_WORDS = 3  # that are literal: below that it is a part of a message
RETURN, KEEP = (("return",),), (("warning", "="), ("+", "="))
MOST_FORMS, DEEPEST = 12, 4  # of a message whose parts differ; of functions within each other

# Variable parts by the last name in their expression.
PLACES = (("PORT", r"port"), ("NODE", r"host|node|first|own_host"), ("FILE", r"path|file|library|name_of_file|program|xml"),
          ("RANK", r"describe_rank|rank|task|failing_task|both|who"), ("RANKS", r"name_ranks|missing_ranks|ranks"),
          ("SETTING", r"setting_name|setting_text|option"), ("REASON", r"message|strerror|why|reason|describe|reason_of|gpu_reason|what"),
          ("N", r"to_string|counted|size|count|bytes"), ("VARIABLE", r"variable|kLayoutVariable"),
          # NVIDIA's words in place of AMD's, too (comm/nccl/cuda_device.h).
          ("NCCL", "product"), ("libnccl.so.2", "nccl_file"), ("CUDA", "runtime"), ("libcuda.so.1", "runtime_file"),
          ("cudaSetDevice", "set_device"))

TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?P<text>(?:[^\"\\\n]|\\.)*)\"|'(?:[^'\\]|\\.)'|#[^\n]*|"
                   r"(?P<word>[A-Za-z_0-9]+)|(?P<sign>->|::|\S)", re.DOTALL)
TEXT = "\0"  # marks a token that is a string


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


class Source:
    """One file: its functions, its constants, and the texts of its expressions."""

    def __init__(self, name, text, constants):
        self.name, self.tokens, self.shared = name, tokens_of(text), constants
        self.constants = dict(constants_of(self.tokens))
        self.functions = dict(functions_of(self.tokens))
        self.variables = dict(variables_of(self.tokens))
        self.wrappers = {name: made for name, made in self.functions.items() if self.prints_parameter(made)}

    def prints_parameter(self, function):
        parameters, body = function
        return any(set(arguments[-1]) & set(parameters) for _, arguments in calls_in(body, SINKS))

    def texts(self, tokens, known=None, depth=0):
        """All that an expression can be, with placeholders."""
        known = known or {}
        while tokens and tokens[0] in ("(", "{") and end_of(tokens, 0) == len(tokens) - 1:
            parts = split_at(tokens[1:-1], ",")
            tokens = next((part for part in parts if "cat" in part or any(word.startswith(TEXT) for word in part)), parts[0])
        if tokens[:2] == ["std", "::"] and tokens[2:4] in (["move", "("], ["string", "("]):
            return self.texts(tokens[4:end_of(tokens, 3)], known, depth)
        chosen = split_at(tokens, "?")
        if len(chosen) > 1:
            rest = tokens[len(chosen[0]) + 1:]
            return list(dict.fromkeys(text for part in split_at(rest, ":") for text in self.texts(part, known, depth)))
        if len(tokens) == 1:
            return self.texts_of_name(tokens[0], known, depth)
        if tokens[:2] == ["cat", "("]:
            inner = tokens[2:end_of(tokens, 1)]
            return self.product(split_at(inner[1:end_of(inner, 0)], ","), known, depth)
        return self.texts_of_call(tokens, known, depth) or [place_of(tokens)]

    def texts_of_name(self, token, known, depth):
        if token.startswith(TEXT):
            return [token[1:]]
        if token in known:
            return known[token]
        if token in self.variables and depth < DEEPEST:
            return self.texts(self.variables[token], known, depth + 1)
        constant = self.constants.get(token) or self.shared.get(token)
        return [constant] if constant is not None else [place_of([token])]

    def texts_of_call(self, tokens, known, depth):
        """Of a function of this file that returns text."""
        if len(tokens) < 3 or tokens[1] != "(" or tokens[0] not in self.functions or depth == DEEPEST:
            return []
        parameters, body = self.functions[tokens[0]]
        arguments = split_at(tokens[2:end_of(tokens, 1)], ",")
        inner = {name: self.texts(argument, known, depth + 1) for name, argument in zip(parameters, arguments)}
        returned = [text for made in made_by(body, RETURN) for text in self.texts(made, inner, depth + 1)]
        return list(dict.fromkeys(returned)) if any(re.search("[a-z]{3}", text) for text in returned) else []

    def product(self, parts, known, depth):
        choices = [self.texts(part, known, depth) for part in parts if part]
        return ["".join(words) for words in itertools.islice(itertools.product(*choices), MOST_FORMS)]

    def messages(self):
        for name, arguments in calls_in(self.tokens, SINKS | set(self.wrappers)):
            if name not in self.wrappers:
                yield from self.texts(arguments[-1])
                continue
            parameters, body = self.wrappers[name]
            known = {parameter: self.texts(argument) for parameter, argument in zip(parameters, arguments)}
            for _, inner in calls_in(body, SINKS):
                if set(inner[-1]) & set(parameters):
                    yield from self.texts(inner[-1], known)
        for name, (_, body) in self.functions.items():
            # What a caller in this file puts into its own message is part of that one.
            for made in made_by(body, KEEP if self.tokens.count(name) > 1 else KEEP + RETURN):
                yield from self.texts(made)


def calls_in(tokens, names):
    """(name, tokens of each argument) of each call; a definition counts as a call without text."""
    for place, token in enumerate(tokens[:-1]):
        if token in names and tokens[place + 1] in ("(", "{"):
            yield token, split_at(tokens[place + 2:end_of(tokens, place + 1)], ",")


def made_by(body, starts):
    for place in range(len(body)):
        for start in starts:
            if tuple(body[place:place + len(start)]) == start:
                yield split_at(body[place + len(start):], ";")[0]


def variables_of(tokens):
    """name -> tokens of its value, of local texts: const auto name = ...;"""
    for place, token in enumerate(tokens[:-3]):
        if token == "auto" and tokens[place + 2] == "=":
            value = split_at(tokens[place + 3:], ";")[0]
            if value[0] != "[" and any(part.startswith(TEXT) for part in value):
                yield tokens[place + 1], value


def constants_of(tokens):
    for token, sign, text in zip(tokens, tokens[1:], tokens[2:]):
        if re.fullmatch(r"k[A-Z]\w*", token) and sign == "=" and text.startswith(TEXT):
            yield token, text[1:]


def functions_of(tokens):
    """name -> (names of its parameters, tokens of its body), of functions and of lambdas with a name."""
    for place, token in enumerate(tokens):
        if token != "(":
            continue
        close = end_of(tokens, place)
        body = next((at for at in range(close + 1, min(close + 8, len(tokens))) if tokens[at] in ("{", ";", ",", ")")), close)
        if body >= len(tokens) or tokens[body] != "{":
            continue
        before = tokens[place - 1]
        if before == "]":  # auto name = [&](...) {
            start = max(at for at in range(place) if tokens[at] == "[")
            before = tokens[start - 2] if tokens[start - 1] == "=" else ""
        if not re.fullmatch(r"[a-z]\w*", before) or before in ("if", "for", "while", "switch", "return"):
            continue
        names = [part[-1] for part in split_at(tokens[place + 1:close], ",") if len(part) > 1]
        yield before, (names, tokens[body:end_of(tokens, body) + 1])


def place_of(tokens):
    """A placeholder: by the last name of the expression, or of what a to_string, quoted or the like shows."""
    if not tokens:
        return "..."
    if tokens[0] == "quoted":
        return '"..."'
    if tokens[0] == "counted":
        return f"N {tokens[-2].removeprefix(TEXT)}s" if tokens[-2].startswith(TEXT) else "N"
    names = [token for token in tokens if re.fullmatch(r"[a-z]\w*", token) and token not in ("std", "get", "text", "c_str")]
    for place, words in PLACES:
        if any(re.fullmatch(words, name) for name in names[:1] + names[-1:]):
            return place
    return "..."


def is_message(text):
    words = re.findall(r"[A-Za-z][a-z]+", re.sub(r"\b[A-Z]{2,}\b", "", text))
    return len(words) >= FEWEST_WORDS and " " in text and not text.startswith(("[bootstrap]", "/", "{"))


def tidy(text):
    text = re.sub(r"%[su]|%\.1f", "...", text)
    text = re.sub(r"(\.\.\.){2,}", "...", text).strip().removeprefix("bootstrap: ").removeprefix("warning: ")
    return re.sub(r"^[;:,\s]+", "", text)


def area_of(name):
    return max(AREAS, key=lambda area: max((len(folder) for folder in AREAS[area] if name.startswith(folder)), default=-1))


def sources(*patterns):
    """Name and text of each file that git has."""
    done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=TOP, check=True, text=True,
                          stdout=subprocess.PIPE)
    return {name: (TOP / name).read_text(encoding="utf-8") for name in done.stdout.split() if (TOP / name).is_file()}


def prose_of(name, text):
    """(line, words) of each comment, docstring and name of a test."""
    for test in re.finditer(r"^(?:def (?=test_)|TEST\w*\(\w+, )(\w+)\(?\)?", text, re.M):
        yield text[:test.start()].count("\n") + 1, re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", test[1])
    if name.endswith(".py") or text.startswith(("#!/usr/bin/env python3", "#!/usr/bin/python3")):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
                yield node.body[0].lineno, ast.get_docstring(node)
    else:
        mark = r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"' if name.endswith((".cc", ".c", ".h")) else r"(?:^|(?<=\s))#[^\n]*"
        for found in re.finditer(mark, text, re.S | re.M):
            if not found[0].startswith('"'):
                yield text[:found.start()].count("\n") + 1, found[0]


def check_prose():
    for name, text in sources(*FOLDERS).items():
        if not name.endswith(".md"):  # there # begins a heading, and many headings are messages
            yield from (f"{name}:{line}: {word[0]!r} has a plainer word" for line,
                        words in prose_of(name, text) if (word := BANNED.search(words)))


def all_messages():
    texts = sources("libbootstrap/*.cc", "libbootstrap/*.h", "spank_plugin/*.cc", "spank_plugin/*.h")
    shared = dict(found for text in texts.values() for found in constants_of(tokens_of(text)))
    by_area = {area: set() for area in AREAS}
    for name, text in texts.items():
        if not name.startswith(LEFT_OUT):
            found = (tidy(message) for message in Source(name, text, shared).messages())
            by_area[area_of(name)] |= {message for message in found if is_message(message)}
    return by_area


def reasons_in(source):
    """All texts that a file gives as a reason; of a program's kind ("bash", " is a shell") with PROGRAM before it."""
    tokens = source.tokens
    parts = [(called, arguments) for called, arguments in calls_in(tokens, REASON_OF) if len(arguments) > REASON_OF[called]]
    for place, token in enumerate(tokens[:-2]):  # {K::kUnseen, name, reason} of a program, {"", reason} of a share
        inner = split_at(tokens[place + 1:end_of(tokens, place)], ",") if token == "{" else []
        if len(inner) > 2 and tokens[place + 1] in ("K", "ProgramKind"):
            parts.append(("judged", inner))
        elif len(inner) == 2 and inner[0] == [TEXT]:
            parts.append(("refuse", inner))
    for called, arguments in parts:
        if called != "judged" or arguments[0][-1] not in ("kTraining", "kTorchrun"):
            yield from source.texts(arguments[REASON_OF[called]])
    for name in set(REASON_RETURNED) & set(source.functions):
        yield from (text for made in made_by(source.functions[name][1], RETURN) for text in source.texts(made))
    for made in made_by(tokens, REASON_KEPT):
        yield from source.texts(made) if "?" not in made else ()  # a choice is between reasons of SET UP
    yield from (text for text in source.constants.values() if re.match(" [a-z]", text))  # of kinds of programs


def all_reasons(by_area):
    texts = sources(*REASONS)
    found = {message.removeprefix("NOT SET UP: ") for area in by_area.values() for message in area if message.startswith("NOT SET UP: ")}
    for name, text in texts.items():
        found |= {f"PROGRAM{reason}" if reason.startswith(" ") else reason for reason in reasons_in(Source(name, text, {}))}
    cut = {re.sub(r"(, although .* asks for it)?(; .*)?$", "", tidy(reason)) for reason in found}
    return {reason for reason in cut if len(re.findall(r"\b[a-z]{2,}", reason)) >= 2}


def check_reasons(reasons, headings):
    """A heading has the words of a reason, with examples in the places of what varies."""
    any_example = {reason: re.sub(r"\\\.\\\.\\\.|\b[A-Z]+\b", ".+", re.escape(reason)) for reason in reasons}
    patterns = {reason: re.compile(re.sub(r"(\.\+\\ \w+s)\b", r"\1?", text)) for reason, text in any_example.items()}  # 1 task, 2 tasks
    shown = {heading: heading.split("; ")[0] for heading in headings}
    for reason, pattern in sorted(patterns.items()):
        if not any(pattern.fullmatch(words) for words in shown.values()):
            yield f"{PAGE}: a reason of NOT SET UP has no heading: {reason}"
    for heading, words in shown.items():
        if not any(pattern.fullmatch(words) for pattern in patterns.values()):
            yield f"{PAGE}: a heading has no reason of NOT SET UP: {heading}"


def page_part(by_area):
    blocks = (f"{area}:\n\n```text\n" + "\n".join(sorted(by_area[area], key=str.casefold)) + "\n```\n" for area in AREAS)
    return f"{BEGIN}\n\n" + "\n".join(blocks) + f"\n{END}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the list into {PAGE}")
    options = parser.parse_args()
    by_area = all_messages()
    problems = [f"message with the word {word[0]!r}, which has a plainer one: {message}"
                for messages in by_area.values() for message in sorted(messages) if (word := BANNED.search(message))]
    problems += check_prose()
    page = (TOP / PAGE).read_text(encoding="utf-8")
    section = page.partition(REASON_SECTION)[2].partition("\n## ")[0]
    reasons = all_reasons(by_area)
    problems += check_reasons(reasons, re.findall(r"^### (.*)", section, re.M))
    if len(list(check_reasons({"the step has N nodes"}, ["the step has one GPU"]))) != 2:
        problems.append("control: a reason without a heading, and a heading without a reason, are not noticed")
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        problems.append(f"{PAGE}: the lines {BEGIN} and {END} are missing, between which the list of messages is")
    else:
        new = page[:page.index(BEGIN)] + page_part(by_area) + page[page.index(END) + len(END):]
        if options.write:
            (TOP / PAGE).write_text(new, encoding="utf-8")
        elif new != page:
            problems.append(f"{PAGE}: its list of messages differs from the sources; write it with scripts/checks/messages.py --write")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"messages: {sum(map(len, by_area.values()))} messages, {len(reasons)} reasons of NOT SET UP, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

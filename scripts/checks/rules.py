#!/usr/bin/env python3
"""Checks the sources: allowed includes, lengths and names of files, names of classes and variables, commit subjects."""

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]

# Layer -> layers whose headers it may include, beside its own. A layer is a folder with all folders below it. A layer includes layers
# above it in this table; folders within one layer may include each other.
MAY_INCLUDE = {
    "libbootstrap/core/util": (),
    "libbootstrap/core/hardware": ("core/util",),
    "libbootstrap/core/settings": ("core/util", "core/hardware"),
    "libbootstrap/core/step": ("core/util", "core/hardware", "core/settings"),
    "libbootstrap/core/program": ("core/util", "core/hardware", "core/settings", "core/step"),
    "libbootstrap/core/exchange": ("core/util", "core/step"),
    "libbootstrap/core/activation": ("core/util", "core/settings", "core/step", "core/program"),
    "libbootstrap/core/plan": ("core",),
    "libbootstrap/probe": ("core",),
    "libbootstrap/comm": ("core", "probe", "comm"),
    "libbootstrap/api": ("core", "probe", "comm", "bootstrap"),
    "libbootstrap/preload": ("core", "probe", "comm", "bootstrap", "preload"),
    "libbootstrap/tools": ("core", "probe", "comm", "bootstrap", "tools"),
    "spank_plugin": ("core", "probe", "spank_plugin"),
}

# Third-party header -> stem of the file pair that may include it.
ONE_PAIR = {
    "slurm/spank.h": "spank_plugin/spank_api",
    "slurm/slurm.h": "spank_plugin/srun/slurmctld_calls",
    "hwloc.h": "libbootstrap/tools/near/near",
    "pmix.h": "libbootstrap/comm/pmix/pmix_library",
    "nccl.h": "libbootstrap/comm/nccl/nccl_library",
    "cuda.h": "libbootstrap/comm/nccl/cuda_device",
}

# The core does no I/O, reads no environment and no clock, and logs nothing. arpa/inet.h is for inet_pton, a pure function.
CORE_HEADERS = re.compile(
    r"^(algorithm|arpa/inet\.h|array|bit|charconv|compare|cstddef|cstdint|cstring|functional|initializer_list|iterator|limits|map|memory|"
    r"numeric|optional|set|span|string|string_view|system_error|tl/expected\.hpp|tuple|type_traits|unordered_map|utility|variant|vector)$")

# Slow to start, heavy to link, or absent from one of the two compilers.
BANNED_HEADERS = {"format", "iostream", "regex", "source_location", "ranges", "coroutine", "filesystem", "thread", "future"}

MAX_LINES = 400


def layer_of(path):
    return max((layer for layer in MAY_INCLUDE if path.startswith(layer + "/")), key=len, default=None)


def without_comments(text):
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", "", match.group()), text, flags=re.S)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def check_include(path, layer, header, quoted):
    own, folder = path.rpartition("/")[0].removeprefix("libbootstrap/"), header.rpartition("/")[0]
    if layer == "spank_plugin" and folder in ("", "srun", "slurmstepd"):
        folder = "spank_plugin"
    if header in ONE_PAIR:
        if not path.startswith(ONE_PAIR[header] + "."):
            yield f"only {ONE_PAIR[header]}.* may include <{header}>"
    elif quoted:
        if folder not in ("", own) and not any(f"{folder}/".startswith(f"{one}/") for one in MAY_INCLUDE[layer]):
            yield f'{layer} may not include "{header}"'
    elif header in BANNED_HEADERS:
        yield f"<{header}> is not used in this project"
    elif layer.startswith("libbootstrap/core/") and not CORE_HEADERS.match(header):
        yield f"the core is pure: <{header}> is not on its list"


def check_source(path, text):
    layer = layer_of(path)
    if layer is None:
        return
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line):
            yield from (f"{path}:{number}: {problem}" for problem in check_include(path, layer, match[2], match[1] == '"'))


def check_file(path, text):
    lines = text.count("\n")
    if lines > MAX_LINES and not path.startswith(("tests/data/", "etc/man/")) and not path.endswith(("LICENSE", ".md")):
        yield f"{path}: {lines} lines are a sign of two things in one file"
    if path.endswith((".cc", ".h", ".py", ".sh")) and not re.match(r'#!|//|/\*|"""|#', text):
        yield f"{path}: the first line must say what the file is for"
    if path.endswith((".c", ".cc", ".h")) and re.search(r"^// .+ SPDX-License-Identifier", text, re.MULTILINE):
        yield f"{path}: the SPDX tag needs a line of its own"


# At the left margin of a header. Such names differ between all libraries, since the unit tests link them all.
TYPE = re.compile(r"^(?:class|struct|enum class|enum|union) (\w+)(?: final)?(?: : [^{;]*)? *\{", re.MULTILINE)


def check_type_names(headers):
    """`headers` are paths and texts. Two classes of one name would be one to the linker."""
    first = {}
    for path, text in headers:
        for name in TYPE.findall(without_comments(text)):
            if first.setdefault(name, path) != path:
                yield f"{path}: {first[name]} has a {name}, too"


# A literal that names a variable, in code of srun and slurmstepd: each has a limit in one of these tables.
KNOWN_VARIABLES = ("libbootstrap/core/settings/variables.cc", "libbootstrap/core/settings/setting_table.cc")
VARIABLE = re.compile(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]+)"')
NO_VARIABLES = {"PCI_BUS_ID", "SLURM_BOOTSTRAP_"}  # a value, and the beginning of names


def check_variables(path, text, table):
    if path.startswith(("libbootstrap/core/", "spank_plugin/")) and path not in KNOWN_VARIABLES:
        for name in sorted(set(VARIABLE.findall(re.sub(r"//[^\n]*", "", text))) - NO_VARIABLES):
            if not re.search(rf'[" ]{name}[" ]', table):
                yield f"{path}: {name} has no limit in {KNOWN_VARIABLES[0]}"


# The page where developers find the place of each thing.
MAP = "etc/doc/architecture.md"


def check_map(text):
    """Each `path.cc:function` of the map is there."""
    for path, function in re.findall(r"`([\w/.]+\.(?:cc|h)|tools/[\w/.]+\.py)(?::(\w+))?`", text):
        file = TOP / (path if path.startswith("spank_plugin/") else f"libbootstrap/{path}")
        if not file.is_file():
            yield f"{MAP}: there is no {path}"
        elif function and not re.search(rf"\b{function}\(", file.read_text(encoding="utf-8")):
            yield f"{MAP}: there is no {function} in {path}"


# `area: imperative subject`, checked since this rule exists.
SUBJECT = re.compile(r"[\w./*-]+(, [\w./*-]+)*: (?!\w+(ed|ing) |(adds|fixes|makes|moves|removes|uses) )\S.*|Revert \".*\"")
SUBJECTS_SINCE = "2026-11-25T19:30:00Z"


def check_subject(subject):
    if len(subject) > 72 or not SUBJECT.fullmatch(subject):
        yield f"commit {subject!r}: a subject is `area: imperative subject`, in 72 characters"


def check_subjects():
    log = ["git", "log", "--no-merges", "--format=%s", f"--since={SUBJECTS_SINCE}"]
    done = subprocess.run(log, cwd=TOP, text=True, capture_output=True)  # a checkout may have no history
    return [problem for subject in done.stdout.splitlines() for problem in check_subject(subject)]


def control():
    """The checks themselves: each of these sources breaks one rule."""
    broken = {
        "libbootstrap/core/step/a.cc": ['#include "probe/b.h"', '#include "core/plan/b.h"', "#include <unistd.h>", "#include <regex>"],
        "libbootstrap/probe/a.cc": ['#include "comm/b.h"', "#include <hwloc.h>", "#include <slurm/spank.h>"],
        "libbootstrap/tools/cli/a.cc": ['#include "preload/b.h"'],
        "libbootstrap/api/a.cc": ['#include "tools/cli/b.h"'],
        "spank_plugin/a.cc": ['#include "comm/b.h"', '#include "tools/cli/b.h"', "#include <thread>"],
    }
    missed = [f"{path}: {line}" for path, lines in broken.items() for line in lines if not list(check_source(path, line + "\n"))]
    missed += [] if list(check_variables("spank_plugin/a.cc", 'get("NEW_VARIABLE")', '{"OLD_VARIABLE", 1}')) else ["a variable"]
    missed += [f"{MAP}: {line}" for line in ("`core/none.cc`", "`api/collective.cc:none`") if not list(check_map(line))]
    missed += [f"{path}: no problem" for path in ("spank_plugin/a.cc", "libbootstrap/preload/a.cc")
               if list(check_source(path, '#include "core/plan/plan.h"\n'))]
    missed += [f"commit {line}" for line in ("no area", "core: added a file", f"core: {'x' * 70}") if not list(check_subject(line))]
    twins = [("a.h", "class A {\n};\nstruct B : A {"), ("b.h", "struct A final {\n};\nstruct B;"), ("c.h", "enum class B : int {")]
    missed += [] if len(list(check_type_names(twins))) == 2 else ["two classes of one name"]
    missed += [] if list(check_file("a.cc", "// Text. SPDX-License-Identifier: Apache-2.0\n")) else ["an SPDX tag in a sentence"]
    return [f"control: not noticed: {line}" for line in missed]


def main():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP, check=True, text=True, stdout=subprocess.PIPE)
    names = listed.stdout.split()
    problems, headers, known = control(), [], "".join((TOP / name).read_text(encoding="utf-8") for name in KNOWN_VARIABLES)
    folders = {name.split("/")[0] for name in names if "/" in name} - {"spank_plugin", "libbootstrap", "scripts", "tests", "etc", ".ci", ".github"}
    problems += [f"{folder}/: not one of the top-level folders" for folder in sorted(folders)]
    for name in names:
        if name.startswith("tests/fuzz/corpus/") or not (TOP / name).is_file():
            continue
        text = (TOP / name).read_text(encoding="utf-8")
        problems += check_file(name, text)
        if name.endswith((".cc", ".h", ".c")):
            problems += check_source(name, text)
            problems += check_variables(name, text, known)
        if name.endswith(".h") and name.startswith(("libbootstrap/", "spank_plugin/")):
            headers.append((name, text))
    problems += [*check_type_names(headers), *check_map((TOP / MAP).read_text(encoding="utf-8")), *check_subjects()]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"rules: {len(names)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

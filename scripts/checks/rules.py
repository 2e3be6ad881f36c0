#!/usr/bin/env python3
"""Who may include whom, who may call what, and how long a file may be: the rules of the house, checked on the sources."""

import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from test_report.figures import Figure, keep  # noqa: E402

# Room -> rooms whose headers it may include, beside its own. A room is a folder, or all folders below one. One way: a room
# includes rooms above it in this table, and the rooms of one line below it each other.
MAY_INCLUDE = {
    "libbootstrap/core/util": (),
    "libbootstrap/core/hardware": ("core/util",),
    "libbootstrap/core/settings": ("core/util", "core/hardware"),
    "libbootstrap/core/step": ("core/util", "core/hardware", "core/settings"),
    "libbootstrap/core/program": ("core/util", "core/settings", "core/step"),
    "libbootstrap/core/exchange": ("core/util", "core/step"),
    "libbootstrap/core/failure": ("core/util", "core/settings", "core/step"),
    "libbootstrap/core/activation": ("core/util", "core/settings", "core/step", "core/program"),
    "libbootstrap/core/plan": ("core",),
    "libbootstrap/probe": ("core",),
    "libbootstrap/comm/process": ("core/util", "probe"),
    "libbootstrap/comm": ("core", "probe", "comm"),
    "libbootstrap/api": ("core", "probe", "comm", "bootstrap"),
    "libbootstrap/preload": ("core", "probe", "comm", "bootstrap", "preload"),
    "libbootstrap/tools": ("core", "probe", "comm", "bootstrap", "tools"),
    "spank_plugin": ("core", "probe", "spank_plugin"),
}

# Third-party header -> stem of the file pair that may include it.
ONE_PAIR = {
    "slurm/spank.h": "spank_plugin/spank_api",
    "slurm/slurm.h": "spank_plugin/slurm_api",
    "hwloc.h": "libbootstrap/probe/hwloc_topology",
    "pmix.h": "libbootstrap/comm/pmix/pmix_library",
    "nccl.h": "nothing in the product",
}

# The core does no I/O, reads no environment and no clock, and logs nothing. arpa/inet.h is for inet_pton, a pure function.
CORE_HEADERS = re.compile(
    r"^(algorithm|arpa/inet\.h|array|charconv|compare|cstddef|cstdint|cstring|functional|initializer_list|iterator|limits|map|memory|numeric|"
    r"optional|set|span|string|string_view|system_error|tl/expected\.hpp|tuple|type_traits|unordered_map|utility|"
    r"variant|vector)$")

# Slow to start, heavy to link, or absent from one of the two compilers.
BANNED_HEADERS = {"format", "iostream", "regex", "source_location", "ranges", "coroutine", "filesystem", "thread",
                  "future"}

# In the plugin: nothing that ends, forks or waits. task_init.cc ends the task's own child, before the program starts;
# name_lookup.cc and the thread of failure_receiver.cc are for srun.
PLUGIN_BANNED = re.compile(r"(?<![\w:.])(?:::|std::)?(exit|_exit|_Exit|quick_exit|abort|fork|vfork|system|popen|dlm?open|"
                           r"sleep|usleep|nanosleep|connect|getpw\w+|getgr\w+|gethostby\w+|getaddrinfo|exec[lv]\w*|posix_spawnp?|"
                           r"signal|sigaction|assert|pthread_create|terminate|raise|kill|longjmp|slurm_load_\w+)\s*\(|"
                           r"\b(throw|thread_local)\b|std::(thread|jthread|async|mutex)")
PLUGIN_ALLOWED = {("spank_plugin/slurmstepd/task_init.cc", "::_exit(1)"),
                  ("spank_plugin/srun/failure_receiver.cc",
                   "const bool is_started = ::pthread_create(&thread_, nullptr, run_receiver, this) == 0"),
                  ("spank_plugin/srun/name_lookup.cc",
                   "const int outcome = ::getaddrinfo(name.c_str(), nullptr, &wanted, &found)")}

MAX_LINES = 400


def area_of(path):
    areas = [area for area in MAY_INCLUDE if path.startswith(area + "/")]
    return max(areas, key=len) if areas else None


def without_comments(text):
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", "", match.group()), text, flags=re.S)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def room_of_header(path, header):
    """As the table names it: the folder of the header, or of the file that includes it."""
    folder = header.rpartition("/")[0]
    if path.startswith("spank_plugin/") and folder in ("", "srun", "slurmstepd"):
        return "spank_plugin"
    return folder or path.rpartition("/")[0].removeprefix("libbootstrap/")


def is_in(room, rooms):
    return any(room == one or room.startswith(one + "/") for one in rooms)


def check_include(path, area, header, quoted):
    if header in ONE_PAIR:
        if not path.startswith(ONE_PAIR[header] + "."):
            yield f"only {ONE_PAIR[header]}.* may include <{header}>"
    elif quoted:
        target, own = room_of_header(path, header), path.rpartition("/")[0].removeprefix("libbootstrap/")
        if target != own and not is_in(target, MAY_INCLUDE[area]):
            yield f'{area} may not include "{header}"'
    elif header in BANNED_HEADERS:
        yield f"<{header}> is not used in this project"
    elif area.startswith("libbootstrap/core/") and not CORE_HEADERS.match(header):
        yield f"the core is pure: <{header}> is not on its list"


def check_source(path, text):
    area = area_of(path)
    if area is None:
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if match:
            for problem in check_include(path, area, match.group(2), match.group(1) == '"'):
                yield f"{path}:{number}: {problem}"
    if area == "spank_plugin":
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            if PLUGIN_BANNED.search(line) and (path, line.strip().rstrip(";")) not in PLUGIN_ALLOWED:
                yield f"{path}:{number}: not in the plugin: {line.strip()}"


def check_file(path, text):
    lines = text.count("\n")
    if lines > MAX_LINES and not path.startswith(("tests/data/", "etc/man/")) and not path.endswith(("LICENSE", ".md")):
        yield f"{path}: {lines} lines are a sign of two things in one file"
    if path.endswith((".cc", ".h", ".py", ".sh")) and not re.match(r'#!|//|/\*|"""|#', text):
        yield f"{path}: the first line must say what the file is for"


def check_python_names(names):
    """pytest imports the files of its tests by their names alone, so that the second of a name gets the first."""
    first = {}
    for path in (path for path in names if path.startswith("tests/integration/") and path.endswith(".py") and "/programs/" not in path):
        name = path.rpartition("/")[2]
        if first.setdefault(name, path) != path:
            yield f"{path}: {first[name]} has the same name"


# In a header, at the left margin: what has one name in all libraries, since the unit tests link them all.
TYPE = re.compile(r"^(?:class|struct|enum class|enum|union) (\w+)(?: final)?(?: : [^{;]*)? *\{", re.MULTILINE)


def check_type_names(headers):
    """`headers` are paths and texts. Two classes of one name would be one to the linker."""
    first = {}
    for path, text in headers:
        for name in TYPE.findall(without_comments(text)):
            if first.setdefault(name, path) != path:
                yield f"{path}: {first[name]} has a {name}, too"


# A literal that names a variable, in what srun and slurmstepd run: each has a limit in this table.
KNOWN_VARIABLES = "libbootstrap/core/settings/known_variables.cc"
VARIABLE = re.compile(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]+)"')
NO_VARIABLES = {"PCI_BUS_ID", "SLURM_BOOTSTRAP_"}  # a value, and the beginning of names


def check_variables(path, text, table):
    if path.startswith(("libbootstrap/core/", "spank_plugin/")) and path != KNOWN_VARIABLES:
        for name in sorted(set(VARIABLE.findall(re.sub(r"//[^\n]*", "", text))) - NO_VARIABLES):
            if f'{{"{name}", ' not in table:
                yield f"{path}: {name} has no limit in {KNOWN_VARIABLES}"


# The page that tells developers where things are.
MAP = "etc/doc/architecture.md"


def check_map(text):
    """Each `path.cc:function` of the map is there."""
    for path, function in re.findall(r"`([\w/.]+\.(?:cc|h))(?::(\w+))?`", text):
        file = TOP / (path if path.startswith("spank_plugin/") else f"libbootstrap/{path}")
        if not file.is_file():
            yield f"{MAP}: there is no {path}"
        elif function and not re.search(rf"\b{function}\(", file.read_text(encoding="utf-8")):
            yield f"{MAP}: there is no {function} in {path}"


# `area: imperative subject`, checked from the day on which this rule came.
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
        "spank_plugin/a.cc": ['#include "comm/b.h"', '#include "tools/cli/b.h"', "  ::_exit(1);", "int x = dlopen(name);", "throw 1;",
                              "std::exit(0);", "if (bad) abort();", "pid_t child = fork();", "::execve(a, b, c);",
                              "system(line);", "popen(line, mode);", "std::thread worker;", "thread_local int x;",
                              "::pthread_create(&a, b, c, d);", "getpwnam(name);", "std::terminate();", "::raise(2);"],
    }
    missed = [f"{path}: {line}" for path, lines in broken.items() for line in lines
              if not list(check_source(path, line + "\n"))]
    missed += [] if list(check_variables("spank_plugin/a.cc", 'get("NEW_VARIABLE")', '{"OLD_VARIABLE", 1}')) else ["a variable"]
    missed += [f"{MAP}: {line}" for line in ("`core/none.cc`", "`api/collective.cc:none`") if not list(check_map(line))]
    missed += [f"{path}: no problem" for path in ("spank_plugin/a.cc", "libbootstrap/preload/a.cc")
               if list(check_source(path, '#include "core/plan/step_plan.h"\n'))]
    missed += [f"commit {line}" for line in ("no area", "core: added a file", f"core: {'x' * 70}") if not list(check_subject(line))]
    missed += [] if list(check_python_names([f"tests/integration/{folder}/a.py" for folder in "bc"])) else ["two a.py"]
    twins = [("a.h", "class A {\n};\nstruct B : A {"), ("b.h", "struct A final {\n};\nstruct B;"), ("c.h", "enum class B : int {")]
    missed += [] if len(list(check_type_names(twins))) == 2 else ["two classes of one name"]
    for line in missed:
        print(f"control: not noticed: {line}", file=sys.stderr)
    return 1 if missed else 0


def main():
    if control():
        return 1
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    problems, headers = [], []
    known = (TOP / KNOWN_VARIABLES).read_text(encoding="utf-8")
    folders = {name.split("/")[0] for name in names if "/" in name}
    for folder in sorted(folders - {"spank_plugin", "libbootstrap", "scripts", "tests", "etc", ".ci", ".github"}):
        problems.append(f"{folder}/: not one of the top-level folders")
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
    problems += check_python_names(names)
    problems += check_type_names(headers)
    problems += check_map((TOP / MAP).read_text(encoding="utf-8"))
    problems += check_subjects()
    for problem in problems:
        print(problem, file=sys.stderr)
    banned = sum("not in the plugin" in problem for problem in problems)
    sources = sum(name.startswith("spank_plugin/") for name in names)
    keep(Figure("G4", "", f"{banned} in {sources} files, {len(PLUGIN_ALLOWED)} known exceptions", banned == 0, True,
                "a line with each of them is refused"))
    for area, rooms in MAY_INCLUDE.items():
        print(f"  {area:<26} may include {', '.join(rooms) or 'nothing'}")
    print(f"rules: {len(names)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Who may include whom, who may call what, and how long a file may be: the rules of the house, checked on the sources."""

import pathlib
import re
import subprocess
import sys

from trust.figures import Figure, keep

# Area -> areas whose headers it may include. Longest prefix wins.
MAY_INCLUDE = {
    "libbootstrap/core": {"core"},
    "libbootstrap/probe": {"core", "probe"},
    "libbootstrap/comm": {"core", "probe", "comm"},
    "libbootstrap/api": {"core", "probe", "comm", "bootstrap", "api"},
    "libbootstrap/preload": {"core", "probe", "comm", "rendezvous", "preload", "bootstrap"},
    "libbootstrap/cli": {"core", "probe", "comm", "bootstrap", "cli"},
    "libbootstrap/rendezvous": {"core", "probe", "rendezvous"},
    "spank_plugin": {"core", "probe", "rendezvous", "spank_plugin"},
}

# Area -> its headers for others: what is behind them is a program of its own.
DOORS = {"rendezvous": ("rendezvous/listener.h", "rendezvous/start.h")}

# Third-party header -> stem of the file pair that may include it.
ONE_PAIR = {
    "slurm/spank.h": "spank_plugin/spank_api",
    "slurm/slurm.h": "spank_plugin/slurm_ids",
    "hwloc.h": "libbootstrap/probe/topology",
    "pmix.h": "libbootstrap/comm/pmix",
    "nccl.h": "libbootstrap/comm/nccl",
}

# The core does no I/O, reads no environment and no clock, and logs nothing. arpa/inet.h is for inet_pton, a pure function.
CORE_HEADERS = re.compile(
    r"^(algorithm|arpa/inet\.h|array|charconv|compare|cstddef|cstdint|functional|initializer_list|iterator|limits|map|memory|numeric|"
    r"optional|set|span|string|string_view|system_error|tl/expected\.hpp|tuple|type_traits|unordered_map|utility|"
    r"variant|vector)$")

# Slow to start, heavy to link, or absent from one of the two compilers.
BANNED_HEADERS = {"format", "iostream", "regex", "source_location", "ranges", "coroutine", "filesystem", "thread",
                  "future"}

# In the plugin: nothing that ends, forks or waits. apply.cc ends the task's own child, before the program starts;
# name_lookup.cc, deadline_call.cc and the thread of failure_receiver.cc are for srun.
PLUGIN_BANNED = re.compile(r"(?<![\w:.])(?:::|std::)?(exit|_exit|_Exit|quick_exit|abort|fork|vfork|system|popen|dlm?open|"
                           r"sleep|usleep|nanosleep|connect|getpw\w+|getgr\w+|gethostby\w+|getaddrinfo|exec[lv]\w*|posix_spawnp?|"
                           r"signal|sigaction|assert|pthread_create|terminate|raise|kill|longjmp|slurm_load_\w+)\s*\(|"
                           r"\b(throw|thread_local)\b|std::(thread|jthread|async|mutex)")
PLUGIN_ALLOWED = {("spank_plugin/apply.cc", "::_exit(1)"),
                  ("spank_plugin/failure_receiver.cc",
                   "const bool is_started = ::pthread_create(&thread_, nullptr, run_receiver, this) == 0"),
                  ("spank_plugin/name_lookup.cc",
                   "const int outcome = ::getaddrinfo(name.c_str(), nullptr, &wanted, &found)"),
                  ("spank_plugin/deadline_call.cc",
                   "const bool has_started = ::pthread_create(&thread, nullptr, run, argument.get()) == 0")}

MAX_LINES = 400


def area_of(path):
    areas = [area for area in MAY_INCLUDE if path.startswith(area + "/")]
    return max(areas, key=len) if areas else None


def without_comments(text):
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"/\*.*?\*/", lambda match: re.sub(r"[^\n]", "", match.group()), text, flags=re.S)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)


def check_include(path, area, header, quoted):
    if header in ONE_PAIR:
        if not path.startswith(ONE_PAIR[header] + "."):
            yield f"only {ONE_PAIR[header]}.* may include <{header}>"
    elif quoted:
        target = header.split("/")[0] if "/" in header else area.split("/")[-1]
        if target not in MAY_INCLUDE[area]:
            yield f'{area} may not include "{header}"'
        elif target != area.split("/")[-1] and header not in DOORS.get(target, (header,)):
            yield f"{area} may include nothing of {target} but {' and '.join(DOORS[target])}"
    elif header in BANNED_HEADERS:
        yield f"<{header}> is not used in this project"
    elif area == "libbootstrap/core" and not CORE_HEADERS.match(header):
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
    if lines > MAX_LINES and not path.startswith("tests/data/") and not path.endswith(("LICENSE", ".md")):
        yield f"{path}: {lines} lines are a sign of two things in one file"
    if path.endswith((".cc", ".h", ".py", ".sh")) and not re.match(r'#!|//|/\*|"""|#', text):
        yield f"{path}: the first line must say what the file is for"


def control():
    """The checks themselves: each of these sources breaks one rule."""
    broken = {
        "libbootstrap/core/a.cc": ['#include "probe/b.h"', "#include <unistd.h>", "#include <regex>"],
        "libbootstrap/probe/a.cc": ['#include "comm/b.h"', "#include <hwloc.h>", "#include <slurm/spank.h>"],
        "libbootstrap/rendezvous/a.cc": ['#include "comm/b.h"', '#include "cli/b.h"'],
        "libbootstrap/cli/a.cc": ['#include "rendezvous/listener.h"'],
        "libbootstrap/api/a.cc": ['#include "cli/b.h"'],
        "spank_plugin/a.cc": ['#include "comm/b.h"', '#include "rendezvous/server.h"', "  ::_exit(1);", "int x = dlopen(name);", "throw 1;",
                              "std::exit(0);", "if (bad) abort();", "pid_t child = fork();", "::execve(a, b, c);",
                              "system(line);", "popen(line, mode);", "std::thread worker;", "thread_local int x;",
                              "::pthread_create(&a, b, c, d);", "getpwnam(name);", "std::terminate();", "::raise(2);"],
    }
    missed = [f"{path}: {line}" for path, lines in broken.items() for line in lines
              if not list(check_source(path, line + "\n"))]
    missed += [f"{path}: no problem" for path in ("spank_plugin/a.cc", "libbootstrap/preload/a.cc")
               if list(check_source(path, '#include "rendezvous/listener.h"\n'))]
    for line in missed:
        print(f"control: not noticed: {line}", file=sys.stderr)
    return 1 if missed else 0


def main():
    if control():
        return 1
    top = pathlib.Path(__file__).resolve().parents[2]
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=top, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    problems = []
    folders = {name.split("/")[0] for name in names if "/" in name}
    for folder in sorted(folders - {"spank_plugin", "libbootstrap", "scripts", "tests", "etc", ".ci"}):
        problems.append(f"{folder}/: not one of the top-level folders")
    for name in names:
        if name.startswith("tests/fuzz/corpus/") or not (top / name).is_file():
            continue
        text = (top / name).read_text(encoding="utf-8")
        problems += check_file(name, text)
        if name.endswith((".cc", ".h", ".c")):
            problems += check_source(name, text)
    for problem in problems:
        print(problem, file=sys.stderr)
    banned = sum("not in the plugin" in problem for problem in problems)
    sources = sum(name.startswith("spank_plugin/") for name in names)
    keep(Figure("G4", "", f"{banned} in {sources} files, {len(PLUGIN_ALLOWED)} known exceptions", banned == 0, True,
                "a line with each of them is refused"))
    print(f"rules: {len(names)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks exports and needs of the shared objects: any process can load them. Takes a build folder. Objects that must not pass are in
tests/integration/scripts/test_check_binaries.py."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from test_report.figures import Figure, keep  # noqa: E402

RECORD = TOP / "tests/data/interface"
LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

# Names that the loader of Slurm would call in any library that has them, also in one that ours needs.
NEVER = {"init", "fini"}

# The glibc that the library needs when it is built on Debian 12, as in README.md.
NEWEST_GLIBC, DEBIAN_12 = (2, 35), "glibc 2.36"

# What the plugin cannot do, because it does not import the function: end, start or wait for a process, sleep, connect, look up users,
# load libraries, change files or its identity. It imports _exit for the task's own child before the program starts, abort for
# libstdc++'s terminate, getaddrinfo and pthread_create for srun; test_root_system_calls.py shows what slurmstepd does with these.
PLUGIN_IMPORTS_NEVER = re.compile(
    r"exit|_Exit|quick_exit|v?fork|system|popen|f?exec\w+|posix_spawnp?|dlm?open|u?sleep|nanosleep|connect|getpw\w+|getgr\w+|"
    r"gethostby\w+|signal|sigaction|raise|kill|(sig)?longjmp|__assert_fail|creat|fopen(64)?|mkdir|unlink|rename|chown|chmod|ptrace|prctl|"
    r"set(re|e|res)?[ug]id|slurm_load_\w+")

# The compiler's own constructors, and libstdc++'s, which takes memory for exceptions without memory and, from gcc 13 on, fills in two
# tables of functions.
RUNTIME = {"frame_dummy", "eh_alloc", "system_error"}


def run(*command):
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE).stdout


def exports(path):
    """Names and symbol types that the object offers to others; version nodes (type A) are no symbols."""
    symbols = (line.split()[-2:] for line in run("nm", "-D", "--defined-only", path).splitlines())
    return {name.split("@")[0]: kind for kind, name in symbols if kind != "A"}


def names_in_map(path):
    return set(re.findall(r"^\s+(\w+);", path.read_text(encoding="utf-8"), flags=re.M))


def check_object(path, expected, is_bound_at_start=True):
    found = exports(path)
    if set(found) != expected:
        yield f"exports differ: too many {sorted(set(found) - expected)}, missing {sorted(expected - set(found))}"
    if "u" in found.values():
        yield "exports a UNIQUE symbol: dlclose would not unload it"
    yield from check_loader_names(path)
    yield from check_linking(path, is_bound_at_start)


def check_loader_names(path):
    """Checks the object and all that it needs, as the loader finds them."""
    for name in [path, *re.findall(r"^\s(?:\S+ => )?(/\S+) \(", run("ldd", path), flags=re.M)]:
        if NEVER & set(exports(name)):
            yield f"{name} exports init or fini, which Slurm's loader calls"


def check_imports(path, never):
    imports = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--undefined-only", path).splitlines()}
    if banned := sorted(filter(never.fullmatch, imports)):
        yield f"imports {banned}"


def newest_glibc(path):
    """The highest version of glibc's symbols that the object asks for."""
    return max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-VW", path)))


def check_glibc(path, newest):
    if (version := newest_glibc(path)) > newest:
        yield "asks for glibc {}.{}, newer than {}.{}: older containers could start no process".format(*version, *newest)


def check_linking(path, is_bound_at_start):
    """For everything that is started or loaded in an environment that is not ours."""
    dynamic, segments = run("readelf", "-dW", path), run("readelf", "-lW", path)
    if needed := set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)) - LIBC:
        yield f"needs {sorted(needed)}: on a machine without it every process that loads us would fail"
    for word in ("RUNPATH", "RPATH", "TEXTREL"):
        if f"({word})" in dynamic:
            yield f"has {word}"
    if is_bound_at_start and not re.search(r"\((BIND_NOW|FLAGS_1)\).*\bNOW\b|\(BIND_NOW\)|\(FLAGS\).*\bBIND_NOW\b", dynamic):
        yield "is not linked with -z now"
    if "GNU_RELRO" not in segments:
        yield "has no RELRO segment"
    if re.search(r"GNU_STACK\s.*RWE", segments):
        yield "asks for an executable stack"


def check_constructors(path, known):
    """Addresses in .init_array are run before `main` by every process that preloads the library, and none may need another that has not
    run yet."""
    words = re.findall(r"^\s+0x[0-9a-f]+ ((?:[0-9a-f]{8} ?)+)", run("readelf", "--hex-dump=.init_array", path), flags=re.M)
    data = bytes.fromhex("".join(words).replace(" ", ""))
    names = {}
    for line in run("nm", path).splitlines():
        address, _, name = line.rpartition(" ")
        if address and not address.startswith(" "):
            names.setdefault(int(address.split()[0], 16), name)
    addresses = [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), 8)]
    found = [names.get(address, hex(address)) for address in addresses]
    if strange := [name for name in found if not any(word in name for word in known)]:
        yield f"runs {strange} before main in every process that preloads it"
    if not any(word in name for name in found for word in known):
        yield f"has none of the constructors {sorted(known)}"


def check_plugin(path, names):
    yield from check_object(path, names)
    yield from check_constructors(path, RUNTIME)
    yield from check_imports(path, PLUGIN_IMPORTS_NEVER)


def check_library(path, names):
    yield from check_object(path, names, is_bound_at_start=False)  # the start of every process would pay for it
    yield from check_constructors(path, RUNTIME | {"enter"})  # that of preload/constructor.cc
    if os.confstr("CS_GNU_LIBC_VERSION") == DEBIAN_12:
        yield from check_glibc(path, NEWEST_GLIBC)


def command_options(command):
    """A line for each option and argument of each command, from its own --help."""
    commands = re.findall(r"^  ([a-z]+)  ", run(command, "--help").split("\nOptions:")[0], flags=re.M)
    yield from (f"{name} {option}" for name in commands
                for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", run(command, name, "--help").split("\nExamples:")[0]))


def check_record(build, library):
    """What programs and scripts build on is as recorded; etc/doc/stability.md has the rules."""
    options = sorted(set(command_options(build / "libbootstrap/slurm-bootstrap")))
    recorded = (RECORD / "command.txt").read_text(encoding="utf-8").splitlines()
    if options != recorded:
        yield f"options of the command: gone {sorted(set(recorded) - set(options))}, new {sorted(set(options) - set(recorded))}"
    if not shutil.which("abidiff"):
        print("   left out: the record of the C interface, since abidiff (abigail-tools) is not installed")
        return
    line = ["abidiff", "--headers-dir2", TOP / "libbootstrap/include", "--drop-private-types", "--exported-interfaces-only",
            "--no-added-syms", RECORD / "libbootstrap.abi", library]
    done = subprocess.run(list(map(str, line)), check=False, text=True, capture_output=True)
    if done.returncode != 0:
        yield f"the C interface differs from tests/data/interface/libbootstrap.abi:\n{done.stdout}{done.stderr}"


def main(build):
    plugin = build / "spank_plugin/spank_bootstrap.so"
    library = build / "libbootstrap/libbootstrap.so.0"
    plugin_names = names_in_map(TOP / "spank_plugin/exports.map")
    library_names = names_in_map(TOP / "libbootstrap/exports.map")
    of_plugin = [f"{plugin}: {problem}" for problem in check_plugin(plugin, plugin_names)]
    of_library = [f"{library}: {problem}" for problem in check_library(library, library_names)]
    # The map has no name of NCCL's either: the library replaces no function of another library.
    header = (TOP / "libbootstrap/include/bootstrap/bootstrap.h").read_text(encoding="utf-8")
    if library_names != set(re.findall(r"BOOTSTRAP_API [\w *]+?\b(bootstrap_\w+)\(", header)):
        of_library.append("libbootstrap/exports.map names other functions than bootstrap.h")
    problems = of_plugin + of_library + list(check_record(build, library))
    # The checks themselves: libstdc++ exports and needs much, and must not pass.
    control = pathlib.Path(run("g++", "-print-file-name=libstdc++.so.6").strip())
    if not list(check_object(control, plugin_names)):
        problems.append("control: libstdc++ would have passed")
    for problem in problems:
        print(problem, file=sys.stderr)
    refused = "libstdc++ and doctored objects are refused (test_check_binaries.py)"
    keep(Figure("G1", "", f"{len(of_plugin)} problems: {len(plugin_names)} exports", not of_plugin, True, refused))
    version = ".".join(map(str, newest_glibc(library)))
    banned = list(check_imports(plugin, PLUGIN_IMPORTS_NEVER))
    keep(Figure("G4", "", "; ".join(banned) or "0", not banned, True, "an object that imports one is refused"))
    keep(Figure("G2", "", f"{len(of_library)} problems: {len(library_names)} exports, glibc {version}", not of_library, True,
                refused, why="built on Debian 12 it needs glibc 2.35; the files of a release need less"))
    print(f"binaries: {len(plugin_names)} + {len(library_names)} exports, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

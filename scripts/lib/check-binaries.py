#!/usr/bin/env python3
"""What the shared objects export and need, and the program of each step: that any process can load or start them. Takes a
build folder."""

import pathlib
import re
import subprocess
import sys

LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

# Names that the loader of Slurm would call in any library that has them.
NEVER = {"init", "fini"}

# NCCL's names that the library puts itself in front of when it is preloaded.
INTERPOSED = {"ncclGetUniqueId", "ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable",
              "ncclCommInitAll", "ncclCommSplit"}


def run(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def exports(path):
    """Names and symbol types that the object offers to others; version nodes (type A) are no symbols."""
    symbols = {}
    for line in run("nm", "-D", "--defined-only", str(path)).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":
            symbols[name.split("@")[0]] = kind
    return symbols


def names_in_map(path):
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^\s+(\w+);", text.split("local:")[0], flags=re.M))


def names_in_header(path):
    return set(re.findall(r"BOOTSTRAP_API [\w *]+?\b(bootstrap_\w+)\(", path.read_text(encoding="utf-8")))


def check_object(path, expected):
    found = exports(path)
    if set(found) != expected:
        yield f"exports differ: too many {sorted(set(found) - expected)}, missing {sorted(expected - set(found))}"
    if "u" in found.values():
        yield "exports a UNIQUE symbol: dlclose would not unload it"
    if NEVER & set(found):
        yield "exports init or fini, which Slurm's loader calls"
    yield from check_linking(path)


def check_linking(path):
    """What holds for everything that is started or loaded in an environment that is not ours."""
    dynamic = run("readelf", "-dW", str(path))
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    if not needed <= LIBC:
        yield f"needs {sorted(needed - LIBC)}: on a machine without it every process that loads us would fail"
    for word in ("RUNPATH", "RPATH", "TEXTREL"):
        if f"({word})" in dynamic:
            yield f"has {word}"
    if "BIND_NOW" not in dynamic and "NOW" not in dynamic:
        yield "is not linked with -z now"
    segments = run("readelf", "-lW", str(path))
    if "GNU_RELRO" not in segments:
        yield "has no RELRO segment"
    if re.search(r"GNU_STACK\s.*RWE", segments):
        yield "asks for an executable stack"


def check_program(path):
    yield from check_linking(path)
    if not re.search(r"Type:\s+DYN", run("readelf", "-hW", str(path))):
        yield "is always loaded at the same address"


def constructors(path):
    """Addresses in .init_array: what the dynamic linker runs before `main`."""
    shown = run("readelf", "--hex-dump=.init_array", str(path))
    words = re.findall(r"^\s+0x[0-9a-f]+ ((?:[0-9a-f]{8} ?)+)", shown, flags=re.M)
    data = bytes.fromhex("".join(words).replace(" ", ""))
    return [int.from_bytes(data[at:at + 8], "little") for at in range(0, len(data), 8)]


def check_constructors(path, known):
    """In a preloaded library each of them is run by every process, and none may need another that has not run yet."""
    names = {}
    for line in run("nm", str(path)).splitlines():
        address, _, name = line.rpartition(" ")
        if address and not address.startswith(" "):
            names.setdefault(int(address.split()[0], 16), name)
    found = [names.get(address, hex(address)) for address in constructors(path)]
    strange = [name for name in found if not any(word in name for word in known)]
    if strange:
        yield f"runs {strange} before main in every process that preloads it"
    if not any(word in name for name in found for word in known):
        yield f"has none of the constructors {sorted(known)}"


def check_clash(path, hosts):
    """None of our names may be one of the host program's: Slurm's are all visible to its plugins."""
    own = set(exports(path))
    for host in hosts:
        if pathlib.Path(host).exists():
            common = (own & set(exports(host))) - {"plugin_name", "plugin_type", "plugin_version"}
            if common:
                yield f"shares names with {host}: {sorted(common)}"


def main(build):
    top = pathlib.Path(__file__).resolve().parents[2]
    plugin = build / "spank_plugin/spank_bootstrap.so"
    library = build / "libbootstrap/libbootstrap.so.0"
    plugin_names = names_in_map(top / "spank_plugin/exports.map")
    library_names = names_in_map(top / "libbootstrap/exports.map")
    problems = [f"{plugin}: {problem}" for problem in check_object(plugin, plugin_names)]
    problems += [f"{library}: {problem}" for problem in check_object(library, library_names)]
    rendezvous = build / "libbootstrap/slurm-bootstrap-rendezvous"
    problems += [f"{rendezvous}: {problem}" for problem in check_program(rendezvous)]
    if library_names != names_in_header(top / "libbootstrap/include/bootstrap/bootstrap.h") | INTERPOSED:
        problems.append("libbootstrap/exports.map names others than bootstrap.h and the interposed functions of NCCL")
    own = {"frame_dummy", "enter"}  # of the compiler, and of preload/constructor.cc
    problems += [f"{library}: {problem}" for problem in check_constructors(library, own)]
    problems += check_clash(plugin, ["/usr/bin/srun", "/usr/bin/sbatch", "/usr/bin/salloc", "/usr/sbin/slurmd",
                                     "/usr/sbin/slurmstepd"])
    # The checks themselves: libstdc++ exports and needs much, and must not pass.
    control = pathlib.Path(run("g++", "-print-file-name=libstdc++.so.6").strip())
    if not list(check_object(control, plugin_names)):
        problems.append("control: libstdc++ would have passed")
    if not list(check_program(build / "libbootstrap/slurm-bootstrap")):
        problems.append("control: the command, which needs libstdc++ and hwloc, would have passed for the rendezvous")
    if not list(check_constructors(library, {"frame_dummy"})) or not list(check_constructors(library, {"absent"})):
        problems.append("control: a constructor more, or one less, would have passed")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"binaries: {len(plugin_names)} + {len(library_names)} exports, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

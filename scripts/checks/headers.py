#!/usr/bin/env python3
"""The plugin is compiled with each spank.h at hand and both compilers, warnings being errors, and not at all where Slurm's version is
unknown. The step `build` compiles what does not include spank.h, and links. Headers at hand are the machine's own and those of
debian/root.sh."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from debian import root_of, slurm_of_debians  # noqa: E402
from test_report.figures import Figure, keep, markdown  # noqa: E402

CXX_OF = {"gcc": "g++", "clang-14": "clang++-14"}
HOOKS = "spank_plugin/CMakeFiles/spank_bootstrap.dir/spank_hooks.cc.o"
ONE_OBJECT = "spank_plugin/CMakeFiles/bootstrap_spank_parts.dir/spank_api.cc.o"


def release_of(number):
    return f"{number >> 16 & 0xFF}.{number >> 8 & 0xFF:02}"


def version_of(number):
    return f"{release_of(number)}.{number & 0xFF}"


def at_hand():
    """Folders that hold slurm/spank.h, by the number that slurm_version.h beside it defines."""
    roots = ["", *filter(None, (root_of(release) for release in slurm_of_debians()))]
    found = {}
    for root in roots:
        path = Path(f"{root}/usr/include/slurm/slurm_version.h")
        if path.exists() and path.with_name("spank.h").exists():
            found[int(re.search(r"SLURM_VERSION_NUMBER (0x[0-9a-fA-F]+)", path.read_text()).group(1), 16)] = path.parent
    return found


def run(*line, **options):
    return subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def configure(build, compiler, folder):
    """The plugin's build with the headers in `folder`/include."""
    return run("cmake", "-S", TOP, "-B", build, "-G", "Ninja", f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_CXX_COMPILER={CXX_OF[compiler]}",
               "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DBUILD_TESTING=OFF", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
               env=os.environ | {"SLURM_ROOT": str(folder)})


def make(build, *targets):
    return run("cmake", "--build", build, "--target", *targets)


def plugin_version(path):
    """The release that Slurm's loader would read from the plugin: the constant of that name in the object of its hooks."""
    listed = run("readelf", "-sSW", path, check=True).stdout
    value, section = re.search(r": ([0-9a-f]+) .* (\d+) plugin_version$", listed, re.MULTILINE).groups()
    offset = re.search(rf"^ +\[ *{section}\] \S+ +PROGBITS +[0-9a-f]+ ([0-9a-f]+) ", listed, re.MULTILINE).group(1)
    return struct.unpack_from("<I", path.read_bytes(), int(offset, 16) + int(value, 16))[0]


def copy_of(headers, place):
    """Slurm's headers in a folder of their own, without those of another libc beside them."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(headers, place / "include/slurm")
    return place


def trouble_of(compiler, number, headers):
    """Compiles one cell; '' when the plugin is one for this release."""
    build = TOP / "build" / f"headers-{compiler}"
    place = copy_of(headers, TOP / "build" / f"headers-{version_of(number)}")
    for done in (configure(build, compiler, place), make(build, "bootstrap_spank_parts", HOOKS)):
        if done.returncode != 0:
            return f"does not build with {compiler}:\n{done.stdout[-2000:]}"
    found = plugin_version(build / HOOKS)
    return "" if found == number else f"{compiler} made a plugin for {found:#x} and not {number:#x}"


def controls(headers):
    """What must not build, and the same where it must: each line is a check that noticed nothing."""
    with tempfile.TemporaryDirectory() as work:
        complete, poor, narrow = (copy_of(headers, Path(work, name)) for name in ("complete", "poor", "narrow"))
        (poor / "include/slurm/slurm_version.h").unlink()
        # A length that is too short for ours: a conversion that is a warning, and so an error.
        spank = narrow / "include/slurm/spank.h"
        spank.write_text(re.sub(r"(spank_getenv *\([^)]*)int len", r"\1signed char len", spank.read_text()))
        build = Path(work, "build")
        refused = configure(build, "gcc", poor)
        if refused.returncode == 0 or "libslurm-dev" not in refused.stdout:
            yield f"without slurm_version.h it is not refused, or without naming the missing package:\n{refused.stdout[-2000:]}"
        if configure(build, "gcc", complete).returncode != 0 or make(build, ONE_OBJECT).returncode != 0:
            yield "control: a copy of the headers does not build"
        configure(build, "gcc", narrow)
        done = make(build, ONE_OBJECT)
        if done.returncode == 0 or "-Werror" not in done.stdout:
            yield "control: a warning that a changed spank.h causes is no error"


def main():
    sets = at_hand()
    if not sets:
        print("headers: looked for slurm/spank.h with slurm_version.h, found none; run scripts/setup", file=sys.stderr)
        return 1
    compilers = [name for name in CXX_OF if shutil.which(CXX_OF[name])]
    unnoticed = list(controls(next(iter(sets.values()))))
    troubles = {(compiler, release_of(number)): trouble for compiler in compilers for number, headers in sets.items()
                if (trouble := trouble_of(compiler, number, headers))}
    for problem in (*unnoticed, *(f"headers of Slurm {release}: {trouble}" for (_, release), trouble in troubles.items())):
        print(problem, file=sys.stderr)
    versions = {release_of(number): version_of(number) for number in sets}
    names = [f"{name} {run(name, '-dumpfullversion', '-dumpversion', check=True).stdout.split()[0]}" for name in compilers]
    table = markdown(["Slurm's headers", *names], (
        [version, *("fails" if (name, release) in troubles else "built" for name in compilers)] for release, version in versions.items()))
    count = len(sets) * len(compilers)
    got = f"{count - len(troubles)} of {count} builds without a warning"
    keep(Figure("G3", "", got if unnoticed else f"{got}, refused without slurm_version.h", not (troubles or unnoticed), True,
                control="; ".join(unnoticed) or "a warning that a changed spank.h causes ends the build; unchanged it builds", table=table))
    print(f"headers: {got} ({', '.join(versions.values())}; {', '.join(compilers)})")
    return 1 if unnoticed or troubles else 0


if __name__ == "__main__":
    sys.exit(main())

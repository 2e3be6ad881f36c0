#!/usr/bin/env python3
"""The plugin is compiled with each spank.h at hand and both compilers, warnings being errors, and not at all where Slurm's
version is unknown. What does not include spank.h is left to the step `build`, as is the linking. Takes prefixes that hold
include/slurm; the machine's own and those of debian/root.sh need no naming."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "scripts"))

from debian import root_of, slurm_of_debians  # noqa: E402
from test_report.figures import Figure, keep, markdown  # noqa: E402

CXX_OF = {"gcc": "g++", "clang-14": "clang++-14"}
# Those that are supported. Each Debian has one; the headers of the others come with an installation of Slurm.
RELEASES = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
PARTS = "bootstrap_spank_parts"
HOOKS = "spank_plugin/CMakeFiles/spank_bootstrap.dir/spank_hooks.cc.o"
ONE_OBJECT = "spank_plugin/CMakeFiles/bootstrap_spank_parts.dir/spank_api.cc.o"


@dataclass
class Headers:
    """A folder that holds slurm/spank.h, and the number that slurm_version.h beside it defines."""

    folder: Path
    number: int

    @property
    def release(self):
        return f"{self.number >> 16 & 0xFF}.{self.number >> 8 & 0xFF:02}"

    @property
    def version(self):
        return f"{self.release}.{self.number & 0xFF}"


def headers_in(folder):
    """Headers, or None where there are none."""
    path = folder / "slurm" / "slurm_version.h"
    if not path.exists() or not (folder / "slurm" / "spank.h").exists():
        return None
    return Headers(folder, int(re.search(r"SLURM_VERSION_NUMBER (0x[0-9a-fA-F]+)", path.read_text()).group(1), 16))


def at_hand(prefixes):
    roots = [root_of(release) for release in slurm_of_debians()]
    folders = [Path("/usr/include"), *(Path(root, "usr/include") for root in roots if root)]
    folders += [Path(prefix, "include") for prefix in prefixes]
    return [headers for headers in map(headers_in, folders) if headers]


def run(*line, **options):
    return subprocess.run(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def version_of(compiler):
    return run(compiler, "-dumpfullversion", "-dumpversion", check=True).stdout.split()[0]


def configure(build, compiler, folder):
    """The plugin's build with the headers in `folder`."""
    return run("cmake", "-S", TOP, "-B", build, "-G", "Ninja", f"-DCMAKE_C_COMPILER={compiler}",
               f"-DCMAKE_CXX_COMPILER={CXX_OF[compiler]}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DBUILD_TESTING=OFF",
               "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
               env=os.environ | {"SLURM_ROOT": str(folder.parent)})


def make(build, *targets):
    return run("cmake", "--build", build, "--target", *targets)


def plugin_version(path):
    """The release that Slurm's loader would read from the plugin: the constant of that name in the object of its hooks."""
    listed = run("readelf", "-sSW", path, check=True).stdout
    value, section = re.search(r": ([0-9a-f]+) .* (\d+) plugin_version$", listed, re.MULTILINE).groups()
    offset = re.search(rf"^ +\[ *{section}\] \S+ +PROGBITS +[0-9a-f]+ ([0-9a-f]+) ", listed, re.MULTILINE).group(1)
    return struct.unpack_from("<I", path.read_bytes(), int(offset, 16) + int(value, 16))[0]


def trouble_of(compiler, headers):
    """Compiles one cell; '' when the plugin is one for this release."""
    build, place = TOP / "build" / f"headers-{compiler}", TOP / "build" / f"headers-{headers.version}"
    shutil.rmtree(place, ignore_errors=True)
    for done in (configure(build, compiler, copy_of(headers, place)), make(build, PARTS, HOOKS)):
        if done.returncode != 0:
            return f"does not build with {compiler}:\n{done.stdout[-2000:]}"
    found = plugin_version(build / HOOKS)
    return "" if found == headers.number else f"{compiler} made a plugin for {found:#x} and not {headers.number:#x}"


def copy_of(headers, place, change=None):
    """Slurm's headers in a folder of their own, without those of another libc beside them, spank.h changed by `change`."""
    folder = place / "include"
    shutil.copytree(headers.folder / "slurm", folder / "slurm")
    if change:
        path = folder / "slurm" / "spank.h"
        text = change(path.read_text())
        assert text != path.read_text(), f"nothing to change in {headers.folder}/slurm/spank.h"
        path.write_text(text)
    return folder


def narrow_length(text):
    """A length that is too short for ours: a conversion that is a warning, and so an error."""
    return re.sub(r"(spank_getenv *\([^)]*)int len", r"\1signed char len", text)


def controls(headers):
    """What must not build, and the same where it must: each line is a check that noticed nothing."""
    with tempfile.TemporaryDirectory() as work:
        place, build = Path(work), TOP / "build" / "headers-control"
        complete, poor = (copy_of(headers, place / name) for name in ("complete", "poor"))
        (poor / "slurm" / "slurm_version.h").unlink()
        shutil.rmtree(build, ignore_errors=True)
        refused = configure(build, "gcc", poor)
        if refused.returncode == 0:
            yield "configured without slurm_version.h"
        elif "libslurm-dev" not in refused.stdout:
            yield f"refused without naming the missing package:\n{refused.stdout[-2000:]}"
        if configure(build, "gcc", complete).returncode != 0 or make(build, ONE_OBJECT).returncode != 0:
            yield "control: a copy of the headers does not build"
        configure(build, "gcc", copy_of(headers, place / "narrow", narrow_length))
        done = make(build, ONE_OBJECT)
        if done.returncode == 0 or "-Werror" not in done.stdout:
            yield "control: a warning that a changed spank.h causes is no error"
        shutil.rmtree(build)


def report(sets, compilers, troubles, unnoticed):
    """Keeps the figure, and what was built with what as a table. `unnoticed` is what the controls found."""
    versions = {headers.release: headers.version for headers in sets}
    missing = [release for release in RELEASES if release not in versions]
    table = markdown(["Slurm's headers", *(f"{name} {version_of(name)}" for name in compilers)], (
        [versions.get(release, release), *(("fails" if (name, release) in troubles else "built") if release in versions
                                           else "not at hand" for name in compilers)]
        for release in sorted({*RELEASES, *versions})))
    got = f"{len(sets) * len(compilers) - len(troubles)} of {len(sets) * len(compilers)} builds without a warning"
    why = f"no Debian has the headers of {', '.join(missing)}; those at hand: {', '.join(versions.values())}"
    control = "; ".join(unnoticed) or "a warning that a changed spank.h causes ends the build; unchanged it builds"
    keep(Figure("G3", "", got if unnoticed else f"{got}, refused without slurm_version.h",
                not (missing or troubles or unnoticed), True, control=control, why=why if missing else "",
                table=table))
    print(f"headers: {got} ({', '.join(versions.values())}; {', '.join(compilers)})")


def main(prefixes):
    sets = at_hand(prefixes)
    if not sets:
        print("headers: looked for slurm/spank.h with slurm_version.h, found none; run scripts/setup", file=sys.stderr)
        return 1
    compilers = [name for name in CXX_OF if shutil.which(CXX_OF[name])]
    unnoticed = list(controls(sets[0]))
    problems, troubles = unnoticed[:], set()
    for compiler in compilers:
        for headers in sets:
            trouble = trouble_of(compiler, headers)
            if trouble:
                problems.append(f"headers of Slurm {headers.version}: {trouble}")
                troubles.add((compiler, headers.release))
    for problem in problems:
        print(problem, file=sys.stderr)
    report(sets, compilers, troubles, unnoticed)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

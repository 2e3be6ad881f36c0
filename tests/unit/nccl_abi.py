#!/usr/bin/env python3
# nccl_declarations.cc holds our declarations against nccl.h; here nccl.h is changed, and then it must not compile.
# SPDX-License-Identifier: Apache-2.0
"""nccl_abi.py --header nccl.h -- COMPILER ARGUMENTS...: exit 0 if all changes are noticed and nccl.h is right."""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHANGES = {
    "a longer id": (r"#define NCCL_UNIQUE_ID_BYTES 128", "#define NCCL_UNIQUE_ID_BYTES 256"),
    "another code for being in progress": (r"ncclInProgress( *)=( *)7", r"ncclInProgress\1=\g<2>9"),
    "another magic of the configuration": ("0xcafebeef", "0xcafebabe"),
    "a new member before `blocking`": (r"\n  int blocking;", "\n  int fresh;\n  int blocking;"),
    "a wider `blocking`": (r"\n  int blocking;", "\n  long blocking;"),
    "an id that is a pointer": (r"( ncclCommInitRank\(ncclComm_t\* comm, int nranks, ncclUniqueId) ", r"\1* "),
    "one argument more": (r"( ncclCommAbort\(ncclComm_t comm)", r"\1, int flags"),
    "another result": (r"ncclResult_t( +ncclCommAbort\()", r"void\1"),
    "fewer numbers": (r"( ncclCommInitRankScalable\(ncclComm_t\* newcomm, int nranks, int myrank, )int nId, ", r"\1"),
}


def compiles(command, header):
    """Whether it does with this text in front of all other nccl.h; and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "nccl.h").write_text(header)
        line = [command[0], f"-I{folder}", *command[1:], "-fsyntax-only"]
        done = subprocess.run(line, capture_output=True, text=True)
        return done.returncode == 0, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    text = arguments.header.read_text()
    is_right, said = compiles(arguments.command, text)
    if not is_right:
        sys.exit(f"the real nccl.h does not fit:\n{said}")
    missed = []
    for name, (pattern, replacement) in CHANGES.items():
        changed, count = re.subn(pattern, replacement, text)
        if count == 0:
            print(f"passed over, since this nccl.h has no such text: {name}")
            continue
        is_right, said = compiles(arguments.command, changed)
        if is_right or "static assertion failed" not in said and "static_assert failed" not in said:
            missed.append(f"{name}: {said or 'compiled'}")
    if missed:
        sys.exit("not noticed: " + "\n".join(missed))
    print(f"{len(CHANGES)} changes of {arguments.header}")


if __name__ == "__main__":
    main()

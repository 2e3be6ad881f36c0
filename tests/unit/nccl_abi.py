#!/usr/bin/env python3
# Our code compares its declarations with nccl.h and cuda.h. Here these headers are changed: the code must not compile.
# SPDX-License-Identifier: Apache-2.0
"""nccl_abi.py --headers FOLDER... --sources FOLDER -- COMPILER ARGUMENTS...: exit 0 if all changes are noticed."""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Header -> the file that compares with it, and the changes.
CHANGES = {
    "nccl.h": ("nccl_library.cc", {
        "a longer id": (r"#define NCCL_UNIQUE_ID_BYTES 128", "#define NCCL_UNIQUE_ID_BYTES 256"),
        "another code for being in progress": (r"ncclInProgress( *)=( *)7", r"ncclInProgress\1=\g<2>9"),
        "another magic of the configuration": ("0xcafebeef", "0xcafebabe"),
        "a new member before `blocking`": (r"\n  int blocking;", "\n  int fresh;\n  int blocking;"),
        "a wider `blocking`": (r"\n  int blocking;", "\n  long blocking;"),
        "an id that is a pointer": (r"( ncclCommInitRank\(ncclComm_t\* comm, int nranks, ncclUniqueId) ", r"\1* "),
        "one argument more": (r"( ncclCommAbort\(ncclComm_t comm)", r"\1, int flags"),
        "another result": (r"ncclResult_t( +ncclCommAbort\()", r"void\1"),
        "fewer numbers": (r"( ncclCommInitRankScalable\(ncclComm_t\* newcomm, int nranks, int myrank, )int nId, ", r"\1"),
    }),
    "cuda.h": ("cuda_device.cc", {
        "another code for success": (r"CUDA_SUCCESS( *)= 0", r"CUDA_SUCCESS\1= 5"),
        "a wider device": (r"typedef int CUdevice_v1;", "typedef long CUdevice_v1;"),
        "a longer id of a device": (r"char bytes\[16\];", "char bytes[32];"),
        "one argument more": (r"(CUDAAPI cuCtxGetDevice\(CUdevice \*device)\)", r"\1, int flags)"),
    }),
}


def compiles(command, source, name, header):
    """True if it compiles with this text as the header, and the compiler's messages."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_text(header)
        line = [command[0], f"-I{folder}", *command[1:], "-fsyntax-only", source]
        done = subprocess.run(line, capture_output=True, text=True)
        return done.returncode == 0, done.stderr


def missed_in(name, folders, sources, command):
    source, changes = CHANGES[name]
    text = next(file for folder in folders if (file := folder / name).exists()).read_text()
    is_right, said = compiles(command, sources / source, name, text)
    if not is_right:
        yield f"the real {name} does not fit:\n{said}"
    for what, (pattern, replacement) in changes.items():
        changed, count = re.subn(pattern, replacement, text)
        if count == 0:
            print(f"passed over, since this {name} has no such text: {what}")
            continue
        is_right, said = compiles(command, sources / source, name, changed)
        if is_right or not re.search("static.assert", said):
            yield f"{name}: {what}: {said or 'compiled'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--headers", type=Path, nargs="+", required=True)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    missed = [one for name in CHANGES for one in missed_in(name, arguments.headers, arguments.sources, arguments.command)]
    if missed:
        sys.exit("not noticed: " + "\n".join(missed))
    print(f"{sum(len(changes) for _, changes in CHANGES.values())} changes of {', '.join(CHANGES)}")


if __name__ == "__main__":
    main()

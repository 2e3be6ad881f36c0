"""Runs the command slurm-bootstrap, which in pip's wheel is beside this file, in place of this process, or for where()."""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import shutil
import subprocess
import sys
from typing import Optional


def _program() -> str:
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slurm-bootstrap")
    return own if os.path.exists(own) else shutil.which("slurm-bootstrap") or own


def main() -> None:
    program = _program()
    os.execv(program, [program, *sys.argv[1:]])


def where(step: str, *, rank: Optional[int] = None, port: Optional[int] = None, wait: int = 0) -> tuple[str, int]:
    """Host and port of another step of the same job, as `slurm-bootstrap where` finds them: those of its rendezvous, or
    port number `port`, from 1, of a rank. Waits up to `wait` seconds until the step has it.

    Raises ProcessLookupError with one sentence if there is none."""
    words = [_program(), "where", step, "--json"]
    words += [f"--{name}={value}" for name, value in (("rank", rank), ("port", port)) if value is not None]
    done = subprocess.run(words + ([f"--wait={wait}"] if wait else []), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessLookupError(done.stderr.strip())
    place = json.loads(done.stdout)
    return place["host"], place["port"]

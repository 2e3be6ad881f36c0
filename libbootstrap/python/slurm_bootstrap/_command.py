"""The command slurm-bootstrap of pip's wheel: the program beside this file, in place of this process."""

# SPDX-License-Identifier: Apache-2.0

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slurm-bootstrap")
    os.execv(program, [program, *sys.argv[1:]])

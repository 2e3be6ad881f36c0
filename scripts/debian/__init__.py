"""The other Debians that can be made beside this machine's, with their Slurm: root.sh, for Python."""

# SPDX-License-Identifier: Apache-2.0

import subprocess
from pathlib import Path

ROOT_SCRIPT = str(Path(__file__).resolve().parent / "root.sh")


def slurm_of_debians():
    """The release of Slurm of each Debian that can be made: {"13": "24.11"}."""
    done = subprocess.run([ROOT_SCRIPT, "list"], text=True, stdout=subprocess.PIPE, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def root_of(release):
    """Its root folder, '' where it is not made."""
    return subprocess.run([ROOT_SCRIPT, release, "path"], text=True, stdout=subprocess.PIPE).stdout.strip()

"""Hostile values of variables: long lists, long numbers, ranges that multiply, text for a log."""

# SPDX-License-Identifier: Apache-2.0

import functools
import re

from local_cluster import REPOSITORY

LONGEST = 120 * 1024

# A pattern that is repeated up to a size.
PATTERNS = {
    "ones": "1",
    "letters": "x",
    "commas": ",",
    "colons": ":",
    "spaces": " ",
    "numbers": "7,",
    "ports": "1024-65535,",
    "names": "node[1-65536],",
    "counts": "1(x65536),",
    "runs": "0x1048576,",
    "GPUs": "GPU-5c89852c-0000,",
    "components": "12;node001;1x65536;block/",
    "assignments": "RANK:1,",
    "escapes": "\x1b[31m\\\"%s%n",
    "lines": "x\nFORGED [2026-01-01T00:00:00] error: \n",
}


def value(pattern, size=LONGEST):
    piece = PATTERNS[pattern]
    text = (piece * (size // len(piece) + 1))[:size]
    return text.rstrip(",/") if pattern not in ("commas",) else text


NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|PATH|RANK|USER")


@functools.cache
def variables_in_code():
    """Each variable that code in srun and slurmstepd may read, from the literals in its sources."""
    names = set()
    for folder in ("libbootstrap/core", "libbootstrap/probe", "spank_plugin"):
        for file in sorted((REPOSITORY / folder).rglob("*.*")):
            if file.suffix in (".cc", ".h"):
                text = re.sub(r"//[^\n]*", "", file.read_text(encoding="utf-8"))
                literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
                names |= {word for literal in literals for word in literal.split() if NAME.fullmatch(word)}
    return sorted(names - {"PCI_BUS_ID"})

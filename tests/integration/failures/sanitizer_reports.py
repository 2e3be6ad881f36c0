"""Reports of sanitizers and valgrind, and the objects that have a frame in them: ours, or Slurm's alone."""

# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

# With the object in each frame, also in that of an inlined function: "#1|leak|/.../misbehaving_spank.so|../misbehaving_spank.c:33".
SANITIZER_FRAME = "stack_trace_format=#%n|%f|%m|%S"


def reports_with(folder: Path, pattern: str, name: str) -> list[str]:
    """The stacks in all of ASan's files in which the object has a frame, as readable text."""
    found = []
    for path in sorted(folder.glob(pattern)):
        parts = re.split(r"\n\s*\n", path.read_text(errors="replace"))
        found += [f"{path.name}:\n{part}" for part in parts if f"/{name}|" in part]
    return found


@dataclass
class ValgrindError:
    kind: str  # as valgrind names it: InvalidWrite, Leak_DefinitelyLost
    objects: set[str]  # file names, without folders
    text: str


def valgrind_errors(path: Path) -> list[ValgrindError]:
    """The errors of one process that ended by itself; ElementTree.ParseError for a file that was cut off."""
    found = []
    for error in ElementTree.parse(path).getroot().iter("error"):
        frames = [(frame.findtext("obj", ""), frame.findtext("fn", "?")) for frame in error.iter("frame")]
        what = error.findtext("what") or error.findtext("xwhat/text") or ""
        text = "\n  ".join([what, *(f"{function} ({name})" for name, function in frames)])
        found.append(ValgrindError(error.findtext("kind", ""), {Path(name).name for name, _ in frames}, text))
    return found

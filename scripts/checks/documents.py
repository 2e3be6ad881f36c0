#!/usr/bin/env python3
"""Checks the pages: length of the README, of sentences and table cells; links; kinds of code blocks; named tests; sections of manual pages.

documents.py [PAGE ...]
"""

# SPDX-License-Identifier: Apache-2.0

import functools
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from checks.pages import TOP, WORDS, all_pages, read_page  # noqa: E402

MAX_README_LINES = 250
HARM_COUNTS = re.compile(r"(\d+) ordinary uses.*?: (\d+) equal, (\d+) better, (\d+) worse", re.S)
MAX_WORDS_OF_SENTENCE = 40
MAX_WORDS_OF_CELL = 25
KINDS = {"sh", "text", "c", "cpp", "python", "json", "ini", "conf", "cmake", "mermaid"}
SECTIONS = ["NAME", "LIBRARY", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "RETURN VALUES", "ENVIRONMENT", "FILES", "EXIT STATUS", "ERRORS",
            "DIAGNOSTICS", "EXAMPLES", "NOTES", "SEE ALSO"]


def count(text):
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def check_lengths(page):
    if page.path.name == "README.md" and page.lines > MAX_README_LINES:
        yield 1, f"{page.lines} lines, at most {MAX_README_LINES}"
    for what, units, most in ("sentence", page.sentences, MAX_WORDS_OF_SENTENCE), ("table cell", page.cells, MAX_WORDS_OF_CELL):
        yield from ((line, f"a {what} of {count(text)} words, at most {most}: {text[:80]}") for line, text in units if count(text) > most)


def check_blocks(page):
    for block in page.blocks:
        if block.kind not in KINDS:
            yield block.line, f"a block of code says its kind, one of {', '.join(sorted(KINDS))}; here it says {block.kind!r}"
        for word in block.words if block.kind == "sh" else ():
            if word not in WORDS:
                yield block.line, f"the comment above a block says {', '.join(WORDS)} or not run: REASON; here it says {word!r}"
    for line in page.indented:
        yield line, "code stands in a fenced block, not in an indented one"


def check_links(page):
    for line, target in page.links:
        if re.match(r"\w+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.path.parent / name).resolve() if name else page.path
        if not file.exists():
            yield line, f"there is no {name}"
        elif anchor and file.suffix == ".md" and anchor not in read_page(file).anchors:
            yield line, f"there is no heading #{anchor} in {file.name}"


def check_harm(page):
    """The numbers that a page takes from harm.md, which the tests write."""
    found = HARM_COUNTS.search(page.path.read_text(encoding="utf-8"))
    verdicts = re.findall(r"\| (equal|better|known worse)\b[^|]*\|$", (TOP / "etc/doc/harm.md").read_text(encoding="utf-8"), re.M)
    counted = [len(verdicts), *map(verdicts.count, ("equal", "better", "known worse"))]
    if found and [int(number) for number in found.groups()] != counted:
        yield 1, f"harm.md has {counted} uses, equal, better and worse; here it says {found[0]!r}"


@functools.cache
def all_tests():
    """The names of all tests, in C++ and in Python."""
    text = "".join(path.read_text(encoding="utf-8") for path in (TOP / "tests").rglob("*test*.*") if path.suffix in (".cc", ".py"))
    return {python or cxx for python, cxx in re.findall(r"^def (test_\w+)|^TEST(?:_F|_P)?\(\w+, (\w+)\)", text, re.M)}


def check_named_tests(page):
    """`<!-- test: NAME, NAME -->` stands beside a promise: each of these tests is there."""
    for number, line in enumerate(page.path.read_text(encoding="utf-8").splitlines(), 1):
        for names in re.findall(r"<!-- test: (.*?) -->", line):
            yield from ((number, f"there is no test {name}") for name in names.split(", ") if name not in all_tests())


def check_man(page):
    title, version = re.search(r"^\.TH (.*)$", page.path.read_text(encoding="utf-8"), re.MULTILINE), project_version()
    if not title or f'"slurm-bootstrap {version}"' not in title[1]:
        yield 1, f'the page says "slurm-bootstrap {version}" in its .TH line'
    known = [section for section in SECTIONS if section in page.sections]
    if page.sections != known:
        yield 1, f"sections are of {', '.join(SECTIONS)}, in this order; here they are {', '.join(page.sections)}"
    if page.path.name == "bootstrap.3":
        yield from check_errors(page.path.read_text(encoding="utf-8").replace(r"\-", "-"))


def check_errors(text):
    """The header defines the error codes; bootstrap(3) repeats each sentence word for word."""
    defined = dict(re.findall(r"(BOOTSTRAP_ERROR_\w+) = \d+,?(?: +/\* (.*) \*/)?", header()))
    described = dict(re.findall(r"^\.B (BOOTSTRAP_ERROR_\w+)\n(.*)", text, re.MULTILINE))
    for name in sorted({*defined, *described}):
        if defined.get(name) != described.get(name):
            yield 1, f"{name} is {described.get(name)!r} here, and {defined.get(name)!r} in bootstrap.h"


@functools.cache
def header():
    return (TOP / "libbootstrap/include/bootstrap/bootstrap.h").read_text(encoding="utf-8")


def project_version():
    return ".".join(re.findall(r"define BOOTSTRAP_VERSION_\w+ (\d+)", header()))


def check_page(page):
    checks = (check_lengths, check_blocks, check_named_tests, check_harm, check_links if page.path.suffix == ".md" else check_man)
    return [f"{page.name}:{line}: {problem}" for check in checks for line, problem in check(page)]


def control():
    """The checks themselves: each of these pages has one problem, or none."""
    words = "word " * 30
    broken = {
        "README.md": ["line\n\n" * 126],
        "long.md": [f"A {words} {words}.\n", f"| {words} |\n", f"- Item {words}\n  {words}.\n"],
        "block.md": ["```\ntrue\n```\n", "<!-- later -->\n```sh\ntrue\n```\n", "Text.\n\n    true\n"],
        "link.md": ["[x](none.md)\n", "# A b\n[x](#a-c)\n"],
        "promise.md": ["Text.\n<!-- test: test_of_nothing -->\n"],
        "counts.md": ["9 ordinary uses: 2 equal, 3 better, 4 worse.\n"],
        "man.1": ['.TH X 1 "" "x 9"\n.SH NAME\n', f'.TH X 1 "" "slurm-bootstrap {project_version()}"\n.SH FILES\n.SH NAME\n'],
        "bootstrap.3": [(TOP / "etc/man/bootstrap.3").read_text(encoding="utf-8").replace("Out of memory", "No memory")],
    }
    fine = f"# A `b`, c\nA {words}. B {words}.\n\n- Item.\n\n      more\n\n<!-- not run: no GPU -->\n```sh\ntrue\n```\n[x](#a-b-c)\n"
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in [*broken.items(), ("fine.md", [fine])]:
            for text in texts:
                file = Path(folder, name)
                file.write_text(text, encoding="utf-8")
                found = check_page(read_page(file))
                if len(found) != (name != "fine.md"):
                    yield f"control: {text[:60]!r}: {found}"


def main(arguments):
    pages = [read_page(path) for path in (map(Path, arguments) if arguments else all_pages())]
    problems = [*control(), *(problem for page in pages for problem in check_page(page))]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"documents: {len(pages)} pages, {sum(len(page.sentences) for page in pages)} sentences, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

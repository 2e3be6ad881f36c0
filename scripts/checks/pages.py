"""The project's pages for checks and tests: Markdown and manual pages, as blocks of code, sentences and table cells."""

# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w+-]*)\s*$")
COMMENT = re.compile(r"^\s*<!--\s*(.*?)\s*-->\s*$")
WORDS = ("machine", "root", "job", "fails")  # of the comment above a block; else "not run: REASON"


@dataclass
class Block:
    """Code in a page: its kind (sh, text, c, ...), the comment directly above it, and the `text` block that follows it."""

    line: int
    kind: str
    text: str
    comment: str = ""
    output: str | None = None

    reason = property(lambda self: self.comment.partition("not run:")[2].strip())  # why it is not run, or ''
    words = property(lambda self: [] if self.reason else [word.strip() for word in self.comment.split(",") if word.strip()])


@dataclass
class Page:
    """Sentences and cells as (line, text); links as (line, target); headings as their anchors; blocks."""

    path: Path
    lines: int = 0
    blocks: list = field(default_factory=list)
    sentences: list = field(default_factory=list)
    cells: list = field(default_factory=list)
    links: list = field(default_factory=list)
    anchors: set = field(default_factory=set)
    sections: list = field(default_factory=list)  # of a manual page
    indented: list = field(default_factory=list)  # code without a fence
    paragraph: list = field(default_factory=list)  # lines as (line, text) that are not yet sentences

    name = property(lambda self: str(self.path.relative_to(TOP)) if self.path.is_relative_to(TOP) else self.path.name)

    def end_paragraph(self, shown=str):
        if self.paragraph:
            text = shown(" ".join(text for _, text in self.paragraph))
            self.sentences += [(self.paragraph[0][0], sentence) for sentence in sentences_of(text)]
            self.paragraph.clear()


def sentences_of(text):
    """A sentence ends with . ! or ? before a capital; code and file names count as a word that may begin one."""
    return [part for part in re.split(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*]*[A-Z0-9])", " ".join(text.split())) if part]


def plain(text):
    """Markdown without its marks."""
    text = re.sub(r"(`+).+?\1", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text.replace("**", "").replace("*", "").strip()


def anchor_of(heading, taken):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
    number = 0
    while (anchor := slug if number == 0 else f"{slug}-{number}") in taken:
        number += 1
    return anchor


def pair_outputs(blocks, follows):
    """Gives a command the output block that directly follows it."""
    for block, following in zip(blocks, blocks[1:]):
        if block.kind == "sh" and following.kind == "text" and follows(block, following):
            block.output = following.text


def read_markdown(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    page, fence, above, ends, is_list = Page(path, len(lines)), None, "", {}, False

    def flush():
        page.end_paragraph(plain)

    for number, line in enumerate(lines, 1):
        match = FENCE.match(line)
        if fence:
            if match and match[2].startswith(fence[1]) and not match[3]:
                ends[id(page.blocks[-1])] = number
                fence = None
            else:
                page.blocks[-1].text += line.removeprefix(fence[0]) + "\n"
            continue
        if match:
            flush()
            fence = (match[1], match[2])
            page.blocks.append(Block(number, match[3], "", above))
            continue
        comment = COMMENT.match(line)
        above = comment[1] if comment else ""
        page.links += [(number, target) for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line))]
        if comment or not line.strip():
            flush()
        elif line.startswith("#"):
            flush()
            page.anchors.add(anchor_of(line.lstrip("#").strip(), page.anchors))
        elif line.lstrip().startswith("|"):
            flush()
            if not re.fullmatch(r"[\s|:-]+", line):
                cells = re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "CODE", line.strip().strip("|")))
                page.cells += [(number, plain(cell)) for cell in cells if cell.strip()]
        elif line.startswith("    ") and not page.paragraph and not is_list:
            page.indented.append(number)
        else:
            if re.match(r"\s*([-*+]|\d+\.)\s", line):
                flush()
                is_list = True
                line = re.sub(r"^\s*([-*+]|\d+\.)\s+", "", line)
            elif not line.startswith(" ") and not page.paragraph:
                is_list = False
            page.paragraph.append((number, line.strip()))
    flush()
    pair_outputs(page.blocks, lambda a, b: not any(text.strip() for text in lines[ends[id(a)] : b.line - 1]))
    return page


ESCAPES = {r"\-": "-", r"\e": "\\", r"\(aq": "'", r"\(dq": '"', r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\(bu": "*", r"\&": "",
           r"\:": ""}


def unescape(text):
    """What man shows for a line of man(7) source."""
    text = re.sub(r"\\f[BIRP]|\\f\(..|\\f\[\w*\]", "", text)
    for escape, shown in ESCAPES.items():
        text = text.replace(escape, shown)
    return text


def man_words(line):
    """The text of a line that may be a font macro: .B and .I take words, .BR and its variants join them."""
    match = re.match(r"\.([BI]|BR|RB|BI|IB|IR|RI)\s+(.*)", line)
    if not match:
        return unescape(line)
    words = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', match[2])]
    return unescape((" " if len(match[1]) == 1 else "").join(words))


def read_man(path):
    """A page of man(7) source: prose of all sections, code of EXAMPLES."""
    lines = path.read_text(encoding="utf-8").splitlines()
    page, code, above, is_tag = Page(path, len(lines)), None, "", False
    for number, line in enumerate(lines, 1):
        if code is not None:
            if line.startswith(".EE"):
                code = None
            elif not line.startswith("."):
                code.text += unescape(line) + "\n"
            continue
        comment = re.match(r'\.\\"\s*(.*)', line)
        macro = re.match(r"\.(\w+)\s*(.*)", line)
        if comment or not line.strip():
            above = comment[1] if comment else ""
            continue
        if macro and macro[1] == "EX":
            page.end_paragraph()
            kind, comment = (above, "") if above in ("c", "cmake", "text") else ("sh", above)
            code = Block(number, kind, "", comment)
            if page.sections and page.sections[-1] == "EXAMPLES":
                page.blocks.append(code)
        elif macro and not re.fullmatch(r"[BI]|BR|RB|BI|IB|IR|RI", macro[1]):
            page.end_paragraph()
            is_tag = macro[1] in ("TP", "TQ")
            if macro[1] == "SH":
                page.sections.append(macro[2].strip('"'))
        elif is_tag:
            is_tag = False
        elif page.sections and page.sections[-1] not in ("NAME", "SYNOPSIS"):
            page.paragraph.append((number, man_words(line)))
        above = ""
    page.end_paragraph()
    pair_outputs(page.blocks, lambda a, b: True)
    return page


def read_page(path):
    return read_markdown(path) if path.suffix == ".md" else read_man(path)


def all_pages():
    """The pages that users, administrators and developers read."""
    names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "MAINTAINERS.md", "CODE_OF_CONDUCT.md"]
    return [TOP / name for name in names] + sorted(TOP.glob("etc/doc/*.md")) + sorted(TOP.glob("etc/man/*.[1-8]"))

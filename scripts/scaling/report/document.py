"""A page as a list of blocks, and its two forms: one HTML file that holds its pictures, and Markdown beside them."""

# SPDX-License-Identifier: Apache-2.0

import base64
import html
import re
from collections import namedtuple

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem }
div.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0 }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums } th { background: #f3f3f3 }
tr.marked td { background: #f8f2e6 } tr.bad td { background: #fae5e0 } img { max-width: 100%; height: auto; border: 1px solid #ddd }
code, pre { background: #f3f3f3; padding: .1rem .3rem } pre { padding: .6rem; overflow-x: auto }
"""


Heading = namedtuple("Heading", "text level", defaults=[2])
Text = namedtuple("Text", "text")
Lines = namedtuple("Lines", "lines")  # a list with a point for each
Output = namedtuple("Output", "text")  # what a program prints, as it is
# `classes` holds a word for each row: '', 'marked' or 'bad'. Numbers are set to the right, but not in a table of text, where
# 1.24.2 is no number.
Table = namedtuple("Table", "head rows classes text", defaults=[None, False])
Picture = namedtuple("Picture", "stem caption")


def looks_like_number(text):
    return bool(re.match(r"-?\d[\d,.]*( ?%)?( \+- [\d,.]+)?( ?%)?[*~]?$", text))


def shown(text):
    """HTML has a sign for plus or minus, and ` marks what is to be typed."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text).replace(" +- ", " &plusmn; "))


def table_as_html(table):
    classes = table.classes or [""] * len(table.rows)
    lines = ["<div class=wide><table>", "<tr>" + "".join(f"<th>{shown(cell)}</th>" for cell in table.head) + "</tr>"]
    for row, word in zip(table.rows, classes):
        cells = "".join(f"<td{' class=number' if not table.text and looks_like_number(cell) else ''}>{shown(cell)}</td>" for cell in row)
        lines.append(f"<tr{f' class={word}' if word else ''}>{cells}</tr>")
    return "\n".join([*lines, "</table></div>"])


def picture_as_html(picture, folder):
    data = base64.b64encode((folder / f"{picture.stem}.svg").read_bytes()).decode()
    return f'<p><img alt="{html.escape(picture.caption)}" src="data:image/svg+xml;base64,{data}"></p>'


def as_html(title, blocks, folder):
    """One file; nothing is loaded from anywhere."""
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"<h{block.level}>{shown(block.text)}</h{block.level}>")
        elif isinstance(block, Text):
            parts.append(f"<p>{shown(block.text)}</p>")
        elif isinstance(block, Lines):
            parts.append("<ul>\n" + "\n".join(f"<li>{shown(line)}</li>" for line in block.lines) + "\n</ul>")
        elif isinstance(block, Output):
            parts.append(f"<pre>{html.escape(block.text)}</pre>")
        elif isinstance(block, Table):
            parts.append(table_as_html(block))
        else:
            parts.append(picture_as_html(block, folder))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"


def cell_as_markdown(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("~", "\\~")


def line_as_markdown(text):
    return text.replace("<", "&lt;").replace("*", "\\*")


def as_markdown(blocks, folder_name):
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {block.text}")
        elif isinstance(block, Text):
            parts.append(line_as_markdown(block.text))
        elif isinstance(block, Lines):
            parts.append("\n".join(f"- {line_as_markdown(line)}" for line in block.lines))
        elif isinstance(block, Output):
            parts.append(f"```text\n{block.text}\n```")
        elif isinstance(block, Table):
            rows = [block.head, ["---"] * len(block.head), *([cell_as_markdown(cell) for cell in row] for row in block.rows)]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
        else:
            parts.append(f"![{block.caption}]({folder_name}/{block.stem}.svg)")
    return "\n\n".join(parts) + "\n"

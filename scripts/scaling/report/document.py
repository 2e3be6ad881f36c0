"""A page in two forms: one HTML file that holds its pictures, and Markdown beside them. Each function here makes a block of
a page: a pair of both forms."""

# SPDX-License-Identifier: Apache-2.0

import base64
import html
import re

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem }
div.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0 }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums } th { background: #f3f3f3 }
tr.marked td { background: #f8f2e6 } tr.disturbed td { background: #efe6f2 } tr.bad td { background: #fae5e0 } img { max-width: 100%; height: auto; border: 1px solid #ddd }
code, pre { background: #f3f3f3; padding: .1rem .3rem } pre { padding: .6rem; overflow-x: auto }
"""


def shown(text):
    """HTML has a sign for plus or minus; ` marks what is to be typed, and ** what stands out."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text).replace(" +- ", " &plusmn; "))
    return re.sub(r"^\*\*(.*)\*\*$", r"<strong>\1</strong>", text)


def escaped(text):
    """What Markdown would take for its own, but for ** around a whole text."""
    if text.startswith("**") and text.endswith("**"):
        return f"**{escaped(text[2:-2])}**"
    return text.replace("<", "&lt;").replace("*", "\\*")


def heading(text, level=2):
    return f"<h{level}>{shown(text)}</h{level}>", f"{'#' * level} {text}"


def paragraph(text):
    return f"<p>{shown(text)}</p>", escaped(text)


def points(lines):
    return ("<ul>\n" + "\n".join(f"<li>{shown(line)}</li>" for line in lines) + "\n</ul>",
            "\n".join(f"- {escaped(line)}" for line in lines))


def program_output(text):
    return f"<pre>{html.escape(text)}</pre>", f"```text\n{text}\n```"


def table(head, rows, classes=None, text=False):
    """`classes` holds a word for each row: '', 'marked', 'disturbed' or 'bad'. Numbers are set to the right, but not in a table of `text`,
    where 1.24.2 is no number."""
    lines = ["<div class=wide><table>", "<tr>" + "".join(f"<th>{shown(cell)}</th>" for cell in head) + "</tr>"]
    for row, word in zip(rows, classes or [""] * len(rows)):
        cells = "".join(f"<td{' class=number' if not text and looks_like_number(cell) else ''}>{shown(cell)}</td>" for cell in row)
        lines.append(f"<tr{f' class={word}' if word else ''}>{cells}</tr>")
    cells = [head, ["---"] * len(head), *([escaped(cell).replace("|", "\\|").replace("~", "\\~") for cell in row] for row in rows)]
    return "\n".join([*lines, "</table></div>"]), "\n".join(f"| {' | '.join(row)} |" for row in cells)


def looks_like_number(text):
    return bool(re.match(r"-?\d[\d,.]*( ?%)?( \+- [\d,.]+)?( ?%)?[*~]?$", text))


def picture(path, caption):
    """An SVG; the Markdown lies beside its folder."""
    data = base64.b64encode(path.read_bytes()).decode()
    return (f'<p><img alt="{html.escape(caption)}" src="data:image/svg+xml;base64,{data}"></p>',
            f"![{caption}]({path.parent.name}/{path.name})")


def as_html(title, blocks):
    """One file; nothing is loaded from anywhere."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    body = "\n".join(block for block, _ in blocks)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'


def as_markdown(blocks):
    return "\n\n".join(block for _, block in blocks) + "\n"

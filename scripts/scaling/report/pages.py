"""The report's page in two forms: one HTML file that holds its pictures, and Markdown beside them."""

# SPDX-License-Identifier: Apache-2.0

import base64
import html
import math
import re

from scaling.options import BACKENDS, OVER_MPI
from scaling.steps import BATCHES, DONE, WARM_UP

TITLE = "Scaling report"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }
h1, h2, h3 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; padding-bottom: .2rem }
div.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0 }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
th { background: #f3f3f3 } td { font-variant-numeric: tabular-nums }
img { max-width: 100%; height: auto; border: 1px solid #ddd }
code, pre { background: #f3f3f3; padding: .1rem .3rem } pre { padding: .6rem; overflow-x: auto }
"""
HEAD = ["model", "back end", "servers", "{unit} per server", "step (ms)", "samples/s", "speed-up", "efficiency"]
TIME_HEAD = ["model", "back end", "layout", "computing (ms)", "transfer (ms)", "waiting (ms)", "communication"]
WAYS = {"gloo": "`torch.distributed.all_reduce` with gloo",
        "mpi": "`Allreduce` of mpi4py on the same buffer, ranks started with `srun --mpi=pmix`",
        "horovod-gloo": "Horovod's allreduce over Gloo, ranks started with `slurm-bootstrap run --horovod`",
        "horovod-mpi": "Horovod's allreduce over MPI, ranks started with `srun --mpi=pmix`",
        "nccl": "`torch.distributed.all_reduce` with NCCL on GPUs"}


# Each of these makes a block of the page: a pair of HTML and Markdown.

def shown(text):
    """HTML has a sign for plus or minus; ` marks code, and ** around a whole text what stands out."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text).replace(" +- ", " &plusmn; "))
    return re.sub(r"^\*\*(.*)\*\*$", r"<strong>\1</strong>", text)


def escaped(text):
    """Without what Markdown would read as its own marks, but for ** around a whole text."""
    if text.startswith("**") and text.endswith("**"):
        return f"**{escaped(text[2:-2])}**"
    return text.replace("<", "&lt;").replace("*", "\\*")


def heading(text, level=2):
    return f"<h{level}>{shown(text)}</h{level}>", f"{'#' * level} {text}"


def paragraph(text):
    return f"<p>{shown(text)}</p>", escaped(text)


def points(lines):
    items = "\n".join(f"<li>{shown(line)}</li>" for line in lines)
    return f"<ul>\n{items}\n</ul>", "\n".join(f"- {escaped(line)}" for line in lines)


def table(head, rows):
    lines = ["".join(f"<th>{shown(cell)}</th>" for cell in head), *("".join(f"<td>{shown(cell)}</td>" for cell in row) for row in rows)]
    cells = [head, ["---"] * len(head), *([escaped(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return ("<div class=wide><table>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table></div>",
            "\n".join(f"| {' | '.join(row)} |" for row in cells))


def picture(path, caption):
    """An SVG; the Markdown lies beside its folder."""
    data = base64.b64encode(path.read_bytes()).decode()
    return (f'<p><img alt="{html.escape(caption)}" src="data:image/svg+xml;base64,{data}"></p>',
            f"![{caption}]({path.parent.name}/{path.name})")


def as_html(blocks):
    """One file; it loads nothing."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{TITLE}</title>'
    body = "\n".join(block for block, _ in blocks)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'


def as_markdown(blocks):
    return "\n\n".join(block for _, block in blocks) + "\n"


# The content.

def with_spread(value, form="{:,.1f}", factor=1.0):
    mean = form.format(factor * value.mean)
    return mean if math.isnan(value.spread) else f"{mean} +- {form.format(factor * value.spread)}"


def scaling_table(rows, unit):
    lines = [[row.cell.model, row.cell.backend, str(row.cell.nodes), f"{row.cell.tasks}{row.star}",
              with_spread(row.figures.step, "{:,.2f}", 1000), with_spread(row.figures.throughput),
              f"{row.speedup.mean:.2f}" if row.cell == row.base else with_spread(row.speedup, "{:.2f}"),
              f"{100 * row.efficiency.mean:.0f} %" if row.cell == row.base else f"{with_spread(row.efficiency, '{:.0f}', 100)} %"]
             for row in rows]
    return table([cell.format(unit=unit) for cell in HEAD], lines)


def time_table(rows):
    lines = [[row.cell.model, row.cell.backend, f"{row.cell.layout}{row.star}",
              *(f"{1000 * part:.2f}" for part in (row.figures.compute, row.figures.transfer, row.figures.wait)),
              f"{100 * row.figures.share:.1f} %"] for row in rows]
    return table(TIME_HEAD, lines)


def cells_table(results):
    lines = [[result.cell.model, result.cell.backend, result.cell.layout, result.status,
              "; ".join(filter(None, [result.reason, *result.notes]))] for result in results]
    return table(["model", "back end", "layout", "status", "reason or notes"], lines)


def synthetic_lines(rows, unit):
    """The lines that synthetic benchmarks of image models print."""
    text = []
    for row in rows:
        mean, spread = row.figures.rates
        note = " (more processes than cores)" if row.oversubscribed else ""
        text += [f"{row.cell.backend}, {row.cell.nodes} x {row.cell.tasks}{note}", f"  Img/sec per {unit}: {mean:.1f} +- {spread:.1f}",
                 f"  Total img/sec on {row.cell.ranks} {unit}(s): {row.cell.ranks * mean:.1f} +- {row.cell.ranks * spread:.1f}"]
    text = "\n".join(text)
    return f"<pre>{html.escape(text)}</pre>", f"```text\n{text}\n```"


def what_was_done(results, parameters):
    backends = list(dict.fromkeys(result.cell.backend for result in results))
    count = sum(result.status == DONE for result in results)
    kind = ("Weak scaling: each process has a batch of its own, so the ideal is a step that takes as long on many processes as on one."
            if parameters["scaling"] == "weak" else
            "Strong scaling: all processes share one batch, so the ideal is a step that takes the n-th part of the time on n processes.")
    return (f"The same training was run through {len(backends)} back end{'' if len(backends) == 1 else 's'} ({', '.join(backends)}) on "
            f"each layout of servers and processes: {len(results)} cells, of which {count} gave numbers. {kind} Each cell is the mean of "
            f"{parameters['steps']} steps after {WARM_UP} steps of warm-up.")


def method(results, parameters, crowded):
    polls = " Its ranks poll while they wait, which takes cores from ranks that compute." if crowded else ""
    ways = [f"{name}: {WAYS[name]}.{polls if name in OVER_MPI else ''}"
            for name in dict.fromkeys(result.cell.backend for result in results)]
    device = "full (made for GPUs), each process computes on a GPU" if parameters["device"] == "cuda" else (
        "small (made for cores), each process computes with one thread")
    return points([
        "One loop for all back ends: forward, backward, one sum of all gradients, which lie in one flat buffer, over all ranks, update "
        f"(SGD with momentum). Models and samples are {device}.",
        *ways,
        "There is no barrier. Communication is the time of the sum. It begins on each rank when its own gradients are ready, so it "
        "includes the wait for slower ranks. Transfer is the least of it over the ranks of a step, that of the slowest rank. Waiting is "
        "the mean over the ranks minus transfer. On crowded cores a rank can also wait for a core, which these times do not separate.",
        "Step time is the mean over the ranks, which the sum keeps in lock-step. Samples per second are the samples of a step on all "
        "ranks, divided by it. Speed-up is relative to the smallest world of the same back end and model. Efficiency is speed-up "
        "divided by the number of processes.",
        "Behind +- are 1.96 standard errors, from the means of up to ten blocks of neighbouring steps; the errors of ratios count as "
        "independent. They say how well this run knows the mean, not how much another run would differ. In lines of img/sec, +- is "
        "1.96 standard deviations of the blocks, as such benchmarks print it.",
        f"Each cell is checked. All ranks must end with the same parameters (a checksum of each rank's, and the least and greatest of each "
        f"parameter over the ranks). The mean loss of the last {BATCHES} steps must be below that of the first {BATCHES}, which used the "
        f"same batches. A cell that breaks either rule has failed, whatever its speed.",
        "A layout 2x4 is 2 servers with 4 processes on each. An asterisk marks more processes than cores on a machine. The ranks report "
        "the cores that they may use and their machine."])


FILES = ["`steps.csv`: each step of each rank, in seconds; negative steps are warm-up. Every number here comes from it.",
         "`cells.json`: cells with their numbers, and each rank's host, machine (boot id), cores, device and checksum of parameters.",
         "`pictures/`: the pictures. `cells/`: a file for each cell, from which `--resume` goes on."]


def compose(results, rows, verdict, findings, environment, parameters, pictures, no_pictures):
    """The blocks of the page, in order."""
    rows = sorted(rows, key=lambda row: (row.cell.model, row.cell.nodes, row.cell.tasks, BACKENDS.index(row.cell.backend)))
    gpu, crowded = parameters["device"] == "cuda", any(row.oversubscribed for row in rows)
    unit = "GPUs" if gpu else "processes"
    blocks = [heading(TITLE, 1), paragraph(f"**{verdict}**"), heading("Findings"), points(findings),
              heading("What was run"), paragraph(what_was_done(results, parameters)),
              heading("Environment"), table(["what", "here"], environment)]
    note = paragraph("Behind +- are 1.96 standard errors of the mean over the steps of this run."
                     + (" An asterisk marks layouts with more processes than cores." if crowded else ""))
    for title, part in (("Inside one server", [row for row in rows if row.cell.nodes == 1]),
                        ("Across servers", [row for row in rows if row.cell.nodes > 1])):
        blocks += [heading(title), *([note, scaling_table(part, unit)] if part else [paragraph("No cell of this kind gave numbers.")])]
    blocks += [heading("Pictures"), *([paragraph(f"There are none: {no_pictures}.")] if no_pictures else [])]
    for model, (speedup, steps) in pictures.items():
        blocks += [heading(model, 3), picture(speedup, f"{model}: speed-up over processes, beside the ideal line"),
                   picture(steps, f"{model}: computing, transfer and waiting in a step")]
    if images := [row for row in rows if row.cell.model == "resnet50"]:
        blocks += [heading("Synthetic benchmark: ResNet-50"), paragraph(
            "The real network on images of 224 x 224." if gpu else
            "A thin ResNet-50 (8 channels in its first stage instead of 64) on images of 32 x 32, so these figures compare layouts of "
            "this cluster, and no other ResNet-50."), synthetic_lines(images, "GPU" if gpu else "CPU process")]
    return [*blocks, heading("Where the time of a step goes"), time_table(rows) if rows else paragraph("No cell gave numbers."),
            heading("All cells"), cells_table(results), heading("How it was measured"), method(results, parameters, crowded),
            heading("Files"), points(FILES)]

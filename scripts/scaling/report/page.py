"""The report's page: Markdown, and the same as one HTML file that holds its pictures."""

# SPDX-License-Identifier: Apache-2.0

import base64

import markdown

from scaling.options import OVER_MPI
from scaling.report.findings import percent, with_spread
from scaling.steps import BATCHES, DONE, WARM_UP

TITLE = "Scaling report"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; font-size: .9rem; display: block; overflow-x: auto } th { background: #f3f3f3 }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; font-variant-numeric: tabular-nums }
img { max-width: 100%; border: 1px solid #ddd } code { background: #f3f3f3; padding: .1rem .3rem }
"""
WAYS = {"gloo": "`torch.distributed.all_reduce` with gloo",
        "mpi": "`Allreduce` of mpi4py on the same buffer, ranks started with `srun --mpi=pmix`",
        "horovod-gloo": "Horovod's allreduce over Gloo, ranks started with `slurm-bootstrap run --horovod`",
        "horovod-mpi": "Horovod's allreduce over MPI, ranks started with `srun --mpi=pmix`",
        "nccl": "`torch.distributed.all_reduce` with NCCL on GPUs"}


def plain(text):
    """Escapes what Markdown would take for its own marks."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


def points(lines):
    return "\n".join(f"* {line}" for line in lines)


def as_table(head, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def scaling_table(table, unit):
    """Back ends by servers and processes."""
    rows = [[line.model, f"{line.nodes}", f"{line.tasks}" + ("\\*" if line.oversubscribed else ""), line.backend,
             with_spread(1000 * line.step_seconds, 1000 * line.step_seconds_spread),
             with_spread(line.samples_per_second, line.samples_per_second_spread, 1), with_spread(line.speedup, line.speedup_spread),
             percent(line.efficiency, line.efficiency_spread)] for line in table.itertuples()]
    return as_table(["model", "servers", f"{unit} per server", "back end", "step (ms)", "samples/s", "speed-up", "efficiency"], rows)


def cells_table(results):
    rows = [[result.cell.model, result.cell.backend, result.cell.layout, result.status,
             plain("; ".join(filter(None, [result.reason, *result.notes])))] for result in results]
    return as_table(["model", "back end", "layout", "status", "reason or notes"], rows)


def what_was_done(results, parameters):
    backends = list(dict.fromkeys(result.cell.backend for result in results))
    count = sum(result.status == DONE for result in results)
    kind = ("Weak scaling: each process has a batch of its own, so the ideal is a step that takes as long on many processes as on one."
            if parameters["scaling"] == "weak" else
            "Strong scaling: all processes share one batch, so the ideal is a step that takes the n-th part of the time on n processes.")
    return (f"The same training ran through {', '.join(backends)} on each layout of servers and processes: {len(results)} cells, of which "
            f"{count} gave numbers. {kind} Each cell is the mean of {parameters['steps']} steps after {WARM_UP} steps of warm-up.")


def method(results, parameters, crowded):
    polls = " Its ranks poll while they wait, which takes cores from ranks that compute." if crowded else ""
    ways = [f"{name}: {WAYS[name]}.{polls if name in OVER_MPI else ''}"
            for name in dict.fromkeys(result.cell.backend for result in results)]
    device = ("full (made for GPUs; resnet50 is the real network on images of 224 x 224), each process computes on a GPU"
              if parameters["device"] == "cuda" else
              "small (made for cores; resnet50 has 8 channels instead of 64 and images of 32 x 32), each process computes with one thread")
    return points([
        "One loop for all back ends: forward, backward, one sum of all gradients, which lie in one flat buffer, over all ranks, update "
        f"(SGD with momentum). Models and samples are {device}.",
        *ways,
        "There is no barrier. Communication is the time of the sum. It begins on each rank when its own gradients are ready, so it "
        "includes the wait for slower ranks. Transfer is the least of it over the ranks of a step, that of the slowest rank. Waiting is "
        "the mean over the ranks minus transfer. On crowded cores a rank can also wait for a core, which these times do not separate.",
        "Step time is the mean over the ranks. Samples per second are the samples of a step on all ranks, divided by it. Speed-up is "
        "relative to the smallest world of the same back end and model. Efficiency is speed-up divided by the number of processes.",
        "Behind +- are 1.96 standard errors, from the means of up to ten blocks of neighbouring steps; the errors of ratios count as "
        "independent. They say how well this run knows the mean, not how much another run would differ.",
        f"Each cell is checked. All ranks must end with the same parameters. The mean loss of the last {BATCHES} steps must be below that "
        f"of the first {BATCHES}, which used the same batches. A cell that breaks either rule has failed, whatever its speed.",
        "A layout 2x4 is 2 servers with 4 processes on each. An asterisk marks more processes than cores on a machine."])


FILES = ["`steps.csv`: each step of each rank, in seconds; negative steps are warm-up. Every number here comes from it.",
         "`cells.json`: cells with their numbers, and each rank's host, machine (boot id), cores, device and checksum of parameters.",
         "`cells/`: a file for each cell, from which `--resume` goes on."]


def compose(results, table, verdict, findings, environment, parameters, pictures):
    """The page as Markdown; the pictures lie in a folder beside it."""
    crowded = not table.empty and table.oversubscribed.any()
    unit = "GPUs" if parameters["device"] == "cuda" else "processes"
    numbers = "No cell gave numbers." if table.empty else scaling_table(table, unit)
    return "\n\n".join([
        f"# {TITLE}", f"**{plain(verdict)}**", numbers,
        *([f"\\* {unit} share cores: these rows show what a layout costs, and not how it scales on cores of its own."] if crowded else []),
        "## Findings", points(map(plain, findings)), *(f"![{title}]({path.parent.name}/{path.name})" for path, title in pictures.items()),
        "## What ran", what_was_done(results, parameters),
        "## Environment", as_table(["what", "here"], [[name, plain(value)] for name, value in environment]),
        "## All cells", cells_table(results), "## How it was measured", method(results, parameters, crowded),
        "## Files", points(FILES)]) + "\n"


def as_html(text, pictures):
    """One file, which loads nothing."""
    body = markdown.markdown(text, extensions=["tables"]).replace(" +- ", " &plusmn; ")
    for path in pictures:
        data = base64.b64encode(path.read_bytes()).decode()
        body = body.replace(f'src="{path.parent.name}/{path.name}"', f'src="data:image/svg+xml;base64,{data}"')
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{TITLE}</title>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'

"""What stands on the report's page, from results, rows, findings and the environment."""

# SPDX-License-Identifier: Apache-2.0

import math

from scaling.cells import DONE, FAILED, OVER_MPI
from scaling.output import BATCHES
from scaling.report.document import heading, paragraph, picture, points, program_output, table
from scaling.report.plots import POINTS

TITLE = "Scaling report"
HEAD = ["model", "back end", "servers", "{unit} per server", "step (ms)", "samples/s", "speed-up", "efficiency"]
TIME_HEAD = ["model", "back end", "layout", "computing (ms)", "transfer (ms)", "waiting (ms)", "communication", "CPU"]
WAYS = {"gloo": "`torch.distributed.all_reduce` with gloo", "mpi": "`Allreduce` of mpi4py on the same buffer, ranks started with "
        "`srun --mpi=pmix`", "horovod-gloo": "Horovod's allreduce over Gloo, ranks started with `slurm-bootstrap run --horovod`",
        "horovod-mpi": "Horovod's allreduce over MPI, ranks started with `srun --mpi=pmix`", "nccl": "`torch.distributed.all_reduce` with NCCL on GPUs"}


def with_spread(value, form="{:,.1f}", factor=1.0):
    mean = form.format(factor * value.mean)
    return mean if math.isnan(value.spread) else f"{mean} +- {form.format(factor * value.spread)}"


def mark(row):
    return "marked" if row.oversubscribed else "disturbed" if row.disturbed else ""


def star(row):
    return "*" if row.oversubscribed else "~" if row.disturbed else ""


def order(row):
    return (row.cell.model, row.cell.nodes, row.cell.tasks, list(POINTS).index(row.cell.backend))


def scaling_table(rows, unit):
    rows = sorted(rows, key=order)
    lines = []
    for row in rows:
        base = row.cell == row.base
        lines.append([
            row.cell.model, row.cell.backend, str(row.cell.nodes), f"{row.cell.tasks}{star(row)}",
            with_spread(row.figures.step, "{:,.2f}", 1000), with_spread(row.figures.throughput),
            f"{row.speedup.mean:.2f}" if base else with_spread(row.speedup, "{:.2f}"),
            f"{100 * row.efficiency.mean:.0f} %" if base else f"{with_spread(row.efficiency, '{:.0f}', 100)} %"])
    return table([cell.format(unit=unit) for cell in HEAD], lines, [mark(row) for row in rows])


def time_table(rows):
    rows = sorted(rows, key=order)
    lines = [[row.cell.model, row.cell.backend, f"{row.cell.layout}{star(row)}",
              *(f"{1000 * part:.2f}" for part in (row.figures.compute, row.figures.transfer, row.figures.wait)),
              f"{100 * row.figures.share:.1f} %", f"{100 * row.core_share:.0f} %" if row.on_cpu else "-"] for row in rows]
    return table(TIME_HEAD, lines, [mark(row) for row in rows])


def cells_table(results):
    lines, classes = [], []
    for result in results:
        cell = result.cell
        lines.append([cell.model, cell.backend, cell.layout, result.status, "; ".join(filter(None, [result.reason, *result.notes]))])
        classes.append("bad" if result.status == FAILED else "")
    return table(["model", "back end", "layout", "status", "reason or notes"], lines, classes)


def synthetic_lines(rows, unit):
    """The lines that synthetic benchmarks of image models print."""
    text = []
    for row in sorted(rows, key=order):
        mean, deviation = row.figures.rates
        text.append(f"{row.cell.backend}, {row.cell.nodes} x {row.cell.tasks}{' (more processes than cores)' if row.oversubscribed else ' (disturbed)' if row.disturbed else ''}")
        text.append(f"  Img/sec per {unit}: {mean:.1f} +- {deviation:.1f}")
        text.append(f"  Total img/sec on {row.cell.ranks} {unit}(s): {row.cell.ranks * mean:.1f} +- {row.cell.ranks * deviation:.1f}")
    return program_output("\n".join(text))


def what_was_done(results, parameters):
    backends = list(dict.fromkeys(result.cell.backend for result in results))
    weak = parameters["scaling"] == "weak"
    count = sum(result.status == DONE for result in results)
    return (f"The same training was run through {len(backends)} back end{'' if len(backends) == 1 else 's'} ({', '.join(backends)}) on "
            f"each layout of servers and processes: {len(results)} cells, of which {count} gave numbers. "
            + ("Weak scaling: each process has a batch of its own, so the ideal is a step that takes as long on many processes "
               "as on one." if weak else "Strong scaling: all processes share one batch, so the ideal is a step that takes the n-th "
               "part of the time on n processes.")
            + f" Each cell is the mean of {parameters['steps']} steps after {parameters['warm_up']} steps of warm-up.")


def method(results, parameters, crowded):
    polls = " Its ranks poll while they wait, which takes cores from ranks that compute." if crowded else ""
    ways = [f"{name}: {WAYS[name]}.{polls if name in OVER_MPI else ''}" for name in dict.fromkeys(result.cell.backend for result in results)]
    size = "small (made for cores)" if parameters["size"] == "small" else "full (made for GPUs)"
    batch = f"{parameters['batch']}" if parameters["batch"] else "the model's own"
    return points([
        f"One loop for all back ends: forward, backward, one sum of all gradients, which lie in one flat buffer, over all ranks, "
        f"update (SGD with momentum). Models and samples are {size}, the batch is {batch}, each process computes with "
        f"{parameters['threads']} thread{'' if parameters['threads'] == 1 else 's'} on {'a GPU' if parameters['device'] == 'cuda' else 'CPUs'}.",
        *ways,
        "There is no barrier. Communication is the time of the sum. It begins on each rank when its own gradients are ready, so it "
        "includes the wait for slower ranks. Transfer is the least of it over the ranks of a step, that of the slowest rank. Waiting is the "
        "mean over the ranks minus transfer. On crowded cores a rank can also wait for a core, which these times do not separate.",
        "CPU is the part of the computing time in which a process had its core, as the kernel counts it. Far below 100 %, with a core for "
        "each process, means that other programs were running.",
        "Step time is the mean over the ranks, which the sum keeps in lock-step. Samples per second are the samples of a step on all "
        "ranks, divided by it. Speed-up is relative to the smallest world of the same back end and model. Efficiency is speed-up "
        "divided by the number of processes.",
        "Behind +- are 1.96 standard errors, from the means of up to ten blocks of neighbouring steps; the errors of ratios count as "
        "independent. They say how well this run knows the mean, not how much another run would differ. In lines of img/sec, +- is "
        "1.96 standard deviations of the blocks, as such benchmarks print it.",
        f"Each cell is checked. All ranks must end with the same parameters (a checksum of each rank's, and the least and greatest of "
        f"each parameter over the ranks). The mean loss of the last {BATCHES} steps must be below that of the first {BATCHES}, which used the "
        f"same batches. A cell that breaks either rule has failed, whatever its speed.",
        "A layout 2x4 is 2 servers with 4 processes on each. An asterisk marks more processes than cores on a machine. The ranks report the "
        "cores that they may use and their machine.",
    ])


def files():
    return points(["`steps.csv`: each step of each rank, in seconds; negative steps are warm-up. Every number here comes from it and",
                  "`ranks.csv`: host, machine (boot id), cores, device and checksum of parameters of each rank.",
                  "`cells.json`, `environment.json`: cells with their numbers, and the nodes' facts, for programs.",
                  "`pictures/`: the pictures as SVG and PNG. `cells/`: a file for each cell, from which `--resume` goes on."])


def compose(results, rows, verdict, findings, environment, parameters, pictures, no_pictures):
    """The blocks of the page, in order."""
    gpu = parameters["device"] == "cuda"
    unit = "GPUs" if gpu else "processes"
    blocks = [heading(TITLE, 1), paragraph(f"**{verdict}**"), heading("Findings"), points(findings), heading("What was run"),
              paragraph(what_was_done(results, parameters)),
              heading("Environment"), table(["what", "here"], [list(row) for row in environment], text=True)]
    note = paragraph("Behind +- are 1.96 standard errors of the mean over the steps of this run." + (
        " An asterisk marks layouts with more processes than cores." if any(row.oversubscribed for row in rows) else "") + (
        " A tilde marks cells that other programs disturbed." if any(row.disturbed for row in rows) else ""))
    inside, across = ([row for row in rows if (row.cell.nodes == 1) == one] for one in (True, False))
    for title, part in (("Inside one server", inside), ("Across servers", across)):
        blocks += [heading(title), *([note, scaling_table(part, unit)] if part else [paragraph("No cell of this kind gave numbers.")])]
    blocks.append(heading("Pictures"))
    if no_pictures:
        blocks.append(paragraph(f"There are none: {no_pictures}."))
    for model, (speedup, steps) in pictures.items():
        blocks += [heading(model, 3), picture(speedup, f"{model}: speed-up over processes, beside the ideal line"),
                   picture(steps, f"{model}: computing, transfer and waiting in a step")]
    images = [row for row in rows if row.cell.model == "resnet50"]
    if images:
        blocks += [heading("Synthetic benchmark: ResNet-50"), paragraph(
            "The real network on images of 224 x 224." if parameters["size"] == "full" else
            "A thin ResNet-50 (8 channels in its first stage instead of 64) on images of 32 x 32, so these figures compare layouts of "
            "this cluster, and no other ResNet-50."), synthetic_lines(images, "GPU" if gpu else "CPU process")]
    blocks += [heading("Where the time of a step goes"), time_table(rows) if rows else paragraph("No cell gave numbers.")]
    blocks += [heading("All cells"), cells_table(results), heading("How it was measured"), method(results, parameters, any(row.oversubscribed for row in rows)),
               heading("Files"), files()]
    return blocks

"""The pictures, drawn by matplotlib as SVG: speed-up beside the ideal line, and where the time of a step goes."""

# SPDX-License-Identifier: Apache-2.0

import math
import sys

from scaling.report.measures import known

# The colours of Okabe and Ito, which people with any colour blindness can separate; the points differ as well.
COLOURS = {"gloo": "#0072B2", "mpi": "#D55E00", "horovod-gloo": "#56B4E9", "horovod-mpi": "#E69F00", "nccl": "#009E73"}
POINTS = {"gloo": "o", "mpi": "s", "horovod-gloo": "D", "horovod-mpi": "p", "nccl": "^"}
PARTS = (("computing", "#0072B2", "compute"), ("transfer", "#E69F00", "transfer"), ("waiting for slower ranks", "#CCCCCC", "wait"))
DASHES = ("-", "--", "-.", ":")


class PlotError(RuntimeError):
    """A picture could not be drawn; the text is one sentence."""


def draw_speedup(axes, model, rows, scaling):
    """Speed-up over processes: a line for each back end and number of processes on a server."""
    rows = sorted(rows, key=lambda row: row.cell.ranks)
    series = list(dict.fromkeys((row.cell.backend, row.cell.tasks) for row in rows))
    tasks = sorted({count for _, count in series})
    ranks = sorted({row.cell.ranks for row in rows})
    axes.plot([ranks[0], ranks[-1]], [ranks[0], ranks[-1]], ":", color="#555555", linewidth=2, label="ideal")
    for index, (backend, count) in enumerate(series):
        group = [row for row in rows if (row.cell.backend, row.cell.tasks) == (backend, count)]
        aside = 1 + 0.02 * (index - (len(series) - 1) / 2)  # a little, so that bars at one place do not hide each other
        place = tasks.index(count)
        axes.errorbar([row.cell.ranks * aside for row in group], [row.speedup.mean for row in group],
                      [min(known(row.speedup.spread), 0.75 * row.speedup.mean) for row in group], color=COLOURS[backend],
                      linestyle=DASHES[place % 4], marker=POINTS[backend], fillstyle="full" if place == 0 else "none", capsize=3,
                      label=f"{backend}, {count} on a server", gid=f"series-{index}")
    if crowded := [row.cell.ranks for row in rows if row.oversubscribed]:
        # Between the last world that has a core for each process and the first that has not.
        fits = [row.cell.ranks for row in rows if not row.oversubscribed and row.cell.ranks < min(crowded)]
        edge = math.sqrt(min(crowded) * max(fits)) if fits else min(crowded) / 1.2
        axes.axvspan(edge, ranks[-1] * 1.15, color="#f0e8d8", zorder=0)
        axes.text(0.99, 0.03, "more processes than cores", transform=axes.transAxes, ha="right", color="#6b5a2e")
    low = min([ranks[0], *(row.speedup.mean for row in rows)])
    top = max([ranks[-1], *(row.speedup.mean + known(row.speedup.spread) for row in rows)])
    axes.set(title=f"{model}: speed-up ({scaling} scaling), bars are 1.96 standard errors", xlabel="processes in all",
             ylabel="speed-up of samples per second, over one process", xlim=(ranks[0] / 1.15, ranks[-1] * 1.15),
             ylim=(low / 1.4, top * 1.15))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(ranks, map(str, ranks))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_times(axes, model, rows, _):
    """A bar for each cell, one on the other: computing, transfer, waiting."""
    rows = sorted(rows, key=lambda row: (row.cell.backend, row.cell.ranks, row.cell.nodes))
    backends = list(dict.fromkeys(row.cell.backend for row in rows))
    places = [number + 0.7 * backends.index(row.cell.backend) for number, row in enumerate(rows)]
    below = [0.0] * len(rows)
    for title, colour, name in PARTS:
        parts = [1000 * getattr(row.figures, name) for row in rows]
        axes.bar(places, parts, bottom=below, color=colour, edgecolor="white", label=title)
        below = [low + part for low, part in zip(below, parts)]
    spreads = [1000 * known(row.figures.step.spread) for row in rows]
    axes.errorbar(places, below, spreads, color="black", linestyle="none", capsize=3)
    axes.set_xticks(places, [row.cell.layout + row.star for row in rows])
    for backend in backends:
        own = [place for place, row in zip(places, rows) if row.cell.backend == backend]
        axes.text(sum(own) / len(own), -0.055, backend, transform=axes.get_xaxis_transform(), ha="center", va="top")
    note = "   (* more processes than cores)" if any(row.oversubscribed for row in rows) else ""
    axes.set(title=f"{model}: where the time of a step goes, bars are 1.96 standard errors of the whole",
             ylabel="milliseconds of a step, mean over ranks", ylim=(0, 1.3 * max(map(sum, zip(below, spreads)))))
    axes.set_xlabel(f"servers x processes on each{note}", labelpad=24)
    axes.legend(loc="upper left")


def draw_all(rows, folder, scaling):
    """Draws what there are rows for; returns {model: (picture of speed-up, picture of times)}."""
    try:
        import matplotlib
        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise PlotError(f"the pictures are drawn by matplotlib, which {sys.executable} does not load ({error}); install it (Debian: "
                        f"python3-matplotlib), or take another Python, and run scaling-report with --resume") from error
    matplotlib.rcParams.update({"svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                                "axes.grid.axis": "y", "axes.axisbelow": True, "grid.color": "#cccccc"})
    folder.mkdir(exist_ok=True)
    pictures = {}
    for model in dict.fromkeys(row.cell.model for row in rows):
        pictures[model] = folder / f"speedup-{model}.svg", folder / f"steps-{model}.svg"
        for draw, path in zip((draw_speedup, draw_times), pictures[model]):
            figure, axes = pyplot.subplots(figsize=(9.6, 5.8), layout="constrained")
            draw(axes, model, [row for row in rows if row.cell.model == model], scaling)
            figure.savefig(path)
            pyplot.close(figure)
    return pictures

"""The three pictures, drawn by matplotlib as SVG, with a panel for each model."""

# SPDX-License-Identifier: Apache-2.0

import matplotlib

matplotlib.use("agg")
matplotlib.rcParams.update({"svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
                            "axes.axisbelow": True, "grid.color": "#dddddd"})
from matplotlib import pyplot

# The colours of Okabe and Ito, which people with any colour blindness can separate; the points differ as well.
COLOURS = {"gloo": "#0072B2", "mpi": "#D55E00", "horovod-gloo": "#56B4E9", "horovod-mpi": "#E69F00", "nccl": "#009E73"}
POINTS = {"gloo": "o", "mpi": "s", "horovod-gloo": "D", "horovod-mpi": "p", "nccl": "^"}
PARTS = {"compute_seconds": ("computing", "#0072B2"), "transfer_seconds": ("transfer", "#E69F00"),
         "wait_seconds": ("waiting for slower ranks", "#CCCCCC")}
DASHES = ("-", "--", "-.", ":")


def draw_lines(axes, lines, column, ideal):
    """A line for each back end and number of processes on a server, beside the ideal one."""
    ranks, tasks = sorted(lines.processes.unique()), sorted(lines.tasks.unique())
    axes.plot(ranks, ideal(ranks), ":", color="#555555", linewidth=2, label="ideal")
    for index, ((backend, count), group) in enumerate(lines.groupby(["backend", "tasks"])):
        group, place = group.sort_values("processes"), tasks.index(count)
        axes.errorbar(group.processes, group[column], group[f"{column}_spread"].fillna(0), color=COLOURS[backend], capsize=3,
                      linestyle=DASHES[place % 4], marker=POINTS[backend], fillstyle="full" if place == 0 else "none",
                      label=f"{backend}, {count} on a server", gid=f"series-{index}")
    if (crowded := lines[lines.oversubscribed]).size:
        fits = lines[lines.processes < crowded.processes.min()].processes.max()
        begin = crowded.processes.min() if fits != fits else (crowded.processes.min() + fits) / 2  # nan is not equal to itself
        axes.axvspan(begin, 1.05 * max(ranks), color="#f0e8d8", zorder=0, label="more processes than cores")
    axes.set(xlabel="processes in all", xticks=ranks)


def draw_speedup(axes, lines):
    draw_lines(axes, lines, "speedup", lambda ranks: ranks)
    axes.set(ylabel="times as fast as one process")


def draw_efficiency(axes, lines):
    draw_lines(axes, lines, "efficiency", lambda ranks: [1.0] * len(ranks))
    axes.set(ylabel="speed-up divided by processes", ylim=(min(0, axes.get_ylim()[0]), None))
    axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))


def draw_times(axes, lines):
    """A bar for each cell, one part on the other."""
    lines = lines.sort_values(["backend", "processes", "nodes"])
    places = [number + 0.7 * group for number, group in enumerate(lines.groupby("backend", sort=False).ngroup())]
    below = 0 * lines.step_seconds
    for column, (title, colour) in PARTS.items():
        axes.bar(places, 1000 * lines[column], bottom=below, color=colour, edgecolor="white", label=title)
        below = below + 1000 * lines[column]
    axes.errorbar(places, below, 1000 * lines.step_seconds_spread.fillna(0), color="black", linestyle="none", capsize=3)
    labels = lines.backend + " " + lines.layout + lines.oversubscribed.map({True: "*", False: ""})
    axes.set_xticks(places, labels, rotation=60, ha="right", rotation_mode="anchor")
    axes.set(ylabel="milliseconds of a step")


PICTURES = {"speedup": (draw_speedup, "Speed-up"), "efficiency": (draw_efficiency, "Efficiency"),
            "steps": (draw_times, "Where the time of a step goes")}


def draw_all(table, folder):
    """Returns {path: title}. Error bars are 1.96 standard errors."""
    folder.mkdir(exist_ok=True)
    models, pictures = list(table.model.unique()), {}
    columns = min(2, len(models))
    for name, (draw, title) in PICTURES.items():
        figure, panels = pyplot.subplots(-(-len(models) // columns), columns, squeeze=False, layout="constrained",
                                         figsize=(5.6 * columns + 2, 4.2 * -(-len(models) // columns)))
        for axes in panels.flat[len(models):]:
            axes.remove()
        for axes, model in zip(panels.flat, models):
            draw(axes, table[table.model == model])
            axes.set_title(model)
        entries = {label: handle for axes in panels.flat[:len(models)] for handle, label in zip(*axes.get_legend_handles_labels())}
        panels[0][columns - 1].legend(entries.values(), entries, loc="upper left", bbox_to_anchor=(1, 1))
        figure.suptitle(title)
        path = folder / f"{name}.svg"
        figure.savefig(path)
        pyplot.close(figure)
        pictures[path] = title
    return pictures

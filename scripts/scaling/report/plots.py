"""The pictures, drawn by gnuplot as SVG and PNG: speed-up beside the ideal line, and where the time of a step goes."""

# SPDX-License-Identifier: Apache-2.0

import math
import shutil
import subprocess

from scaling.report.measures import known

# The colours of Okabe and Ito, which people with any colour blindness tell apart; point types differ as well.
COLOURS = {"gloo": "#0072B2", "mpi": "#D55E00", "horovod-gloo": "#56B4E9", "horovod-mpi": "#E69F00", "nccl": "#009E73"}
PARTS = (("computing", "#0072B2"), ("transfer", "#E69F00"), ("waiting for slower ranks", "#CCCCCC"))
# Filled and open circle, square, diamond, pentagon, triangle.
POINTS = {"gloo": (7, 6), "mpi": (5, 4), "horovod-gloo": (13, 12), "horovod-mpi": (15, 14), "nccl": (9, 8)}
SIZE = (860, 520)
# Error bars: `with yerrorbars` of gnuplot 5.4 paints a white disc over what is below the middle of each.
BARS = "with vectors heads size screen 0.004,90"
TERMINALS = {
    "svg": f"svg size {SIZE[0]},{SIZE[1]} fixed font 'sans-serif,15' background '#ffffff'",
    "png": f"pngcairo size {2 * SIZE[0]},{2 * SIZE[1]} fontscale 2 linewidth 2 pointscale 2 font 'Sans,11' background '#ffffff'",
}
STYLE = """set border 3
set ytics nomirror
set grid ytics linetype 1 linecolor rgb '#cccccc'
"""


class PlotError(RuntimeError):
    """A picture could not be drawn; the text is one sentence."""


def draw(script, path, kind):
    """Runs gnuplot; the picture is at `path`."""
    if not shutil.which("gnuplot"):
        raise PlotError("the pictures are drawn by gnuplot, which is not installed; run apt-get install gnuplot-nox and, to draw "
                        "what was measured, scaling-report with --resume")
    file = str(path).replace("'", "''")
    text = f"set encoding utf8\nset terminal {TERMINALS[kind]}\nset output '{file}'\n{STYLE}{script}\n"
    done = subprocess.run(["gnuplot"], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or not path.exists() or path.stat().st_size == 0:
        said = [line for line in done.stderr.splitlines() if line.strip(" ^")]
        raise PlotError(f"gnuplot could not draw {path.name}: {said[-1].strip() if said else 'it said nothing'}")


def block(name, lines):
    return f"${name} << EOD\n" + "\n".join(lines) + "\nEOD\n"


def number(value):
    return "0" if math.isnan(value) else f"{value:.8g}"


def scaling_script(model, rows, scaling):
    """Speed-up over processes: a line for each back end and number of processes on a server."""
    series = {}
    for row in sorted(rows, key=lambda row: row.cell.ranks):
        series.setdefault((row.cell.backend, row.cell.tasks), []).append(row)
    most = max(row.cell.ranks for row in rows)
    least = min(row.cell.ranks for row in rows)
    top = max(most, *(row.speedup.mean + known(row.speedup.spread) for row in rows))
    bottom = min(row.speedup.mean for row in rows)
    tasks = sorted({key[1] for key in series})
    ticks = ", ".join(str(count) for count in sorted({row.cell.ranks for row in rows}))
    data = block("ideal", [f"{least} {least}", f"{most} {most}"])
    lines = ["$ideal using 1:2 with lines linewidth 2 dashtype 3 linecolor rgb '#555555' title 'ideal'"]
    for index, ((backend, count), group) in enumerate(series.items()):
        aside = 1 + 0.02 * (index - (len(series) - 1) / 2)  # a little, so that bars at one place do not hide each other
        data += block(f"s{index}", (" ".join(map(number, (
            row.cell.ranks * aside, row.speedup.mean, max(row.speedup.mean - known(row.speedup.spread), bottom / 4),
            row.speedup.mean + known(row.speedup.spread)))) for row in group))
        place = tasks.index(count)
        style = f"linecolor rgb '{COLOURS[backend]}'"
        title = f"{backend}, {count} on a server"
        lines.append(f"$s{index} using 1:3:(0):($4-$3) {BARS} {style} notitle")
        lines.append(f"$s{index} using 1:2 with linespoints {style} linewidth 2 dashtype {(1, 2, 4, 5)[place % 4]} "
                     f"pointtype {POINTS[backend][min(place, 1)]} pointsize 1.1 title '{title}'")
    disturbed = [row for row in rows if row.disturbed]
    if disturbed:
        data += block("disturbed", [f"{row.cell.ranks} {number(row.speedup.mean)}" for row in disturbed])
        lines.append("$disturbed using 1:2 with points pointtype 2 pointsize 2 linewidth 2 linecolor rgb '#AA3377' "
                     "title 'disturbed by other programs'")
    crowded = [row.cell.ranks for row in rows if row.oversubscribed]
    mark = ""
    if crowded:
        # Between the last world that has a core for each process and the first that has not.
        fits = [row.cell.ranks for row in rows if not row.oversubscribed and row.cell.ranks < min(crowded)]
        edge = math.sqrt(min(crowded) * max(fits)) if fits else min(crowded) / 1.2
        mark = (f"set object 1 rectangle from {edge:.4f},graph 0 to graph 1,graph 1 fillcolor rgb '#f0e8d8' fillstyle solid noborder "
                f"behind\nset label 1 'more processes than cores' at graph 0.99,graph 0.03 right textcolor rgb '#6b5a2e' front\n")
    return data + mark + f"""
set title '{model}: speed-up ({scaling} scaling), bars are 1.96 standard errors'
set xlabel 'processes in all'
set ylabel 'speed-up of samples per second, over one process'
set logscale xy 2
set xrange [{least / 1.15}:{most * 1.15}]
set yrange [{min(bottom / 1.4, least / 1.4)}:{top * 1.15}]
set xtics ({ticks}) nomirror
set key outside right top reverse Left samplen 2.5
plot {', '.join(lines)}"""


def split_script(model, rows):
    """A bar for each cell, one on the other: computing, transfer, waiting."""
    rows = sorted(rows, key=lambda row: (row.cell.backend, row.cell.ranks, row.cell.nodes))
    data, previous, place, names = [], None, 0.0, []
    for row in rows:
        place += 0.0 if previous is None else 1.0 if previous == row.cell.backend else 1.7
        if previous != row.cell.backend:
            names.append((row.cell.backend, place, place))
        names[-1] = (names[-1][0], names[-1][1], place)
        previous = row.cell.backend
        figures = row.figures
        parts = [1000 * part for part in (figures.compute, figures.transfer, figures.wait)]
        label = row.cell.layout + ("*" if row.oversubscribed else "~" if row.disturbed else "")
        data.append(" ".join([number(place), *map(number, parts), number(1000 * known(figures.step.spread)), f'"{label}"']))
    # A box is drawn from zero, so the sums are drawn first and what is below them over them.
    sums = ("$2+$3+$4", "$2+$3", "$2")
    boxes = [f"$bars using 1:({total}) with boxes linecolor rgb '{colour}' title '{title}'"
             for total, (title, colour) in zip(sums, reversed(PARTS))]
    boxes.append(f"$bars using 1:($2+$3+$4-$5):(0):(2*$5) {BARS} linecolor rgb '#000000' notitle")
    boxes.append("$bars using 1:(0):xticlabels(6) with dots linecolor rgb '#ffffff' notitle")
    labels = "".join(f"set label '{name}' at {(low + high) / 2},graph 0 offset 0,-2.4 center\n" for name, low, high in names)
    top = max(1000 * (row.figures.step.mean + known(row.figures.step.spread)) for row in rows)
    note = "servers x processes on each" + ("   (* more processes than cores)" if any(row.oversubscribed for row in rows) else "") + (
        "   (~ disturbed by other programs)" if any(row.disturbed for row in rows) else "")
    return block("bars", data) + labels + f"""
set title '{model}: where the time of a step goes, bars are 1.96 standard errors of the whole'
set xlabel '{note}' offset 0,-1.4
set bmargin 6.5
set ylabel 'milliseconds of a step, mean over ranks'
set style fill solid 1.0 border rgb '#ffffff'
set boxwidth 0.8
set xrange [-0.8:{place + 0.8}]
set yrange [0:{top * 1.3}]
set xtics nomirror scale 0
set key inside left top reverse Left samplen 1.5
plot {', '.join(boxes)}"""


def draw_all(rows, folder, scaling):
    """Draws what there are rows for; returns {model: (picture of speed-up, picture of times)}."""
    folder.mkdir(exist_ok=True)
    pictures = {}
    for model in dict.fromkeys(row.cell.model for row in rows):
        of_model = [row for row in rows if row.cell.model == model]
        pictures[model] = folder / f"speedup-{model}.svg", folder / f"steps-{model}.svg"
        for script, path in zip((scaling_script(model, of_model, scaling), split_script(model, of_model)), pictures[model]):
            for kind in TERMINALS:
                draw(script, path.with_suffix(f".{kind}"), kind)
    return pictures

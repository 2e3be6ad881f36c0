"""What the numbers say, a sentence for each finding; every word of them depends on a number."""

# SPDX-License-Identifier: Apache-2.0

from scaling.cells import FAILED, NOT_RUN
from scaling.report.measures import ALONE, known

HALF = 0.5  # efficiency


def percent(value):
    return f"{100 * value:.0f} %" if value >= 0.0995 else f"{100 * value:.1f} %"


def noun(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"


def place_of(cell):
    return f"{noun(cell.nodes, 'server')} x {cell.tasks}"


def grouped(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def series(rows, is_wanted):
    """Of each model and back end the rows that are wanted, small worlds first."""
    for (model, backend), group in grouped(filter(is_wanted, rows), lambda row: (row.cell.model, row.cell.backend)).items():
        yield model, backend, sorted(group, key=lambda row: (row.cell.ranks, row.cell.nodes))


def noise_of(rows):
    """How much the step times of the back ends differ where there is nothing to exchange, by model: as a part of the
    shorter one. It is the noise between runs, which the spread inside a run cannot show."""
    alone = grouped((row for row in rows if row.cell.ranks == 1), lambda row: row.cell.model)
    times = {model: [row.figures.step.mean for row in group] for model, group in alone.items() if len(group) > 1}
    return {model: max(means) / min(means) - 1 for model, means in times.items()}


def meaning(rows, hosts, machines):
    """First what the numbers can tell at all."""
    crowded = [row for row in rows if row.oversubscribed]
    if crowded:
        least = min(crowded, key=lambda row: row.cell.ranks)
        layouts = len({row.cell.layout for row in rows}), len({row.cell.layout for row in crowded})
        yield (f"Oversubscribed: {layouts[1]} of {layouts[0]} layouts have more processes than cores, from "
               f"{noun(least.load[0], 'process')} on {noun(least.load[1], 'core')} on. Their rows are marked. They take turns on "
               f"the cores, so those figures tell what a layout costs, and nothing about how it scales on cores of its own.")
    elif rows:
        yield "No machine had more processes than cores: every process computed on a core of its own."
    disturbed = [row for row in rows if row.disturbed]
    roomy = [row for row in rows if not row.oversubscribed]
    if disturbed:
        worst = min(disturbed, key=lambda row: row.core_share)
        yield (f"Disturbed: in {len(disturbed)} of {noun(len(roomy), 'cell')} with a core for each process, the processes got less than "
               f"{percent(ALONE)} of it while they computed, {percent(worst.core_share)} in {worst.cell.key}: other programs ran on the same "
               f"cores. These cells are slower than they would be alone, and differences to them prove little.")
    elif any(row.on_cpu for row in roomy):
        least = min(roomy, key=lambda row: row.core_share)
        yield (f"Not disturbed: where there is a core for each process, the processes got at least {percent(least.core_share)} of it "
               f"while they computed.")
    if machines < hosts:
        yield (f"The {hosts} servers are {noun(machines, 'machine')}: between them data goes through the kernel's memory "
               f"and not over a network, so figures across servers hold the cost of the network protocol without a network.")


def noise(rows):
    for model, part in sorted(noise_of(rows).items()):
        yield (f"{model}: with one process nothing is exchanged, so that the back ends should need the same time for a step; they "
               f"differ by {percent(part)}. Smaller differences between back ends are taken for noise below.")


def compare(first, second, floor):
    """How many times as fast `first` is as `second`, and by how much that may be wrong."""
    ratio = second.figures.step.over(first.figures.step)
    return ratio.mean, max(known(ratio.spread), floor)


def winners(rows):
    """Which back end is faster in which layout, for each model."""
    floors = noise_of(rows)
    for model, of_model in grouped(rows, lambda row: row.cell.model).items():
        won, even = {}, 0
        layouts = grouped([row for row in of_model if row.cell.ranks > 1], lambda row: row.cell.layout)
        compared = [sorted(group, key=lambda row: row.figures.step.mean) for group in layouts.values() if len(group) > 1]
        for best, next_best, *_ in compared:
            ratio, doubt = compare(best, next_best, floors.get(model, 0.0))
            if ratio - 1 > doubt:
                won.setdefault(best.cell.backend, []).append((ratio, doubt, best, next_best))
            else:
                even += 1
        for backend, wins in sorted(won.items(), key=lambda item: -len(item[1])):
            ratio, doubt, best, other = max(wins, key=lambda win: win[0])
            crowds = sum(win[2].oversubscribed for win in wins)
            shaken = sum(win[2].disturbed or win[3].disturbed for win in wins)
            notes = [f"{crowds} of them with more processes than cores"] if crowds else []
            notes += [f"{shaken} of them disturbed by other programs"] if shaken else []
            remarks = f" ({', '.join(notes)})" if notes else ""
            yield (f"{model}: {backend} has the shortest step in {len(wins)} of {noun(len(compared), 'layout')} with several "
                   f"processes{remarks}, by most at {place_of(best.cell)}: {ratio:.2f} +- {doubt:.2f} times as fast as {other.cell.backend}.")
        if even:
            yield f"{model}: in {even} of {noun(len(compared), 'layout')} the back ends differ by less than spread and noise: none wins."


def share_of(row):
    """How much of a step is communication, in words."""
    figures = row.figures
    waiting = f", {percent(figures.wait / figures.communication)} of it waiting for slower ranks" if figures.communication else ""
    return (f"{percent(figures.share)} at {place_of(row.cell)} (computing {1000 * figures.compute:.1f} ms, communicating "
            f"{1000 * figures.communication:.1f} ms{waiting})")


def ratios(rows):
    """The share of communication, at the smallest and the largest world that exchange something."""
    for model, backend, several in series(rows, lambda row: row.cell.ranks > 1):
        ends = dict.fromkeys((several[0], several[-1]))
        yield f"{model}, {backend}: communication takes {' and '.join(map(share_of, ends))} of a step."


def efficiencies(rows):
    """Where efficiency falls under one half, and whether that is certain."""
    for model, backend, several in series(rows, lambda row: row.cell != row.base):
        low = [row for row in several if row.efficiency.mean < HALF]
        if not low:
            last = min(several, key=lambda row: row.efficiency.mean)
            yield f"{model}, {backend}: efficiency stays at or over 50 %; the least is {percent(last.efficiency.mean)} at {place_of(last.cell)}."
            continue
        first, doubt = low[0], known(low[0].efficiency.spread)
        sure = "" if first.efficiency.mean + doubt < HALF else ", which its spread does not tell from 50 %"
        crowded = (f"; {first.load[0]} processes on {noun(first.load[1], 'core')} allow {percent(first.load[1] / first.load[0] / first.threads)} "
                   f"at most" if first.oversubscribed else "")
        crowded += "; other programs disturbed it" if first.disturbed else "; other programs disturbed its base" if first.base_disturbed else ""
        yield (f"{model}, {backend}: efficiency is under 50 % in {len(low)} of {noun(len(several), 'layout')}, first at "
               f"{place_of(first.cell)}: {percent(first.efficiency.mean)} +- {100 * doubt:.0f}{sure}{crowded}.")


def troubles(results):
    """What is missing."""
    for result in (result for result in results if result.status == FAILED):
        yield f"Failed: {result.cell.backend}, {result.cell.model}, {place_of(result.cell)}: {result.reason}."
    left_out = grouped([result for result in results if result.status == NOT_RUN], lambda result: result.reason)
    for reason, group in left_out.items():
        backends = ", ".join(dict.fromkeys(result.cell.backend for result in group))
        yield f"Not run: {noun(len(group), 'cell')} ({backends}): {reason}."


def all_findings(rows, results, hosts, machines):
    """`hosts` are asked nodes, and `machines` how many machines these are."""
    return [*meaning(rows, hosts, machines), *noise(rows), *winners(rows), *ratios(rows), *efficiencies(rows), *troubles(results)]

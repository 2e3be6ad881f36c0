"""What the numbers mean: a verdict first, then at most six findings, a line each. Every word of them depends on a number."""

# SPDX-License-Identifier: Apache-2.0

from collections import Counter, defaultdict

from scaling.report.measures import known
from scaling.steps import FAILED, NOT_RUN

HALF = 0.5  # efficiency
MOST_NAMED = 3  # failed cells in one line; the table of all cells has the others


def percent(value):
    return f"{100 * value:.0f} %" if value >= 0.0995 else f"{100 * value:.1f} %"


def noun(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"


def place_of(cell):
    return f"{noun(cell.nodes, 'server')} x {cell.tasks}"


def name_of(row):
    return f"{row.cell.backend} with {row.cell.model} at {place_of(row.cell)}"


def grouped(rows, key):
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def limits(rows, hosts, machines):
    """Why these figures cannot show how training scales, in words; nothing where they can."""
    if crowded := [row for row in rows if row.oversubscribed]:
        most = max(crowded, key=lambda row: row.load[0] / row.load[1])
        yield f"{noun(most.load[0], 'process')} share {noun(most.load[1], 'core')}"
    if machines < hosts and any(row.cell.nodes > 1 for row in rows):
        yield f"the {hosts} servers are {noun(machines, 'machine')}, with no network between them"


def verdict(rows, hosts, machines):
    """The first sentence of the page."""
    if not rows:
        return "This run has no result: no cell gave numbers."
    several = [row for row in rows if row.cell.ranks > 1]
    if not several:
        return "This run says nothing about scaling: no cell has more than one process."
    sound = [row for row in several if row.cell != row.base and not row.oversubscribed and (row.cell.nodes == 1 or machines >= hosts)]
    why = "; ".join(limits(several, hosts, machines))
    if not sound:
        return f"This run says nothing about scaling: {why or 'there is no smaller world to compare with'}."
    best = max(sound, key=lambda row: (row.cell.ranks, row.efficiency.mean))
    others = f" The other layouts say nothing about scaling: {why}." if len(sound) < len(several) and why else ""
    return (f"{best.cell.backend} trains {best.cell.model} {best.speedup.mean:.2f} times as fast with {noun(best.cell.ranks, 'process')} "
            f"({place_of(best.cell)}) as one process would: {percent(best.efficiency.mean)} of the ideal.{others}")


def failures(results):
    if failed := [result for result in results if result.status == FAILED]:
        named = "; ".join(f"{result.cell.backend}, {result.cell.model}, {place_of(result.cell)}: {result.reason}"
                          for result in failed[:MOST_NAMED])
        more = f"; and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        yield f"Failed: {noun(len(failed), 'cell')}. {named}{more}."


def left_out(results):
    reasons = grouped([result for result in results if result.status == NOT_RUN], lambda result: result.reason)
    if reasons:
        groups = (f"{noun(len(group), 'cell')} ({', '.join(dict.fromkeys(result.cell.backend for result in group))}): {reason}"
                  for reason, group in reasons.items())
        yield f"Not run: {'; '.join(groups)}."


def oversubscription(rows):
    if crowded := [row for row in rows if row.oversubscribed]:
        least = min(crowded, key=lambda row: row.cell.ranks)
        layouts, of_crowded = (len({row.cell.layout for row in some}) for some in (rows, crowded))
        yield (f"Oversubscribed: more processes than cores in {of_crowded} of {noun(layouts, 'layout')}, from "
               f"{noun(least.load[0], 'process')} on {noun(least.load[1], 'core')} on. Their rows have an asterisk. Such figures show "
               f"what a layout costs, and not how it scales on cores of its own.")


def fastest(rows):
    """Which back end is faster in how many layouts, beyond the spread of the steps."""
    won, wins, compared = Counter(), [], 0
    several = [row for row in rows if row.cell.ranks > 1]
    for group in grouped(several, lambda row: (row.cell.model, row.cell.layout)).values():
        if len(group) < 2:
            continue
        compared += 1
        first, second, *_ = sorted(group, key=lambda row: row.figures.step.mean)
        ratio = second.figures.step.over(first.figures.step)
        if ratio.mean - 1 > known(ratio.spread):
            won[first.cell.backend] += 1
            wins.append((ratio, first, second))
    if compared and not wins:
        yield f"Fastest: none. In {noun(compared, 'layout')} the back ends differ by less than the spread of their steps."
    elif compared:
        ratio, first, second = max(wins, key=lambda win: win[0].mean)
        winners, even = ", ".join(f"{backend} in {count}" for backend, count in won.most_common()), compared - len(wins)
        yield (f"Fastest: {winners} of {noun(compared, 'comparison')}{f', none in {even}' if even else ''}. The largest difference: "
               f"{name_of(first)} is {ratio.mean:.2f} +- {known(ratio.spread):.2f} times as fast as {second.cell.backend}.")


def communication(rows):
    if several := sorted((row for row in rows if row.cell.ranks > 1), key=lambda row: row.figures.share):
        least, most, figures = several[0], several[-1], several[-1].figures
        waiting = f", {percent(figures.wait / figures.communication)} of it waiting for slower ranks" if figures.communication else ""
        yield (f"Communication takes {percent(least.figures.share)} of a step for {name_of(least)}, the least, and "
               f"{percent(figures.share)} for {name_of(most)}, the most{waiting}.")


def efficiency(rows):
    """The smallest layout in which it is under one half."""
    several = sorted((row for row in rows if row.cell != row.base), key=lambda row: (row.cell.ranks, row.efficiency.mean))
    low = [row for row in several if row.efficiency.mean < HALF]
    if several and not low:
        last = min(several, key=lambda row: row.efficiency.mean)
        yield f"Efficiency stays at or over 50 %. The least is {percent(last.efficiency.mean)}, {name_of(last)}."
    elif low:
        first, doubt = low[0], known(low[0].efficiency.spread)
        sure = "" if first.efficiency.mean + doubt < HALF else ", which its spread does not separate from 50 %"
        cause = (f"; {first.load[0]} processes on {noun(first.load[1], 'core')} allow {percent(first.load[1] / first.load[0])} at most"
                 if first.oversubscribed else "")
        yield (f"Efficiency is under 50 % in {len(low)} of {noun(len(several), 'cell')}, first for {name_of(first)}: "
               f"{percent(first.efficiency.mean)} +- {100 * doubt:.0f}{sure}{cause}.")


def all_findings(rows, results):
    return [*failures(results), *left_out(results), *oversubscription(rows), *fastest(rows), *communication(rows), *efficiency(rows)]

"""What the numbers mean: a verdict first, then a line for each finding. Every word of them depends on a number."""

# SPDX-License-Identifier: Apache-2.0

from collections import Counter

from scaling.steps import FAILED, NOT_RUN

MOST_NAMED = 3  # failed cells in one line; the table of all cells has the others
IDEAL = 1.1  # more than that of the ideal is no scaling: the world that it is compared with was disturbed


def noun(count, word):
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"


def with_spread(mean, spread, digits=2):
    """The mean alone where the spread is nan, or too small to be shown."""
    return f"{mean:,.{digits}f}" + (f" +- {spread:,.{digits}f}" if spread >= 0.5 / 10**digits else "")


def percent(mean, spread=0.0):
    return f"{with_spread(100 * mean, 100 * spread, 0 if mean > 0.0995 else 1)} %"


def place_of(line):
    return f"{noun(line.nodes, 'server')} x {line.tasks}"


def name_of(line):
    return f"{line.backend} with {line.model} at {place_of(line)}"


def limits(table, hosts, machines):
    """Why these figures cannot show how training scales, in words; nothing where they can."""
    if (crowded := table[table.oversubscribed]).size:
        most = crowded.loc[(crowded.processes_on_a_machine / crowded.cores_of_it).idxmax()]
        yield f"{noun(most.processes_on_a_machine, 'process')} share {noun(most.cores_of_it, 'core')}"
    if machines < hosts and (table.nodes > 1).any():
        yield f"the {hosts} servers are {noun(machines, 'machine')}, with no network between them"


def verdict(table, hosts, machines):
    """The first sentence of the page."""
    if table.empty:
        return "This run has no result: no cell gave numbers."
    several = table[table.processes > 1]
    if several.empty:
        return "This run says nothing about scaling: no cell has more than one process."
    sound = several[~several.is_base & ~several.oversubscribed & ((several.nodes == 1) | (machines >= hosts))]
    why = "; ".join(limits(several, hosts, machines))
    if sound.empty:
        return f"This run says nothing about scaling: {why or 'there is no smaller world to compare with'}."
    others = f" The other layouts say nothing about scaling: {why}." if len(sound) < len(several) and why else ""
    if (sound.efficiency > IDEAL).any():
        most = sound.loc[sound.efficiency.idxmax()]
        return (f"This run says nothing about scaling: its baseline was disturbed. {name_of(most)} came to "
                f"{percent(most.efficiency, most.efficiency_spread)} of the ideal, so {most.speedup_relative_to} was slower than it is "
                f"alone. Run it again on nodes that nobody else uses.{others}")
    best = sound.sort_values(["processes", "efficiency"]).iloc[-1]
    return (f"{best.backend} trains {best.model} {with_spread(best.speedup, best.speedup_spread)} times as fast with "
            f"{noun(best.processes, 'process')} ({place_of(best)}) as one process would: {percent(best.efficiency, best.efficiency_spread)} "
            f"of the ideal.{others}")


def failures(results):
    if failed := [result for result in results if result.status == FAILED]:
        named = "; ".join(f"{result.cell.backend}, {result.cell.model}, {place_of(result.cell)}: {result.reason}"
                          for result in failed[:MOST_NAMED])
        more = f"; and {len(failed) - MOST_NAMED} more" if len(failed) > MOST_NAMED else ""
        yield f"Failed: {noun(len(failed), 'cell')}. {named}{more}."
    reasons = {}
    for result in results:
        if result.status == NOT_RUN:
            reasons.setdefault(result.reason, []).append(result.cell.backend)
    if reasons:
        groups = (f"{noun(len(group), 'cell')} ({', '.join(dict.fromkeys(group))}): {reason}" for reason, group in reasons.items())
        yield f"Not run: {'; '.join(groups)}."


def fastest(table):
    """Which back end is faster in how many layouts, beyond the spread of the steps."""
    won, best, compared = Counter(), (0, ""), 0
    for _, group in table[table.processes > 1].groupby(["model", "layout"]):
        if len(group) < 2:
            continue
        compared += 1
        first, second = (line for _, line in group.sort_values("step_seconds").head(2).iterrows())
        ratio = second.step_seconds / first.step_seconds
        spread = ratio * sum((line.step_seconds_spread / line.step_seconds) ** 2 for line in (first, second)) ** 0.5
        if ratio - 1 > spread:
            won[first.backend] += 1
            best = max(best, (ratio, f"{name_of(first)} is {with_spread(ratio, spread)} times as fast as {second.backend}"))
    if compared and not won:
        yield f"Fastest: none. In {noun(compared, 'layout')} the back ends differ by less than the spread of their steps."
    elif compared:
        winners = ", ".join(f"{backend} in {count}" for backend, count in won.most_common())
        yield f"Fastest: {winners} of {noun(compared, 'comparison')}. The largest difference: {best[1]}."


def communication(table):
    several = table[table.processes > 1]
    if not several.empty:
        share = (several.transfer_seconds + several.wait_seconds) / several.step_seconds
        least, most = several.loc[share.idxmin()], several.loc[share.idxmax()]
        yield (f"Communication takes {percent(share.min())} of a step for {name_of(least)}, the least, and {percent(share.max())} for "
               f"{name_of(most)}, the most.")


def all_findings(table, results):
    found = list(failures(results))
    return found if table.empty else [*found, *fastest(table), *communication(table)]

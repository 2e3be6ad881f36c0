"""Groups of ranks that are alike, and how sentences and tables name them."""
# SPDX-License-Identifier: Apache-2.0
from plain_text import counted

IDLE_PERCENT = 2  # of a core
BUSY = 15  # on a node with more work than cores
MOST_ARE_BUSY = 8  # the same where few ranks are idle
GAP = 50
ALWAYS_READY = 90  # of its time a rank runs or waits for a core: it does not sleep
MOSTLY_ASLEEP = 50  # the same, at most: it sleeps, and wakes up at times
MAX_NAMES = 3


def far_apart(ranks):
    """The ranks in the smaller of two groups that are far apart in their use of CPU; empty: there are no such groups."""
    cpu = cpu_of(ranks)
    ascending = sorted(cpu)
    idle = sum(percent <= IDLE_PERCENT for percent in cpu)
    least_busy = MOST_ARE_BUSY if 2 * idle < len(cpu) else BUSY
    is_idle_apart = 0 < idle < len(cpu) and ascending[idle] >= least_busy
    split = idle if is_idle_apart else next((i for i in range(1, len(cpu)) if ascending[i] - ascending[i - 1] >= GAP), 0)
    if split == 0:
        return []
    high, highs = ascending[split], len(cpu) - split
    # The lower group must sleep: on a node with more work than cores each rank gets little, and by chance one gets less.
    awake = max(rank.cpu_percent + rank.cpu_wait_percent for rank, percent in zip(ranks, cpu) if percent < high)
    used = min(rank.cpu_percent for rank, percent in zip(ranks, cpu) if percent >= high)
    if awake > (MOSTLY_ASLEEP if is_idle_apart else used - GAP):
        return []
    # Of two groups of one size, the one without the first rank.
    is_high = highs < split if highs != split else cpu[0] < high
    return [rank for rank, percent in zip(ranks, cpu) if (percent >= high) == is_high]


def cpu_of(ranks):
    """Percent of a core that each rank used or, up to one core, would have used on a node with less work: the time in which it
    waited for a core is left out. A rank that sleeps, and waits for a core when it wakes up, stays idle."""
    return [max(rank.cpu_percent, 100 if rank.cpu_percent + rank.cpu_wait_percent >= ALWAYS_READY else
                100 * rank.cpu_percent // (100 - rank.cpu_wait_percent)) for rank in ranks]


def group_by(ranks, key_of):
    """Ranks with the same key, in the order of the keys; ranks without one are left out."""
    groups = {}
    for rank in ranks:
        key = key_of(rank)
        if key:
            groups.setdefault(key, []).append(rank)
    return sorted(groups.items())


def group_ranks(ranks):
    """The smallest group first, and in it the lowest rank."""
    apart = {rank.rank for rank in far_apart(ranks)}
    # A rank that runs and waits in turn is somewhere else at each look.
    groups = group_by(ranks, lambda rank: (rank.phase, rank.rank in apart, rank.waits_in if rank.is_still else "", rank.child,
                                           rank.unread, *rank.stack))
    return sorted((group for _, group in groups), key=lambda group: (len(group), group[0].rank))


def list_ranks(group):
    """"0-4,6-7"."""
    runs = []
    for rank in group:
        if runs and runs[-1][1] == rank.rank - 1:
            runs[-1][1] = rank.rank
        else:
            runs.append([rank.rank, rank.rank])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def nodes_of(group):
    return sorted({rank.node for rank in group} - {""})


def range_of(group, member, write):
    values = [getattr(rank, member) for rank in group]
    low, high = write(min(values)), write(max(values))
    number, unit = low.split()
    return low if low == high else f"{number if high.endswith(unit) else low}-{high}"


def cpu_range(group):
    """"97 %", "0-98 %"."""
    return range_of(group, "cpu_percent", "{} %".format)


def name_group(ranks, group):
    """"rank 5 (node002, local rank 1, pid 4711)", "ranks 8-15 (all of node003)", "all 8 ranks"."""
    first, nodes = group[0], nodes_of(group)
    if len(group) == 1:
        pid = f", pid {first.pid}" if first.pid else ""
        return f"rank {first.rank}" + (f" ({first.node}, local rank {first.local_rank}{pid})" if nodes else "")
    if len(group) == len(ranks):
        return f"all {len(group)} ranks"
    text = f"ranks {list_ranks(group)}"
    if not nodes:
        return text
    is_whole = len(nodes) < len(group) == sum(rank.node in nodes for rank in ranks)
    names = ", ".join(nodes) if len(nodes) <= MAX_NAMES else counted(len(nodes), "node")
    return f"{text} ({'all of ' if is_whole else ''}{names})"

"""Groups ranks that are alike, and describes ranks that are out of step, in sentences that claim no more than was seen."""
# SPDX-License-Identifier: Apache-2.0
from plain_text import counted
from records import OWN_CODE

MAYBE = "; it may be slow, in a checkpoint, or stuck"
MUCH_WRITTEN = 10240  # KiB in a second
AT_WORK = 20  # percent of a core, and more
MAX_NAMES = 4
MEETING_VALUES = ("MASTER_ADDR", "MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT")
MAX_NOTES = 9  # with the notes on stacks
IDLE_PERCENT = 2  # of a core
BUSY = 15  # on a node with more work than cores
MOST_ARE_BUSY = 8  # the same where few ranks are idle
GAP = 50
ALWAYS_READY = 90  # of its time a rank runs or waits for a core: it does not sleep
MOSTLY_ASLEEP = 50  # the same, at most: it sleeps, and wakes up at times
MAX_NODES = 3


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
    # If both groups have the same size, takes the group without the first rank.
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
    these = set(nodes)
    is_whole = len(nodes) < len(group) == sum(rank.node in these for rank in ranks)
    names = ", ".join(nodes) if len(nodes) <= MAX_NODES else counted(len(nodes), "node")
    return f"{text} ({'all of ' if is_whole else ''}{names})"


class Finding:
    def __init__(self, kind, group, sentence):
        self.kind, self.ranks, self.sentence = kind, [rank.rank for rank in group], sentence


def plural(sentence):
    """Turns a sentence about one rank, without its name, into one about several."""
    verb = sentence.replace(":", " ").partition(" ")[0]
    text = {"is": "are", "has": "have", "was": "were"}.get(verb, verb[:-1]) + sentence[len(verb):]
    for one, several in (("; it ", "; they "), (" its parent has", " their parents have"), ("(zombie)", "(zombies)"),
                         (": waits ", ": wait ")):
        text = text.replace(one, several)
    return text


def starting(group):
    """Programs compute while they import their modules."""
    return "; it may still be starting" if any(rank.cpu_percent + rank.cpu_wait_percent > AT_WORK for rank in group) else ""


def describe_stack(stack):
    """"all_reduce, called by main (train.py:12)": the innermost function, and the place in the user's own code."""
    own = next((frame for frame in stack if frame.startswith(OWN_CODE)), "")
    place = own[len(OWN_CODE):]
    if not own or own == stack[0]:
        return place or stack[0]
    return f"{stack[0].partition(' (')[0]}, called by {place}"


class Finder:
    def __init__(self, ranks, meeting):
        self.ranks, self.meeting, self.found = ranks, meeting, []

    def find_out_of_step(self, silent_nodes):
        """Never empty: the last finding is that the ranks run alike, or that none stands out."""
        if silent_nodes:
            self.add_silent(silent_nodes)
        self.add_each("stopped", lambda rank: rank.state == "T" and "is stopped (SIGSTOP)")
        self.add_each("traced", lambda rank: rank.state == "t" and "is stopped by a debugger")
        self.add_each("disk_wait", lambda rank: rank.phase == "disk_wait" and (
            "waits for a " + ("disk or file system (D state)" if rank.state == "D" else rank.waits_in)))
        self.add_each("zombie", lambda rank: rank.state == "Z" and "has ended, and its parent has not noticed (zombie)")
        ended = self.in_phase("ended")
        left = len(self.ranks) - len(ended)
        self.add("ended", ended, f"has ended; {counted(left, 'rank')} {'is' if left == 1 else 'are'} left")
        self.add_each("child", lambda rank: rank.child and f"has a child process that is held up: {rank.child}")
        launchers = self.in_phase("launcher_only")
        if 0 < len(launchers) < len(self.ranks):
            self.add("launcher_only", launchers, f"runs only {launchers[0].chain}; no program runs below")
        self.add_no_framework()
        self.add_other_values()
        if self.meeting:
            self.add_unconnected()
        waiting = [rank for rank in self.ranks if rank.is_still and rank.waits_in == "read of standard input"]
        if len(waiting) < len(self.ranks):
            self.add("input", waiting, "waits for input (read of standard input)")
        self.add_each("unknown", lambda rank: rank.phase == "unknown" and rank.unread and f"is unknown: {rank.unread}")
        if not self.found:
            self.add_differences()
        if not self.found and len(group_ranks(self.ranks)) == 1:
            self.found.append(Finding("alike", [], f"all {len(self.ranks)} ranks run alike"))
        elif not self.found:
            self.found.append(Finding("none", [], f"none of the {len(self.ranks)} ranks stands out"))
        return self.found

    def in_phase(self, phase):
        return [rank for rank in self.ranks if rank.phase == phase]

    def add(self, kind, group, sentence):
        if group:
            words = sentence if len(group) == 1 else plural(sentence)
            self.found.append(Finding(kind, group, f"{name_group(self.ranks, group)} {words}"))

    def add_each(self, kind, sentence_of):
        for sentence, group in group_by(self.ranks, sentence_of):
            self.add(kind, group, sentence)

    def add_silent(self, nodes):
        more = len(nodes) - MAX_NAMES
        text = ", ".join(nodes[:MAX_NAMES]) + (f" and {more} more nodes" if more > 0 else "")
        group = [rank for rank in self.in_phase("unknown") if rank.pid == 0]
        if group:
            text += f" ({'rank' if len(group) == 1 else 'ranks'} {list_ranks(group)})"
        self.found.append(Finding("no_answer", group, f"{text} did not answer"))

    def add_no_framework(self):
        before = self.in_phase("no_framework")
        loaded = [rank for rank in self.ranks if rank.framework]
        if not before or not loaded:
            return
        rank = before[0]
        above = rank.chain.rpartition(", ")[0]
        below = f" (below {above})" if above else ""
        count = len(self.ranks) - len(before)
        rest = "the other rank has" if count == 1 else f"the other {count} ranks have"
        waits = len(before) == 1 and rank.waits_in and rank.waits_in != rank.program
        wait = f"; it waits in {rank.waits_in}" if waits else starting(before)
        self.add("no_framework", before, f"runs {rank.program}{below} without {loaded[0].framework}, which {rest} loaded{wait}")

    def add_other_values(self):
        """Ranks that were started with another address or port than rank 0, and have no connection."""
        waiting = self.in_phase("before_rendezvous")
        for name in MEETING_VALUES:
            value_of = {rank.rank: place[len(name) + 1:] for rank in self.ranks for place in rank.meetings
                        if place.startswith(f"{name} ")}
            usual = value_of.get(self.ranks[0].rank)
            odd = [rank for rank in self.ranks if value_of.get(rank.rank, usual) != usual]
            if not odd or not any(rank in waiting for rank in (*odd, self.ranks[0])):
                continue
            values = sorted({value_of[rank.rank] for rank in odd})
            shown = f"{name}={values[0]}" if len(values) == 1 else f"{len(values)} values of {name}, such as {values[0]}"
            self.add("other_value", odd, f"was started with {shown}, and rank {self.ranks[0].rank} with {usual}")

    def add_unconnected(self):
        group, count = self.in_phase("before_rendezvous"), self.meeting.size
        who = f"the other {count}" if count + len(group) == len(self.ranks) else counted(count, "rank")
        others = "a rank listens" if self.meeting.is_listened else f"{who} {'is' if count == 1 else 'are'} connected"
        tried = [port for port in group[0].tries if port != self.meeting.port] if len(group) == 1 else []
        other_port = f"; it tries port {tried[0]}" if tried else starting(group)
        self.add("not_connected", group,
                 f"has no connection to {self.meeting.name} of {self.meeting.node}, where {others}{other_port}")

    def add_differences(self):
        if self.add_minority(lambda rank: "\n".join(rank.stack), lambda rank: f"in {describe_stack(rank.stack)}", "; "):
            return
        group = far_apart(self.ranks)
        if group:
            self.add_by_cpu(group)
        elif all(percent <= AT_WORK for percent in cpu_of(self.ranks)):
            self.add_minority(lambda rank: rank.is_still and rank.waits_in, lambda rank: f"in {rank.waits_in}", ", ")

    def differ(self, group, what, separator, of_others):
        others = "the other" if len(self.ranks) - len(group) == 1 else "the others"
        self.add("differs", group, f"differs: {what}{separator}{others} {of_others}{MAYBE}")

    def add_minority(self, key_of, describe, separator):
        """Ranks outside the largest group, where that has more than half of all ranks and each rank is in a group."""
        groups = group_by(self.ranks, key_of)
        key, largest = max(groups, key=lambda one: len(one[1]), default=("", []))
        odd = [rank for rank in self.ranks if key_of(rank) != key]
        if 2 * len(largest) <= len(self.ranks) or not odd or not all(key_of(rank) for rank in odd):
            return False
        verb = "waits " if separator == ", " else ""
        self.differ(odd, verb + describe(odd[0]), separator, describe(largest[0]))
        return True

    def add_by_cpu(self, group):
        numbers = {rank.rank for rank in group}
        others = [rank for rank in self.ranks if rank.rank not in numbers]
        rank, what = group[0], f"{cpu_range(group)} CPU"
        if len(group) == 1:
            what += ", waits for a core" if rank.cpu_wait_percent > rank.cpu_percent else ""
            what += f", waits in {rank.waits_in}" if rank.is_still and rank.waits_in else ""
            what += f", wrote {rank.written_kib >> 10} MiB in a second" if rank.written_kib >= MUCH_WRITTEN else ""
        self.differ(group, what, "; ", cpu_range(others))


def notes_on(ranks):
    """What else may be wrong: two ranks on one GPU, different libraries of NCCL, several ranks on one core."""
    # A process that uses several GPUs may open them all at its start.
    gpus = group_by(ranks, lambda rank: len(rank.gpu_ids) == 1 and (rank.node, rank.gpu_ids[0]))
    cores = group_by(ranks, lambda rank: rank.cores.isdigit() and (rank.node, rank.cores))
    notes = [f"ranks {list_ranks(group)} of {place[0]} {what} {place[1]}"
             for what, groups in (("use one GPU,", gpus), ("may run on one core only, core", cores))
             for place, group in groups if len(group) > 1]
    files = {}
    for (node, _), group in group_by(ranks, lambda rank: rank.nccl_file and (rank.node, rank.nccl_file)):
        files.setdefault(node, []).append(group)
    notes += [f"ranks of {node} have loaded {len(groups)} different files of libnccl: ranks {list_ranks(groups[0])} one, the "
              "others another" for node, groups in files.items() if len(groups) > 1]
    builds = group_by(ranks, lambda rank: rank.nccl_build)
    if len(builds) > 1:
        build, group = min(builds, key=lambda one: len(one[1]))
        notes.append(f"ranks have loaded {len(builds)} different builds of libnccl; {name_group(ranks, group)} "
                     f"{'has' if len(group) == 1 else 'have'} build {build}")
    troubles = dict.fromkeys(rank.stack_trouble for rank in ranks if rank.stack_trouble)
    return notes + list(troubles)[:max(0, MAX_NOTES - len(notes))]

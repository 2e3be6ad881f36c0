"""Judges the looks at all ranks together: the phase of each rank, and where the ranks meet."""
# SPDX-License-Identifier: Apache-2.0
from operator import attrgetter
from types import SimpleNamespace

from findings import Finder, notes_on
from plain_text import number_in
from records import MAX_RANKS, make_rank, rank_in

MAX_ABSENT = 16384  # that only a launcher's WORLD_SIZE names: a program may set any number
BY_RANK, BY_SIZE = attrgetter("rank", "task"), attrgetter("size")


class MeetingPoint:
    """Where ranks meet: "MASTER_PORT 26571" of the rank that listens there. The sets have positions in the list of ranks."""

    def __init__(self, name, port):
        self.name, self.port = name, port
        self.listen, self.have_launcher, self.own, self.remote = set(), set(), set(), set()

    def complete(self, ranks):
        guests, hosts = self.remote - self.listen, self.listen | self.have_launcher
        self.connected = guests | self.listen | self.own
        self.size = len(self.connected)
        self.is_listened = bool(hosts) and not guests  # a rank listens, and none but that rank is connected
        self.node = ranks[min(hosts, default=0)].node


class Judgement:
    """The findings, whose first one is the first line, and in `also` what else was seen."""

    def __init__(self, state, tasks):
        """`tasks`: how many the step has."""
        self.ranks, self.also = list(state.ranks), []
        make_numbers_unique(self.ranks, self.also)
        for rank in self.ranks:
            rank.phase = own_phase(rank)
        add_absent(state, tasks, self.ranks, self.also)
        self.nodes = len(state.nodes) + len(state.silent_nodes)
        meeting = find_meeting_point(self.ranks)
        place_at_meeting(self.ranks, meeting)
        self.findings = Finder(self.ranks, meeting).find_out_of_step(state.silent_nodes)
        self.also += notes_on(self.ranks)
        self.also += ["\n".join(node.ras) for node in state.nodes if node.ras]  # the answer of the RAS has several lines


def make_numbers_unique(ranks, also):
    """Numbers that launchers gave are kept where they are unique: each task of a farm may have a rank 0."""
    ranks.sort(key=BY_RANK)
    if len({rank.rank for rank in ranks}) == len(ranks):
        return
    also.append("several processes have the same rank, as in several worlds; here they are numbered in the order of Slurm's "
                "tasks")
    ranks.sort(key=lambda one: one.task)
    for number, rank in enumerate(ranks):
        rank.rank, rank.world_size = number, 0


def add_absent(state, tasks, ranks, also):
    """Adds the ranks that have no process left, and the ranks of nodes that did not answer."""
    places = {}  # node and local rank of each task
    for node, tasks_of_node in {(rank.node, rank.node_tasks): None for rank in ranks}:
        numbers = (rank_in(word) for word in tasks_of_node.split(","))
        for local_rank, task in enumerate(number for number in numbers if number is not None):
            places[task] = (node, local_rank)
    has_workers = any(rank.rank != rank.task or rank.world_size > tasks for rank in ranks)
    size = max([tasks] + [rank.world_size for rank in ranks if has_workers])
    if size > max(tasks, len(ranks) + MAX_ABSENT):
        also.append(f"a launcher counts {size} ranks, of which {len(ranks)} {'runs' if len(ranks) == 1 else 'run'}; the others "
                    "are left out here")
        size = tasks
    used = {rank.node for rank in ranks}
    empty_nodes = [node.node for node in state.nodes if node.node not in used]
    unknown = vars(make_rank(phase="unknown"))
    for number in sorted(set(range(min(size, MAX_RANKS))) - {rank.rank for rank in ranks}):
        absent = SimpleNamespace(**{**unknown, "rank": number, "task": number})
        has_place = number in places and not has_workers
        if has_place or not state.silent_nodes:
            absent.phase = "ended"
        if has_place:
            absent.node, absent.local_rank = places[number]
        elif len(state.silent_nodes or empty_nodes) == 1:
            absent.node = (state.silent_nodes or empty_nodes)[0]
        ranks.append(absent)
    ranks.sort(key=BY_RANK)


def own_phase(rank):
    """What one look shows without the other ranks."""
    if rank.state in ("T", "t"):
        return "stopped"
    if rank.state == "Z":
        return "zombie"
    is_file_wait = rank.is_still and (rank.state == "D" or rank.waits_in.startswith("file system"))
    if is_file_wait or (rank.state == "D" and rank.unread):
        return "disk_wait"
    if rank.unread:
        return "unknown"
    if rank.is_launcher:
        return "launcher_only"
    return "communicating_or_computing" if rank.framework else "no_framework"


def find_meeting_point(ranks):
    """None where no rank listens or is connected at such a port. A port that the environment names comes first, then one
    at which the first rank listens and most others are connected."""
    names = sorted({name for rank in ranks for name in rank.meetings})
    points = {}
    for name in names + [f"port {port}" for port in ranks[0].listens]:
        port = name.rpartition(" ")[2]
        points.setdefault(port, MeetingPoint(name, number_in(port, 0xffff) or 0))
    # There may be millions of connections and thousands of ports.
    for place, rank in enumerate(ranks):
        for port in filter(points.__contains__, map(str, rank.listens)):
            points[port].listen.add(place)
        for port in filter(points.__contains__, map(str, rank.task_listens)):
            points[port].have_launcher.add(place)
        for link in rank.links:
            own, _, remote = link.partition(":")
            if own in points:
                points[own].own.add(place)
            if remote in points:
                points[remote].remote.add(place)
    for point in points.values():
        point.complete(ranks)
    best = max((points[name.rpartition(" ")[2]] for name in names), key=BY_SIZE, default=None)
    # Ranks of MPI connect when they first have something to send, and ports of one number are on several nodes.
    if best and best.size or ranks[0].framework not in ("PyTorch", "JAX"):
        return best if best and best.size else None
    others = (points[port] for port in map(str, ranks[0].listens))
    others = (point for point in others if len(point.listen) == 1 and 2 * point.size > len(ranks) and not point.is_listened)
    return max(others, key=BY_SIZE, default=None)


def linked_ranks(ranks, port):
    """Positions of ranks with a connection to another rank whose two ends are seen. Connections at this port do not count."""
    owners = {}  # of each end, the first rank
    for number in reversed(range(len(ranks))):
        owners.update(dict.fromkeys(ranks[number].links, number))
    linked, port = set(), str(port)
    for link, number in owners.items():
        own, _, remote = link.partition(":")
        if owners.get(f"{remote}:{own}", number) != number and port not in (own, remote):
            linked.add(number)
    return linked


def place_at_meeting(ranks, meeting):
    """A rank without a connection is before the rendezvous only if the ranks have one, or if PyTorch needs one."""
    linked = linked_ranks(ranks, meeting.port if meeting else 0)
    for number, rank in enumerate(ranks):
        if rank.phase != "communicating_or_computing" or number in linked:
            continue
        if meeting:
            rank.phase = "connected" if number in meeting.connected else "before_rendezvous"
        elif not linked and rank.framework == "PyTorch" and rank.meetings:
            rank.phase = "before_rendezvous"

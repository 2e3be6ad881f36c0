"""How a step of many ranks starts: what srun, slurmstepds, ranks and NCCL's roots do, as processes of SimPy.

This is SimPy 2, which Debian has as python3-simpy. Each wait names the process that waits: `me` in all generators here.
"""

# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import dataclass
from pathlib import Path

import numpy
from SimPy.Simulation import Process, Resource, Simulation, hold, passivate, release, request

CONSTANTS = Path(__file__).with_name("constants.txt")
UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6, "": 1, "/s": 1, "Gb/s": 1e9 / 8, "B": 1}
RANKS_PER_ROOT = 256  # kRanksPerRoot of libbootstrap/core/exchange/exchanged_values.h


def read_constants():
    """By name, in seconds, bytes, and these by the second; date and machine as text."""
    text = CONSTANTS.read_text()
    found = {name: float(value) * UNITS[unit] for name, value, unit in re.findall(r"^(\w+) = ([\d.]+) ?(\S*)  # ", text, re.M)}
    return found | dict(re.findall(r"^(date|machine) = (.*)$", text, re.M))


@dataclass(frozen=True)
class Scenario:
    ranks: int
    ranks_per_node: int = 8  # the last node has what is left
    asked_roots: int = 0  # 0: one for 256 ranks at most, as the library does
    fence: str = "ring"  # or tree; or pmi1, where srun joins the ranks

    nodes = property(lambda self: -(-self.ranks // self.ranks_per_node))
    roots = property(lambda self: self.asked_roots or -(-self.ranks // RANKS_PER_ROOT))

    def ranks_of(self, node):
        first = node * self.ranks_per_node
        return range(first, min(first + self.ranks_per_node, self.ranks))

    # NCCL cuts the ranks into runs of neighbours, and the first ones are one longer (rootIdFromRank in src/bootstrap.cc).
    def first_of_root(self, root):
        return root * (self.ranks // self.roots) + min(root, self.ranks % self.roots)

    def firsts(self):
        return map(self.first_of_root, range(self.roots))

    def root_of(self, rank):
        shorter, longer_runs = divmod(self.ranks, self.roots)
        in_longer_runs = longer_runs * (shorter + 1)
        return rank // (shorter + 1) if rank < in_longer_runs else longer_runs + (rank - in_longer_runs) // shorter


class Step(Simulation):
    """What the ranks of a step do, and the slurmstepds of its nodes, which have a link and a serving thread each."""

    def __init__(self, constants, scenario, is_first=False):
        super().__init__()
        self.constants, self.scenario = constants, scenario
        self.phases = {}  # name: [when the first rank begins, when the last is done]
        nodes = range(scenario.nodes)
        self.servers = [Resource(sim=self) for _ in nodes]
        self.sends, self.receives = [0 for _ in nodes], [0 for _ in nodes]  # when the link of a node is free again
        self.is_first = is_first  # the nodes have not talked before, and connect to each other
        self.asleep = [[] for _ in nodes]  # ranks of a node that have come to the fence
        self.values = self.count_values()
        self.node_size = self.values * constants.value_bytes / len(nodes)  # bytes that each node adds to the fence
        self.has = [0 for _ in nodes]  # tree: contributions that a node has, those of its children and its own
        self.ready = {}  # ring: when a node has come
        self.threads = [Resource(sim=self) for _ in range(scenario.roots)]
        self.met = 0  # ranks that are done with the roots, or with PMI-1

    def spawn(self, steps, *arguments, delay=0):
        process = Process(sim=self)
        self.activate(process, steps(process, *arguments), delay=delay)

    def serve(self, me, server, work):
        """The thread of a server does one thing after another."""
        yield request, me, server
        yield hold, me, work
        yield release, me, server

    def send(self, me, source, target, latency, size):
        """A message between two nodes, until all of it is there; messages arrive in their order."""
        length = size / self.constants.link
        self.sends[source] = max(self.sends[source], self.now()) + length
        yield hold, me, self.sends[source] - self.now() + latency
        self.receives[target] = max(self.receives[target] + length, self.now())
        yield hold, me, self.receives[target] - self.now()

    def mark(self, phase):
        """That a rank begins with it, or is done with it."""
        self.phases.setdefault(phase, [self.now(), 0])[1] = self.now()

    def run(self, steps, is_launched=False):
        """All ranks do these steps: at once, or when srun has started them. When each phase begins and ends."""
        if is_launched:
            self.spawn(self.launch, getattr(self, steps))
        else:
            for rank in range(self.scenario.ranks):
                self.spawn(getattr(self, steps), rank // self.scenario.ranks_per_node, rank)
        self.simulate(until=float("inf"))
        return self.phases

    # The launch: srun's message goes down a tree of slurmds; each slurmstepd forks all its tasks and then lets them go.

    def launch(self, me, rank_steps):
        self.mark("launch")
        yield hold, me, self.constants.step_create
        self.forward(0, self.scenario.nodes, rank_steps)

    def forward(self, first, count, rank_steps):
        """The nodes are cut into as many parts as the tree is wide, and the first of each part gets it. Slurm starts a
        thread for each, one after the other, that connects and sends (src/common/forward.c)."""
        parts = min(count, int(self.constants.tree_width))
        for part in range(parts):
            size = count // parts + (part < count % parts)
            delay = (part + 1) * self.constants.launch_child + self.constants.launch_hop
            self.spawn(self.reach, first, size, rank_steps, delay=delay)
            first += size

    def reach(self, me, node, count, rank_steps):
        self.forward(node + 1, count - 1, rank_steps)
        yield hold, me, self.constants.stepd_start + self.constants.user_init
        self.mark("launch")
        self.mark("tasks")
        for _ in self.scenario.ranks_of(node):
            yield hold, me, self.constants.task_fork
        for rank in self.scenario.ranks_of(node):
            self.spawn(self.task, node, rank, rank_steps)

    def task(self, me, node, rank, rank_steps):
        yield hold, me, self.constants.task_init + self.constants.task_exec
        self.mark("tasks")
        yield from rank_steps(me, node, rank)

    def rank(self, me, node, rank):
        """From main() to NCCL's ring."""
        self.mark("pmix_init")
        yield hold, me, self.constants.init_client
        yield hold, me, self.constants.local_message
        yield from self.serve(me, self.servers[node], self.constants.init_server)
        yield hold, me, self.constants.init_wait + self.constants.local_message
        self.mark("pmix_init")
        yield from self.exchange(me, node, rank)
        yield from self.check_in(me, node, rank)

    # The exchange: put, fence, and the values that each rank reads.

    def count_values(self):
        """Up to called_ranks each puts a value, so that an error can name the missing; above, the first rank of each node
        and the roots (libbootstrap/comm/exchange.cc)."""
        scenario = self.scenario
        if scenario.ranks <= self.constants.called_ranks:
            return scenario.ranks
        return len({*scenario.firsts(), *range(0, scenario.ranks, scenario.ranks_per_node)})

    def exchange(self, me, node, rank):
        scenario = self.scenario
        if scenario.fence == "pmi1":
            yield from self.exchange_over_pmi1(me, rank)
            return
        self.mark("fence")
        if self.is_first and rank == scenario.first_of_root(scenario.root_of(rank)):
            yield hold, me, self.constants.id_create
        yield hold, me, self.constants.put_client
        yield hold, me, self.constants.local_message
        yield from self.serve(me, self.servers[node], self.constants.fence_server)
        self.asleep[node].append(me)
        if len(self.asleep[node]) == len(scenario.ranks_of(node)):
            self.spawn(self.contribute, node)
        yield passivate, me
        self.mark("fence")
        self.mark("gets")
        # With the ids the ranks of a node read what each other claims to use (libbootstrap/comm/nccl/communicator.cc).
        values = scenario.roots + len(scenario.ranks_of(node))
        yield hold, me, self.constants.get_client * values
        if self.constants.get_server:  # all at once: the server answers one after the other, those of all its ranks
            yield hold, me, self.constants.local_message
            yield from self.serve(me, self.servers[node], self.constants.get_server * values)
            yield hold, me, self.constants.local_message
        self.mark("gets")

    def exchange_over_pmi1(self, me, rank):
        """srun, here on the first node, gets two messages of each rank and then sends all values to each node. So that it is not
        flooded, libpmi lets each rank send in a slot of its own only, in turns of as many slots as there are ranks."""
        constants = self.constants
        for _ in ("put", "barrier and get"):
            if rank:
                yield hold, me, (rank * constants.pmi_slot - self.now()) % (self.scenario.ranks * constants.pmi_slot)
            yield hold, me, constants.hop
            yield from self.serve(me, self.servers[0], constants.pmi_srun / 2)
        self.met += 1
        if self.met == self.scenario.ranks:
            for target in range(self.scenario.nodes):
                self.spawn(self.receive_all, target)

    def receive_all(self, me, node):
        yield from self.send(me, 0, node, self.constants.hop, self.constants.value_bytes * self.scenario.ranks)
        self.mark("gets")

    # The fence between the nodes: what each does when all of its ranks have come.

    def contribute(self, me, node):
        yield from self.serve(me, self.servers[node], self.constants.fence_node)
        if self.scenario.fence == "tree":
            yield from self.collect(me, node)
        else:
            self.ready[node] = self.now()
            if len(self.ready) == self.scenario.nodes:
                self.go_around()

    def release(self, me, node):
        """The server of the node has everything; it keeps all values before it answers its ranks."""
        yield from self.serve(me, self.servers[node], self.constants.store_value * self.values)
        for rank in self.asleep[node]:
            self.reactivate(rank, delay=self.constants.local_message)

    def hop(self, number=1):
        return self.constants.hop + (self.constants.first_hop if self.is_first and number == 1 else 0)

    def go_around(self):
        """Every node passes on the data of the one before it (src/plugins/mpi/pmix/pmixp_coll_ring.c). Hop by hop for all nodes at once:
        N^2 messages are 156 million with 12,500 nodes. None overtakes another here."""
        length = self.node_size / self.constants.link
        ready = numpy.array([self.ready[node] for node in range(self.scenario.nodes)])
        left = ready + length  # when the message of this hop has left a node, and its link is free again
        handled = numpy.zeros(len(ready))  # when its server is
        for number in range(1, len(ready)):
            handled = numpy.maximum(handled, numpy.roll(left, 1) + self.hop(number)) + self.constants.hop_server
            left = numpy.maximum(handled, left) + length
        for node, time in enumerate(numpy.maximum(handled, ready)):
            self.spawn(self.release, node, delay=float(time) - self.now())

    def children(self, node):
        width = int(self.constants.tree_width)
        return range(node * width + 1, min((node + 1) * width + 1, self.scenario.nodes))

    def below(self, node):
        """Nodes in the part of the tree that begins here."""
        return 1 + sum(map(self.below, self.children(node)))

    def collect(self, me, node):
        """Up to the root when a node has its own and those of its children, and down again (pmixp_coll_tree.c)."""
        self.has[node] += 1
        if self.has[node] <= len(self.children(node)):
            return
        if node == 0:
            return self.spawn(self.hand_down, 0)
        parent = (node - 1) // int(self.constants.tree_width)
        yield from self.send(me, node, parent, self.hop(), self.node_size * self.below(node))
        yield from self.serve(me, self.servers[parent], self.constants.hop_server)
        yield from self.collect(me, parent)

    def hand_down(self, me, node, parent=None):
        if parent is not None:
            yield from self.send(me, parent, node, self.constants.hop, self.node_size * self.scenario.nodes)
        for child in self.children(node):
            yield from self.serve(me, self.servers[node], self.constants.hop_server)
            self.spawn(self.hand_down, child, node)
        self.spawn(self.release, node)

    # The check-in of ncclCommInitRank: one serial thread for each root; two connections for each rank, one there and one
    # back, which brings the address of the next rank in the ring (src/bootstrap.cc of NCCL).

    def check_in(self, me, node, rank):
        """With many ranks on one root NCCL lets the i-th of them sleep for i / 7000 s first (NCCL_UID_STAGGER_RATE)."""
        scenario = self.scenario
        root = scenario.root_of(rank)
        first = scenario.first_of_root(root)
        self.mark("roots")
        if scenario.first_of_root(root + 1) - first > self.constants.stagger_threshold:
            yield hold, me, (rank - first) / self.constants.stagger_rate
        yield hold, me, self.constants.root_connect
        yield hold, me, self.constants.hop
        yield from self.serve(me, self.threads[root], self.constants.root_rank)
        yield hold, me, self.constants.hop
        self.mark("roots")
        self.met += 1
        if self.met == scenario.ranks:
            # Three allgathers around the ring of ranks, in both directions at once since NCCL 2.28.7: half as many steps
            # as ranks, each as long as the others. So it is one wait, the only thing here that is a formula.
            self.mark("nccl_ring")
            yield hold, me, self.constants.allgathers * ((scenario.ranks + 1) // 2) * self.constants.ring_step
            self.mark("nccl_ring")

"""The exchange by ways that the library does not take: direct Gets, and PMI-1 in a step that has PMIx."""

# SPDX-License-Identifier: Apache-2.0

import numpy
from model import Step
from SimPy.Simulation import hold


class Direct(Step):
    """After a fence without data all have put. Then each node's server asks those of the roots for their values, and
    these answer one node after the other. With the fence the library could still name the ranks that are missing."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.values = self.node_size = 0

    def release(self, me, node):
        self.ready[node] = self.now()
        if len(self.ready) == self.scenario.nodes:
            self.ask_roots()
        yield hold, me, 0

    def ask_roots(self):
        """All nodes ask the roots in the same order, before they answer others; N nodes and R roots are R * N requests, so
        this is arithmetic."""
        constants, scenario = self.constants, self.scenario
        ask = constants.direct_ask + (constants.direct_connect if self.is_first else 0)
        answer = constants.direct_answer + (constants.direct_accept if self.is_first else 0)
        answer = max(answer, constants.value_bytes / constants.link)
        ready = numpy.array([self.ready[node] for node in range(scenario.nodes)])
        done = ready + ask * scenario.roots
        free = done.copy()  # when the server of a node is, so that the next question is answered
        for number, first in enumerate(scenario.firsts(), 1):
            root = first // scenario.ranks_per_node
            others = numpy.delete(numpy.arange(scenario.nodes), root)
            if not len(others):
                continue
            come = ready[others] + ask * number + self.hop()
            turns = numpy.arange(len(others))
            order = numpy.argsort(come, kind="stable")
            begun = numpy.maximum.accumulate(numpy.maximum(come[order], free[root]) - answer * turns) + answer * turns
            free[root] = begun[-1] + answer
            done[others[order]] = numpy.maximum(done[others[order]], begun + answer + constants.hop)
        for node, time in enumerate(numpy.maximum(done, free)):
            self.spawn(super().release, node, delay=float(time) - self.now())


class Pmi1(Step):
    """srun, here on the first node, gets two messages of each rank and then sends all values to each node. So that it is not
    flooded, libpmi lets each rank send in a slot of its own only, in turns of as many slots as there are ranks."""

    def exchange(self, me, node, rank):
        constants = self.constants
        for _ in ("put", "barrier and get"):
            if rank:
                yield hold, me, (rank * constants.pmi_slot - self.now()) % (self.scenario.ranks * constants.pmi_slot)
            yield self.wait(me, constants.hop)
            yield from self.serve(me, self.servers[0], constants.pmi_srun / 2)
        self.met += 1
        if self.met == self.scenario.ranks:
            for target in range(self.scenario.nodes):
                self.spawn(self.receive, target)

    def receive(self, me, node):
        yield from self.send(me, 0, node, self.constants.hop, self.constants.value_bytes * self.scenario.ranks)
        self.mark("gets")

"""The nodes of a job: which of them answer, and what Slurm knows of them and of the job's steps."""
# SPDX-License-Identifier: Apache-2.0
import errno
import os
import re
import select
import socket
import time
from contextlib import suppress

from step_choice import Refusal, ask_job, ask_slurm, ask_steps, fields_in

# No process listens there, so the kernel itself refuses, and no log has a line about it. slurmd's own port would write
# "Zero Bytes were transmitted" into its log for each question.
CLOSED_PORT = 7
SLURMD_PORT = 6818
AT_ONCE = 100  # questions
ANSWER_LIMIT = 3  # seconds
ANSWERS = (0, errno.ECONNREFUSED)
UNUSABLE = {"DOWN", "DRAIN", "ERROR", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "UNKNOWN"}
MISSING = UNUSABLE - {"DRAIN"}  # a node that is drained runs on


class Question:
    """To the hosts of some nodes, all at once: does a kernel answer?"""

    def __init__(self, places):
        """`places`: family and address by node."""
        self.waiting, self.found = {}, {}  # sockets by node; and by node an error of connect(2), or 0
        for node, (family, place) in places.items():
            one = socket.socket(family, socket.SOCK_STREAM)
            one.setblocking(False)
            error = one.connect_ex(place)
            if error == errno.EINPROGRESS:
                self.waiting[node] = one
            else:
                self.found[node] = error

    def answers(self, seconds=0.0):
        """What is not there has not answered within this time."""
        poll, deadline = select.poll(), time.monotonic() + seconds
        nodes = {one.fileno(): node for node, one in self.waiting.items()}
        for descriptor in nodes:
            poll.register(descriptor, select.POLLOUT)
        while nodes:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                node = nodes.pop(descriptor)
                self.found[node] = self.waiting[node].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not ready:
                break
        self.waiting.clear()
        return self.found


class Hosts:
    """Which hosts of a step do not answer any more, and since when."""

    def __init__(self, places):
        self.places, self.order, self.question, self.asked = places, list(places), Question({}), {}
        self.known, self.silent = set(), {}

    def look(self):
        """The answers to the question before, and the next question. A host that never answered is behind a firewall."""
        answers = self.question.answers()
        for node, since in self.asked.items():
            if answers.get(node) in ANSWERS:
                self.known.add(node)
                self.silent.pop(node, None)
            elif node in self.known:
                self.silent.setdefault(node, since)
        asked, self.order = self.order[:AT_ONCE], self.order[AT_ONCE:] + self.order[:AT_ONCE]
        self.asked = dict.fromkeys(asked, time.monotonic())
        self.question = Question({node: self.places[node] for node in asked})


class Job:
    def __init__(self, slurm, number):
        self.slurm, self.number = slurm, number

    def ask(self, *words):
        return ask_slurm(self.slurm.scontrol, *words)

    def expand(self, nodes):
        return self.ask("show", "hostnames", nodes).split() if nodes else []

    def look(self):
        """The state of the job and its nodes, which a node that is DOWN has left."""
        for job in ask_job(self.slurm, self.number):
            if job.id == self.number:  # one task of an array has the number of the array
                return job.state, self.expand(job.nodes)
        return "", []

    def steps(self):
        """The user's steps that srun has started. Without an answer none: slurmctld answers "not found" where there is none, too."""
        with suppress(Refusal):
            return [one for one in ask_steps(self.slurm, self.number) if one.step.isdigit()]
        return []

    def step_of(self, pid):
        """The step of a process of srun on this host; None: it has none."""
        own = re.compile(rf"{re.escape(os.uname()[1].partition('.')[0])}(\..*)?:{pid}")
        return next((one for one in self.steps() if own.fullmatch(one.srun)), None)

    def node_states(self, nodes):
        """By node: "ALLOCATED+DRAIN*" is ALLOCATED, DRAIN and NOT_RESPONDING."""
        found = self.node_fields(nodes).items()
        return {node: set(re.split(r"\W+", fields["State"].replace("*", "+NOT_RESPONDING"))) for node, fields in found}

    def without_slurmd(self, nodes):
        """No step starts on them, also before Slurm knows."""
        found = {}
        for at in range(0, len(nodes), AT_ONCE):
            places = self.places(nodes[at:at + AT_ONCE])
            answers = Question(places).answers(ANSWER_LIMIT)
            found.update({node: "has no slurmd" if answers.get(node) == errno.ECONNREFUSED else "does not answer"
                          for node in places if answers.get(node) != 0})
        return found

    def node_fields(self, nodes):
        lines = self.ask("-o", "show", "node", ",".join(nodes)).split("\n") if nodes else []
        return {fields["NodeName"]: fields for fields in map(fields_in, lines) if "NodeName" in fields}

    def places(self, nodes, port=0):
        """Where their hosts are reached, at a port or that of slurmd. A node is not asked whose address is not known here."""
        found = {}
        for node, fields in self.node_fields(nodes).items():
            with suppress(OSError):
                family, _, _, _, place = socket.getaddrinfo(fields.get("NodeAddr", node), None, type=socket.SOCK_STREAM)[0]
                found[node] = (family, (place[0], port or int(fields.get("Port", SLURMD_PORT)), *place[2:]))
        return found

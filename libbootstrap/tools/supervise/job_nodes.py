"""The nodes of a job: which of them answer, and what Slurm knows of them and of the job's steps."""
# SPDX-License-Identifier: Apache-2.0
import errno
import os
import re
import select
import socket
import time
from contextlib import suppress

from step_choice import OWN_NAMES, Refusal, ask_slurm

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


def ask_hosts(places, seconds):
    """Some after the others: a process has 1,024 descriptors."""
    found, nodes = {}, list(places)
    for at in range(0, len(nodes), AT_ONCE):
        found.update(Question({node: places[node] for node in nodes[at:at + AT_ONCE]}).answers(seconds))
    return found


class Hosts:
    """Which hosts of a step do not answer any more, and since when."""

    def __init__(self, places):
        self.places, self.order, self.question, self.asked = places, list(places), None, {}
        self.known, self.silent = set(), {}

    def look(self):
        """The answers to the question before, and the next question. A host that never answered is behind a firewall."""
        answers = self.question.answers() if self.question else {}
        for node, since in self.asked.items():
            if answers.get(node) in ANSWERS:
                self.known.add(node)
                self.silent.pop(node, None)
            elif node in self.known:
                self.silent.setdefault(node, since)
        asked, self.order = self.order[:AT_ONCE], self.order[AT_ONCE:] + self.order[:AT_ONCE]
        self.asked = dict.fromkeys(asked, time.monotonic())
        self.question = Question(at_port({node: self.places[node] for node in asked}, CLOSED_PORT))


def fields_in(line):
    return dict(reversed(re.findall(r"(?:^| )([\w:]+)=([^ ]*)", line)))  # the first one of a name counts


class Step:
    def __init__(self, line):
        fields = fields_in(line)
        self.name = line.partition(" ")[0].partition("=")[2]
        self.nodes = fields.get("NodeList", "")
        self.is_ours = fields.get("Name", "").startswith(OWN_NAMES)
        self.host, _, self.pid = fields.get("SrunHost:Pid", "").rpartition(":")

    def is_of_srun(self, pid):
        return self.pid == str(pid) and self.host.partition(".")[0] == os.uname()[1].partition(".")[0]


class Job:
    def __init__(self, slurm, number):
        self.slurm, self.number = slurm, number

    def ask(self, *words):
        return ask_slurm(self.slurm.scontrol, *words)

    def expand(self, nodes):
        return self.ask("show", "hostnames", nodes).split() if nodes else []

    def look(self):
        """The state of the job and its nodes, which a node that is DOWN has left."""
        fields = fields_in(self.ask("-o", "show", "job", self.number).split("\n")[0])
        return fields.get("JobState", ""), self.expand(fields.get("NodeList", "").replace("(null)", ""))

    def steps(self):
        """Those of the user's srun. Without an answer none: slurmctld answers "not found" where there is none, too."""
        with suppress(Refusal):
            lines = self.ask("-o", "show", "step", self.number).split("\n")
            return [step for step in map(Step, lines) if step.name.rpartition(".")[2].isdigit() and not step.is_ours]
        return []

    def node_states(self, nodes):
        """By node: "ALLOCATED+DRAIN*" is ALLOCATED, DRAIN and NOT_RESPONDING."""
        texts = {node: fields.get("State", "") for node, fields in self.node_fields(nodes).items()}
        return {node: set(re.split(r"\W+", text)) | ({"NOT_RESPONDING"} if "*" in text else set()) for node, text in texts.items()}

    def without_slurmd(self, nodes):
        """No step starts on them, also before Slurm knows."""
        places = at_port(self.places(nodes))
        answers = ask_hosts(places, ANSWER_LIMIT)
        return {node: "has no slurmd" if answers.get(node) == errno.ECONNREFUSED else "does not answer"
                for node in places if answers.get(node) != 0}

    def node_fields(self, nodes):
        lines = self.ask("-o", "show", "node", ",".join(nodes)).split("\n") if nodes else []
        return {fields["NodeName"]: fields for fields in map(fields_in, lines) if "NodeName" in fields}

    def places(self, nodes):
        """Where their hosts are reached; a node whose address this host does not know is not asked."""
        found = {}
        for node, fields in self.node_fields(nodes).items():
            with suppress(OSError):
                address = fields.get("NodeAddr", node)
                family, _, _, _, place = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0]
                found[node] = (family, place, int(fields.get("Port", SLURMD_PORT)))
        return found


def at_port(places, port=0):
    """`port`: 0: that of slurmd."""
    return {node: (family, (place[0], port or own, *place[2:])) for node, (family, place, own) in places.items()}

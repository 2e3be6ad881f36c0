"""The nodes of a job: which of them answer, and what Slurm knows of them and of the job's steps."""
# SPDX-License-Identifier: Apache-2.0
import errno
import os
import re
import select
import socket
import time
from contextlib import suppress

from step_choice import Refusal, ask_job, ask_steps, fields_of_nodes, hosts_of

# No process listens there, so the kernel itself refuses, and no log has a line about it. slurmd's own port would write
# "Zero Bytes were transmitted" into its log for each question.
CLOSED_PORT = 7
SLURMD_PORT = 6818
AT_ONCE = 100  # questions
ANSWER_LIMIT = 3  # seconds, of slurmd
HOST_LIMIT = 1.5  # seconds, in which the kernel repeats a lost packet once
OTHER_LIMIT = 0.2  # of hosts that have not answered before: whoever waits for them passes no signal on
ANSWERS = (0, errno.ECONNREFUSED)
UNUSABLE = {"DOWN", "DRAIN", "ERROR", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "UNKNOWN"}
MISSING = UNUSABLE - {"DRAIN"}  # a node that is drained runs on


def ask_hosts(places, seconds):
    """Connects to all of these at once. By node, the error of connect(2) or 0; a node that has not answered in time is left out.
    `places`: family and address by node."""
    found, waiting, poll = {}, {}, select.poll()
    for node, (family, place) in places.items():
        one = socket.socket(family, socket.SOCK_STREAM)
        one.setblocking(False)
        error = one.connect_ex(place)
        if error == errno.EINPROGRESS:
            waiting[one.fileno()] = node, one
            poll.register(one, select.POLLOUT)
        else:
            found[node] = error
    ready, deadline = True, time.monotonic() + seconds
    while waiting and ready:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            node, one = waiting.pop(descriptor)
            found[node] = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return found


class Hosts:
    """Which hosts of a step do not answer any more, and since when."""

    def __init__(self, places):
        self.places, self.order, self.known, self.silent = places, list(places), set(), {}

    def look(self):
        """At the next hundred. A host that never answered is behind a firewall."""
        asked, self.order = self.order[:AT_ONCE], self.order[AT_ONCE:] + self.order[:AT_ONCE]
        since, found = time.monotonic(), {}
        answering = self.known.difference(self.silent)
        for group, seconds in ((answering.intersection(asked), HOST_LIMIT), (set(asked) - answering, OTHER_LIMIT)):
            found.update(ask_hosts({node: self.places[node] for node in group}, seconds))
        for node in asked:
            if found.get(node) in ANSWERS:
                self.known.add(node)
                self.silent.pop(node, None)
            elif node in self.known:
                self.silent.setdefault(node, since)


class Job:
    def __init__(self, number):
        self.number = number

    def look(self):
        """The state of the job and its nodes, which a node that is DOWN has left."""
        for job in ask_job(self.number):
            if job.id == self.number:  # one task of an array has the number of the array
                return job.state, hosts_of(job.nodes)
        return "", []

    def steps(self):
        """The user's steps that srun has started. Without an answer none: slurmctld answers "not found" where there is none, too."""
        with suppress(Refusal):
            return [one for one in ask_steps(self.number) if one.step.isdigit()]
        return []

    def step_of(self, pid):
        """The step of a process of srun on this host; None: it has none."""
        own = re.compile(rf"{re.escape(os.uname()[1].partition('.')[0])}(\..*)?:{pid}")
        return next((one for one in self.steps() if own.fullmatch(one.srun)), None)

    def node_states(self, nodes):
        """By node: "ALLOCATED+DRAIN*" is ALLOCATED, DRAIN and NOT_RESPONDING."""
        found = fields_of_nodes(nodes).items()
        return {node: set(re.split(r"\W+", fields["State"].replace("*", "+NOT_RESPONDING"))) for node, fields in found}

    def without_slurmd(self, nodes):
        """No step starts on them, also before Slurm knows."""
        found = {}
        for at in range(0, len(nodes), AT_ONCE):
            places = self.places(nodes[at:at + AT_ONCE])
            answers = ask_hosts(places, ANSWER_LIMIT)
            found.update({node: "has no slurmd" if answers.get(node) == errno.ECONNREFUSED else "does not answer"
                          for node in places if answers.get(node) != 0})
        return found

    def places(self, nodes, port=0):
        """The addresses of their hosts, with this port or that of slurmd. A node whose address is unknown here is left out."""
        found = {}
        for node, fields in fields_of_nodes(nodes).items():
            with suppress(OSError):
                family, _, _, _, place = socket.getaddrinfo(fields.get("NodeAddr", node), None, type=socket.SOCK_STREAM)[0]
                found[node] = (family, (place[0], port or int(fields.get("Port", SLURMD_PORT)), *place[2:]))
        return found

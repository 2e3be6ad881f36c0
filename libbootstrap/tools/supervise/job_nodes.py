"""The nodes of a job: which of them answer, and what Slurm knows of them and of the job's steps."""
# SPDX-License-Identifier: Apache-2.0
import errno
import select
import socket
import time
from contextlib import suppress

from step_choice import Refusal, ask_job, ask_steps, hosts_of

# No process listens there, so the kernel itself refuses, and no log has a line about it. slurmd's own port would write
# "Zero Bytes were transmitted" into its log for each question.
CLOSED_PORT = 7
SLURMD_PORT = 6818
AT_ONCE = 100  # questions
ANSWER_LIMIT = 3  # seconds, of slurmd
HOST_LIMIT = 1.5  # seconds, in which the kernel repeats a lost packet once
OTHER_LIMIT = 0.2  # for hosts that have not answered before: during the wait no signal is passed on
ANSWERS = (0, errno.ECONNREFUSED)
UNUSABLE = {"DOWN", "DRAIN", "ERROR", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT_ISSUED", "UNKNOWN"}
MISSING = UNUSABLE - {"DRAIN"}  # a node that is drained runs on


def ask_hosts(places, seconds):
    """Connects to all places at once. By node, the error of connect(2) or 0; a node that has not answered in time is left out.
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
        """Looks at the next hundred. A host that never answered counts as behind a firewall, not as silent."""
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


def look_at_job(number):
    """The state of the job, and its nodes. A node that is DOWN has left the job."""
    for job in ask_job(number):
        if job.id == number:  # one task of an array has the number of the array
            return job.state, hosts_of(job.nodes)
    return "", []


def steps_of(number):
    """The user's steps that srun has started. Without an answer none: slurmctld says "not found" if there is none, too."""
    with suppress(Refusal):
        return [one for one in ask_steps(number) if one.step.isdigit()]
    return []


def without_slurmd(fields):
    """The nodes on which no slurmd answers, so that no step starts there, even before Slurm knows."""
    found, left = {}, list(places_of(fields).items())
    while left:
        places, left = dict(left[:AT_ONCE]), left[AT_ONCE:]
        answers = ask_hosts(places, ANSWER_LIMIT)
        found.update({node: "has no slurmd" if answers.get(node) == errno.ECONNREFUSED else "does not answer"
                      for node in places if answers.get(node) != 0})
    return found


def places_of(fields, port=0):
    """The addresses of nodes, with this port or that of slurmd. A node whose address is unknown here is left out."""
    found = {}
    for node, one in fields.items():
        with suppress(OSError):
            family, _, _, _, place = socket.getaddrinfo(one.get("NodeAddr", node), None, type=socket.SOCK_STREAM)[0]
            found[node] = (family, (place[0], port or int(one.get("Port", SLURMD_PORT)), *place[2:]))
    return found

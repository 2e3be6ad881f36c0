"""What `status` reads about each rank and node, and the lines in which the looking step reports it."""
# SPDX-License-Identifier: Apache-2.0
import json
import re
from types import SimpleNamespace

from plain_text import number_in, printable

MAX_RANKS = 1 << 20  # as in core/step/rank_layout.h
MAX_ITEMS = 1024  # of a list
MAX_OPEN = 65536  # records without their end
MAX_CHUNK = 800  # of a record in one line
MAX_CHUNKS = 1024  # of a record
MAX_VALUE = 800  # characters of a text
MAX_TASK_LIST = 1 << 16  # the same
NOT_STARTED = "Slurm has not started its program yet"  # why a rank is not read
OWN_CODE = "* "  # in front of a frame of the user's own code
LINE = re.compile(r"status (rank|node) (\S*) (\S*) ([+.]) (.*)")

# Each member has the value that means "unknown"; a list has an example of its items.
RANK = {
    "phase": "",  # "stopped"; Judgement decides
    "rank": 0,
    "local_rank": 0,
    "task": 0,  # of Slurm; other than the rank for a worker of torchrun
    "world_size": 0,  # that a launcher gave this worker; 0: it is a task of Slurm
    "node": "",
    "node_tasks": "",  # that Slurm started on this node: "4,5"; empty: unknown
    "pid": 0,  # of the process that does the work; 0: there is none
    "program": "",  # its name: "python3"
    "chain": "",  # the processes from the task down to it: "bash, sleep"
    "unread": "",  # why the process cannot be read; empty: it can
    "is_launcher": False,  # the program is a shell or a launcher without a program below it
    "state": "",  # of the main thread, as in /proc/PID/stat; empty: unknown
    "is_still": False,  # the main thread did not run between two looks, one second apart
    "waits_in": "",  # "futex", "poll"; empty: the main thread runs, or that is unknown
    "wchan": "",  # the kernel's name for it
    "child": "",  # what is wrong with a process below: "python3 (pid 12) is stopped (SIGSTOP)"
    "cpu_percent": 0,  # of one core in that second
    "cpu_wait_percent": 0,  # of one core for which its threads were ready to run and waited
    "memory_kib": 0,
    "written_kib": 0,  # in that second
    "cores": "",  # that it may run on: "0-3"
    "framework": "",  # whose library is mapped: "PyTorch"; empty: none
    "meetings": [""],  # addresses of the rendezvous in its environment: "MASTER_PORT 29500"
    "variables": [""],  # of its environment, for `where`: "MASTER_PORT=29500"
    "listens": [0],  # TCP ports
    "task_listens": [0],  # of the launcher of this worker
    "links": [""],  # established connections, own and remote port: "41830:29500"
    "tries": [0],  # remote ports of connections that have no answer yet
    "nccl_file": "",  # device and inode: the same library on one node
    "nccl_build": "",  # fingerprint of its first page: the same library on all nodes
    "nccl_version": "",  # that the path or the environment names
    "ras_port": 0,  # at which NCCL's RAS of this rank listens
    "gpus": "",  # "1 (87 %)"
    "gpu_ids": [""],  # UUIDs of the GPUs that the process uses
    "stack": [""],  # of the main thread, innermost first: "all_reduce (train.py:12)"
    "stack_trouble": "",
}
NODE = {
    "node": "",
    "ras": [""],  # lines of NCCL's RAS, or why there are none
}


def cleaned(value, default, most):
    if isinstance(default, list):
        items = value[:MAX_ITEMS] if isinstance(value, list) else []
        # Hundreds of short texts, which take a second at thousands of ranks if each is looked at.
        text = "".join(items) if default == [""] and set(map(type, items)) == {str} else "\n"
        is_clean = printable(text) is text and max(map(len, items)) <= most
        return items if is_clean else [cleaned(item, default[0], most) for item in items]
    if type(value) is not type(default):
        return default
    return printable(value)[:most] if isinstance(value, str) else value


def make_record(members, known):
    """Any process of the user may write a record: a value of a wrong type does not count, and texts become printable
    and short. Only the list of tasks may be long."""
    return SimpleNamespace(**{name: cleaned(known.get(name), default, MAX_TASK_LIST if name == "node_tasks" else MAX_VALUE)
                              for name, default in members.items()})


def make_rank(**known):
    return make_record(RANK, known)


def copy_of(rank, **changes):
    return make_rank(**{**vars(rank), **changes})


def rank_in(text):
    """A number of a rank; None for any other text."""
    return number_in(text, MAX_RANKS - 1)


def record_lines(kind, record, number):
    """Lines such as 'status rank node001 4711 + {"rank": 3, ...', since srun may mix lines of more than 1,024 bytes (MAX_MSG_LEN
    in Slurm's sources). `number` is unique on the node. The last line of a record has "." for "+"."""
    text = json.dumps({name: value for name, value in vars(record).items() if value})
    ends = range(MAX_CHUNK, len(text) + MAX_CHUNK, MAX_CHUNK)
    return "".join(f"status {kind} {record.node} {number} {'+' if end < len(text) else '.'} {text[end - MAX_CHUNK:end]}\n"
                   for end in ends)


class StepState:
    """What all nodes answered, in any order of their lines."""

    def __init__(self):
        self.ranks, self.nodes, self.silent_nodes = [], [], []
        self.complaint = ""  # of srun; empty: none
        self.open = {}  # records without their end

    def add_lines(self, text):
        """Returns the lines that do not belong to a record."""
        others = []
        for line in text.split("\n"):
            found = LINE.fullmatch(line)
            if found:
                self.add_chunk(*found.groups())
            elif line:
                others.append(line)
        return others

    def add_chunk(self, kind, node, number, mark, chunk):
        chunks = self.open.pop((kind, node, number), [])
        chunks.append(chunk[:MAX_CHUNK])
        if mark == ".":
            self.add_record(kind, "".join(chunks))
        elif len(self.open) < MAX_OPEN and len(chunks) < MAX_CHUNKS:
            self.open[kind, node, number] = chunks

    def add_record(self, kind, text):
        try:
            known = dict(json.loads(text, parse_int=number_in))  # no sign, and few digits
        except (ValueError, TypeError, RecursionError):
            return
        record = make_record(RANK if kind == "rank" else NODE, known)
        if kind == "node":
            self.nodes.append(record)
        elif max(record.rank, record.task) < MAX_RANKS and record.world_size <= MAX_RANKS:
            self.ranks.append(record)

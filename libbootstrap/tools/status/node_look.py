"""The looking step's process on one node: looks at each task of a step, and prints its ranks."""
# SPDX-License-Identifier: Apache-2.0
import os
import time
from _signal import alarm  # `signal` makes enums, which takes as long as to start Python

from children import Child, output_of, read_all, start_program, write_all
from find_ranks import Launchers
from other_tools import add_stacks, ask_ras, explain_stack_failure, parse_gpu_use
from plain_text import number_in
from read_task import (BETWEEN_LOOKS, begin_look, end_look, find_tasks_by_environment, has_memory, look_at_main_process,
                       read_environ, read_stat, task_at, why_unread)
from records import NODE, StepState, make_record, rank_in, record_lines

MAX_TASKS = 1024  # of a node
MAX_CHILDREN = 32  # at once, of a megabyte or so each in the memory of the job; half with py-spy, which each child runs
MAX_TASK_OUTPUT = 16 << 20
LIFETIME = 9  # seconds, of a child; this process has the same alarm from its start
LIST_LIMIT = 2  # seconds
LOOK_LIMIT = 4.5  # seconds
TOTAL_LIMIT = 7  # seconds, with NCCL's RAS; srun has 8 (look_step.py) and needs a part of them to start
PLACE_VARIABLES = ("SLURM_JOB_ID", "SLURM_BOOTSTRAP_STEP", "MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT",
                   "BOOTSTRAP_PORTS")
END_OF_LOOK = "\f\n"
NO_ANSWER = "its /proc did not answer within 4500 ms"


def start_look(work):
    """A process that a wait in the kernel holds alone, and that outlives this one by seconds at most."""

    def work_in_time(output):
        alarm(LIFETIME)
        work(output)

    return Child(work_in_time, MAX_TASK_OUTPUT)


def parse_task_list(text, job, step, first_rank, node):
    """The tasks of this step in what `scontrol listpids` prints: PID JOBID STEPID LOCALID GLOBALID."""
    tasks = []
    for words in map(str.split, text.split("\n")):
        if len(words) != 5 or words[1:3] != [job, step]:
            continue
        pid, local_rank, rank = number_in(words[0]), rank_in(words[3]), rank_in(words[4])
        if None not in (pid, local_rank, rank):
            tasks.append(task_at(node, pid, rank + first_rank, local_rank))
    return tasks[:MAX_TASKS]


def find_tasks(scontrol, job, step, first_rank, node):
    """From Slurm's own record of the step. If that is empty, from the environments of the processes, since a rank that is
    not found counts as ended."""
    text, _ = output_of([scontrol, "listpids", f"{job}.{step}"], LIST_LIMIT, most=1 << 20)
    tasks = parse_task_list(text, job, step, first_rank, node)
    if tasks:
        return tasks

    def write_list(output):
        for task in find_tasks_by_environment(job, step, node):
            write_all(output, f"{task.pid} {job} {step} {task.local_rank} {task.rank - first_rank}\n")

    search = start_look(write_list)
    read_all([search], LIST_LIMIT)
    search.end()
    return parse_task_list(search.text(), job, step, first_rank, node)


class Look:
    """At one task. What is known at once is written first, for the case that the rest waits in the kernel; the last writing
    counts. The number of the task shows what a child reads that has not ended."""

    def __init__(self, number, task, output):
        self.number, self.task, self.output = number, task, output
        self.ranks, self.begun, self.is_whole = [], None, False

    def write(self):
        text = "".join(record_lines("rank", rank, rank.pid) for rank in self.ranks)
        write_all(self.output, f"{self.number} {int(self.is_whole)}\n{text}{END_OF_LOOK}")

    def attempt(self, step, *arguments):
        """Where this program has a defect, the other tasks are looked at nevertheless."""
        try:
            step(*arguments)
        except Exception as error:
            self.task.unread = f"the look at it failed: {error!r}"
            self.ranks, self.is_whole = [self.task], True
        self.write()

    def look_at_main_process(self):
        first = look_at_main_process(self.task)
        first.unread = NO_ANSWER
        self.ranks = [first]

    def begin(self):
        self.write()
        self.begun = begin_look(self.task)

    def end(self, launchers, is_last, has_stacks):
        self.write()
        ranks = end_look(self.task, *self.begun, launchers)
        # Else a shell continues after its program has ended: look again.
        self.is_whole = is_last or all(rank.state != "X" for rank in ranks)
        if self.is_whole:
            self.ranks = [rank for rank in ranks if rank.state != "X"]
        if has_stacks:
            self.expect_stacks("the other tasks of its node took all the time")

    def expect_stacks(self, reason):
        with_stack = [rank for rank in self.ranks if has_memory(rank)]
        for rank in with_stack:
            rank.stack_trouble = explain_stack_failure(reason, rank.node)
        return with_stack

    def add_stacks(self, py_spy):
        with_stack = self.expect_stacks("")
        self.write()
        add_stacks(with_stack, py_spy)


def look_at_tasks(tasks, py_spy, launchers, output):
    """Looks twice, a second apart. `tasks`: by their numbers."""
    looks, has_stacks = [Look(number, task, output) for number, task in tasks.items()], py_spy != "-"
    for is_last in (False, True):
        for look in looks:
            look.attempt(look.look_at_main_process)
        for look in looks:
            look.attempt(look.begin)
        time.sleep(BETWEEN_LOOKS if looks else 0)
        for look in looks:
            if not look.is_whole:
                look.attempt(look.end, launchers, is_last, has_stacks)
        for look in looks if has_stacks else ():
            if look.is_whole:
                look.attempt(look.add_stacks, py_spy)
        looks = [look for look in looks if not look.is_whole]


class NodeLook:
    """At all tasks of the node: each child looks at some, so that a node with many tasks has no process for each."""

    def __init__(self, tasks, py_spy, launchers):
        self.tasks, self.py_spy, self.launchers = dict(enumerate(tasks)), py_spy, launchers
        self.answers = {}  # by the task's number: is it whole, and the lines
        self.children = []
        count = MAX_CHILDREN if py_spy == "-" else MAX_CHILDREN // 2
        for first in range(min(count, len(tasks))):
            self.start(range(first, len(tasks), count))

    def start(self, numbers):
        tasks = {number: self.tasks[number] for number in numbers}
        child = start_look(lambda output: look_at_tasks(tasks, self.py_spy, self.launchers, output))
        child.numbers = numbers
        self.children.append(child)

    def take(self, child):
        """The number of the task that it has written about last."""
        number = None
        for text in child.text().split(END_OF_LOOK)[:-1]:
            head, _, lines = text.partition("\n")
            number, is_whole = map(int, head.split())
            self.answers[number] = is_whole, lines
        return number

    def read(self, others):
        """A process whose memory is locked holds one child in the kernel: another one takes the rest of its tasks."""
        if not read_all(self.children + others, LOOK_LIMIT / 2):
            for child in [child for child in self.children if child.left and is_held(child.pid)]:
                held = self.take(child)
                child.kill()
                rest = [number for number in child.numbers if number != held and not self.answers.get(number, (0, ""))[0]]
                if rest:
                    self.start(rest)
            read_all(self.children + others, LOOK_LIMIT / 2)
        for child in self.children:
            self.take(child)

    def lines(self):
        for number, task in self.tasks.items():
            task.unread = NO_ANSWER
            yield self.answers[number][1] if number in self.answers else record_lines("rank", task, task.pid)


def read_variables(tasks):
    """What `where` needs of each task's first program: the variables of the plugin, and whether it has any of Slurm."""
    def write(output):
        for task in tasks:
            variables = read_environ(task.pid)
            task.unread = "" if variables else why_unread(task.pid, read_stat(task.pid).name)
            task.variables = [f"{name}={variables[name]}" for name in PLACE_VARIABLES if name in variables]
            write_all(output, record_lines("rank", task, task.pid))

    child = start_look(write)
    read_all([child], LOOK_LIMIT)
    child.end()
    return child.text()


def is_held(pid):
    return read_stat(pid).state == "D"


def main(programs, modules, shells, job, step, first_rank, ras, scontrol, py_spy):
    """`programs`, `modules`, `shells`: of Launchers. The job and its first rank are those of the component, in a heterogeneous job.
    "-" for py-spy: no stacks are wanted. `ras`: "ras" asks NCCL's, "where" reads environments alone."""
    begin, node, launchers = time.monotonic(), os.environ["SLURMD_NODENAME"], Launchers(programs, modules, shells)
    tasks = find_tasks(scontrol, job, step, int(first_rank), node)
    if ras == "where":
        write_all(1, read_variables(tasks) + record_lines("node", make_record(NODE, {"node": node}), os.getpid()))
        return
    look = NodeLook(tasks, py_spy, launchers)
    queries = [start_program(["nvidia-smi", query, "--format=csv,noheader,nounits"])
               for query in ("--query-gpu=uuid,index,utilization.gpu", "--query-compute-apps=pid,gpu_uuid")]
    look.read(queries)
    lines = "".join(look.lines())
    write_all(1, lines)
    state = make_record(NODE, {"node": node, "gpus": parse_gpu_use(*(query.text() for query in queries))})
    if ras == "ras" and os.environ.get("SLURM_NODEID") == "0":
        seen = StepState()
        seen.add_lines(lines)
        state.ras = ask_ras(seen.ranks, node, max(1, begin + TOTAL_LIMIT - time.monotonic()))
    write_all(1, record_lines("node", state, os.getpid()))
    for child in look.children + queries:
        child.end()

"""The looking step's process on one node: looks at each task of a step, and prints its ranks."""
# SPDX-License-Identifier: Apache-2.0
import os
import time
from _signal import alarm  # `signal` makes enums, which takes as long as to start Python

from children import Child, output_of, read_all, start_program, write_all
from find_ranks import Launchers
from other_tools import add_stacks, ask_ras, explain_stack_failure, parse_gpu_use
from plain_text import number_in
from read_task import find_tasks_by_environment, has_memory, look_at_main_process, look_at_task, task_at
from records import NODE, StepState, make_record, rank_in, record_lines

MAX_TASKS = 1024  # of a node
MAX_TASK_OUTPUT = 16 << 20
LIFETIME = 9  # seconds, of a child; this process has the same alarm from its start
LIST_LIMIT = 2  # seconds
LOOK_LIMIT = 4.5  # seconds
TOTAL_LIMIT = 7  # seconds, with NCCL's RAS; srun has 8 (look_step.py) and needs a part of them to start
END_OF_LOOK = "\f\n"
NO_ANSWER = "its /proc did not answer within 4500 ms"


def write_ranks(output, ranks):
    """A whole look; a child may write several, of which the last one counts."""
    write_all(output, "".join(record_lines("rank", rank, rank.pid) for rank in ranks) + END_OF_LOOK)


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


def look_at_task_in_steps(task, py_spy, launchers, output):
    """What is known at once is for the case that the rest waits in the kernel, or that py-spy is slow."""
    first = task
    try:
        first = look_at_main_process(task)
        first.unread = NO_ANSWER
        write_ranks(output, [first])
        ranks = look_at_task(task, launchers)
    except Exception as error:  # a defect of this program, which is no silence of the kernel
        first.unread = f"the look at it failed: {error!r}"
        ranks = [first]
    with_stack = [rank for rank in ranks if py_spy != "-" and has_memory(rank)]
    for rank in with_stack:
        rank.stack_trouble = explain_stack_failure("", rank.node)
    write_ranks(output, ranks)
    add_stacks(with_stack, py_spy)
    write_ranks(output, ranks)


def main(programs, modules, shells, job, step, first_rank, ras, scontrol, py_spy):
    """`programs`, `modules`, `shells`: of Launchers. The job and its first rank are those of the component, in a heterogeneous job.
    "-" for py-spy: no stacks are wanted."""
    begin, node, launchers = time.monotonic(), os.environ["SLURMD_NODENAME"], Launchers(programs, modules, shells)
    tasks = find_tasks(scontrol, job, step, int(first_rank), node)
    children = [start_look(lambda output, task=task: look_at_task_in_steps(task, py_spy, launchers, output)) for task in tasks]
    queries = [start_program(["nvidia-smi", query, "--format=csv,noheader,nounits"])
               for query in ("--query-gpu=uuid,index,utilization.gpu", "--query-compute-apps=pid,gpu_uuid")]
    read_all(children + queries, LOOK_LIMIT)
    lines = ""
    for child, task in zip(children, tasks):
        task.unread = NO_ANSWER
        looks = child.text().split(END_OF_LOOK)[:-1]
        lines += looks[-1] if looks else record_lines("rank", task, task.pid)
    write_all(1, lines)
    state = make_record(NODE, {"node": node, "gpus": parse_gpu_use(*(query.text() for query in queries))})
    if ras == "ras" and os.environ.get("SLURM_NODEID") == "0":
        seen = StepState()
        seen.add_lines(lines)
        state.ras = ask_ras(seen.ranks, node, max(1, begin + TOTAL_LIMIT - time.monotonic()))
    write_all(1, record_lines("node", state, os.getpid()))
    for child in children + queries:
        child.end()

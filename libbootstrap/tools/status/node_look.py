"""The looking step's process on one node: looks at each task of a step, and prints its ranks."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import threading
import time

from children import Child, output_of, read_all, write_all
from other_tools import add_gpus, add_stacks, ask_ras
from parse_proc import Launchers
from read_task import (find_tasks_by_environment, has_memory, look_at_all_processes, look_at_main_process, read_environ, read_stat,
                       task_at, why_unread)
from records import NODE, copy_of, make_record, record_lines

MAX_TASKS = 1024  # of a node
STACK_OF_THREAD = 512 << 10  # bytes
LIST_LIMIT = 2  # seconds
LOOK_LIMIT = 4.5  # seconds
QUERY_LIMIT = 0.5  # seconds that nvidia-smi has at least after the look, beside which it runs; LOOK_LIMIT in all
STACKS_LIMIT = 6  # seconds from the begin
TOTAL_LIMIT = 7  # seconds, with NCCL's RAS; srun has 8 (look_step.py) and needs a part of them to start
PLACE_VARIABLES = ("SLURM_JOB_ID", "SLURM_BOOTSTRAP_STEP", "MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT",
                   "BOOTSTRAP_PORTS")
NO_ANSWER = "its /proc did not answer within 4500 ms"


def fill_in_time(fill, lists, seconds, *arguments):
    """Calls fill(list, ...) for each of the lists, in a thread of its own: a process that waits for a disk may keep a thread in the
    kernel for ever. What the lists have after this time counts, and this program goes on and ends without such a thread."""
    deadline = time.monotonic() + seconds
    threading.stack_size(STACK_OF_THREAD)
    threads = []
    try:
        for one in lists:
            threads.append(threading.Thread(target=fill, args=(one, *arguments), daemon=True))
            threads[-1].start()
    except RuntimeError:
        threads.pop()  # the system has no thread for it
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    return [found for one in lists for found in one[:]]


def parse_task_list(text, job, step, first_rank, node):
    """The tasks of this step in what `scontrol listpids` prints: PID JOBID STEPID LOCALID GLOBALID."""
    found = re.findall(rf"^(\d{{1,10}}) +{job} +{step} +(\d{{1,6}}) +(\d{{1,6}}) *$", text, re.M)
    return [task_at(node, int(pid), int(rank) + first_rank, int(local_rank)) for pid, local_rank, rank in found[:MAX_TASKS]]


def find_tasks(scontrol, job, step, first_rank, node):
    """From Slurm's own record of the step. If that is empty, from the environments of the processes, since a rank that is
    not found counts as ended."""
    text, _ = output_of([scontrol, "listpids", f"{job}.{step}"], LIST_LIMIT, most=1 << 20)
    tasks = parse_task_list(text, job, step, first_rank, node)
    return tasks or fill_in_time(find_tasks_by_environment, [[]], LIST_LIMIT, job, step, node)[:MAX_TASKS]


def look_at_task(ranks, launchers):
    """`ranks`: those of the task, as far as they are known; at first one."""
    task = copy_of(ranks[0], unread="")
    try:
        for is_last in (False, True):
            ranks[:] = [copy_of(look_at_main_process(task), unread=NO_ANSWER)]
            found = look_at_all_processes(task, launchers)
            # A shell continues after its program has ended: look again.
            if is_last or all(rank.state != "X" for rank in found):
                break
        ranks[:] = [rank for rank in found if rank.state != "X"]
    except Exception as error:  # a defect of this program costs one task
        ranks[:] = [copy_of(task, unread=f"the look at it failed: {error!r}")]


def read_variables(found, tasks):
    """What `where` needs of each task's first program: the variables of the plugin, and whether it has any of Slurm."""
    for task in tasks:
        variables = read_environ(task.pid)
        task.unread = "" if variables else why_unread(task.pid, read_stat(task.pid).name)
        task.variables = [f"{name}={variables[name]}" for name in PLACE_VARIABLES if name in variables]
        found.append(task)


def main(programs, modules, shells, job, step, first_rank, ras, scontrol, py_spy):
    """`programs`, `modules`, `shells`: of Launchers. The job and its first rank are those of the component, in a heterogeneous job.
    "-" for py-spy: no stacks are wanted. `ras`: "ras" asks NCCL's, "where" reads environments alone."""
    begin, node = time.monotonic(), os.environ["SLURMD_NODENAME"]
    state = make_record(NODE, {"node": node})
    tasks = find_tasks(scontrol, job, step, int(first_rank), node)
    if ras == "where":
        ranks = fill_in_time(read_variables, [[]], LOOK_LIMIT, tasks)
    else:
        queries = [Child(["nvidia-smi", query, "--format=csv,noheader,nounits"])
                   for query in ("--query-gpu=uuid,index,utilization.gpu", "--query-compute-apps=pid,gpu_uuid")]
        look_end = time.monotonic() + LOOK_LIMIT
        ranks = fill_in_time(look_at_task, [[copy_of(task, unread=NO_ANSWER)] for task in tasks], LOOK_LIMIT,
                             Launchers(programs, modules, shells))
        read_all(queries, max(QUERY_LIMIT, look_end - time.monotonic()))
        for query in queries:
            query.end()
        add_gpus(ranks, *(query.text() for query in queries))
        if py_spy != "-":
            add_stacks([rank for rank in ranks if has_memory(rank)], py_spy, begin + STACKS_LIMIT - time.monotonic())
    write_all(1, "".join(record_lines("rank", rank, rank.pid) for rank in ranks))
    if ras == "ras" and os.environ.get("SLURM_NODEID") == "0":
        seconds = max(1, begin + TOTAL_LIMIT - time.monotonic())
        state.ras = fill_in_time(ask_ras, [[]], seconds, ranks, node) or [
            f"NCCL's RAS of {node} did not answer within {int(seconds)} s"]
    write_all(1, record_lines("node", state, os.getpid()))

"""The looking step's process on one node: looks at each task of a step, asks other tools, and prints the ranks."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import socket
import threading
import time

from children import Child, output_of, read_all, write_all
from parse_proc import Launchers, is_python
from plain_text import printable
from read_task import (find_tasks_by_environment, has_memory, look_at_all_processes, look_at_main_process, read_environ, read_stat,
                       task_at, why_unread)
from records import NODE, OWN_CODE, copy_of, make_record, record_lines

MAX_TASKS = 1024  # of a node
STACK_OF_THREAD = 512 << 10  # bytes
LIST_LIMIT = 2  # seconds
LOOK_LIMIT = 4.5  # seconds
QUERY_LIMIT = 0.5  # seconds that nvidia-smi has at least after the look; it runs during the look, LOOK_LIMIT in all
STACKS_LIMIT = 6  # seconds from the begin
TOTAL_LIMIT = 7  # seconds, with NCCL's RAS; srun has 8 (look_step.py) and needs a part of them to start
PLACE_VARIABLES = ("SLURM_JOB_ID", "SLURM_BOOTSTRAP_STEP", "MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT",
                   "BOOTSTRAP_PORTS")
NO_ANSWER = "its /proc did not answer within 4500 ms"
DUMP_LIMIT = 2  # seconds
END_OF_DUMP = 0.1  # seconds from the end of its output
NO_PROGRAM = (126, 127)  # as of a shell: Child found no program
MAX_DUMPS = 16  # at once, since each takes memory of the job
MAX_FRAMES = 24
MAX_FRAME = 400
MAX_RAS = 64 << 10  # bytes
FIRST_WITH_RAS = (2, 24, 0)
# Each release before this one may end the program that is asked, by reports of NVIDIA/nccl on GitHub. 1762: fixed in
# 2.29.2. 2346: seen with 2.29.7, open; a fix in 2.29 is not known.
CRASHES = (((2, 29, 2), "NVIDIA/nccl issue 1762"), ((2, 30, 0), "NVIDIA/nccl issue 2346"))


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
    found = re.findall(rf"^(\d{{1,10}}) +{job} +{step} +(\d{{1,7}}) +(\d{{1,7}}) *$", text, re.M)
    return [task_at(node, int(pid), int(rank) + first_rank, int(local_rank)) for pid, local_rank, rank in found[:MAX_TASKS]]


def find_tasks(scontrol, job, step, first_rank, node):
    """Asks Slurm for its own record of the step. If that is empty, reads the environments of the processes, since a rank
    that is not found counts as ended."""
    text, _ = output_of([scontrol, "listpids", f"{job}.{step}"], LIST_LIMIT, most=1 << 20)
    tasks = parse_task_list(text, job, step, first_rank, node)
    return tasks or fill_in_time(find_tasks_by_environment, [[]], LIST_LIMIT, job, step, node)[:MAX_TASKS]


def look_at_task(ranks, launchers):
    """`ranks`: the task's ranks, as far as they are known; one at first."""
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


def add_gpus(ranks, gpus, processes):
    """Adds what nvidia-smi prints. `gpus`: UUID, INDEX, PERCENT; `processes`: PID, UUID."""
    of_pid = {str(rank.pid): rank for rank in ranks}
    for pid, used in re.findall(r"^ *(\d+), *(\S+) *$", processes, re.M):
        for uuid, index, percent in re.findall(r"^ *(\S+), *(\d+), *(.*?) *$", gpus, re.M):
            if uuid == used and pid in of_pid:
                of_pid[pid].gpus += f"{', ' if of_pid[pid].gpus else ''}{index} ({percent} %)"
                of_pid[pid].gpu_ids.append(uuid)


def short_frame(frame):
    """"all_reduce (/usr/lib/python3/dist-packages/torch/x.py:12)" is "all_reduce (torch/x.py:12)", and own code has its
    file name alone, behind the mark of own code."""
    function, begin, path = frame.partition(" (")
    short = re.sub(r".*(-packages/|/lib/python3[^/]*/)", "", path)
    if short != path or not begin:
        return printable(function + begin + short)
    return printable(f"{'' if path.startswith('<') else OWN_CODE}{function} ({path.rpartition('/')[2]}")


def parse_stack(output):
    """The frames of the main thread in the output of `py-spy dump --full-filenames`, innermost first: "all_reduce
    (torch/x.py:12)", "* main (train.py:12)". Empty where the output has no stack."""
    threads = output.split("\nThread ")[1:]
    lines = next((one for one in threads if "MainThread" in one.partition("\n")[0]), "".join(threads[:1])).split("\n")
    frames = [line.strip()[:MAX_FRAME] for line in lines if line.startswith("    ")]
    return [short_frame(frame) for frame in frames[:MAX_FRAMES]]


def explain_stack_failure(output, node):
    """Why py-spy shows no stack, in one sentence; how an administrator can allow it, where that is the reason."""
    if "permission denied" in output.lower() or "Operation not permitted" in output:
        return (f"the kernel of {node} does not let py-spy read the process; an administrator can allow it with: sysctl "
                "kernel.yama.ptrace_scope=0")
    reason = printable(output.partition("\n")[0].strip())
    return f"py-spy shows no stack on {node}: {reason or 'it did not answer within 2 s'}"


def add_stacks(ranks, py_spy, seconds):
    """Runs `py-spy dump --nonblocking`, which reads the memory of the process and does not stop it. For processes whose
    program is a Python."""
    deadline = time.monotonic() + seconds
    ranks = [rank for rank in ranks if is_python(rank.program) or rank.program.endswith(".py") or rank.framework]
    for rank in ranks:
        rank.stack_trouble = explain_stack_failure("the other tasks of its node took all the time", rank.node)
    while ranks and time.monotonic() < deadline:
        some, ranks = ranks[:MAX_DUMPS], ranks[MAX_DUMPS:]
        dumps = [Child([py_spy, "dump", "--nonblocking", "--full-filenames", "--pid", str(rank.pid)], joins_errors=True)
                 for rank in some]
        have_ended = read_all(dumps, min(DUMP_LIMIT, deadline - time.monotonic()))
        for rank, dump in zip(some, dumps):
            # Only the child looks for the file: its folder may be on a file system that does not answer.
            is_missing = dump.end(END_OF_DUMP if have_ended else 0) in NO_PROGRAM
            rank.stack = parse_stack(dump.text())
            if is_missing:
                rank.stack_trouble = f"{printable(py_spy)} is not on {rank.node}; install py-spy in a folder that all nodes share"
            else:
                rank.stack_trouble = "" if rank.stack else explain_stack_failure(dump.text(), rank.node)


def refuse_ras(version, port):
    """Why this release of NCCL is not asked; empty: it is. `version`: "2.24.3", "2.24.3+cuda12", "2.24.3-1"; empty: unknown."""
    by_hand = f"ask by hand on that node: ncclras --port {port} --verbose"
    found = re.match(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})(?![.\d])", version)
    if not found:
        return f"NCCL's RAS is not asked, because the release of NCCL is unknown and some releases end when asked; {by_hand}"
    release = tuple(map(int, found.groups()))
    if release < FIRST_WITH_RAS:
        return f"NCCL {version} has no RAS; it came with 2.24"
    report = next((report for fixed, report in CRASHES if release < fixed), "")
    return report and f"NCCL's RAS is not asked, because NCCL {version} may end the program when asked ({report}); {by_hand}"


def ask_ras(lines, ranks, node):
    """Adds what the RAS of the first of these ranks that has one answers to "verbose status"; else one sentence."""
    rank = next((one for one in ranks if one.ras_port), None)
    if rank is None:
        lines.append(f"no rank of {node} listens for NCCL's RAS; NCCL 2.24 and later do once a communicator exists")
        return
    refusal = refuse_ras(rank.nccl_version, rank.ras_port)
    if refusal:
        lines.append(refusal)
        return
    try:
        # NCCL listens at one address of "localhost", for which a search may ask a server.
        try:
            connection = socket.create_connection(("127.0.0.1", rank.ras_port))
        except ConnectionRefusedError:
            connection = socket.create_connection(("::1", rank.ras_port))
        with connection:
            connection.sendall(b"verbose status\n")
            answer, left = connection.makefile(encoding="latin-1", newline="\n"), MAX_RAS
            line = answer.readline(left)
            while line.endswith("\n"):  # whole lines
                lines.append(line[:-1])
                left -= len(line)
                line = answer.readline(left)
    except OSError:
        if lines:
            return
        lines.append(f"NCCL's RAS of {node} does not accept a connection at port {rank.ras_port}")


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

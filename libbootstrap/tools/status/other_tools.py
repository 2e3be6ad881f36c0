"""What other tools report on a node: the stacks of py-spy, the GPUs of nvidia-smi, and the answer of NCCL's RAS."""
# SPDX-License-Identifier: Apache-2.0
import re
import socket
import time
from itertools import islice

from children import Child, read_all
from parse_proc import is_python
from plain_text import printable
from records import MAX_ITEMS, MAX_VALUE, OWN_CODE

STACK_LIMIT = 2  # seconds
END_OF_DUMP = 0.1  # seconds from the end of its output
NOT_STARTED = (126, 127)  # as of a shell: Child found no program
MAX_DUMPS = 16  # at once, since each takes memory of the job
MAX_FRAMES = 24
MAX_FRAME = 400
FIRST_WITH_RAS = (2, 24, 0)
# Each release before this one may end the program that is asked, by reports of NVIDIA/nccl on GitHub. 1762: fixed in
# 2.29.2. 2346: seen with 2.29.7, open; a fix in 2.29 is not known.
CRASHES = (((2, 29, 2), "NVIDIA/nccl issue 1762"), ((2, 30, 0), "NVIDIA/nccl issue 2346"))


def add_gpus(ranks, gpus, processes):
    """By the lines of nvidia-smi. `gpus`: UUID, INDEX, PERCENT; `processes`: PID, UUID."""
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
        have_ended = read_all(dumps, min(STACK_LIMIT, deadline - time.monotonic()))
        for rank, dump in zip(some, dumps):
            # Only the child looks for the file: its folder may be on a file system that does not answer.
            is_missing = dump.end(END_OF_DUMP if have_ended else 0) in NOT_STARTED
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
        with socket.create_connection(("localhost", rank.ras_port)) as connection:
            connection.sendall(b"verbose status\n")
            answer = connection.makefile(encoding="latin-1", newline="\n")
            for line in islice(iter(lambda: answer.readline(MAX_VALUE), ""), MAX_ITEMS):
                lines.append(line.rstrip("\n"))
    except OSError:
        lines.append(f"NCCL's RAS of {node} does not accept a connection at port {rank.ras_port}")

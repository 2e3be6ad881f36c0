"""Reads the processes of one task in /proc. A call may wait in the kernel: call it in a thread that can be abandoned."""
# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import time
import zlib
from contextlib import suppress
from types import SimpleNamespace

from parse_proc import (FILE_SYSTEM, chain_to, describe_wchan, find_ranks, framework_in, nccl_in, parse_environ, parse_stat,
                        parse_status, parse_tcp)
from plain_text import number_in
from records import MAX_RANKS, NOT_STARTED, copy_of, make_rank, rank_in

MAX_TEXT = 4 << 20  # bytes; environments are the largest
MAX_LINES = 65536  # of maps and lists of sockets
MAX_PROCESSES = 256  # of a task
MAX_THREADS = 4096  # of a process
MAX_DESCRIPTORS = 16384  # of a task
MAX_PIDS = 65536
MAX_PORTS = 64  # of each kind that are reported
MAX_LINKS = 512  # the same
BETWEEN_LOOKS = 1  # seconds
DEFAULT_RAS_PORT = "28028"  # NCCL's user guide, NCCL_RAS_ADDR
PAGE = 4096
ESTABLISHED, SYN_SENT, LISTEN = "01", "02", "0A"  # the kernel's include/net/tcp_states.h
# Numbers of read, pread64, readv, recvfrom, recvmsg, and of write, pwrite64, writev, sendto, sendmsg. The kernel's sources have
# them in arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
CALLS = {
    "x86_64": ((0, 17, 19, 45, 47), (1, 18, 20, 44, 46)),
    "aarch64": ((63, 67, 65, 207, 212), (64, 68, 66, 206, 211)),
}
READS, WRITES = CALLS.get(os.uname().machine, ((), ()))


def read_proc(pid, name, limit=MAX_TEXT, offset=0):
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        file.seek(offset)
        return file.read(limit).decode("latin-1")
    return ""


def read_lines(pid, name):
    """Reads one line after the other: a list of maps can be megabytes, which count as memory of the job."""
    with suppress(OSError), open(f"/proc/{pid}/{name}", encoding="latin-1", newline="\n") as file:
        for line in itertools.islice(file, MAX_LINES):
            yield line.rstrip("\n")


def read_stat(pid):
    return parse_stat(read_proc(pid, "stat"))


def read_environ(pid):
    return parse_environ(read_proc(pid, "environ"))


def numbers_in(folder, limit):
    """The entries of a folder that are numbers."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, limit) if entry.name.isdigit()]
    return []


def link_target(path):
    """The target of a symbolic link; empty if there is none."""
    with suppress(OSError):
        return os.readlink(path)
    return ""


def of_each_thread(pid, name):
    return [read_proc(pid, f"task/{thread}/{name}").split() for thread in numbers_in(f"/proc/{pid}/task", MAX_THREADS)]


def stays_in_disk_wait(pid, state):
    """A process that writes a file is in this state for moments, a process on a dead file system for ever."""
    for _ in range(20):
        if state != "D":
            break
        time.sleep(0.01)
        state = read_stat(pid).state
    return state == "D"


def read_process(pid, stat):
    """Leaves Slurm's own variables out: all processes below a task have those of the task."""
    words, variables, framework = [], {}, ""
    if stat.state != "Z" and not stays_in_disk_wait(pid, stat.state):
        words = read_proc(pid, "cmdline").rstrip("\0").split("\0")
        variables = read_environ(pid)
        framework = framework_in(read_lines(pid, "maps"))
    return SimpleNamespace(pid=pid, parent=stat.parent, name=stat.name, words=words, framework=framework,
                           # From torchrun, mpirun and others; empty: none.
                           rank=variables.get("RANK") or variables.get("OMPI_COMM_WORLD_RANK") or variables.get("PMIX_RANK", ""),
                           local_rank=variables.get("LOCAL_RANK") or variables.get("OMPI_COMM_WORLD_LOCAL_RANK", ""),
                           world_size=variables.get("WORLD_SIZE") or variables.get("OMPI_COMM_WORLD_SIZE", ""))


def read_process_tree(root):
    """The process and all below it, each behind its parent."""
    tree, pids = [], [root]
    for pid in pids:  # which grows
        stat = read_stat(pid)
        if stat.state != "X":
            tree.append(read_process(pid, stat))
            children = itertools.chain(*of_each_thread(pid, "children"))
            pids += map(int, itertools.islice(children, MAX_PROCESSES - len(pids)))
    return tree


def read_sockets(processes):
    """The TCP sockets of some processes by inode, and in each process its inodes. They share a network namespace."""
    found, left = {}, MAX_DESCRIPTORS
    for process in processes:
        numbers = numbers_in(f"/proc/{process.pid}/fd", left)
        left -= len(numbers)
        targets = (link_target(f"/proc/{process.pid}/fd/{number}") for number in numbers)
        process.inodes = {target[len("socket:["):-1] for target in targets if target.startswith("socket:[")}
    inodes = set().union(*(process.inodes for process in processes))
    for name in ("net/tcp", "net/tcp6") if inodes else ():
        found.update(parse_tcp(read_lines(processes[0].pid, name), inodes))
    return found


def ports_in(sockets, wanted):
    """The remote ports of connections that have no answer yet; for all other states the own ports."""
    ports = {remote if state == SYN_SENT else own for state, own, remote in sockets if state == wanted}
    return sorted(ports)[:MAX_PORTS]


def read_moment(pid):
    """What changes from one look to the next."""
    status = parse_status(read_proc(pid, "status"))
    return SimpleNamespace(
        when=time.monotonic(),
        stat=read_stat(pid),
        status=status,
        switches=[status.get(name) for name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")],
        written=int(parse_status(read_proc(pid, "io")).get("wchar", 0)),
        # Nanoseconds in which threads were ready to run and had no core.
        core_wait=sum(int(words[1]) for words in of_each_thread(pid, "schedstat") if len(words) > 1))


def is_still(before, after):
    return before.stat.state == after.stat.state != "R" and before.switches == after.switches


def describe_call(pid):
    """The descriptor of a blocked read or write, which is clearer than the kernel function."""
    words = read_proc(pid, "syscall").split()  # it may say "running" alone, and may not be readable
    call = number_in(words[0]) if len(words) > 1 else None
    if call not in READS + WRITES:
        return ""
    descriptor = int(words[1], 16)
    if call in READS and descriptor == 0:
        return "read of standard input"
    kind = link_target(f"/proc/{pid}/fd/{descriptor}").partition(":")[0]
    verb = "read of" if call in READS else "write to"
    return f"{verb} a {kind}" if kind in ("pipe", "socket") else ""


def add_wait(rank):
    rank.wchan = read_proc(rank.pid, "wchan")
    if rank.state == "R" or rank.wchan == "0":
        return
    rank.waits_in = describe_wchan(rank.wchan)
    if not rank.waits_in.startswith(FILE_SYSTEM):
        rank.waits_in = describe_call(rank.pid) or rank.waits_in


def add_nccl(rank):
    nccl = nccl_in(read_lines(rank.pid, "maps"))
    if nccl:
        rank.nccl_file, rank.nccl_version = nccl.file, nccl.version
        # `map_files` would open a file of the task. Its memory has the same bytes, with the build id in the first page.
        head = read_proc(rank.pid, "mem", PAGE, nccl.address)
        rank.nccl_build = "%08x" % zlib.crc32(head.encode("latin-1")) if head else ""


def port_in(address):
    return number_in(address.rpartition(":")[2], 0xffff)


def add_environment(rank):
    variables = read_environ(rank.pid)
    for name in ("MASTER_PORT", "JAX_COORDINATOR_PORT", "JAX_COORDINATOR_ADDRESS"):
        port = port_in(variables.get(name, ""))
        if port is not None:
            rank.meetings.append(f"{name} {port}")
    if variables.get("MASTER_ADDR"):
        rank.meetings.append(f"MASTER_ADDR {variables['MASTER_ADDR']}")
    ras_port = port_in(variables.get("NCCL_RAS_ADDR") or DEFAULT_RAS_PORT)
    rank.ras_port = ras_port if ras_port in rank.listens else 0
    if rank.nccl_file and not rank.nccl_version:
        rank.nccl_version = variables.get("NCCL_VERSION", "")
    rank.node_tasks = variables.get("SLURM_GTIDS", "")


def why_unread(pid, name):
    """Users may not read a process of slurmstepd before it has become the user's program."""
    try:
        os.scandir(f"/proc/{pid}/fd").close()
    except FileNotFoundError:
        pass
    except OSError as error:
        if name == "slurmstepd":
            return NOT_STARTED
        return f"the kernel does not allow to look at it: {error.strerror}"
    return ""


def describe_child(child, after):
    """A child that has ended, and that its parent has not waited for, is common and harmless."""
    before = child.before
    if before.stat.state == after.stat.state == "T":
        return f"{child.name} (pid {child.pid}) is stopped (SIGSTOP)"
    if after.stat.state == "D" and is_still(before, after):
        return f"{child.name} (pid {child.pid}) waits for a disk or file system"
    return ""


def add_activity(rank, before, after):
    seconds = after.when - before.when
    rank.state = after.stat.state
    rank.is_still = is_still(before, after)
    ticks = max(0, after.stat.ticks - before.stat.ticks)
    rank.cpu_percent = int(ticks * 100 / os.sysconf("SC_CLK_TCK") / seconds)
    nanoseconds_in_percent = 1e7
    rank.cpu_wait_percent = int(max(0, after.core_wait - before.core_wait) / nanoseconds_in_percent / seconds)
    rank.written_kib = max(0, after.written - before.written) >> 10
    rank.memory_kib = int(after.status.get("VmRSS", 0))
    rank.cores = after.status.get("Cpus_allowed_list", "")


def has_memory(rank):
    """True if its memory can be read: a process that waits for a disk may have locked it."""
    return not (rank.state == "D" and rank.is_still) and rank.state not in ("Z", "X") and not rank.unread


def look_at_rank(task, found, task_sockets):
    main = found.main
    rank = copy_of(task, pid=main.pid, program=main.name, chain=chain_to(main), is_launcher=found.is_launcher)
    if found.is_worker:
        number, local_rank = rank_in(main.rank), rank_in(main.local_rank)
        rank.rank = task.rank if number is None else number
        rank.local_rank = task.local_rank if local_rank is None else local_rank
        rank.world_size = number_in(main.world_size, MAX_RANKS) or 0
    add_activity(rank, main.before, read_moment(main.pid))
    add_wait(rank)
    troubles = (describe_child(one, read_moment(one.pid)) for one in found.members if one is not main)
    rank.child = next(filter(None, troubles), "")
    inodes = set().union(*(one.inodes for one in found.members))
    sockets = [socket for inode, socket in task_sockets.items() if inode in inodes]
    links = [f"{own}:{remote}" for state, own, remote in sockets if state == ESTABLISHED]
    rank.links, rank.listens, rank.tries = links[:MAX_LINKS], ports_in(sockets, LISTEN), ports_in(sockets, SYN_SENT)
    rank.task_listens = ports_in(task_sockets.values(), LISTEN)
    if rank.state != "Z":
        rank.unread = why_unread(main.pid, main.name)
    if has_memory(rank):
        rank.framework = main.framework
        add_nccl(rank)
        add_environment(rank)
    return rank


def look_at_main_process(task):
    """What is known without the memory of the process, which a process that waits for a disk may have locked."""
    stat = read_stat(task.pid)
    rank = copy_of(task, program=stat.name, state=stat.state)
    add_wait(rank)
    return rank


def look_at_all_processes(task, launchers):
    """Looks twice, and returns the task's ranks."""
    tree = read_process_tree(task.pid)
    for process in tree:
        process.before = read_moment(process.pid)
    time.sleep(BETWEEN_LOOKS)
    sockets = read_sockets(tree)
    return [look_at_rank(task, found, sockets) for found in find_ranks(tree, launchers)]


def task_at(node, pid, rank, local_rank):
    """A task as Slurm's record has it."""
    return make_rank(rank=rank, task=rank, local_rank=local_rank, node=node, pid=pid)


def find_tasks_by_environment(tasks, job, step, node):
    """Adds the tasks of a step on this node by their environment, where Slurm has no list."""
    for pid in numbers_in("/proc", MAX_PIDS):
        variables = read_environ(pid)
        names = ("SLURM_TASK_PID", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME")
        if [variables.get(name) for name in names] == [pid, job, step, node]:
            rank, local_rank = (rank_in(variables.get(name, "")) or 0 for name in ("SLURM_PROCID", "SLURM_LOCALID"))
            tasks.append(task_at(node, int(pid), rank, local_rank))

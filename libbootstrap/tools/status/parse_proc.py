"""Parses files of /proc, and finds which processes of a task are its ranks: pure functions, for tests."""
# SPDX-License-Identifier: Apache-2.0
import re
from types import SimpleNamespace

from plain_text import printable

MAX_CHAIN = 6

# Files that only a program of this framework maps. The first framework that is found counts: PyTorch may map MPI, too.
FRAMEWORKS = (
    ("PyTorch", ("libtorch_cpu.so", "libtorch.so")),
    ("JAX", ("xla_extension.so", "libjax", "_jax.")),
    ("TensorFlow", ("libtensorflow",)),
    ("Paddle", ("libpaddle",)),
    ("MPI", ("libmpi.so", "libmpi_", "libmpich.so")),
    ("NCCL", ("libnccl.so",)),
    ("RCCL", ("librccl.so",)),
    ("NVSHMEM", ("libnvshmem",)),
)

# Kernel functions in which a thread waits, by their beginnings. Names differ between kernels: poll_schedule_timeout
# until 5.x, do_sys_poll or do_poll with inlining. The file systems are FUSE, NFS, SunRPC, Lustre, BeeGFS, GPFS, Ceph,
# page cache and block layer.
FILE_SYSTEM = "file system"
WAITS = (
    (FILE_SYSTEM, "request_wait_answer fuse_ nfs rpc_ ptlrpc ldlm cl_sync ll_ osc_ obd_ lustre beegfs FhgfsOps cxiWait mmfs "
     "ceph folio_wait wait_on_page wait_on_buffer io_schedule blk_ jbd2 xfs_ ext4_ btrfs_ autofs"),
    ("futex", "futex do_futex"),
    ("poll", "poll_schedule do_poll do_sys_poll do_select core_sys_select ep_poll do_epoll"),
    ("sleep", "hrtimer_nanosleep do_nanosleep common_nsleep clock_nanosleep"),
    ("read of a pipe", "pipe_read anon_pipe_read pipe_wait"),
    ("write to a pipe", "pipe_write anon_pipe_write"),
    ("read of a terminal", "n_tty_read tty_read"),
    ("wait for a child", "do_wait"),
    ("accept", "inet_csk_accept inet_csk_wait_for_connect"),
    ("socket", "sk_wait_data sk_stream_wait"),
    ("connect", "inet_stream_connect inet_wait_for_connect"),
    ("local socket", "unix_stream skb_wait"),
    ("file lock", "flock posix_lock"),
    ("signal", "do_sigtimedwait sigsuspend"),
    ("stop", "do_signal_stop"),
    ("message queue", "do_msgrcv"),
    ("semaphore", "do_semtimedop"),
)


def parse_stat(text):
    """/proc/PID/stat, see proc(5). A process that has ended has the state X."""
    found = re.match(r"\d+ \((.*)\) (\S) (\d+)(?: \S+){9} (\d+) (\d+)", text, re.S)
    if not found:
        return SimpleNamespace(name="", state="X", parent=0, ticks=0)
    name, state, parent, user, system = found.groups()  # a name has at most 15 characters, any of them
    return SimpleNamespace(name=printable(name), state=state, parent=int(parent), ticks=int(user) + int(system))


def parse_status(text):
    """/proc/PID/status and io: the first word behind each name."""
    lines = (line.partition(":") for line in text.split("\n"))
    return {name: (rest.split() or [""])[0] for name, colon, rest in lines if colon}


def parse_environ(text):
    """The first entry of a name counts, as for getenv(3)."""
    entries = (entry.partition("=") for entry in reversed(text.split("\0")))
    return {name: value for name, _, value in entries}


def framework_in(lines):
    """The framework whose files are in the lines of /proc/PID/maps; empty: none that is known."""
    names = {line.rpartition("/")[2] for line in lines if "/" in line}
    return next((framework for framework, prefixes in FRAMEWORKS if any(name.startswith(prefixes) for name in names)), "")


def version_in(path):
    """"2.24.3" of libnccl.so.2.24.3 or nccl-2.24.3/lib/libnccl.so.2; empty: it names none."""
    return ([""] + re.findall(r"2\.\d+\.\d+(?![\d.])", path))[-1]


def nccl_in(lines):
    """The first libnccl in the lines of /proc/PID/maps: its device and inode, the release in its path, and its address; None:
    there is none."""
    for line in lines:
        words = line.split(None, 5)
        if len(words) == 6 and words[5].rpartition("/")[2].startswith("libnccl.so"):
            address = int(words[0].partition("-")[0], 16)
            return SimpleNamespace(file=f"{words[3]} {words[4]}", version=version_in(words[5]), address=address)
    return None


def parse_tcp(lines, inodes):
    """Finds the sockets with these inodes in the lines of /proc/PID/net/tcp or tcp6: state, own port and remote port."""
    sockets = {}
    for words in map(str.split, lines):
        if len(words) > 9 and words[9] in inodes:
            # "0100007F:1F90" has the port in hexadecimal behind its colon.
            own, remote = (int(address.rpartition(":")[2], 16) for address in words[1:3])
            sockets[words[9]] = words[3], own, remote
    return sockets


def describe_wchan(wchan):
    """"futex", "file system (request_wait_answer)"; the kernel's own name where it is not known; empty for "0"."""
    if wchan in ("", "0"):
        return ""
    name = wchan[2:] if wchan.startswith("__") else wchan
    for wait, prefixes in WAITS:
        if name.startswith(tuple(prefixes.split())):
            return f"{wait} ({wchan})" if wait == FILE_SYSTEM else wait
    return wchan[:40]


class Launchers:
    """Names of tools and launchers, of modules of Python that are launchers, and of shells, separated by blanks: those that
    the plugin knows (core/program/program_names.cc)."""

    def __init__(self, programs, modules, shells):
        self.programs, self.modules = set(programs.split()), set(modules.split())
        shells = "|".join(shells.split())
        # bash-5.2, mpirun.openmpi, torchrun_jsc
        self.others = re.compile(rf"({shells})(-[-.\d]*)?|(mpirun|mpiexec|orterun|dask|jupyter|torchrun)([-._].*)?(?<!\.py)")

    def have(self, process):
        """Checks its name, and its command line if a Python runs a launcher: python3 -u /usr/bin/torchrun."""
        path, module = process.words[0] if process.words else process.name, ""
        if is_python(path.rpartition("/")[2]):
            path, module = python_target(process.words[1:])
        is_torchrun = path.endswith(("torch/distributed/run.py", "torch/distributed/launch.py"))
        return (is_torchrun or module in self.modules or module.startswith("torchrun_")
                or any(name in self.programs or self.others.fullmatch(name) for name in (process.name, path.rpartition("/")[2])))


def is_python(name):
    """python3, python3.11, pypy3, ipython3"""
    return bool(re.fullmatch(r"i?(python|pypy)[\d.dmt-]*", name))


def python_target(words):
    """The script and the module that a Python runs, from its options (python(1)); one of them is empty."""
    words = iter(words)
    for word in words:
        if not word.startswith("-") or word == "-":
            return word, ""
        option = word[1:].lstrip("bBdEhiIOPqsSuvVx")  # several of these may be joined: -uB
        if option.startswith("c"):
            break  # the code is on the command line
        if option.startswith("m"):
            return "", option[1:] or next(words, "")
        if option in ("W", "X", "-check-hash-based-pycs"):
            next(words, "")
    return "", ""


def find_ranks(processes, launchers):
    """`processes`: the task first, each behind its parent. One rank for each process that a launcher gave a rank of its
    own, such as a worker of torchrun; without such processes the task is the one rank. A worker of a data loader has the
    rank of its parent and belongs to it."""
    by_pid, tops = {}, []
    for process in processes:
        process.above = by_pid.get(process.parent)
        process.top = process.above.top if process.above else processes[0]
        has_own_rank = process.above and process.rank and process.rank != process.above.rank
        if process.top is processes[0] and has_own_rank:
            process.top = process
            tops.append(process)
        by_pid.setdefault(process.pid, process)
    ranks = []
    for top in tops or processes[:1]:
        members = [one for one in processes if one.top is top]
        programs = [one for one in members if not launchers.have(one)]
        # If no program runs below it, the main process is a shell or a launcher.
        main = next((one for one in programs if one.framework), (programs or members[-1:])[0])
        ranks.append(SimpleNamespace(main=main, members=members, is_launcher=not programs, is_worker=bool(tops)))
    return ranks


def chain_to(process):
    """Names from the task down to a process: "bash, python3"."""
    names = []
    while process and len(names) < MAX_CHAIN:
        names.insert(0, process.name)
        process = process.above
    return ", ".join(["...", *names] if process else names)

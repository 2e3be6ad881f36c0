"""Finds the ranks among the processes of a task: pure functions, for tests."""
# SPDX-License-Identifier: Apache-2.0
import re
from types import SimpleNamespace

MAX_CHAIN = 6


class Launchers:
    """Names of tools and launchers, of modules of Python that are launchers, and of shells, between blanks: those that the
    plugin knows (core/program/program_names.cc)."""

    def __init__(self, programs, modules, shells):
        self.programs, self.modules = set(programs.split()), set(modules.split())
        shells = "|".join(shells.split())
        # bash-5.2, mpirun.openmpi, torchrun_jsc
        self.others = re.compile(rf"({shells})(-[-.\d]*)?|(mpirun|mpiexec|orterun|dask|jupyter|torchrun)([-._].*)?(?<!\.py)")

    def have(self, process):
        """By its name, and by its command line where a Python runs a launcher: python3 -u /usr/bin/torchrun."""
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
    """The script that a Python runs and the module, of which one is empty, by its options (python(1))."""
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
        # Where no other runs below it, the main process is a shell or a launcher.
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

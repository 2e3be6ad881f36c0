"""Finds the ranks among the processes of a task: pure functions, for tests."""
# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

MAX_CHAIN = 6


class Launchers:
    """Names of tools and launchers, of modules of Python that are launchers, and of shells, between blanks: those that the
    plugin knows (core/program/program_names.cc)."""

    def __init__(self, programs, modules, shells):
        self.programs, self.modules, self.shells = set(programs.split()), set(modules.split()), set(shells.split())

    def have_name(self, name):
        shell, _, number = name.partition("-")  # bash-5.2
        is_shell = shell in self.shells and not number.strip("-.0123456789")
        stem = name.replace("-", ".").replace("_", ".").partition(".")[0]
        # mpirun.openmpi, torchrun_jsc
        has_suffix = stem in ("mpirun", "mpiexec", "orterun", "dask", "jupyter", "torchrun") and not name.endswith(".py")
        return name in self.programs or is_shell or has_suffix

    def have(self, process):
        """By its name, and by its command line where a Python runs a launcher: python3 -u /usr/bin/torchrun."""
        path, module = process.words[0] if process.words else process.name, ""
        if is_python(path.rpartition("/")[2]):
            path, module = python_target(process.words[1:])
        is_torchrun = path.endswith(("torch/distributed/run.py", "torch/distributed/launch.py"))
        is_module = module in self.modules or module.startswith("torchrun_")
        return is_torchrun or is_module or self.have_name(process.name) or self.have_name(path.rpartition("/")[2])


def is_python(name):
    """python3, python3.11, pypy3, ipython3"""
    name = name[1:] if name.startswith("i") else name
    return any(name.startswith(stem) and not name[len(stem):].strip("0123456789.dmt-") for stem in ("python", "pypy"))


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
    places, parents, owners, tops = {}, [], [], []
    for i, process in enumerate(processes):
        parent = places.get(process.parent)
        places.setdefault(process.pid, i)
        parents.append(parent)
        owners.append(0 if parent is None else owners[parent])
        has_own_rank = parent is not None and process.rank and process.rank != processes[parent].rank
        if owners[i] == 0 and has_own_rank:
            owners[i] = i
            tops.append(i)
    ranks = []
    for top in tops or ([0] if processes else []):
        members = [i for i, owner in enumerate(owners) if owner == top]
        programs = [i for i in members if not launchers.have(processes[i])]
        # Where no other runs below it, the main process is a shell or a launcher.
        main = next((i for i in programs if processes[i].framework), (programs or members[-1:])[0])
        ranks.append(SimpleNamespace(main=main, members=members, is_launcher=not programs, is_worker=bool(tops),
                                     chain=chain_to(main, processes, parents)))
    return ranks


def chain_to(place, processes, parents):
    """Names from the task down to a process: "bash, python3"."""
    names = []
    while place is not None and len(names) < MAX_CHAIN:
        names.insert(0, processes[place].name)
        place = parents[place]
    return ", ".join(names if place is None else ["...", *names])

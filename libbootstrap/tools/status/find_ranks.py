"""Finds the ranks among the processes of a task: pure functions, for tests."""
# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

MAX_CHAIN = 6


class Launchers:
    """Names of shells, tools and launchers, and of modules of Python that are launchers, between blanks: those that the
    plugin knows (core/program/program_names.cc)."""

    def __init__(self, programs, modules):
        self.programs, self.modules = set(programs.split()), set(modules.split())

    def have_name(self, name):
        stem = name.replace("-", ".").replace("_", ".").partition(".")[0]
        is_numbered = stem in self.programs and not name[len(stem):].strip("-.0123456789")  # bash-5.2
        # mpirun.openmpi, torchrun_jsc
        has_suffix = stem in ("mpirun", "mpiexec", "orterun", "dask", "jupyter", "torchrun") and not name.endswith(".py")
        return name in self.programs or is_numbered or has_suffix

    def have(self, process):
        """By its name, and by its command line where a Python runs a launcher: python3 -u /usr/bin/torchrun."""
        path = process.words[0] if process.words else process.name
        if is_python(path.rpartition("/")[2]):
            path = python_target(process.words[1:])
        is_torchrun = path.endswith(("torch/distributed/run.py", "torch/distributed/launch.py"))
        is_module = path in self.modules or path.startswith("torchrun_")
        return is_torchrun or is_module or self.have_name(process.name) or self.have_name(path.rpartition("/")[2])


def is_python(name):
    """python3, python3.11, pypy3, ipython3"""
    name = name[1:] if name.startswith("i") else name
    return any(name.startswith(stem) and not name[len(stem):].strip("0123456789.dmt-") for stem in ("python", "pypy"))


def python_target(words):
    """The script, module or code that a Python runs: the first word that is no option, and no value of one (python(1))."""
    words = iter(words)
    for word in words:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


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

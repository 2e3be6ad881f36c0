"""Malformed environments of srun: wrong, missing and contradictory variables."""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import dataclass, field

OURS = ["SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_SETTINGS", "SLURM_BOOTSTRAP_LAYOUT", "SRUN_EXPORT_ENV"]
SLURMS = ["SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_PROCID",
          "SLURM_DISTRIBUTION", "SLURM_DIST_PLANESIZE", "SLURM_RESTART_COUNT", "SLURM_STEP_GPUS", "SLURMD_NODENAME",
          "SLURM_TASKS_PER_NODE", "SLURM_GTIDS", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_RESV_PORTS"]
# Options on their way from srun to slurmstepd, which srun does not check.
SMUGGLED = [f"_SLURM_SPANK_OPTION_bootstrap_bootstrap{name}" for name in ("", "_port", "_addr", "_claim")]
SETTINGS = ["SLURM_BOOTSTRAP", "SLURM_BOOTSTRAP_PORT", "SLURM_BOOTSTRAP_PORT_RANGE", "SLURM_BOOTSTRAP_ADDR", "SLURM_BOOTSTRAP_CLAIM"]
NAMES = OURS + SLURMS + SMUGGLED + SETTINGS

# Runs srun with an environment from standard input, which may contain any byte.
RUN = """#!/usr/bin/python3
import json, os, sys
order = json.load(sys.stdin)
if order["is_empty"]:
    os.environ.clear()
for name, value in order["given"].items():
    os.environb[name.encode("latin-1")] = value.encode("latin-1")
for name in order["lacking"]:
    os.environ.pop(name, None)
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.execv("/usr/bin/timeout", ["timeout", "240", *sys.argv[1:]])
"""

LONGEST = 131072 - 64  # the kernel's limit for one string, less the name
VALUES = {
    "empty": "",
    "word": "garbage",
    "equals": "=",
    "lines": "\n\n1\nbootstrap: nothing\n",
    "formats": "%n%s%n%s%99999999d%h",
    "bytes": "\xff\xfe\x80\x01\x1b[31m",
    "negative": "-1",
    "large": "4294967296",
    "list": "node[001-99999999],node[[",
    "commas": "," * 60000,
    "64 KiB": "1" * 65536,
    "128 KiB": "x" * LONGEST,
}

# Values that Slurm itself might set, as a base for nearly right ones.
PLAUSIBLE = ["node[001-002]", "node002,node001", "2(x2)", "1,3", "4", "0", "block", "cyclic:block", "plane", "1.0.0",
             "12000-12003", "map:1,0", "1.0/map:1,0", "1.0;node[001-002];2(x2);block", "RANK,WORLD_SIZE", "20001", "on"]

# Variables that contradict the step's options (-N2 -n4).
CONTRADICTIONS = [("SLURM_NTASKS", "3"), ("SLURM_NPROCS", "3"), ("SLURM_NNODES", "1"), ("SLURM_JOB_NUM_NODES", "7"),
                  ("SLURM_NTASKS_PER_NODE", "4"), ("SLURM_TASKS_PER_NODE", "9(x2)"), ("SLURM_STEP_NUM_TASKS", "2"),
                  ("SLURM_STEP_NUM_NODES", "1"), ("SLURM_JOB_NODELIST", "node001"), ("SLURM_NODELIST", "node[001-009]"),
                  ("SLURM_STEP_NODELIST", "node002"), ("SLURM_PROCID", "3"), ("SLURM_NODEID", "1"), ("SLURM_LOCALID", "1"),
                  ("SLURM_GTIDS", "9,8"), ("SLURM_DISTRIBUTION", "arbitrary"), ("SLURM_DIST_PLANESIZE", "3"), ("RANK", ""),
                  ("SLURM_JOB_CPUS_PER_NODE", "1(x2)"), ("SLURM_CPUS_ON_NODE", "1"), ("SLURM_RESTART_COUNT", "9"),
                  ("SLURM_HET_SIZE", "3"), ("SLURM_STEP_GPUS", "7,8"), ("SLURM_JOB_GPUS", "5"), ("GPU_DEVICE_ORDINAL", "3"),
                  ("CUDA_VISIBLE_DEVICES", "6,7"), ("SLURM_STEP_RESV_PORTS", "1-3"), ("SLURM_RESV_PORTS", "1")]


@dataclass(frozen=True)
class Case:
    name: str
    given: dict  # variables that are set
    lacking: tuple = ()  # variables that are removed
    options: tuple = ()  # of srun
    is_empty: bool = False  # no other variable is set, as with `env -i`
    addresses: tuple = field(default=())  # other allowed values of MASTER_ADDR, since the user has set it

    @staticmethod
    def setting(name, given, **more):
        # A word, and a number as well, may be the name of a host.
        addresses = tuple(value for variable, value in given.items() if variable.lower().endswith("_addr"))
        return Case(name, given, addresses=addresses, **more)


def fixed():
    """Each variable alone with each value, all variables at once, too many, none."""
    cases = [Case.setting(f"{name}: {kind}", {name: value}) for kind, value in VALUES.items() for name in NAMES]
    # Numbers that do not stop srun itself; a larger environment is too large for Linux.
    cases += [Case.setting(f"all: {kind}", dict.fromkeys(OURS + SLURMS, value)) for kind, value in VALUES.items() if len(value) < 100000]
    cases.append(Case("10,000 variables", {f"VARIABLE_{i}": "x" * 60 for i in range(10000)}))
    odd = {"with space": "1", "RANK\n": "9", "%s%n": "1", "\xff": "1", "BOOTSTRAP_": "1", "bootstrap_port": "1"}
    cases += [Case("odd names", odd), Case("env -i", {}, is_empty=True)]
    for export in ("NONE", "NIL", "HOME", "ALL,SLURM_BOOTSTRAP_EXPORTS=x", "SLURM_BOOTSTRAP_STEP=1.0.0"):
        cases.append(Case(f"--export={export}", dict.fromkeys(OURS, "garbage"), options=(f"--export={export}",)))
    return cases


def inside(batch):
    """In a job with the variables `batch`: each of Slurm's variables removed alone, and each contradiction."""
    slurms = sorted(name for name in batch if name.startswith("SLURM") and name != "SLURM_CONF")
    cases = [Case(f"without {name}", batch, lacking=(name,)) for name in slurms]
    cases += [Case(f"{name}={value} in a job", batch | {name: value}) for name, value in CONTRADICTIONS]
    return cases + [Case(f"{name}={value}", {name: value}) for name, value in CONTRADICTIONS]


def spoilt(text, generator):
    """A nearly right value: a piece of the text is removed, doubled or replaced."""
    first, last = sorted(generator.randrange(len(text) + 1) for _ in range(2))
    middle = generator.choice(["", text[first:last] * 2, generator.choice("\xff,-[]()=;%\n \t0")])
    return text[:first] + middle + text[last:]


def mixed(generator, number):
    """Several variables at once, malformed or nearly right; none that a user could set to switch a feature off."""
    names = generator.sample(OURS + SLURMS + SMUGGLED[1:3], generator.randint(1, 6))
    values = [value for kind, value in VALUES.items() if kind not in ("128 KiB",)]
    given = {name: generator.choice(values) if generator.random() < 0.3 else spoilt(generator.choice(PLAUSIBLE), generator)
             for name in names}
    return Case.setting(f"mixture {number}", given)

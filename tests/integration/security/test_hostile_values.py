"""No value of a variable delays a step, makes slurmstepd large, drains a node or writes a line of its own into a log.

Each case runs three times: with the plugin off, unasked (when=always), and asked. What slurmstepd used, its tasks read in
/proc: its CPU time and the most memory that it had."""

# SPDX-License-Identifier: Apache-2.0

import json
import random
import re
import time
from typing import NamedTuple

import pytest

from harness import slurm_prefix
from hostile_values import LONGEST, PATTERNS, value, variables_in_code
from malformed_environments import RUN
from port_steps import allocation

AT_ONCE = 3
MOST_MEMORY = 4096  # KiB above that of the step with the plugin off
MOST_CPU = 0.2  # seconds above it: the kernel counts CPU time in steps of 0.01 s
ROOM = 1_900_000  # bytes for all variables together: Linux accepts 2 MiB with the arguments and the rest
SLURM_WRITES = {"SLURM_WORKING_DIR"}  # slurmstepd writes it to its log as it is, without the plugin, too
WAYS = {"off": "--bootstrap=off", "unasked": "", "asked": "--bootstrap=on"}
LOOK = ("/bin/sh", "-c", 'read -r name <"/proc/$PPID/comm"; /usr/bin/grep -h ^VmHWM "/proc/$PPID/status"; '
        '/usr/bin/cut -d" " -f14,15 "/proc/$PPID/stat"; echo "RANK ${RANK:-none} $name"')  # fmt: skip


class Used(NamedTuple):
    status: int
    memory: int  # KiB
    cpu: float  # seconds
    time: float
    stderr: str


def is_known(name, pattern):
    return pattern == "lines" and name in SLURM_WRITES


def alone(name, pattern):
    return f"{name}: {pattern}", {name: value(pattern)}


def together(names, pattern, size):
    return f"{len(names)} variables of {size} bytes: {pattern}", {name: value(pattern, size) for name in names if not is_known(name, pattern)}


def all_cases():
    # Without these two no program starts at all.
    names = [name for name in variables_in_code() if name not in ("LD_PRELOAD", "SLURM_CONF")]
    cases = [alone(name, pattern) for name in names for pattern in PATTERNS if not is_known(name, pattern)]
    for pattern in PATTERNS:
        cases.append(together(names, pattern, ROOM // len(names) - 64))
        cases += [together(names[at:at + 15], pattern, LONGEST) for at in range(0, len(names), 15)]
    return cases


def few_cases(generator):
    cases = all_cases()
    of_all = [case for case in cases if re.match(r"\d{3} variables", case[0])]
    of_some = [case for case in cases if re.match(r"\d\d? variables", case[0])]
    return [alone("SLURM_STEP_RESV_PORTS", "ports"), *generator.sample(of_all, 4), *generator.sample(of_some, 4),
            *generator.sample(cases, 10)]


def run(cluster, program, job, given, way):
    options = [f"--jobid={job}", "--overlap", "--overcommit", "-N2", "-n4", "--ntasks-per-node=2", "--gres=gpu:2", WAYS[way]]
    order = {"given": given, "lacking": [], "is_empty": False}
    begin = time.monotonic()
    line = [program, slurm_prefix() / "bin/srun", *filter(None, options), *LOOK]
    done = cluster.run(line, stdin=json.dumps(order), timeout=300)
    took = time.monotonic() - begin
    memory = [int(text) for text in re.findall(r"VmHWM:\s+(\d{1,9}) kB", done.stdout)]
    cpu = [sum(map(int, pair)) / 100 for pair in re.findall(r"^(\d{1,9}) (\d{1,9})$", done.stdout, re.M)]
    return Used(done.returncode, max(memory, default=0), max(cpu, default=0), took, done.stderr)


def trouble(used):
    """What is worse than with the plugin off, as a sentence; '' where nothing is."""
    off = used["off"]
    for way in ("unasked", "asked"):
        own = used[way]
        says_why = way == "asked" and "error: bootstrap: " in own.stderr
        if own.status != off.status and not says_why:
            return f"{way}: exit status {own.status} in place of {off.status}: {own.stderr[-300:]!r}"
        if off.status == 0 == own.status and own.memory > off.memory + MOST_MEMORY:
            return f"{way}: {own.memory} KiB in place of {off.memory}"
        if off.status == 0 == own.status and own.cpu > off.cpu + MOST_CPU:
            return f"{way}: {own.cpu} s of CPU in place of {off.cpu}"
    return ""


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    cluster = cluster_factory("hostile")
    cluster.asks = False
    return cluster.up("--cpus", "64", "--gpus", "2", "--plugin-args", "when=always")


def test_no_value_does_harm(cluster, campaign, figure):
    generator = random.Random(campaign.seed)
    program = cluster.write_home("hostile", RUN)
    every = all_cases()
    # In any order, so that a campaign that is cut short has cases of each kind.
    cases = generator.sample(every, len(every)) if campaign.is_full else few_cases(generator)
    with allocation(cluster, "-N2", "--ntasks-per-node=2", "--gres=gpu:2") as job:
        outcomes = campaign.run(lambda case: {way: run(cluster, program, job, case[1], way) for way in WAYS}, cases, AT_ONCE)
    bad = [f"{name}: {trouble(used)}" for (name, _), used in outcomes if trouble(used)]
    ran = [used for _, used in outcomes if used["off"].status == used["unasked"].status == 0]
    assert ran
    memory = max(max(used["unasked"].memory, used["asked"].memory) - used["off"].memory for used in ran)
    cpu = max(max(used["unasked"].cpu, used["asked"].cpu) - used["off"].cpu for used in ran)
    late = max(max(used["unasked"].time, used["asked"].time) - used["off"].time for used in ran)
    logs = "\n".join(cluster.log(f"slurmd.{node}") for node in cluster.nodes) + cluster.log("slurmctld")
    forged = re.findall(r"^FORGED.*", logs, re.M)
    is_well = cluster.script("status").returncode == 0
    got = (f"{3 * len(outcomes):,} steps; slurmstepd took at most {memory} KiB and {cpu:.2f} s of CPU more than with the plugin off, "
           f"and the step {late:.1f} s more; {len(forged)} lines forged, {len(bad)} otherwise worse")  # fmt: skip
    figure("F5", got=got, met=not bad and not forged and is_well, seed=campaign.seed, control="a slow, large or failed step is noticed")
    assert not bad, "\n".join(bad)
    assert not forged
    assert is_well, "a node is not idle"


def test_control_what_is_worse_is_noticed():
    good = Used(0, 8000, 0.02, 0.1, "")
    assert trouble({"off": good, "unasked": good, "asked": good}) == ""
    refused = Used(1, 0, 0, 0.1, "error: bootstrap: no")
    assert trouble({"off": good, "unasked": good, "asked": refused}) == ""
    for worse in (good._replace(status=1), good._replace(memory=13000), good._replace(cpu=0.5), refused):
        assert trouble({"off": good, "unasked": worse, "asked": good}) != ""


def test_control_logs_show_a_forged_line(cluster):
    """A line break that reaches slurmd's log begins a line, which the test above would find."""
    node = cluster.nodes[0]
    assert re.search(r"^\[\d{4}-", cluster.log(f"slurmd.{node}"), re.M)
    assert re.findall(r"^FORGED.*", value("lines", 200), re.M)

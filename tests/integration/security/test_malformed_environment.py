"""Malformed environments: the step runs with right values or is refused with one line. No value of a variable delays a step, makes
slurmstepd large, drains a node or writes a line of its own into a log."""

# SPDX-License-Identifier: Apache-2.0

import json
import random
import re
import subprocess
import time
from collections import Counter
from typing import NamedTuple

import pytest

from harness import module_cluster, slurm_prefix
from hostile_values import LONGEST, PATTERNS, value, variables_in_code
from malformed_environments import RUN, Case, fixed, inside, mixed
from port_steps import allocation
from rank_values import SHOW, wrong_values

AT_ONCE = 6
ASKS = "--bootstrap=on"
IN_FULL = 1000  # for each word before the plugin in plugstack.conf
IN_SHORT = 40
MOST_MEMORY = 4096  # KiB above the step with the plugin off
MOST_CPU = 0.2  # seconds above it: the kernel counts CPU time in steps of 0.01 s
ROOM = 1_900_000  # bytes for all variables together: Linux accepts 2 MiB with the arguments and the rest
SLURM_WRITES = {"SLURM_WORKING_DIR"}  # slurmstepd writes it unchanged into its log, also without the plugin
WAYS = {"off": "--bootstrap=off", "unasked": "", "asked": ASKS}
LOOK = ("/bin/sh", "-c", 'read -r name <"/proc/$PPID/comm"; /usr/bin/grep -h ^VmHWM "/proc/$PPID/status"; '
        '/usr/bin/cut -d" " -f14,15 "/proc/$PPID/stat"; echo "RANK ${RANK:-none} $name"')  # fmt: skip


cluster = module_cluster("malformed", "--cpus", "64", "--gpus", "2", "--plugin-args", "when=always", asks=False)


@pytest.fixture(scope="module", params=["optional", "required"])
def how(request, cluster):
    if request.param == "required" and not request.config.getoption("--full"):
        pytest.skip("only with --full")
    cluster.configure("when=always", request.param)
    yield request.param
    assert cluster.script("status").returncode == 0
    for node in cluster.nodes:
        assert not re.search(r"segfault|signal 11|\babort(?!ing)", cluster.log(f"slurmd.{node}"), re.IGNORECASE)


def variables_of_batch(cluster, job):
    """The environment of a script in the job."""
    dump = cluster.run(["srun", f"--jobid={job}", "--overlap", "--bootstrap=off", "-N1", "-n1", "env", "-0"]).stdout
    found = dict(entry.split("=", 1) for entry in dump.split("\0") if "=" in entry)
    of_a_step = re.compile(r"SLURM_(STEP|PROCID|LOCALID|NODEID|GTIDS|TASK_PID|LAUNCH|SRUN|UMASK|CPU_BIND|DISTRIBUTION)")
    return {name: value for name, value in found.items() if name.startswith("SLURM") and not of_a_step.match(name)}


def run(cluster, program, case, *options, task=SHOW):
    line = ["--overlap", "--overcommit", "-N2", "-n4", "--ntasks-per-node=2", *case.options, *options, *task]
    order = {"given": case.given, "lacking": case.lacking, "is_empty": case.is_empty}
    return cluster.run([program, slurm_prefix() / "bin/srun", *line], stdin=json.dumps(order), timeout=300)


def trouble(done, addresses=()):
    """What is wrong with the outcome of a step that asked; '' if its values are right, or if one line has the reason of a refusal."""
    if done.returncode == 0:
        found = [wrong_values(done.stdout, 4, 2, address) for address in ("", *addresses)]
        return "" if "" in found else found[0]
    if done.returncode in (124, 137):
        return "hung"
    lines = [line for line in done.stderr.splitlines() if "error: bootstrap: " in line]
    # srun itself may refuse such an environment, before it calls a plugin.
    return "" if len(lines) == 1 and len(lines[0]) < 500 or not lines and done.stderr else "not one line"


def trouble_unasked(done, addresses=()):
    """The same for a step that did not ask: it is never refused, and all of its tasks have the right values, or no task has one.

    Beside the announcement there is one line for each kind of wrong value: too long, invalid, not right for this step.
    """
    said = [line for line in done.stderr.splitlines() if "bootstrap: " in line]
    lines = [line for line in said if not line.endswith("use --bootstrap=off for independent runs")]
    if "error: bootstrap: " in done.stderr or len(said) > len(lines) + 1 or len(lines) > 3 or any(len(line) > 700 for line in lines):
        return "more, or longer lines, than a step may get that did not ask"
    if done.returncode != 0:
        return trouble(done)
    found = trouble(done, addresses)
    untouched = sorted(line.split()[1] for line in done.stdout.splitlines() if len(line.split()) == 3) == list("0123")
    if not found or untouched and lines:
        return ""
    # The user forged Slurm's list of the step's ports.
    return "" if "wrong port" in found and "is already in use" in done.stderr else found


def test_no_environment_does_harm(cluster, how, campaign, figure):
    generator = random.Random(campaign.seed)
    program = cluster.write_home("malformed", RUN)
    with allocation(cluster, "-N2", "--ntasks-per-node=2") as job:
        cases = fixed() + inside(variables_of_batch(cluster, job))
        cases += [mixed(generator, number) for number in range(IN_FULL - len(cases))]
        if not campaign.is_full:
            rare = [case for case in cases if case.name in ("10,000 variables", "odd names", "env -i")]
            cases = rare + generator.sample(cases, IN_SHORT - len(rare))
        outcomes = campaign.run(lambda case: run(cluster, program, case, ASKS), cases, AT_ONCE)
        others = generator.sample(cases, len(cases) // 2)
        unasked = campaign.run(lambda case: run(cluster, program, case), others, AT_ONCE)
    bad = [f"{case.name}: {trouble(done, case.addresses)}: exit {done.returncode}: {done.stderr[:600]!r}"
           for case, done in outcomes if trouble(done, case.addresses)]  # fmt: skip
    bad += [f"unasked, {case.name}: {trouble_unasked(done, case.addresses)}: exit {done.returncode}: {done.stderr[:600]!r}"
            for case, done in unasked if trouble_unasked(done, case.addresses)]  # fmt: skip
    kinds = Counter("ran" if done.returncode == 0 else "refused by the plugin" if "error: bootstrap: " in done.stderr
                    else "refused by srun" for _, done in outcomes)  # fmt: skip
    others = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    got = f"{len(outcomes) + len(unasked):,} steps, {len(unasked):,} of them unasked; of the others {others}; {len(bad)} otherwise"
    is_well = cluster.script("status").returncode == 0
    figure("F3", part=how, got=got, met=not bad and is_well, seed=campaign.seed, control="wrong values are noticed")
    assert not bad, "\n".join(bad)
    assert kinds["ran"] and kinds["refused by the plugin"]


def test_control_a_wrong_outcome_is_noticed(cluster, how):
    program = cluster.write_home("malformed", RUN)
    case = next(case for case in fixed() if case.name == "env -i")
    right = run(cluster, program, case, ASKS)
    assert trouble(right) == "" and trouble_unasked(run(cluster, program, case)) == ""
    # A user's value that may be right is kept, so the test can show the judge a wrong one.
    kept = Case("MASTER_ADDR", {"MASTER_ADDR": "10.99.99.99"})
    assert trouble(run(cluster, program, kept, ASKS)) != "" and trouble_unasked(run(cluster, program, kept)) != ""
    for name, wrong in (("RANK", "7"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "http")):
        done = run(cluster, program, Case(name, {name: wrong}), ASKS)
        assert trouble(done) == "" and done.stderr.count("bootstrap: warning: ") == 1, (name, done)
    for name, old, new in (("rank", "task 0 node001 0", "task 0 node001 7"), ("address", "node001 2", "node009 2")):
        changed = subprocess.CompletedProcess(right.args, 0, right.stdout.replace(old, new), "")
        assert changed.stdout != right.stdout and trouble(changed) != "" and trouble_unasked(changed) != "", name
    refused = subprocess.CompletedProcess(right.args, 1, "", "srun: error: bootstrap: no\n")
    assert trouble(refused) == "" and trouble_unasked(refused) != ""
    half = subprocess.CompletedProcess(right.args, 0, re.sub(r"(task \d node002).*", r"\1", right.stdout), "bootstrap: warning: x\n")
    assert trouble_unasked(half) != ""


class Used(NamedTuple):
    """slurmstepd's CPU time and its peak of memory, which its tasks read in /proc."""

    status: int
    memory: int  # KiB
    cpu: float  # seconds
    time: float
    stderr: str


def is_known(name, pattern):
    return pattern == "lines" and name in SLURM_WRITES


def alone(name, pattern):
    return Case(f"{name}: {pattern}", {name: value(pattern)})


def together(names, pattern, size):
    given = {name: value(pattern, size) for name in names if not is_known(name, pattern)}
    return Case(f"{len(names)} variables of {size} bytes: {pattern}", given)


def hostile_cases():
    # Without these two no program starts.
    names = [name for name in variables_in_code() if name not in ("LD_PRELOAD", "SLURM_CONF")]
    cases = [alone(name, pattern) for name in names for pattern in PATTERNS if not is_known(name, pattern)]
    for pattern in PATTERNS:
        cases.append(together(names, pattern, ROOM // len(names) - 64))
        cases += [together(names[at:at + 15], pattern, LONGEST) for at in range(0, len(names), 15)]
    return cases


def few_hostile_cases(generator):
    cases = hostile_cases()
    of_all = [case for case in cases if re.match(r"\d{3} variables", case.name)]
    of_some = [case for case in cases if re.match(r"\d\d? variables", case.name)]
    return [alone("SLURM_STEP_RESV_PORTS", "ports"), *generator.sample(of_all, 4), *generator.sample(of_some, 4),
            *generator.sample(cases, 10)]


def used_by(cluster, program, job, case, way):
    begin = time.monotonic()
    options = [f"--jobid={job}", "--gres=gpu:2", *WAYS[way].split()]
    done = run(cluster, program, case, *options, task=LOOK)
    took = time.monotonic() - begin
    memory = [int(text) for text in re.findall(r"VmHWM:\s+(\d{1,9}) kB", done.stdout)]
    cpu = [sum(map(int, pair)) / 100 for pair in re.findall(r"^(\d{1,9}) (\d{1,9})$", done.stdout, re.M)]
    return Used(done.returncode, max(memory, default=0), max(cpu, default=0), took, done.stderr)


def worse(used):
    """What is worse than with the plugin off, as a sentence; '' if nothing is."""
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


def test_no_value_does_harm(cluster, campaign, figure):
    """Each case runs three times: with the plugin off, unasked, and asked."""
    cluster.configure("when=always")
    generator = random.Random(campaign.seed)
    program = cluster.write_home("malformed", RUN)
    every = hostile_cases()
    # In random order, so that a campaign that is cut short has cases of each kind.
    cases = generator.sample(every, len(every)) if campaign.is_full else few_hostile_cases(generator)
    with allocation(cluster, "-N2", "--ntasks-per-node=2", "--gres=gpu:2") as job:
        outcomes = campaign.run(lambda case: {way: used_by(cluster, program, job, case, way) for way in WAYS}, cases, AT_ONCE // 2)
    bad = [f"{case.name}: {worse(used)}" for case, used in outcomes if worse(used)]
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


def test_control_a_worse_outcome_is_noticed():
    good = Used(0, 8000, 0.02, 0.1, "")
    assert worse({"off": good, "unasked": good, "asked": good}) == ""
    refused = Used(1, 0, 0, 0.1, "error: bootstrap: no")
    assert worse({"off": good, "unasked": good, "asked": refused}) == ""
    for bad in (good._replace(status=1), good._replace(memory=13000), good._replace(cpu=0.5), refused):
        assert worse({"off": good, "unasked": bad, "asked": good}) != ""


def test_control_logs_show_a_forged_line(cluster):
    """A line break in slurmd's log begins a new line, and the test above would find it."""
    node = cluster.nodes[0]
    assert re.search(r"^\[\d{4}-", cluster.log(f"slurmd.{node}"), re.M)
    assert re.findall(r"^FORGED.*", value("lines", 200), re.M)

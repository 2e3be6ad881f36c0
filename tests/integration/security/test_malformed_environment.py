"""Malformed environments: the step runs with right values or is refused with one line."""

# SPDX-License-Identifier: Apache-2.0

import json
import random
import re
import subprocess
from collections import Counter

import pytest

from harness import slurm_prefix
from malformed_environments import RUN, fixed, inside, mixed
from port_steps import allocation
from rank_values import SHOW, wrong_values

AT_ONCE = 6
IN_FULL = 1000  # of each way the plugin can be listed in plugstack.conf
IN_SHORT = 40


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    cluster = cluster_factory("malformed")
    cluster.asks = False
    return cluster.up("--cpus", "64", "--plugin-args", "when=always")


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
    """What a script in the job finds in its environment."""
    dump = cluster.run(["srun", f"--jobid={job}", "--overlap", "--bootstrap=off", "-N1", "-n1", "env", "-0"]).stdout
    found = dict(entry.split("=", 1) for entry in dump.split("\0") if "=" in entry)
    of_a_step = re.compile(r"SLURM_(STEP|PROCID|LOCALID|NODEID|GTIDS|TASK_PID|LAUNCH|SRUN|UMASK|CPU_BIND|DISTRIBUTION)")
    return {name: value for name, value in found.items() if name.startswith("SLURM") and not of_a_step.match(name)}


ASKS = "--bootstrap=on"


def run(cluster, program, case, *asks):
    options = ["--overlap", "--overcommit", "-N2", "-n4", "--ntasks-per-node=2", *case.options, *asks]
    order = {"given": case.given, "lacking": case.lacking, "is_empty": case.is_empty}
    return cluster.run([program, slurm_prefix() / "bin/srun", *options, *SHOW], stdin=json.dumps(order), timeout=300)


def trouble(done, addresses=()):
    """What is wrong with the outcome of a step that asked; '' when it is right, or one line names the reason why there is none."""
    if done.returncode == 0:
        found = [wrong_values(done.stdout, 4, 2, address) for address in ("", *addresses)]
        return "" if "" in found else found[0]
    if done.returncode in (124, 137):
        return "hung"
    lines = [line for line in done.stderr.splitlines() if "error: bootstrap: " in line]
    # srun itself may refuse such an environment, before any plugin sees it.
    return "" if len(lines) == 1 and len(lines[0]) < 500 or not lines and done.stderr else "not one line"


def trouble_unasked(done, addresses=()):
    """The same of one that did not: it is never refused, and all of its tasks have the right values, or none has any.

    Beside the announcement it has one line for each kind of wrong value: too long, invalid, not right for this step.
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
    # Slurm's own word on which ports are the step's, as the user forged it.
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


def test_control_what_is_wrong_is_noticed(cluster, how):
    program = cluster.write_home("malformed", RUN)
    case = next(case for case in fixed() if case.name == "env -i")
    right = run(cluster, program, case, ASKS)
    assert trouble(right) == "" and trouble_unasked(run(cluster, program, case)) == ""
    # A value that the user sets is kept where it may be right, so that the judge can be shown a wrong one.
    kept = type(case)("MASTER_ADDR", {"MASTER_ADDR": "10.99.99.99"})
    assert trouble(run(cluster, program, kept, ASKS)) != "" and trouble_unasked(run(cluster, program, kept)) != ""
    for name, value in (("RANK", "7"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "http")):
        done = run(cluster, program, type(case)(name, {name: value}), ASKS)
        assert trouble(done) == "" and done.stderr.count("bootstrap: warning: ") == 1, (name, done)
    for name, old, new in (("rank", "task 0 node001 0", "task 0 node001 7"), ("address", "node001 2", "node009 2")):
        changed = subprocess.CompletedProcess(right.args, 0, right.stdout.replace(old, new), "")
        assert changed.stdout != right.stdout and trouble(changed) != "" and trouble_unasked(changed) != "", name
    refused = subprocess.CompletedProcess(right.args, 1, "", "srun: error: bootstrap: no\n")
    assert trouble(refused) == "" and trouble_unasked(refused) != ""
    half = subprocess.CompletedProcess(right.args, 0, re.sub(r"(task \d node002).*", r"\1", right.stdout), "bootstrap: warning: x\n")
    assert trouble_unasked(half) != ""

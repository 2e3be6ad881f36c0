"""More than a hundred abuses of our options in real commands: exit status and text are those of the table."""

# SPDX-License-Identifier: Apache-2.0

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from built_files import double
from harness import REPOSITORY, module_cluster
from option_cases import TAKES, WRONG, Case, all_cases, clashes

AT_ONCE = 6

cluster = module_cluster("abuse", "--cpus", "64", "--plugin-args", "when=always", asks=False)


def run(cluster, case):
    return cluster.run(["timeout", "40", *case.line], env=case.env, timeout=60)


def trouble(case, done):
    """What differs from the table; '' if nothing does."""
    ours = [line for line in done.stderr.splitlines() if re.search("error: bootstrap: |bootstrap: warning: ", line)]
    if done.returncode != case.status:
        return f"status {done.returncode}"
    if len(ours) != (1 if case.text else 0):
        return f"{len(ours)} lines of ours"
    if case.text and (not re.match(case.text, ours[0]) or not ours[0].isascii() or len(ours[0]) > 400):
        return f"other text: {ours[0]!r}"
    if not re.fullmatch(case.output, done.stdout.strip()):
        return f"output {done.stdout[:200]!r}"
    return "" if re.search(case.slurm, done.stderr) else "Slurm said something else"


def judge(cluster, cases):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(lambda case: run(cluster, case), cases))
    return [f"{case.name}: {trouble(case, done)}: {done.stderr[:300]!r}" for case, done in zip(cases, outcomes)
            if trouble(case, done)]  # fmt: skip


def next_job(cluster):
    return int(cluster.run(["srun", "--bootstrap=off", "printenv", "SLURM_JOB_ID"]).stdout) + 1


def test_every_abuse_has_its_status_and_text(cluster, figure):
    record = (REPOSITORY / "tests/data/interface/settings.txt").read_text().splitlines()[1:]
    options = {line.split(" ")[2] for line in record} - {"-"}
    assert options == set(TAKES) == set(WRONG), "option_cases.py has each option"
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases) >= 100
    # A line that srun, sbatch or salloc refuses is refused before any allocation, so it takes no job id.
    stopped = [case for case in cases if case.slurm.startswith("error: Invalid --bootstrap")]
    following = next_job(cluster)
    bad = judge(cluster, stopped)
    assert len(stopped) >= 40 and next_job(cluster) == following + 1
    bad += judge(cluster, [case for case in cases if case not in stopped])
    refused = sum(case.status != 0 for case in cases)
    got = f"{len(cases)} cases, {refused} of them refused, {len(bad)} not as in the table"
    figure("F4", got=got, met=not bad, is_full=True, control="each entry of the table fails for another command's outcome")
    assert not bad, "\n".join(bad)
    # Refused lines leave no job: the only jobs are those that ran and ended.
    assert cluster.run(["squeue", "-h", "-t", "PD,R"]).stdout == ""
    assert cluster.script("status").returncode == 0


@pytest.mark.parametrize("is_first", [True, False], ids=["theirs first", "ours first"])
def test_an_option_of_two_plugins_belongs_to_the_first(cluster, is_first):
    ours, theirs = cluster.plugstack, f"optional {double('site_spank')} options\n"
    with cluster.other_plugstack(theirs + ours if is_first else f"{ours.rstrip()}\n{theirs}"):
        bad = judge(cluster, list(clashes(is_first)))
    assert not bad, "\n".join(bad)


def test_control_another_outcome_is_noticed(cluster):
    right = run(cluster, Case("nothing", ("srun", "true"), 0))
    wrong = run(cluster, Case("wrong", ("srun", "--bootstrap-port=81", "true"), 255))
    unnoticed = [case.name for case in all_cases() if not trouble(case, right if case.text or case.slurm else wrong)]
    # A message about another value must not match either, unless the table shows no value.
    unnoticed += [case.name for case in all_cases() if case.text and "bootstrap-port" in case.name and not trouble(case, wrong)
                  and "[^" not in case.text]  # fmt: skip
    assert not unnoticed

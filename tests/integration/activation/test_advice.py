"""Each advice of the plugin is obeyed by a step, which ends well: no hang, no error, and the ranks meet that it promises."""

# SPDX-License-Identifier: Apache-2.0

import re
import shlex

import pytest

from activation_steps import cluster, site, told  # fixtures, too
from advice_table import EACH, ON, ROWS, SHELL, STUCK, TORCHRUN, TWO, WORDS, Advice
from harness import REPOSITORY

BOUND = 60  # seconds, for what never ends
# Advice that these do not print on such a cluster, and where it is tried.
ELSEWHERE = {
    "own_plan.cc": "test_explain", "master_endpoint.cc": "test_ports", "explain.cc": "test_near_gpus",
    "user_init.cc": "test_gpus", "step_rows.cc": "test_check", "setting_table.cc": "test_options",
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(cluster):
    """Names alone decide: each runs the words from the first Python on, or its last one."""
    run_words = '#!/usr/bin/env -S bash\nuntil [[ $1 == python3 || $# -le 1 ]]; do shift; done; exec "$@"\n'
    (cluster.home / "bin").mkdir()
    for name in ("accelerate", "deepspeed", "wandb", "farmctl", "mpirun", "apptainer"):
        cluster.write_home(f"bin/{name}", run_words.replace('exec "$@"', '[[ $1 == python3 || $1 == unseen ]] && exec "$@"; true'))
    train = ROWS["no GPUs"].step.split("-n2 ")[1].split()
    cluster.write_home("bin/unseen", f"#!/usr/bin/bash\nexec {shlex.join(train)}\n")
    cluster.write_home("steps.conf", f"0-3 {WORDS}\n")
    cluster.write_home("bin/own", f"#!/usr/bin/env python3\nimport os\nos.execvp('python3', {train})\n")
    return cluster


def run(cluster, row, words):
    return cluster.run(["sh", "-c", f"cd; PATH=$PWD/bin:$PATH exec srun {words}"], env=dict(row.env), timeout=BOUND)


def members(done):
    """Rank and world size of each task; None for a task without."""
    found = re.findall(r"^\w+: (?:member (\d+) of (\d+)|ValueError)", done.stdout, re.M)
    return sorted((int(rank), int(size)) if rank else None for rank, size in found) if "member" in done.stdout else [None] * len(found)


@pytest.mark.parametrize("name", ROWS)
def test_who_obeys_is_served(programs, site, name):
    row = ROWS[name]
    if row.site:
        site(row.site)
    is_told = row.is_told or "SLURM_BOOTSTRAP" in dict(row.env)
    done = run(programs, row, row.step if is_told else f"--bootstrap=explain {row.step}")
    line = [text for text in told(done) if "NOT SET UP: " in text]
    assert len(line) == 1 and line[0].split("NOT SET UP: ")[1] == f"{row.reason}; {row.advice}", done
    for words, ranks in row.obeyed.items():
        obeyed = run(programs, row, words)
        assert obeyed.returncode == 0, (words, obeyed)
        assert not re.search(r"NOT SET UP|error:", obeyed.stderr), (words, obeyed)
        expected = [(rank, ranks) for rank in range(ranks)] or [None] * 4
        assert members(obeyed) == expected, (words, obeyed)


LINE = "bootstrap: warning: StepId=ID: "
ASKED = Advice("", "", "", {})


@pytest.mark.parametrize("tool, clean", [
    ("env", "-i"), ("apptainer", "exec --cleanenv image.sif")], ids=["env", "container"])  # fmt: skip
def test_what_keeps_the_variables_from_a_program_is_named(programs, tool, clean):
    option = clean.split("image")[0].split()[-1]
    line = f'{LINE}"{tool} {option}" keeps RANK, MASTER_ADDR and the other variables from the program; use {tool} without {option}'
    program = f"/usr/bin/{WORDS}" if tool == "env" else WORDS
    for ask in ("", ON):
        done = run(programs, ASKED, f"{ask} {TWO} {tool} {clean} {program}")
        found = [text for text in told(done) if text.startswith(line)]
        assert len(found) == 1 and done.returncode == 0, done
        obeyed = run(programs, ASKED, f"{ask} {TWO} {tool} {clean.replace(option, '')} {program}")
        assert told(obeyed) == [] and members(obeyed) == [(rank, 4) for rank in range(4)], obeyed
    for words in (f"--bootstrap=off {TWO} {tool} {clean} {program}", f"-N2 -n2 {tool} {clean} {program}"):
        assert told(run(programs, ASKED, words)) == [], words


def test_a_step_that_asks_for_what_would_wait_for_ever_reads_it_too(programs):
    stuck = f"{EACH} torchrun --nnodes 2 --node_rank 0 --master_addr node001 --help"
    row = Advice("", "", "", {}, env=TORCHRUN)
    assert told(run(programs, row, f"{ON} {stuck}")) == [f'{LINE}"--node_rank 0" {STUCK}; remove --node_rank 0 --master_addr node001']
    assert told(run(programs, row, f"--bootstrap=off {stuck}")) == []
    launcher = told(run(programs, ASKED, f"{ON} {TWO} ./bin/accelerate launch {WORDS}"))
    assert len(launcher) == 1 and f"{LINE}accelerate starts its own ranks; start your program with srun itself: srun python3" in launcher[0]
    # A step for each node, with its own rank.
    assert told(run(programs, row, "-N1 -n1 --gres=gpu:2 torchrun --nnodes 2 --node_rank 0 --master_addr node001 --help")) == []


def test_a_step_that_asks_for_tasks_with_several_gpus_reads_what_its_ranks_count(programs):
    """A program may start a worker for each GPU only where RANK is not set."""
    line = (f"{LINE}node001 has 1 task and 2 GPUs: a program that uses one GPU for each task leaves 1 unused; use "
            "--ntasks-per-node=2 for a task for each GPU")
    assert told(run(programs, ASKED, f"{ON} {EACH} {WORDS}")) == [line]
    for words in (f"{EACH} {WORDS}", f"{ON} {TWO} {WORDS}", f"{ON} -N1 -n1 --gres=gpu:2 {WORDS}", f"{ON} {EACH} {SHELL}"):
        assert told(run(programs, ASKED, words)) == [], words


def test_a_master_that_the_step_does_not_have_is_named(cluster_factory):
    cluster = cluster_factory("advice-3")
    cluster.asks = False
    cluster.up("--nodes", "3", "--gpus", "2")
    torchrun = "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint"
    for nodes, master, is_named in (("node[002-003]", "node001", True), ("node[002-003]", "node002", False), ("node[002-003]", "other", False)):
        line = f"salloc -Q -N3 --gres=gpu:2 srun -N2 -n2 -w {nodes} {torchrun} {master}:29400 --help"
        found = told(cluster.run(["sh", "-c", line], env=dict(TORCHRUN), timeout=BOUND))
        expected = f'"--rdzv_endpoint {master}:29400" is no node of the step: the step would wait for ever; remove '
        assert bool(found) == is_named and all(f"NOT SET UP: {expected}" in text for text in found), found


def test_each_advice_to_ask_has_a_row():
    """A sentence that is new in the sources is tried here."""
    advised = "\n".join(row.advice for row in ROWS.values())
    missing = set()
    for folder in ("libbootstrap/core", "spank_plugin"):
        for path in (REPOSITORY / folder).rglob("*.cc"):
            if path.name in ELSEWHERE:
                continue
            text = re.sub(r"//.*|\"\s*\n\s*\"", "", path.read_text())
            missing |= {f"{path.name}: {words}" for words in re.findall(r'"([^"\n]*use [^"\n]*--bootstrap=on[^"\n]*)"', text)
                        if words.removeprefix(", and ").strip() not in advised}
    assert sorted(missing) == [], "a row in advice_table.py"

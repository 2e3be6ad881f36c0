"""A step follows each advice and ends well: no hang, no error, and the promised ranks meet."""

# SPDX-License-Identifier: Apache-2.0

import json
import re
import shlex
from contextlib import ExitStack

import pytest

from activation_steps import other_file, site, told  # a fixture, too
from advice_table import CHECKS, EACH, ON, ROWS, SHELL, STUCK, TORCHRUN, TWO, WORDS, Advice
from built_files import COMMAND
from harness import REPOSITORY

BOUND = 60  # seconds, for what never ends
# Other advice, or all advice of a file or folder, and the test that runs it.
ELSEWHERE = {
    "api": "exchange/test_exchange", "comm": "exchange/test_exchange_pmi1", "probe": "exchange/test_exchange",
    "exchange": "exchange/test_exchange_pmi1", "horovod": "frameworks/test_horovod", "preload": "preload/test_preload",
    "settings": "activation/test_options", "cli": "command/test_command_line",
    "plugstack.cc": "command/test_check", "network.cc": "activation/test_options", "explain.cc": "gpus/test_near_gpus",
    "frameworks.cc": "activation/test_addresses",
    "master_endpoint.cc": "ports/test_ports", "plan.cc": "activation/test_refusals",
    "node_gpus.cc": "gpus/test_gpus",
    "rank_layout.cc": "layouts/test_layouts", "step": "activation/test_refusals", "task_init.cc": "activation/test_refusals",
    "install libbootstrap.so there, or set preload_library= in plugstack.conf": "preload/test_preload",
    "srun": "activation/test_newer_slurm", "ask your administrator when that ends, and start the step again then": "activation/test_roll_out",
    "begin the list of --export with ": "layouts/test_heterogeneous_steps", "start the program with srun": "command/test_command_line",
    "name an address of that node with --bootstrap-addr": "activation/test_unknown_names",
    "use --bootstrap=off for independent runs": "harm/test_harm",
    "install one version on all hosts, or use --bootstrap=off": "activation/test_mixed_versions", "near.cc": "gpus/test_near_gpus",
    "start the program with slurm-bootstrap near": "gpus/test_near_gpus",
}  # fmt: skip
# Advice to administrators. And Slurm puts no two components of a step on one node.
OF_ADMINISTRATORS = """
use --bootstrap-gpu=off, and select the GPU in the program
install the driver on the nodes
install one driver on all nodes: NCCL may choose different paths on different drivers
install one version on all nodes, or name the file to load: SLURM_BOOTSTRAP_NCCL=PATH
install the plugin for Slurm
install the same packages of slurm-bootstrap on all nodes
install and switch on the plugin on all nodes
use the same Python environment on all nodes
use sudo --preserve-env, if your site allows it
remove old files from it
set LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf
move its line in plugstack.conf behind that of spank_bootstrap.so
set MASTER_ADDR to a name that other nodes resolve
"""


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    """Only the steps themselves ask. The nodes have shares of GPUs, too."""
    cluster = cluster_factory("advice", asks=False).up(
        "--gpus", "4", "--cpus", "8", "--set", "GresTypes=gpu,shard", "--set", "TaskPlugin=task/affinity")
    etc = cluster.state / "etc"
    conf, gres = (etc / name for name in ("slurm.conf", "gres.conf"))
    conf.write_text(conf.read_text().replace("Gres=gpu:4", "Gres=gpu:4,shard:8"))
    gres.write_text(f"{gres.read_text()}NodeName=node[001-002] Name=shard Count=8\n")
    assert cluster.run(["scontrol", "reconfigure"], user="root").returncode == 0
    return cluster


@pytest.fixture(scope="module")
def programs(cluster):
    """Stand-ins, since only names count: each runs its words from the first Python on, or its last word."""
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
    """Rank and world size of each task; None for a task that has none."""
    found = re.findall(r"^\w+: (?:member (\d+) of (\d+)|ValueError)", done.stdout, re.M)
    return sorted((int(rank), int(size)) if rank else None for rank, size in found) if "member" in done.stdout else [None] * len(found)


@pytest.mark.parametrize("name", ROWS)
def test_each_advice_works(programs, site, name):
    row = ROWS[name]
    site(row.site, row.before)
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


HOSTS = "127.0.0.1 localhost\n127.0.1.1 node001\n10.20.1.2 node002\n10.20.0.1 head\n"
CHANGES = {"loopback ": lambda cluster: other_file(cluster, "node001", "/etc/hosts", HOSTS, "hosts"),
           "without ": lambda cluster: cluster.other_plugstack()}


@pytest.mark.parametrize("name", CHECKS)
def test_each_hint_of_check_works(programs, name):
    row, advice, *lines = CHECKS[name]
    found = []
    for line in lines:
        with ExitStack() as stack:
            for word, change in CHANGES.items():
                if line.startswith(word):
                    stack.enter_context(change(programs))
                    line = line.removeprefix(word)
            line = line.replace("CHECK", f"{COMMAND} check --json").replace("srun ", "srun -Q ", 1)
            done = programs.run(["bash", "-c", line], timeout=BOUND)
        found += [one for one in json.loads(done.stdout)["checks"] if one["check"] == row]
    assert found[0]["result"] in ("warning", "FAILED") and advice in found[0]["hint"], found
    assert found[1]["result"] in ("ok", "not there"), found


def test_a_step_with_a_terminal_is_set_up_if_it_asks(programs):
    def terminal(words):
        return programs.run(["script", "-qec", f"srun --pty {words} {TWO} {WORDS}", "/dev/null"], timeout=BOUND).stdout

    assert f"NOT SET UP: the step has a terminal (--pty); use {ON} to set it up" in terminal("--bootstrap=explain")
    assert "member 0 of 4" in terminal(ON)


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


def test_a_step_that_asks_and_would_hang_has_the_warning_too(programs):
    stuck = f"{EACH} torchrun --nnodes 2 --node_rank 0 --master_addr node001 --help"
    row = Advice("", "", "", {}, env=TORCHRUN)
    assert told(run(programs, row, f"{ON} {stuck}")) == [f'{LINE}"--node_rank 0" {STUCK}; remove --node_rank 0 --master_addr node001']
    assert told(run(programs, row, f"--bootstrap=off {stuck}")) == []
    launcher = told(run(programs, ASKED, f"{ON} {TWO} ./bin/accelerate launch {WORDS}"))
    assert len(launcher) == 1 and f"{LINE}accelerate starts its own ranks; start your program with srun itself: srun python3" in launcher[0]
    # A step for each node, with its own rank.
    assert told(run(programs, row, "-N1 -n1 --gres=gpu:2 torchrun --nnodes 2 --node_rank 0 --master_addr node001 --help")) == []


def test_a_step_that_asks_reads_that_a_task_leaves_gpus_unused(programs):
    """A program may start a worker for each GPU only if RANK is not set."""
    line = (f"{LINE}node001 has 1 task and 2 GPUs: a program that uses one GPU for each task leaves 1 unused; use "
            "--ntasks-per-node=2 for a task for each GPU")
    assert told(run(programs, ASKED, f"{ON} {EACH} {WORDS}")) == [line]
    for words in (f"{EACH} {WORDS}", f"{ON} {TWO} {WORDS}", f"{ON} -N1 -n1 --gres=gpu:2 {WORDS}", f"{ON} {EACH} {SHELL}"):
        assert told(run(programs, ASKED, words)) == [], words


def test_a_rendezvous_endpoint_outside_the_step_is_named(cluster_factory):
    cluster = cluster_factory("advice-3", asks=False).up("--nodes", "3", "--gpus", "2")
    torchrun = "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint"
    for nodes, master, is_named in (("node[002-003]", "node001", True), ("node[002-003]", "node002", False), ("node[002-003]", "other", False)):
        line = f"salloc -Q -N3 --gres=gpu:2 srun -N2 -n2 -w {nodes} {torchrun} {master}:29400 --help"
        found = told(cluster.run(["sh", "-c", line], env=dict(TORCHRUN), timeout=BOUND))
        expected = f'"--rdzv_endpoint {master}:29400" is no node of the step: the step would wait for ever; remove '
        assert bool(found) == is_named and all(f"NOT SET UP: {expected}" in text for text in found), found


@pytest.mark.full
def test_an_environment_with_too_many_variables_is_reported(programs):
    """Steps that are not set up have no line about it."""
    many = "for ((i = 0; i < $1; i++)); do export V$i=1; done; shift; exec srun"
    advice = "unset some of them, or use --bootstrap=off"
    for count, words, is_told in ((16500, WORDS, True), (16500, f"--bootstrap=off {WORDS}", False), (16500, SHELL, False)):
        done = programs.run(["bash", "-c", f"{many} {TWO} {words}", "sh", str(count)], timeout=BOUND)
        assert [advice in text for text in told(done)] == [True] * is_told, (words, done.stderr)


VERBS = "use|start|set|unset|request|remove|name|add|install|move|choose|begin|give|keep|load|ask"
ADVISES = re.compile(rf'"([^"\n]*; |, (?:and|or) |; or )?((?:{VERBS}) (?!by )[^";\n]{{8,}})')


def test_each_advice_has_a_row_or_another_test():
    """A new advice in the sources needs a row."""
    tried = "\n".join([*(row.advice for row in ROWS.values()), *(advice for _, advice, *_ in CHECKS.values()), *ELSEWHERE, OF_ADMINISTRATORS, "unset some of them, or use --bootstrap=off"])
    missing = set()
    for folder in ("libbootstrap", "spank_plugin"):
        for path in (REPOSITORY / folder).rglob("*.cc"):
            if ELSEWHERE.keys() & {path.name, path.parent.name, *path.parts}:
                continue
            text = re.sub(r"//.*|\"\s*\n\s*\"", "", path.read_text())
            missing |= {f"{path.name}: {found[2]}" for found in ADVISES.finditer(text) if found[2].strip() not in tried}
    assert not missing, "these need a row in advice_table.py"
    assert all((REPOSITORY / f"tests/integration/{test}.py").exists() for test in ELSEWHERE.values())

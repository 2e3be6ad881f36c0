"""What srun prints about steps that are set up unasked, what slurmd's log keeps, and what `off` does to a preloaded library."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from activation_steps import ONE, PYTHON, SHELL_RANK, TWO, WORLD, all_lines, cluster, site, srun, variables  # fixtures, too
from built_files import COMMAND, LIBRARY, inside
from port_steps import background

LINE = "bootstrap: StepId=ID: {} are the ranks of one world; rank 0 is on node001; use --bootstrap=off for independent runs"


def test_srun_announces_an_unasked_world_in_one_line(cluster):
    for options, tasks in ((TWO, "4 tasks on node[001-002]"), (ONE, "2 tasks on node001")):
        done = srun(cluster, options)
        assert all_lines(done) == [LINE.format(tasks)] and done.stderr.count("\n") == 1, done.stderr
        assert all(WORLD <= set(task) for task in variables(done))
    agents = cluster.run(["srun", "-N2", "--ntasks-per-node=1", "--gres=gpu:2", "torchrun", "--help"])
    assert all_lines(agents) == ["bootstrap: StepId=ID: 2 torchruns on node[001-002] form one world; they meet on node001; "
                            "use --bootstrap=off for independent runs"]


@pytest.mark.parametrize("options, program, env", [
    (f"-Q {TWO}", PYTHON, {}), (f"--bootstrap=on {TWO}", PYTHON, {}), (TWO, PYTHON, {"SLURM_BOOTSTRAP": "on"}),
    (f"--bootstrap=off {TWO}", PYTHON, {}), (TWO, SHELL_RANK, {}), ("-N2 -n4", PYTHON, {}), ("-n1 --gres=gpu:1", PYTHON, {}),
], ids=["-Q", "asks", "job asks", "off", "shell", "no GPUs", "one task"])  # fmt: skip
def test_all_other_steps_are_silent(cluster, options, program, env):
    assert srun(cluster, options, *program, env=env).stderr == ""


def test_announce_off_silences_the_line(site, cluster):
    site("announce=off")
    done = srun(cluster, TWO)
    assert done.stderr == "" and all(WORLD <= set(task) for task in variables(done))


def test_hints_explain_why_a_step_with_gpus_is_no_world(site, cluster):
    few = "-N2 --ntasks-per-node=1 --gres=gpu:2"
    assert srun(cluster, few).stderr == ""
    site("hints=on")
    assert all_lines(srun(cluster, few)) == ["bootstrap: warning: StepId=ID: NOT SET UP: each node has 1 task and 2 GPUs; use "
                                        "--ntasks-per-node=2 for a task for each GPU, or --bootstrap=on for tasks with several GPUs"]
    for options, program in ((TWO, SHELL_RANK), ("-N2 -n4", PYTHON), ("-N1 -n1 --gres=gpu:2", PYTHON)):
        assert srun(cluster, options, *program).stderr == "", options


def test_log_decisions_writes_decisions_into_slurmds_log(site, cluster):
    def logged():
        return re.findall(r"bootstrap: StepId=\d+\.\d+: (.*)", cluster.log("slurmd.node001")), cluster.log("slurmd.node002")

    lines = [(TWO, PYTHON, "SET UP", "a GPU for each task, and "), (TWO, SHELL_RANK, "NOT SET UP", "bash is a shell"),
             (f"--bootstrap=on {TWO}", PYTHON, "SET UP", "--bootstrap=on asks for it"),
             ("--bootstrap=on -N2 --ntasks-per-node=3 --gres=gpu:2", PYTHON, "REFUSED", "3 tasks on node001 would share 2 GPUs")]  # fmt: skip
    for options, program, *_ in lines:
        cluster.run(["srun", *options.split(), *program])
    assert "SET UP" not in "".join(logged()[0])
    site("log=decisions")
    size = r'user=alice\(\d+\) partition=\S+ tasks=(4|6) nodes=2 reason: '
    for options, program, word, why in lines:
        before = len(logged()[0])
        done = cluster.run(["srun", *options.split(), *program])
        found = [text for text in logged()[0][before:] if text.startswith("decision=")]
        assert len(found) == 1 and re.match(f'decision="{word}" {size}{re.escape(why)}', found[0]), (word, found)
        assert "SLURM_BOOTSTRAP_DECISION" not in done.stdout
    assert "SET UP" not in logged()[1], "only the first node has the line, or a node that refuses for its own reason"


def test_a_port_of_the_user_that_is_taken_is_named(cluster):
    listen = "import socket, time; s = socket.create_server(('', 29533)); print('ready', flush=True); time.sleep(600)"
    with background(cluster, ["python3", "-c", listen], ready=True):
        taken = srun(cluster, ONE, env={"MASTER_PORT": "29533"})
    assert [line for line in all_lines(taken) if "MASTER_PORT 29533 on node001 is already in use by another program" in line], taken.stderr
    # No process has the port: the user's program may bind it without SO_REUSEADDR.
    bind = "import os, socket; r = os.environ['RANK']; s = socket.socket(); r == '0' and s.bind(('', 29533)); print('bound', r)"
    free = srun(cluster, ONE, "python3", "-c", bind, env={"MASTER_PORT": "29533"})
    assert sorted(free.stdout.splitlines()) == ["bound 0", "bound 1"] and len(all_lines(free)) == 1


def test_off_stops_a_preloaded_library(cluster):
    preload = {"LD_PRELOAD": inside(LIBRARY)}
    assert all("RANK" in task for task in variables(srun(cluster, "-N2 -n4", env=preload)))
    done = srun(cluster, "--bootstrap=off -N2 -n4", env=preload)
    assert all("RANK" not in task for task in variables(done)) and len(variables(done)) == 4


def test_the_command_in_a_batch_script_names_srun(cluster):
    script = f"{COMMAND} explain; {COMMAND} check"
    cluster.run(["sbatch", "--wait", "-N2", "-n4", "-o", "batch.out", "--wrap", script])
    lines = (cluster.home / "batch.out").read_text().splitlines()
    assert len(lines) == 2 and all("a batch script, like the shell of salloc, is one process and no step; start the program with srun"
                                   in line for line in lines), lines

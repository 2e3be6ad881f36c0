"""srun names a node that has not confirmed its tasks, and a node's refusal is never lost."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from built_files import double
from harness import module_cluster, stop, wait_for

WORLD = ["-w", "node[001-003]", "-N3", "--ntasks-per-node=2", "--gres=gpu:2"]
# Prints its variables at its begin, and runs until the test ends it.
WAITS = """import os, time
print("rank", os.environ.get("RANK"), flush=True)
while not os.path.exists("/home/alice/end"): time.sleep(0.1)"""

cluster = module_cluster("receipts", "--nodes", "3", "--gpus", "2", "--cpus", "8", asks=False)


@pytest.fixture
def step(cluster):
    """Starts a step that runs until the test ends it; returns the file with its lines."""
    running = []

    def start(*options, node="head", program=WAITS):
        (cluster.home / "end").unlink(missing_ok=True)
        lines = cluster.home / f"lines.{len(running)}"
        lines.write_text("")
        lines.chmod(0o666)
        command = 'exec srun "$@" 2> ' + f"/home/alice/{lines.name}"
        running.append(cluster.start(["sh", "-c", command, "sh", *WORLD, *options, "python3", "-c", program], node=node))
        return lines, running[-1]

    yield start
    (cluster.home / "end").touch()
    for process in running:
        stop(process)


def end(cluster, process):
    """Lets the step end by itself; returns its exit status."""
    (cluster.home / "end").touch()
    process.communicate(timeout=120)
    return process.returncode


NOT_CONFIRMED = "bootstrap: warning: StepId=.*: node003 has not confirmed that its tasks got their ranks: the plugin's line is missing"


def test_a_node_without_the_line_is_named(cluster, step):
    with cluster.without_plugin("node003"):
        lines, process = step()
        wait_for(lambda: re.search(NOT_CONFIRMED, lines.read_text()))
        assert process.poll() is None, "a silent node does not end the step"
        assert end(cluster, process) == 0
    text = lines.read_text()
    assert text.count("has not confirmed") == 1 and "node001" not in text.split("has not confirmed")[1], text


def test_a_node_without_the_line_is_named_at_the_end_of_a_short_step(cluster):
    with cluster.without_plugin("node003"):
        done = cluster.run(["srun", *WORLD, "python3", "-c", "1"])
    assert done.returncode == 0 and len(re.findall(NOT_CONFIRMED, done.stderr)) == 1, done.stderr


@pytest.mark.parametrize("who", ["node", "srun"])
def test_a_refusal_that_a_node_loses_ends_the_step(cluster, step, who):
    """The nodes with the plugin end their tasks; the tasks of the third node run until srun ends the step."""
    cluster.configure("prot=25000" if who == "srun" else "")
    try:
        with cluster.without_plugin("node003"):
            lines, process = step("--bootstrap=on", "-n9" if who == "node" else "-n6", "--ntasks-per-node=3", "-K0")
            process.communicate(timeout=120)
    finally:
        cluster.configure()
    assert process.returncode != 0, "it would run for ever"
    text = lines.read_text()
    assert ("would share 2 GPUs" if who == "node" else 'argument "prot=25000" in plugstack.conf is unknown') in text, text
    assert "has not confirmed" not in text, text


def test_a_plugin_that_starts_the_program_first_is_named_when_the_task_ends(cluster):
    with cluster.other_plugstack(f"optional {double('singularity-exec')} start\n{cluster.plugstack}"):
        done = cluster.succeed(["srun", *WORLD, "python3", "-c", "1"])
    assert re.search(r"node\[001-003\] have not confirmed that all of their tasks got their ranks", done.stderr), done.stderr


def test_a_step_whose_nodes_have_confirmed_is_silent(cluster):
    for options in ([], ["--bootstrap=on"], ["-v"]):
        for program in ("1", "raise SystemExit(3)"):
            done = cluster.run(["srun", *WORLD, *options, "python3", "-c", program])
            assert "confirmed" not in done.stderr, done.stderr


@pytest.mark.parametrize("limit", [21, 24, 40])  # srun itself needs 20
def test_a_step_with_few_descriptors_ends_as_without_the_plugin(cluster, limit):
    command = f"ulimit -n {limit}; exec srun {' '.join(WORLD)} python3 -c 1"
    with cluster.without_plugin("head"):
        assert cluster.run(["bash", "-c", command]).returncode == 0, "control"
    assert cluster.run(["bash", "-c", command]).returncode == 0

"""Plugins whose order beside ours matters, before and behind our line: one gives all tasks of a node one environment (as
pyxis does), and one starts the program itself (as singularity-exec does). The variables of tasks, and what `check` names."""

# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from activation_steps import TWO, all_lines, cluster, srun, told, variables  # one is a fixture
from built_files import COMMAND, PLUGIN, double, inside
from check_steps import check
from roll_out_site import NO_LINE, Site

PLUGINS = {"share": "spank_pyxis", "start": "singularity-exec"}
RIGHT = {"share": "before us", "start": "behind us"}
WRONG = {"share": "behind us", "start": "before us"}
ASKS = pytest.mark.parametrize("asks", ["", "--bootstrap=on"], ids=["unasked", "asked"])
KINDS = pytest.mark.parametrize("kind", PLUGINS)
# srun passes it to slurmstepd, and it stays in the tasks.
MESSAGE = "SLURM_BOOTSTRAP_LAYOUT"
PLACEHOLDER = "not-set:this-node-did-not-run-slurm-bootstrap"


@pytest.fixture
def lines(cluster):
    """Puts another plugin before or behind ours."""

    def put(kind, side):
        pair = [f"optional {double(PLUGINS[kind])} {kind}", f"optional {inside(PLUGIN)}"]
        cluster.write_plugstack("\n".join([*(pair if side == "before us" else reversed(pair)), ""]))

    yield put
    cluster.configure()


def by_rank(done):
    """Our variables in each task, without messages. The tasks differ in SLURM_PROCID, which the other plugin does not share."""
    found = variables(done)
    assert len(found) == 4, done
    return [{name: value for name, value in task.items() if name != MESSAGE} for task in found]


@KINDS
@ASKS
def test_another_plugin_on_the_right_side_leaves_each_rank_right(cluster, lines, kind, asks):
    lines(kind, RIGHT[kind])
    done = srun(cluster, f"{TWO} {asks}")
    tasks = by_rank(done)
    assert sorted((task["RANK"], task["LOCAL_RANK"], task["NODE_RANK"]) for task in tasks) == [
        ("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1"), ("3", "1", "1")]
    assert len({(task["MASTER_ADDR"], task["MASTER_PORT"], task["WORLD_SIZE"]) for task in tasks}) == 1
    assert told(done) == [] and len(all_lines(done)) == (0 if asks else 1), done.stderr
    found = check(cluster, *TWO.split(), *asks.split())
    assert found.result("plan") == "ok" and "network" not in found.failed, found.stdout


@ASKS
def test_a_shared_environment_behind_ours_repeats_ranks_and_check_names_rank(cluster, lines, asks):
    lines("share", WRONG["share"])
    ranks = sorted(task["RANK"] for task in by_rank(srun(cluster, f"{TWO} {asks}")))
    assert len(set(ranks)) == 2 and ranks[0] == ranks[1] and ranks[2] == ranks[3], "control: the order counts"
    found = check(cluster, *TWO.split(), *asks.split())
    assert found.result("plan") == "FAILED" and len(found.ranks("plan")) == 2, found.stdout
    assert found.text("plan").startswith("another plugin, a TaskProlog or a script changed RANK"), found.stdout


def test_an_unasked_program_that_another_plugin_starts_has_no_variable_of_ours(cluster, lines):
    lines("start", WRONG["start"])
    assert by_rank(srun(cluster, TWO)) == [{}] * 4


def test_an_asked_program_that_another_plugin_starts_finds_a_placeholder_for_rank(cluster, lines):
    lines("start", WRONG["start"])
    done = cluster.run(["srun", *TWO.split(), "--bootstrap=on", "python3", "-c", "import os; print(os.environ['RANK'])"])
    assert done.stdout.splitlines() == [PLACEHOLDER] * 4, done
    assert by_rank(srun(cluster, f"{TWO} --bootstrap=on")) == [{"RANK": PLACEHOLDER}] * 4


def test_a_node_without_our_line_has_a_placeholder_for_rank_in_a_step_that_asks(cluster):
    site = Site(cluster)
    for host in ("head", "node001", "node002"):
        site.set(host, NO_LINE if host == "node002" else "world")
    try:
        ranks = sorted(task.get("RANK") for task in by_rank(srun(cluster, f"{TWO} --bootstrap=on")))
        assert ranks == ["0", "1", PLACEHOLDER, PLACEHOLDER]
        command = ["srun", *TWO.split(), "--bootstrap=on", "-K", "python3", "-c", "import os; print(int(os.environ['RANK']))"]
        done = cluster.run(command)
        assert done.returncode != 0 and PLACEHOLDER in done.stderr and "replaced" not in done.stderr, done
        assert sorted(task.get("RANK", "") for task in by_rank(srun(cluster, TWO))) == ["", "", "0", "1"], "control: unasked"
    finally:
        cluster.configure()


@ASKS
def test_check_names_the_nodes_where_task_init_did_not_run(cluster, lines, asks):
    lines("start", WRONG["start"])
    found = check(cluster, *TWO.split(), *asks.split())
    assert found.result("plan") == "FAILED" and found.ranks("plan") == [0, 1, 2, 3], found.stdout
    assert found.text("plan").startswith("the plugin's task_init did not run on node001 and 1 more node"), found.stdout
    assert "network" not in found.failed, "no name server is to blame"


@KINDS
@pytest.mark.parametrize("order", [RIGHT, WRONG], ids=["right", "wrong"])
def test_check_of_a_host_names_both_lines_of_a_wrong_order(cluster, lines, kind, order):
    lines(kind, order[kind])
    done = cluster.run([COMMAND, "check", "--local", "--json"], node="node001")
    row = next(row for row in json.loads(done.stdout)["checks"] if row["check"] == "plugstack.conf")
    assert (done.returncode, row["result"]) == ((0, "ok") if order is RIGHT else (1, "FAILED")), done.stdout
    if order is WRONG:
        assert "etc/plugstack.conf:1" in row["text"] and "etc/plugstack.conf:2" in row["text"], row
        assert f"{PLUGINS[kind]}.so" in row["text"] and "move this line" in row["text"], row

"""What Slurm makes of a plugin that fails: the published table is complete, still true, and what our hooks rely on."""

import random
import re
import subprocess
from dataclasses import astuple, replace

import pytest

from fault_outcome import run_cell
from fault_nodes import UP, Lane, Watcher, in_lanes
from fault_places import PLACES, Cell, Outcome, all_cells, is_as_published, read_table, write_table
from harness import REPOSITORY

PAGE = REPOSITORY / "tests" / "data" / "slurm-failures.md"
UNDISTURBED = Outcome("exit 0", "ran", "COMPLETED", "idle", "-")
# Signs that a cell took as long as its patience: each of these costs a lane half a minute.
SLOW = {"waits", "RUNNING", "COMPLETING"}
PASSES = 3


@pytest.fixture(scope="module")
def published():
    return read_table(PAGE.read_text())


def outcome(published, command, place, plugin, fault):
    (only,) = published[Cell(command, place, plugin, fault)]
    return only


def test_every_cell_is_published(published):
    cells = all_cells()
    assert len(cells) == 528 and sum(map(len, PLACES.values())) == 33
    assert set(published) == set(cells)
    assert read_table(write_table(published)) == published


def test_user_init_must_not_refuse(published):
    """Why each hook in slurmstepd but task_init returns 0: srun would report success, and sbatch lose the node."""
    srun = outcome(published, "srun", "user_init.remote", "required", "-1")
    assert (srun.status, srun.ran) == ("exit 0", "did not run")
    for place in ("init.remote", "init_post_opt.remote", "user_init.remote", "task_post_fork.remote"):
        assert outcome(published, "sbatch", place, "required", "-1").node == "drained"


def test_task_init_is_where_a_job_can_be_refused(published):
    """Two places end srun with a failure, fail the batch job, and leave node and daemons alone: task_init, and
    task_init_privileged, which is called as root."""

    def refuses(place):
        srun, sbatch = (outcome(published, command, place, "required", "-1") for command in ("srun", "sbatch"))
        is_loud = srun.status == "exit 1" and sbatch.job == "FAILED"
        return is_loud and all((way.ran, way.node, way.died) == ("did not run", "idle", "-") for way in (srun, sbatch))

    both = set(PLACES["srun"]) & set(PLACES["sbatch"])
    assert {place for place in both if refuses(place)} == {"task_init_privileged.remote", "task_init.remote"}


def test_task_init_refuses_by_exit_and_not_by_its_answer(published):
    """Why end_task() ends the child: Slurm drops the answer of an optional plugin, and runs the program."""
    assert outcome(published, "srun", "task_init.remote", "optional", "-1") == UNDISTURBED
    for command in ("srun", "sbatch"):
        required, optional = (
            outcome(published, command, "task_init.remote", plugin, "exit(1)") for plugin in ("required", "optional")
        )
        assert required == optional
        assert (required.ran, required.job, required.node, required.died) == ("did not run", "FAILED", "idle", "-")


def test_only_answers_below_zero_of_required_plugins_count(published):
    changed = {
        (cell.place, cell.plugin, cell.fault)
        for cell, outcomes in published.items()
        if (cell.fault == "+1" or (cell.plugin, cell.fault) == ("optional", "-1")) and outcomes != {UNDISTURBED}
    }
    # Of an option that srun has read every answer but 0 counts.
    assert {place for place, _, _ in changed} == {"option.local"}, changed


def test_exceptions_and_crashes_are_no_better_in_optional_plugins(published):
    """Why no exception leaves a hook: whatever is in plugstack.conf, it ends slurmstepd."""
    for command in ("srun", "sbatch"):
        for place in ("init.remote", "user_init.remote", "task_post_fork.remote", "task_exit.remote"):
            for fault in ("throw", "abort", "segv"):
                for plugin in ("required", "optional"):
                    for way in published[Cell(command, place, plugin, fault)]:
                        assert way.died.startswith("slurmstepd signal"), (command, place, fault, plugin)


def test_success_without_a_run(published):
    """What a program that trusts exit statuses would not notice."""
    places = {
        cell.place
        for cell, ways in published.items()
        for way in ways
        if (cell.command, way.status, way.ran) == ("srun", "exit 0", "did not run")
    }
    assert {"init.local", "user_init.remote", "task_post_fork.remote", "task_init.remote"} <= places


def is_slow(cell, published):
    return cell.command == "slurmd" or any(SLOW & set(astuple(way)) for way in published[cell])


def cells_to_run(published, is_full, seed):
    choice = random.Random(seed)
    cells = all_cells()
    choice.shuffle(cells)
    # The long ones first, so that no lane is left alone with one at the end.
    slow = [cell for cell in cells if is_slow(cell, published)]
    quick = [cell for cell in cells if cell not in set(slow)]
    return slow + quick if is_full else slow[:3] + quick[:15]


def test_slurm_fails_as_published(campaign, cluster_factory, figure, published):
    said = subprocess.run(["slurmd", "-V"], check=True, capture_output=True, text=True)
    version = said.stdout.split()[-1]
    if not re.search(rf"\bSlurm {re.escape(version)}\b", PAGE.read_text()):
        pytest.skip(f"the published table is not of Slurm {version}")
    cells = cells_to_run(published, campaign.is_full, campaign.seed)
    cluster = cluster_factory("matrix").up("--nodes", campaign.size("12", "6"), "--gpus", "0", "--cpus", "2", *UP)
    watcher = Watcher(cluster)
    try:
        lanes = [Lane(cluster, watcher, node) for node in cluster.nodes]
        passes = [in_lanes(lanes, campaign.each(cells), run_cell) for _ in range(campaign.size(PASSES, 1))]
    finally:
        watcher.stop()
    cluster.close()
    seen = {cell: {done[cell][0] for done in passes if cell in done} for cell in passes[0]}
    other = {
        cell: odd
        for cell, ways in seen.items()
        if (odd := [way for way in ways if not is_as_published(published, cell, way)])
    }
    disturbed = sum(ways != {UNDISTURBED} for ways in seen.values())
    varying = sum(len(ways) > 1 for ways in seen.values())
    slowest = max(back for done in passes for _, _, back in done.values())
    figure(
        "C1",
        got=f"{len(seen)} cells, {campaign.done:,} steps, {len(other)} unlike the published table, {varying} with several "
        f"outcomes; each node usable again after {slowest:.0f} s at most",
        met=not other,
        control=f"{disturbed} of them are not what a step without a fault does",
        seed=campaign.seed,
        why="" if campaign.is_full else "a sample; all cells and three passes with --full",
        table=write_table(seen) if campaign.is_full else "",
    )
    told = "\n".join(f"{cell}: {odd}, not {published[cell]}" for cell, odd in other.items())
    assert not other, f"seed {campaign.seed}: {told}"
    assert disturbed, "no fault had any effect"


def test_another_outcome_is_noticed(published):
    """The control of the comparison above: what it must not take for as published."""
    refusal = Cell("sbatch", "user_init.remote", "required", "-1")
    (way,) = published[refusal]
    assert is_as_published(published, refusal, way)
    for other in (UNDISTURBED, replace(way, node="idle"), replace(way, ran="ran"), replace(way, died="slurmd exit 1")):
        assert not is_as_published(published, refusal, other)
    crash = Cell("srun", "task_post_fork.remote", "optional", "segv")
    for other in (UNDISTURBED, replace(next(iter(published[crash])), died="-")):
        assert not is_as_published(published, crash, other)

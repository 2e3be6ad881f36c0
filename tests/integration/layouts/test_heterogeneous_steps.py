"""Heterogeneous steps: their components may be one world or not, so all of them are set up if the step asks,
and else none."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from rank_values import SHOW, wrong_values

FIRST, SECOND = ("-N1", "-n1"), ("-N1", "-n2", "--gres=gpu:2")


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    cluster = cluster_factory("components")
    cluster.asks = False
    return cluster.up("--nodes", "3", "--cpus", "8", "--gpus", "2", "--set", "MpiParams=ports=12000-12999")


def run(cluster, first, second, *, before=(), env=None):
    return cluster.run([*before, "srun", *first, *SHOW, ":", *second, *SHOW], env=env)


def is_right(done):
    """One rank on the first node, two on the second."""
    tasks = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len({task[-1] for task in tasks}) == 1, done
    assert wrong_values(done.stdout, 3, 0) == "tasks are not spread over the nodes", done  # and nothing else
    return True


def is_untouched(done):
    assert done.returncode == 0 and "error" not in done.stderr, done
    return all(line.split()[3:] == [] for line in done.stdout.splitlines()) and len(done.stdout.splitlines()) == 3


ASKED = {"SLURM_BOOTSTRAP": "on"}


@pytest.mark.parametrize("components", [(FIRST, SECOND), (SECOND, FIRST)], ids=["gpus second", "gpus first"])
def test_components_are_left_alone_unless_the_step_asks(cluster, components):
    assert is_untouched(run(cluster, *components))
    assert is_right(run(cluster, *components, env=ASKED))


@pytest.mark.parametrize("where", [0, 1], ids=["first", "second"])
def test_an_option_of_one_component_applies_to_all(cluster, where):
    components = [FIRST, ("-N1", "-n2")]
    components[where] = (*components[where], "--bootstrap=on")
    assert is_right(run(cluster, *components))


def test_components_meet_at_a_reserved_port(cluster):
    done = run(cluster, FIRST, SECOND, env=ASKED)
    assert is_right(done) and done.stdout.split()[-1].startswith("12"), done


def test_the_users_setting_applies_to_all_components(cluster):
    assert is_right(run(cluster, FIRST, ("-N1", "-n2"), env=ASKED))
    assert is_untouched(run(cluster, (*FIRST, "--bootstrap=off"), SECOND, env=ASKED))
    assert is_untouched(run(cluster, FIRST, SECOND, env={"SLURM_BOOTSTRAP": "off"}))


@pytest.mark.parametrize("asks", [[], ["--bootstrap=on"]], ids=["unasked", "asked"])
def test_the_option_of_the_job_applies_to_its_steps(cluster, asks):
    allocated = ["salloc", "-Q", *asks, *FIRST, ":", "-N1", "-n2", "--gres=gpu:2"]
    done = cluster.run([*allocated, "srun", "-Q", "--het-group=0,1", *SHOW])
    assert is_right(done) if asks else is_untouched(done)


def test_gpus_in_one_component_do_not_make_the_step_a_world(cluster):
    allocated = ["salloc", "-Q", *FIRST, ":", "-N1", "-n2", "--gres=gpu:2"]
    step = ["srun", "-Q", "--het-group=0", "--gres=none", *SHOW, ":", "--het-group=1", *SHOW]
    assert is_untouched(cluster.run([*allocated, *step]))
    assert is_right(cluster.run([*allocated, *step], env=ASKED))


def test_no_component_is_set_up_if_export_hides_the_decision_from_one(cluster):
    done = run(cluster, (*FIRST, "--export=NONE"), SECOND, env=ASKED)
    assert is_untouched(done) and done.stderr.count("bootstrap: warning: ") == 1, done
    assert "begin the list of --export with SLURM_BOOTSTRAP_DECISION" in done.stderr, done


def test_a_step_that_asks_is_refused_if_export_hides_the_decision(cluster):
    """Else its other component would end with 0 after ten minutes."""
    done = cluster.run(["srun", *FIRST, "--bootstrap=on", "--export=PATH", *SHOW, ":", *SECOND, "sleep", "600"], timeout=300)
    assert done.returncode != 0, done
    refusals = [line for line in done.stderr.splitlines() if "error: bootstrap: StepId=" in line]
    assert len(refusals) == 1 and "begin the list of --export with SLURM_BOOTSTRAP_DECISION" in refusals[0], done
    assert "failed first" not in done.stderr, done

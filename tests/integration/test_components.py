"""Heterogeneous steps: each component has GPUs of its own, and all of them are set up, or none."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from rank_values import SHOW, wrong_values

FIRST, SECOND = ("-N1", "-n1"), ("-N1", "-n2", "--gres=gpu:2")


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return cluster_factory("components").up("--nodes", "3", "--cpus", "8", "--gpus", "2", "--set", "MpiParams=ports=12000-12999")


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


@pytest.mark.parametrize("components", [(FIRST, SECOND), (SECOND, FIRST)], ids=["gpus second", "gpus first"])
def test_gpus_of_one_component_are_those_of_the_step(cluster, components):
    assert is_right(run(cluster, *components))


def test_without_gpus_no_component_is_set_up(cluster):
    assert is_untouched(run(cluster, FIRST, ("-N1", "-n2")))


def test_components_meet_at_a_reserved_port(cluster):
    done = run(cluster, FIRST, SECOND)
    assert is_right(done) and done.stdout.split()[-1].startswith("12"), done


def test_the_users_word_is_for_all_components(cluster):
    assert is_right(run(cluster, FIRST, ("-N1", "-n2"), env={"SLURM_BOOTSTRAP": "on"}))
    assert is_untouched(run(cluster, FIRST, SECOND, env={"SLURM_BOOTSTRAP": "off"}))


@pytest.mark.parametrize("gpus, is_set_up", [("--gres=gpu:2", True), ("--gres=gpu:0", False)], ids=["gpus", "none"])
def test_in_a_job_the_gpus_of_the_job_count(cluster, gpus, is_set_up):
    """Nothing tells srun of them: neither its words nor its variables."""
    allocated = ["salloc", "-Q", *FIRST, ":", "-N1", "-n2", gpus]
    done = cluster.run([*allocated, "srun", "-Q", "--het-group=0,1", *SHOW])
    assert is_right(done) if is_set_up else is_untouched(done)


def test_gpus_of_a_component_alone_are_refused(cluster):
    """A part of the ranks would wait for the others."""
    allocated = ["salloc", "-Q", *FIRST, ":", "-N1", "-n2", "--gres=gpu:2"]
    done = cluster.run([*allocated, "srun", "-Q", "--het-group=0", "--gres=none", *SHOW, ":", "--het-group=1", *SHOW])
    assert done.returncode != 0 and done.stderr.count("error: bootstrap: ") == 1, done
    assert "--bootstrap=on or --bootstrap=off" in done.stderr, done

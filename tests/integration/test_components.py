"""Heterogeneous steps: all components are set up where the step was asked for, whichever has GPUs, and none where it was not."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from rank_values import SHOW, wrong_values

FIRST, SECOND = ("-N1", "-n1"), ("-N1", "-n2", "--gres=gpu:2")
UNASKED = {"SLURM_BOOTSTRAP": ""}


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


COMPONENTS = {"gpus second": (FIRST, SECOND), "gpus first": (SECOND, FIRST), "no gpus": (FIRST, ("-N1", "-n2"))}


@pytest.mark.parametrize("name", COMPONENTS)
def test_all_components_are_set_up_where_the_job_asks(cluster, name):
    assert is_right(run(cluster, *COMPONENTS[name]))


@pytest.mark.parametrize("name", COMPONENTS)
def test_no_component_is_set_up_unasked(cluster, name):
    assert is_untouched(run(cluster, *COMPONENTS[name], env=UNASKED))


def test_components_meet_at_a_reserved_port(cluster):
    done = run(cluster, FIRST, SECOND)
    assert is_right(done) and done.stdout.split()[-1].startswith("12"), done


def test_the_users_word_is_for_all_components(cluster):
    asked, refused = ("--bootstrap=on",), ("--bootstrap=off",)
    assert is_right(run(cluster, (*FIRST, *asked), SECOND, env=UNASKED))
    assert is_right(run(cluster, FIRST, (*SECOND, *asked), env=UNASKED))
    assert is_untouched(run(cluster, (*FIRST, *refused), SECOND))
    assert is_untouched(run(cluster, FIRST, SECOND, env={"SLURM_BOOTSTRAP": "off"}))


@pytest.mark.parametrize("gpus", ["--gres=gpu:2", "--gres=gpu:0"], ids=["gpus", "none"])
@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "unasked"])
def test_in_a_job_as_outside(cluster, gpus, is_asked):
    """Nothing tells srun of the GPUs that a job has: neither its words nor its variables."""
    allocated = ["salloc", "-Q", *FIRST, ":", "-N1", "-n2", gpus]
    done = cluster.run([*allocated, "srun", "-Q", "--het-group=0,1", *SHOW], env={} if is_asked else UNASKED)
    assert is_right(done) if is_asked else is_untouched(done)


@pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "unasked"])
def test_gpus_of_the_last_component_alone_do_not_part_the_ranks(cluster, is_asked):
    """Where a part of the ranks is set up, it waits for the others: all of them are, or none."""
    allocated = ["salloc", "-Q", *FIRST, ":", "-N1", "-n2", "--gres=gpu:2"]
    step = ["srun", "-Q", "--het-group=0", "--gres=none", *SHOW, ":", "--het-group=1", *SHOW]
    done = cluster.run([*allocated, *step], env={} if is_asked else UNASKED)
    assert is_right(done) if is_asked else is_untouched(done)


@pytest.mark.parametrize("asked", [[], ["--bootstrap=on"]], ids=["the job asks", "the step asks"])
def test_an_export_that_parts_the_components_leaves_all_alone(cluster, asked):
    """srun tells the first component alone, which would wait for the others: none is set up, and srun says so."""
    done = run(cluster, (*FIRST, *asked, "--export=PATH"), (*SECOND, "--export=PATH"))
    assert is_untouched(done)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("srun: bootstrap: warning: StepId=")]
    assert len(warnings) == 1 and "not set up: it has several components, and an --export" in warnings[0], done
    # As that line says.
    exported = f"--export={re.search('begin the list of --export with (.+)', warnings[0]).group(1)},PATH"
    assert is_right(run(cluster, (*FIRST, *asked, exported), (*SECOND, exported)))

"""`slurm-bootstrap explain` in a task explains the task's environment, or fails with a sentence."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from built_files import COMMAND, LIBRARY, inside
from harness import Cluster

WORLD = "-N2 -w node001,node002 --ntasks-per-node=2 --gres=gpu:2"  # a node may still end the step before


@pytest.fixture(scope="module")
def cluster(wide_cluster: Cluster):
    """The site sets up worlds only."""
    with wide_cluster.other_plugstack(f"optional {wide_cluster.plugin}\n"):
        yield wide_cluster


def explain(cluster: Cluster, options: str, *arguments: str, **settings: str):
    return cluster.run(["srun", *options.split(), COMMAND, "explain", *arguments], env={"SLURM_BOOTSTRAP": "", **settings})


def test_a_task_shows_its_own_values(cluster):
    done = explain(cluster, WORLD, "--rank", "3")
    assert done.returncode == 0, done
    assert re.match(r"bootstrap: StepId=\d+\.0: SET UP: a GPU for each task; use --bootstrap=off", done.stdout), done.stdout
    assert re.search(r"\nRANK +3 +SLURM_PROCID\n", done.stdout) and re.search(r"\nBOOTSTRAP_GPU +1 ", done.stdout), done.stdout
    assert "SLURM_BOOTSTRAP_EXPORTS" not in done.stdout
    assert "SLURM_BOOTSTRAP_EXPORTS" in explain(cluster, WORLD, "--rank", "3", "--verbose").stdout
    assert "is reserved" not in done.stdout, "another node reserves it"
    assert re.search(r"\nPort \d+ of node001 is reserved for rank 0 until the step ends\.\n", explain(cluster, WORLD, "--rank", "0").stdout)


def test_the_first_line_of_explain_reports_a_step_that_is_not_set_up(cluster):
    done = explain(cluster, f"{WORLD} --bootstrap=off", "--rank", "1")
    assert re.match(r"bootstrap: StepId=\d+\.0: NOT SET UP: no plugin set up this step ", done.stdout), done
    assert "\nVARIABLE                  VALUE IF SET UP      FROM\n" in done.stdout and "is reserved" not in done.stdout


@pytest.mark.parametrize("options, times", [("-v", 1), ("-v --bootstrap=off", 1), ("--bootstrap=explain", 1), ("", 0)])
def test_a_misspelt_variable_is_named_only_on_request(cluster, options, times):
    done = cluster.run(["srun", *f"{WORLD} {options}".split(), "python3", "-c", "1"], env={"SLURM_BOOTSTRAP": "", "SLURM_BOOTSTRAP_PRT": "4000"})
    said = " ".join(done.stderr.split())
    assert said.count("slurm-bootstrap reads no variable SLURM_BOOTSTRAP_PRT; man spank_bootstrap lists those") == times, done.stderr
    if not times:
        note = explain(cluster, WORLD, "--rank", "0", SLURM_BOOTSTRAP_PRT="4000").stdout
        table = cluster.run(["srun", *WORLD.split(), COMMAND, "check"], env={"SLURM_BOOTSTRAP": "", "SLURM_BOOTSTRAP_PRT": "4000"}).stdout
        for text in (note, table):
            assert "reads no variable SLURM_BOOTSTRAP_PRT" in " ".join(text.split()), text


def test_the_preload_reserves_no_port_of_the_step(cluster):
    library = inside(LIBRARY)
    shell = f"export LD_PRELOAD={library}; exec {COMMAND} explain --rank 0"
    done = cluster.run(["srun", *f"{WORLD} --bootstrap=off bash -c".split(), shell], env={"SLURM_BOOTSTRAP": ""})
    text = done.stdout.replace("\n", " ")
    assert "SET UP: the preloaded library does it, without the plugin" in text and "until the step ends" not in text, done
    assert "Settings: LD_PRELOAD" in text, text


def test_the_debug_variable_shows_what_the_preload_decides(cluster):
    library = inside(LIBRARY)

    def lines(options: str, *program: str):
        line = ["srun", *f"--bootstrap=off {options} env SLURM_BOOTSTRAP_DEBUG=1 LD_PRELOAD={library}".split(), *program]
        done = cluster.succeed(line, env={"SLURM_BOOTSTRAP": ""})
        return re.sub(r"(StepId=)\d+\.\d+|(process )\d+", r"\1\2ID", done.stderr.replace("/usr/bin/", "")).splitlines()

    world = lines("-N2 -n2", "python3", "-c", "1")
    assert "bootstrap: StepId=ID: SET UP: the preloaded library does it, without the plugin" in world, world
    assert any(line.startswith("bootstrap: StepId=ID: MASTER_PORT=") for line in world), world
    assert lines("-n1", "python3", "-c", "1") == [
        "bootstrap: process ID (python3): NOT SET UP: the step has one task; use SLURM_BOOTSTRAP=on to set it up"]  # fmt: skip
    quiet = cluster.run(["srun", "-n1", "--bootstrap=off", f"--export=ALL,LD_PRELOAD={library}", "python3", "-c", "1"])
    assert quiet.stderr == "", "control"


@pytest.mark.parametrize("arguments, sentence", [
    (["--rank", "9"], "slurm-bootstrap: --rank 9: the step has ranks 0 to 1\n"),
    (["--env", "/etc/passwd"], "cannot read an environment from /etc/passwd: it does not hold NAME=VALUE entries"),
    (["--env", "/bin/true"], "cannot read an environment from /bin/true: it does not hold NAME=VALUE entries"),
])  # fmt: skip
def test_explain_ends_with_an_error_where_it_has_no_plan(cluster, arguments, sentence):
    done = explain(cluster, "-n2", *arguments)
    assert done.returncode == 1 and sentence in done.stderr and done.stdout == "", done

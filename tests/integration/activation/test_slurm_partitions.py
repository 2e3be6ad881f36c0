"""partitions=: a site tries the plugin in one partition, and steps of other partitions run as without it."""

import json
import re

from activation_steps import cluster, site

STEP = ["-N2", "--ntasks-per-node=2", "--gres=gpu:2"]
NAMES = {"rank": "RANK", "order": "CUDA_DEVICE_ORDER", "kill": "SLURM_KILL_BAD_EXIT"}
SHOW = ["python3", "-c", f"import json, os; print(json.dumps({{key: os.environ.get(name, '') for key, name in {NAMES}.items()}}))"]


def tasks(cluster, *options, env=None, before=()):
    done = cluster.succeed([*before, "srun", *STEP, *options, *SHOW], env=env)
    return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda task: json.dumps(task))


def test_steps_of_other_partitions_are_as_without_the_plugin(cluster, site):
    with cluster.other_plugstack():
        untouched = tasks(cluster)
    site("partitions=debug")
    for options, env in (((), {}), (("-p", "main"), {}), (("-pmain",), {"SLURM_PARTITION": "debug"})):
        assert tasks(cluster, *options, env=env) == untouched, options
    site("")
    assert tasks(cluster) != untouched, "control: without partitions= the step is set up"


def test_steps_of_the_partition_are_set_up(cluster, site):
    site("")
    wanted = tasks(cluster)
    assert sorted(task["rank"] for task in wanted) == list("0123")
    site("partitions=debug")
    for options, env in ((("-p", "debug"), {}), (("--partition=debug",), {}), ((), {"SLURM_PARTITION": "debug"})):
        assert tasks(cluster, *options, env=env) == wanted, options
    allocated = ["salloc", "-Q", "-p", "debug", "-N2", "--ntasks-per-node=2", "--gres=gpu:2"]
    assert tasks(cluster, before=allocated) == wanted
    site("partitions=debug,main,default")
    assert tasks(cluster) == wanted, "the default partition, under its two names"


def test_the_partition_that_slurm_names_decides(cluster, site):
    """Slurm 22.05 names all requested partitions, which partitions= does not contain; later releases name the chosen one."""
    site("partitions=debug")
    show = "import os; print(os.environ['SLURM_JOB_PARTITION'], os.environ.get('RANK', 'none'))"
    done = cluster.run(["srun", *STEP, "-p", "debug,main", "python3", "-c", show])
    names, ranks = zip(*map(str.split, done.stdout.splitlines()))
    assert done.returncode == 0 and set(names) in ({"debug"}, {"main"}, {"debug,main"}), done
    assert sorted(ranks) == (list("0123") if names[0] == "debug" else ["none"] * 4)


def test_a_step_that_asks_is_set_up_in_any_partition(cluster, site):
    site("partitions=debug")
    assert sorted(task["rank"] for task in tasks(cluster, "--bootstrap=on")) == list("0123")
    told = cluster.run(["srun", *STEP, "--bootstrap=explain", "true"])
    assert re.search("NOT SET UP: its partition is not in partitions= of plugstack.conf", told.stderr)

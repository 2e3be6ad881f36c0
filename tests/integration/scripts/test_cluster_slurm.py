"""scripts/cluster with another Slurm than the machine's: a named one, or the one in PATH."""

import os
import re
import shutil

import pytest

from built_files import PLUGIN, built
from harness import CGROUP_VERSIONS, REPOSITORY, run_here, slurm_prefix

COMMANDS = ("bin/srun", "bin/sbatch", "bin/sinfo", "bin/scontrol", "bin/scancel", "sbin/slurmctld", "sbin/slurmd")


def copy_of_slurm(prefix):
    """A copy of the machine's Slurm below another prefix, in a folder that the hosts hide. Its commands still load the old libraries."""
    for name in COMMANDS:
        (prefix / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(slurm_prefix() / name, prefix / name)
    (prefix / "etc").mkdir()
    prefix.chmod(0o755)  # for alice; pytest's folders are readable only for its user
    return prefix


@pytest.fixture(scope="module", params=["named", "in PATH"])
def other(request, cluster_factory, tmp_path_factory):
    """(cluster, prefix)"""
    prefix = copy_of_slurm(tmp_path_factory.mktemp("slurm").resolve())
    options = ("--plugin", built(PLUGIN), "--gpus", "1")
    label = request.param.replace(" ", "-").lower()
    if request.param == "named":
        return cluster_factory(label).up(*options, "--slurm", str(prefix)), prefix
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{prefix}/sbin:{prefix}/bin:{os.environ['PATH']}")
        return cluster_factory(label).up(*options), prefix


def test_daemons_and_steps_are_of_that_slurm(other):
    cluster, prefix = other
    for host, daemon in (("head", "slurmctld"), ("node001", "slurmd"), ("node002", "slurmd")):
        shown = cluster.run(["sh", "-c", f"readlink /proc/*/exe | grep {daemon}$"], user="root", node=host).stdout
        assert f"{prefix}/sbin/{daemon}" in shown.split(), (host, shown)
    told = cluster.run(["srun", "-N2", "sh", "-c", "which srun"])
    assert told.stdout == f"{prefix}/bin/srun\n" * 2, told.stderr
    world = cluster.run(["srun", "-N2", "--gres=gpu:1", "sh", "-c", "echo $RANK"])
    assert sorted(world.stdout.split()) == ["0", "1"], world.stderr
    assert cluster.script("status").returncode == 0


def test_commands_that_lose_slurm_conf_find_it_below_the_prefix(other):
    cluster, prefix = other
    assert f"ClusterName={cluster.name}\n" in cluster.run(["cat", f"{prefix}/etc/slurm.conf"], node="node001").stdout
    assert not list((prefix / "etc").iterdir())


def test_that_slurm_is_also_at_the_machines_own_paths(other):
    cluster, prefix = other
    is_it = f"[ $(PATH=/usr/bin which srun) -ef {prefix}/bin/srun ] && echo this one"
    assert cluster.run(["srun", "-N1", "--export=NIL", "/bin/sh", "-c", is_it]).stdout == "this one\n"
    line = f"cd && sbatch --quiet --export=NONE --wait --output=found --wrap '{is_it}'; cat found"
    assert cluster.run(["sh", "-c", line], timeout=60).stdout == "this one\n"


def make_prefix(folder, said):
    for name in COMMANDS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{said}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("case, words", [
    ("nothing", ["looked for sbin/slurmctld of Slurm below", "has none", "name the prefix that Slurm was configured with"]),
    ("no folder", ["looked for", "name the prefix of a Slurm"]),
    ("does not start", ["cannot ask", "sbin/slurmd for its version: it does not start"]),
    ("another release", ["is for Slurm", "and not for 99.05.1", "SLURM_ROOT=", "--plugin"]),
])
def test_a_slurm_that_cannot_be_used_is_refused(cluster_factory, tmp_path, case, words):
    prefix = tmp_path / "prefix"
    if case == "nothing":
        prefix.mkdir()
    elif case == "no folder":
        prefix = tmp_path / "no" / "prefix"
    else:
        make_prefix(prefix, "exit 1" if case == "does not start" else "echo slurm 99.05.1")
    cluster = cluster_factory("never")
    done = cluster.script("up", "--slurm", str(prefix), "--plugin", built(PLUGIN))
    assert done.returncode == 1 and all(word in done.stderr for word in words), done.stderr
    assert not cluster.state.exists()


@pytest.mark.skipif("v1" not in CGROUP_VERSIONS, reason="this machine has no cgroup v1 devices controller")
def test_both_names_of_slurms_cgroup_are_there(cluster_factory):
    """`slurm`, and `slurm_HOST` if Slurm was built with --enable-multiple-slurmd."""
    cluster = cluster_factory("cgroups").up("--no-plugin", "--nodes", "1", "--constrain-devices=v1")
    place = "/sys/fs/cgroup/devices"
    for name in ("slurm", "slurm_node001"):
        assert cluster.run(["cat", f"{place}/{name}/devices.list"], node="node001").stdout == "a *:* rwm\n", name


def test_the_tests_for_another_slurm_exist():
    """A script has their list, and pytest would run none if a file did not exist."""
    script = (REPOSITORY / "scripts/checks/other_slurm.sh").read_text()
    array = re.search(r"^readonly (tests=\(.*?^\))", script, re.MULTILINE | re.DOTALL).group(1)
    names = run_here(["bash", "-c", f'{array}; printf "%s\\n" "${{tests[@]}}"']).stdout.split()
    files = ["tests/integration/{}/test_{}.py".format(*name.split("/")) for name in names]
    assert len(files) > 30 and [file for file in files if not (REPOSITORY / file).exists()] == []


@pytest.mark.parametrize("word, said, code", [
    ("99.99", "there is no Slurm 99.99 to test with", 2),
    ("/nowhere/slurm", "looked for sbin/slurmd below /nowhere/slurm", 1),
])
def test_check_takes_a_release_or_a_prefix(word, said, code):
    done = run_here([REPOSITORY / "scripts/check", "--slurm", word])
    assert done.returncode == code and said in done.stdout + done.stderr, done.stderr

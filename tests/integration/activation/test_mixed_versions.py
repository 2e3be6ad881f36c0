"""Hosts with different versions of the plugin, in each order of an upgrade, while steps run. etc/doc/stability.md has the rule.
And an upgrade of Slurm: one plugstack.conf is right for both releases, each with its own build of the plugin."""

# SPDX-License-Identifier: Apache-2.0

import shutil
import subprocess
from contextlib import ExitStack

import pytest

from built_files import PLUGIN, built, inside
from debian import ROOT_SCRIPT, root_of, slurm_of_debians
from harness import INSIDE, REPOSITORY, module_cluster, slurm_version, succeed_here
from other_versions import FORMAT, build_1_0_0, build_other

# The hosts get the other plugin one by one, until all have it.
ORDERS = {"nodes first": ("node002", "node001", "head"), "submit host first": ("head", "node001", "node002")}
STEP = ("srun", "-N2", "-w", "node001,node002", "--ntasks-per-node=2")
SHOW = ("sh", "-c", "echo ${RANK:-none}")
TRAIN = ("python3", "-I", "-S", "-c", "import os; print(os.environ.get('RANK', 'none'))")
NOTHING, ALL = ["none"] * 4, list("0123")

site = module_cluster("mixed-versions", "--nodes", "2", "--cpus", "8", "--gpus", "2", asks=False)


def ranks(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def world(cluster):
    return cluster.run([*STEP, "--gres=gpu:2", *TRAIN])


def asked(cluster):
    return cluster.run([*STEP, "--bootstrap=on", *SHOW])


@pytest.mark.full
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("version", ["1.0.0", "1.9.0"])
def test_versions_with_one_format_work_together(site, version, order):
    """No step fails or is half set up: worlds, farms, shells, and steps that ask."""
    plugin = build_1_0_0() if version == "1.0.0" else build_other(version, FORMAT)
    steps = 0
    with ExitStack() as mounts:
        for host in (None, *ORDERS[order]):
            running = site.start([*STEP, "--gres=gpu:2", "python3", "-I", "-S", "-c",
                                  "import os, time; print(flush=True); time.sleep(3); print(os.environ['RANK'])"])
            assert [running.stdout.readline() for _ in range(4)] == ["\n"] * 4
            if host:
                mounts.enter_context(site.mounted(plugin, inside(PLUGIN), host))
            for _ in range(3):
                assert ranks(world(site)) == ALL and ranks(asked(site)) == ALL
                assert ranks(site.run([*STEP, "--gres=gpu:2", *SHOW])) == NOTHING
                assert ranks(site.run([*STEP, *TRAIN])) == NOTHING
            stdout, stderr = running.communicate(timeout=60)
            assert running.returncode == 0 and sorted(stdout.split()) == ALL, stderr
            steps += 13
    print(f"mixed versions: {steps} steps, 0 failed or half set up")


@pytest.mark.full
@pytest.mark.parametrize("new", [("head",), ("node002",), ("node001", "node002")], ids=" ".join)
def test_another_format_sets_up_nothing(site, new):
    """A major release: no step is half set up, an unasked step runs, and one that asks is refused on all nodes."""
    plugin = build_other("1.9.9", FORMAT + 1)
    with ExitStack() as mounts:
        for host in new:
            mounts.enter_context(site.mounted(plugin, inside(PLUGIN), host))
        if new != ("node002",):  # a world is set up on node001 alone
            assert ranks(world(site)) == NOTHING
        refused = asked(site)
        assert refused.returncode != 0 and "another version of the plugin" in refused.stderr, refused
        assert ranks(site.run([*STEP, "--gres=gpu:2", *SHOW])) == NOTHING


# -- of Slurm


DEBIAN = "13"
# One build for this machine, and one for the other Debian.
WORLD = """scripts/cluster up --name upgrade --cpus 8 --plugstack build/upgrade/plugstack.conf --set PluginDir="$1" >/dev/null 2>&1
trap 'scripts/cluster down --name upgrade' EXIT
scripts/cluster exec --name upgrade -- srun --version
scripts/cluster exec --name upgrade -- srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 -I -S -c 'import os; print(os.environ["RANK"])'
"""


@pytest.fixture(scope="module")
def builds():
    """The builds of the plugin by release of Slurm."""
    if not root_of(DEBIAN):
        pytest.skip(f"Debian {DEBIAN} is not made; run scripts/debian/root.sh {DEBIAN} make")
    build = "cmake --preset release && cmake --build --preset release --target spank_bootstrap"
    subprocess.run([ROOT_SCRIPT, DEBIAN, "run", "bash", "-e", "-c", build], stdout=subprocess.PIPE, check=True)
    other = REPOSITORY / "build" / f"debian{DEBIAN}" / "release" / PLUGIN
    return {slurm_version().rsplit(".", 1)[0]: built(PLUGIN), slurm_of_debians()[DEBIAN]: other}


def write_files(build, plugins):
    folder = build / "upgrade"
    shutil.rmtree(folder, ignore_errors=True)
    for release, plugin in plugins.items():
        (folder / release).mkdir(parents=True)
        shutil.copy(plugin, folder / release / "spank_bootstrap.so")
    (folder / "plugstack.conf").write_text("optional spank_bootstrap.so\n")


@pytest.mark.full
def test_each_slurm_loads_the_build_for_it(builds):
    for release, enter in zip(builds, ([], [ROOT_SCRIPT, DEBIAN, "run"])):
        write_files(REPOSITORY / "build" / (f"debian{DEBIAN}" if enter else ""), builds)
        folders = f"/usr/lib/x86_64-linux-gnu/slurm-wlm:{INSIDE}/build/upgrade/{release}"
        done = succeed_here([*enter, "bash", "-e", "-c", WORLD, "sh", folders], cwd=REPOSITORY)
        version, *ranks = done.stdout.split("\n")[:-1]
        assert f"slurm-wlm {release}." in version and sorted(ranks) == list("0123"), done
        assert "error" not in done.stderr, "the build for the other Slurm was loaded"

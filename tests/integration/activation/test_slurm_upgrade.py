"""An upgrade of Slurm: one plugstack.conf serves both releases, each of which has its own build of the plugin."""

# SPDX-License-Identifier: Apache-2.0

import shutil
import subprocess

import pytest

from built_files import PLUGIN, built
from debian import ROOT_SCRIPT, root_of, slurm_of_debians
from harness import INSIDE, REPOSITORY, slurm_version, succeed_here

DEBIAN = "13"
# For this machine, and for the other Debian.
WORLD = """scripts/cluster up --name upgrade --cpus 8 --plugstack build/upgrade/plugstack.conf --set PluginDir="$1" >/dev/null 2>&1
trap 'scripts/cluster down --name upgrade' EXIT
scripts/cluster exec --name upgrade -- srun --version
scripts/cluster exec --name upgrade -- srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 -I -S -c 'import os; print(os.environ["RANK"])'
"""


@pytest.fixture(scope="module")
def builds():
    """By the release of Slurm."""
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

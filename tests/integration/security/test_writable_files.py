"""Files that decide something for all users of a node are not believed where others than their owner can write to them:
the topology, the library to preload, and Slurm's own plugstack.conf."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil

import pytest

from built_files import LIBRARY, PLUGIN, built, inside
from harness import REPOSITORY

TOPOLOGY = "tests/data/topologies/two-socket-4gpu.txt"
REASON = "users other than its owner can write to it; forbid that with chmod go-w"
MODES = {"group": 0o775, "world": 0o757}
SHOW = ["sh", "-c", 'echo "$SLURM_PROCID preload=$LD_PRELOAD"']


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return cluster_factory("writable").up("--nodes", "1", "--gpus", "4", "--no-plugin")


@pytest.fixture
def files(cluster):
    """A copy of each file, root's and as installed; the names by which the cluster knows them, too."""
    folder = cluster.state / "etc"
    copies = {name: folder / name for name in ("library.so", "topology.txt")}
    for source, copy in zip((built(LIBRARY), TOPOLOGY), copies.values()):
        copy.unlink(missing_ok=True)  # the program of an earlier step may still run
        shutil.copyfile(REPOSITORY / source, copy)
        copy.chmod(0o755)
    arguments = {"library.so": "preload_library", "topology.txt": "topology"}
    given = " ".join(f"{arguments[name]}={path}" for name, path in copies.items())
    cluster.write_plugstack(f"optional {inside(PLUGIN)} when=always preload=on {given}\n")
    return copies


def sentences(done):
    return [line for line in done.stderr.splitlines() if "bootstrap:" in line]


def explained(cluster):
    """The output of a step with --bootstrap=explain, without its line breaks."""
    return " ".join(cluster.run(["srun", "-n2", "--gres=gpu:4", "--bootstrap=on,explain", "true"]).stderr.split())


def run(cluster):
    """A step in which both files are used."""
    return cluster.run(["srun", "-n2", "--gres=gpu:4", "--bootstrap=on", *SHOW])


def test_control_files_of_root_alone_are_used(cluster, files):
    done = run(cluster)
    assert done.returncode == 0 and sentences(done) == [], done.stderr
    assert all(str(files["library.so"]) in line for line in done.stdout.splitlines())
    assert f"Places of the GPUs: {files['topology.txt']}" in explained(cluster)


def is_told(cluster, name, path, reason):
    """One line explains why the file is not used, and the step runs."""
    done = run(cluster)
    # The topology decides nothing but the order of GPUs: a step that asks gets a message.
    found = sentences(done) if name != "topology.txt" else [explained(cluster)]
    assert len(found) == 1 and reason in found[0] and str(path) in found[0], found
    assert done.returncode == 0, done.stderr
    return "library.so" not in done.stdout or name == "topology.txt"


@pytest.mark.parametrize("who", MODES)
@pytest.mark.parametrize("name", ["library.so", "topology.txt"])
def test_a_file_that_others_can_write_is_refused(cluster, files, name, who, figure):
    files[name].chmod(MODES[who])
    assert is_told(cluster, name, files[name], REASON)
    figure("S4", f"{name} {who}", got=f"{name} writable by {who}: not used, one line", met=True, is_full=True,
           control="the same file of root alone is used")


@pytest.mark.parametrize("name", ["library.so", "topology.txt"])
def test_a_file_of_another_user_is_refused(cluster, files, name):
    """Its owner can change it, whatever its mode; alice runs the step."""
    bob = (cluster.state / "home" / "bob").stat().st_uid
    os.chown(files[name], bob, -1)
    assert is_told(cluster, name, files[name], f"it belongs to uid {bob}; change its owner to root with chown")


def test_slurm_itself_reads_a_plugstack_that_others_can_write(cluster, files):
    """As in SECURITY.md about plugstack.conf: Slurm reads it, does not look who can write to it, and no plugin knows
    where its arguments are from."""
    path = cluster.state / "etc" / "plugstack.conf"
    path.chmod(0o666)
    try:
        done = run(cluster)
        assert done.returncode == 0 and "library.so" in done.stdout, done.stderr
    finally:
        path.chmod(0o644)

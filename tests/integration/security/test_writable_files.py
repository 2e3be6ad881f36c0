"""Files that affect all users of a node are not used if others than their owner can write to them: the library to
preload. And Slurm's own plugstack.conf."""

# SPDX-License-Identifier: Apache-2.0

import os
import shutil

import pytest

from built_files import LIBRARY, PLUGIN, built, inside
from harness import module_cluster, our_lines

REASON = "users other than its owner can write to it; forbid that with chmod go-w"
MODES = {"group": 0o775, "world": 0o757}
SHOW = ["sh", "-c", 'echo "$SLURM_PROCID preload=$LD_PRELOAD"']

cluster = module_cluster("writable", "--nodes", "1", "--gpus", "4", "--no-plugin")


@pytest.fixture
def library(cluster):
    """A copy of the library, owned by root as after an installation, at the cluster's path."""
    copy = cluster.state / "etc" / "library.so"
    copy.unlink(missing_ok=True)  # the program of an earlier step may still run
    shutil.copyfile(built(LIBRARY), copy)
    copy.chmod(0o755)
    cluster.write_plugstack(f"optional {inside(PLUGIN)} when=always preload=on preload_library={copy}\n")
    return copy


def run(cluster):
    """Runs a step that uses the library, without a message."""
    return cluster.run(["srun", "-n2", "--gres=gpu:4", "--bootstrap=on", *SHOW])


def test_control_a_file_of_root_alone_is_used(cluster, library):
    done = run(cluster)
    assert done.returncode == 0 and our_lines(done) == [], done.stderr
    assert all(str(library) in line for line in done.stdout.splitlines())


def is_told(cluster, library, reason):
    """Runs a step: one line explains why the file is not used, and the step succeeds."""
    done = run(cluster)
    found = our_lines(done)
    assert len(found) == 1 and reason in found[0] and str(library) in found[0], found
    assert done.returncode == 0, done.stderr
    return "library.so" not in done.stdout


@pytest.mark.parametrize("who", MODES)
def test_a_file_that_others_can_write_is_refused(cluster, library, who, figure):
    library.chmod(MODES[who])
    assert is_told(cluster, library, REASON)
    figure("S4", f"library.so {who}", got=f"library.so writable by {who}: not used, one line", met=True, is_full=True,
           control="the same file of root alone is used")


def test_a_file_of_another_user_is_refused(cluster, library):
    """Its owner can change it whatever its mode, and alice runs the step."""
    bob = (cluster.state / "home" / "bob").stat().st_uid
    os.chown(library, bob, -1)
    assert is_told(cluster, library, f"it belongs to uid {bob}; change its owner to root with chown")


def test_slurm_itself_reads_a_plugstack_that_others_can_write(cluster, library):
    """As SECURITY.md says of plugstack.conf: Slurm reads it without a check of its writers, and no plugin knows the file
    of its arguments."""
    path = cluster.state / "etc" / "plugstack.conf"
    path.chmod(0o666)
    try:
        done = run(cluster)
        assert done.returncode == 0 and "library.so" in done.stdout, done.stderr
    finally:
        path.chmod(0o644)

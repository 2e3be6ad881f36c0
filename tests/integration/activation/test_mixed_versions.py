"""Hosts with different versions of the plugin, in each order of an upgrade, while steps run. etc/doc/stability.md has the rule."""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import subprocess

import pytest

from built_files import PLUGIN, inside
from harness import INSIDE, REPOSITORY

HOSTS = ("head", "node001", "node002")
# Each host in turn gets the other plugin, and at the end all have it.
ORDERS = {"nodes first": ("node002", "node001", "head"), "submit host first": ("head", "node001", "node002")}
FORMAT = 5
STEP = ("srun", "-N2", "-w", "node001,node002", "--ntasks-per-node=2")
SHOW = ("sh", "-c", "echo ${RANK:-none}")
TRAIN = ("python3", "-I", "-S", "-c", "import os; print(os.environ.get('RANK', 'none'))")
NOTHING, ALL = ["none"] * 4, list("0123")


def build_other(version, decision_format):
    """The plugin of another version, from the files of this one."""
    folder = REPOSITORY / "build" / f"other-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    copy = f"git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C '{folder}/source'"
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", copy], cwd=REPOSITORY, check=True)
    numbers = dict(zip(("MAJOR", "MINOR", "PATCH"), version.split(".")))
    header = "libbootstrap/include/bootstrap/bootstrap.h"
    for path, old, new in (*((header, rf"(BOOTSTRAP_VERSION_{name}) \d+", rf"\1 {number}") for name, number in numbers.items()),
                           ("libbootstrap/core/step/srun_messages.cc", f"kFormat = {FORMAT}", f"kFormat = {decision_format}")):
        file = folder / "source" / path
        text, count = re.subn(old, new, file.read_text(encoding="utf-8"))
        assert count == 1, path
        file.write_text(text, encoding="utf-8")
    for line in (["cmake", "--preset", "release", "-B", folder / "build", "-DBUILD_TESTING=OFF"],
                 ["cmake", "--build", folder / "build", "--target", "spank_bootstrap"]):
        done = subprocess.run(line, cwd=folder / "source", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return f"{INSIDE}/build/other-{version}/build/{PLUGIN}"


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("mixed-versions").up("--nodes", "2", "--cpus", "8", "--gpus", "2")
    cluster.asks = False
    return cluster


def give(cluster, host, plugin):
    done = cluster.run(["mount", "--bind", plugin, inside(PLUGIN)], user="root", node=host)
    assert done.returncode == 0, done.stderr


def take_back(cluster):
    for host in HOSTS:
        cluster.run(["umount", inside(PLUGIN)], user="root", node=host)


def ranks(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def world(cluster):
    return cluster.run([*STEP, "--gres=gpu:2", *TRAIN])


def asked(cluster):
    return cluster.run([*STEP, "--bootstrap=on", *SHOW])


@pytest.mark.full
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("version", ["1.0.9", "1.9.0"])
def test_versions_with_one_format_work_together(site, version, order):
    """0 of all steps fail or are half set up: worlds, farms, shells, and steps that ask."""
    plugin = build_other(version, FORMAT)
    steps = 0
    try:
        for host in (None, *ORDERS[order]):
            running = site.start([*STEP, "--gres=gpu:2", "python3", "-I", "-S", "-c",
                                  "import os, time; print(flush=True); time.sleep(3); print(os.environ['RANK'])"])
            assert [running.stdout.readline() for _ in range(4)] == ["\n"] * 4
            if host:
                give(site, host, plugin)
            for _ in range(3):
                assert ranks(world(site)) == ALL and ranks(asked(site)) == ALL
                assert ranks(site.run([*STEP, "--gres=gpu:2", *SHOW])) == NOTHING
                assert ranks(site.run([*STEP, *TRAIN])) == NOTHING
            stdout, stderr = running.communicate(timeout=60)
            assert running.returncode == 0 and sorted(stdout.split()) == ALL, stderr
            steps += 13
    finally:
        take_back(site)
    print(f"mixed versions: {steps} steps, 0 failed or half set up")


@pytest.mark.full
@pytest.mark.parametrize("new", [("head",), ("node002",), ("node001", "node002")], ids=" ".join)
def test_another_format_sets_up_nothing(site, new):
    """A major release: no step is half set up, an unasked step runs, and one that asks is refused on all nodes."""
    plugin = build_other("1.9.9", FORMAT + 1)
    try:
        for host in new:
            give(site, host, plugin)
        if new != ("node002",):  # a world is set up on node001 alone
            assert ranks(world(site)) == NOTHING
        refused = asked(site)
        assert refused.returncode != 0 and "another version of the plugin" in refused.stderr, refused
        assert ranks(site.run([*STEP, "--gres=gpu:2", *SHOW])) == NOTHING
    finally:
        take_back(site)

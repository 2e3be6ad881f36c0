"""`slurm-bootstrap check` about what is installed on the nodes: versions, plugstack.conf, and frameworks."""

import json
import re

import pytest

from built_files import BUILT_INSIDE, COMMAND, LIBRARY, PLUGIN
from check_steps import CPU, FRAMEWORKS, NEW_NCCL, check
from harness import module_cluster

PRELOAD = f"{BUILT_INSIDE}/{LIBRARY}"
ALONE = ["versions", "plugstack.conf", "plugin", "PMIx", "frameworks", "NCCL", "CUDA", "GPUs", "CPUs", "/dev/shm",
         "locked memory", "system"]  # fmt: skip


cluster = module_cluster("check-nodes", "--cpus", "8", "--gpus", "4", "--plugin-args", "when=always")


def test_a_machine_alone(cluster):
    done = cluster.run([COMMAND, "check", "--local", "--json"], node="node002")
    table = json.loads(done.stdout)
    assert table["host"] == "node002"
    rows = {row["check"]: row for row in table["checks"]}
    assert done.returncode == 0 and table["step"] == ""
    assert rows["GPUs"]["text"] == "4, all can be opened"
    assert [name for name in ALONE if name in rows or name != FRAMEWORKS] == list(rows)
    assert "etc/plugstack.conf:1: optional when=always" in rows["plugstack.conf"]["text"]
    assert re.match(r"\d+\.\d+\.\d+ for Slurm \d+\.\d+\.\d+ \(/", rows["plugin"]["text"])


@pytest.mark.parametrize("line, row, text", [
    ("optional {plugin} wehn=always", "plugstack.conf", 'argument "wehn=always" in plugstack.conf is unknown'),
    ("optional {plugin} port=x", "plugstack.conf", 'port="x" in plugstack.conf is not valid'),
    ("optinal {plugin}", "plugstack.conf", '"optinal" is not optional, required or include; Slurm ignores the line'),
    ("optional /none/spank_bootstrap.so", "plugin", "/none/spank_bootstrap.so: No such file or directory"),
])  # fmt: skip
def test_a_mistake_in_plugstack_conf_is_named_with_its_line(cluster, line, row, text):
    with cluster.other_plugstack("# the plugin\n" + line.format(plugin=f"{BUILT_INSIDE}/{PLUGIN}") + "\n"):
        done = cluster.run([COMMAND, "check", "--local", "--json"])
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and rows[row]["result"] == "FAILED", done.stdout
    assert f"etc/plugstack.conf:2: {text}" in rows[row]["text"]


def test_a_node_without_the_plugin_is_named_and_run_refuses(cluster):
    with cluster.without_plugin("node002"):
        done = check(cluster, *CPU)
        started = cluster.run(["srun", "--quiet", *CPU, COMMAND, "run", "echo", "started"])
    assert done.failed == ["versions"] and done.ranks("versions") == [2, 3] and done.status == 1, done.stdout
    assert done.text("versions").startswith("no plugin on these nodes, but plugin "), done.stdout
    assert done.text("versions").endswith("etc/plugstack.conf loads spank_bootstrap.so")
    assert started.returncode == 1 and started.stdout == ""
    table = " ".join(started.stderr.split())
    assert done.text("versions") in table and "ranks 2-3 (all of node002)" in table
    # Control: with the plugin there.
    done = check(cluster, *CPU)
    assert done.failed == [] and re.match(r"plugin (\S+), .*command \1, Slurm \d+\.\d+\.\d+$", done.text("versions")), done.stdout


def test_the_frameworks_of_the_python_of_the_task_are_named(cluster):
    """From the names of installed packages; none of these can be imported."""
    version = cluster.run(["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()
    packages = cluster.home / f"venv/lib/python{version}/site-packages"
    for name in "torch-9.9.9", "horovod-0.28.1", "nvidia_nccl_cu12-2.21.5", "other-1.0":
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "nvidia/nccl/lib").mkdir(parents=True)
    (packages / "nvidia/nccl/lib/libnccl.so.2").touch()
    (cluster.home / "closed").mkdir(0o711)  # of root
    (cluster.home / "venv/bin").mkdir()
    (cluster.home / "venv/bin/python3").symlink_to("/usr/bin/python3")
    (cluster.home / "venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    inside = f"/home/alice/venv/lib/python{version}/site-packages"
    path = "/home/alice/venv/bin:/usr/bin:/bin"  # of an active environment
    done = check(cluster, *CPU, env={"PATH": path, "PYTHONPATH": "/home/alice/closed", "SLURM_BOOTSTRAP_NCCL": NEW_NCCL})
    assert re.fullmatch(rf"Python {version}\S* \(/home/alice/venv/bin/python3\): "
                        r"horovod 0\.28\.1, torch 9\.9\.9",
                        done.text(FRAMEWORKS)), done.stdout  # fmt: skip
    assert done.text("NCCL") == f"2.28.9 ({NEW_NCCL}); Python loads 2.21.5 ({inside}/nvidia/nccl/lib/libnccl.so.2)"
    # A Python that does not answer, or none, is no failure.
    (cluster.home / "venv/bin/python3").unlink()
    (cluster.home / "venv/bin/python3").write_text("#!/bin/sh\nsleep 600\n")
    (cluster.home / "venv/bin/python3").chmod(0o755)
    done = check(cluster, *CPU, env={"PATH": path}, timeout=300)
    assert done.failed == [] and FRAMEWORKS not in done.rows, done.stdout


def test_the_origin_of_the_variables_is_named(cluster_factory):
    plain = cluster_factory("check-plain").up("--no-plugin", "--cpus", "8")
    done = check(plain, "-N2", "--ntasks-per-node=2")
    assert done.result("plan") == "warning" and "but not set" in done.text("plan"), done.stdout
    done = check(plain, "-N2", "--ntasks-per-node=2", f"--export=ALL,LD_PRELOAD={PRELOAD}")
    assert done.text("plan") == "the same for all ranks, set by the preloaded library", done.stdout

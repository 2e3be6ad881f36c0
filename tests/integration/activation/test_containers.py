"""Other plugins of Slurm around ours, before and behind it in plugstack.conf: one that starts containers (as pyxis does,
with enroot's hook for PyTorch) and one that binds tasks (as mpibind does)."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from built_files import BUILT_INSIDE, double
from harness import module_cluster, our_lines
from preload_steps import FOR_GLIBC

LIBRARIES = f"{BUILT_INSIDE}/libbootstrap"
LIBRARY = f"{LIBRARIES}/libbootstrap.so.0"
PLUGIN = f"optional {BUILT_INSIDE}/spank_plugin/spank_bootstrap.so when=always announce=off"
NODES = ("-N2", "-n4", "--ntasks-per-node=2", "--gres=gpu:2")
ORDERS = pytest.mark.parametrize("order", ["before us", "behind us"])
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "BOOTSTRAP_GPU",
         "OMP_NUM_THREADS", "LD_PRELOAD", "SLURM_LOCALID")  # fmt: skip
SHOW = ["sh", "-c", f'echo "task $SLURM_PROCID {" ".join(f"{name}=${name}" for name in NAMES)}"']

cluster = module_cluster("containers", "--nodes", "2", "--gpus", "2", "--cpus", "8", "--no-plugin")


@pytest.fixture
def beside(cluster):
    """Puts another plugin in front of ours or behind it; "alone": without ours."""

    def put(line, order, arguments=f"preload_library={LIBRARY}"):
        lines = {"before us": [line, f"{PLUGIN} {arguments}"], "behind us": [f"{PLUGIN} {arguments}", line], "alone": [line]}
        cluster.write_plugstack("\n".join([*lines[order], ""]))

    return put


def pyxis(*arguments):
    return f"required {double('site_spank')} pyxis hide={LIBRARIES} {' '.join(arguments)}"


MPIBIND = f"optional {double('site_spank')} mpibind"
IMAGE = "--container-image=pytorch"

def tasks_of(done):
    """The variables of each rank."""
    assert done.returncode == 0, done.stderr
    assert "site_double" not in done.stderr, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("task ")]
    tasks = {int(line[1]): dict(word.split("=", 1) for word in line[2:]) for line in lines}
    assert sorted(tasks) == [0, 1, 2, 3], done.stdout
    return tasks


def own_gpu(task):
    """The GPU of a program that uses LOCAL_RANK as its index."""
    return task["CUDA_VISIBLE_DEVICES"].split(",")[int(task["LOCAL_RANK"])]


@ORDERS
def test_ranks_and_gpus_are_right_in_a_container(cluster, beside, order):
    beside(pyxis(), order)
    done = cluster.run(["srun", *NODES, IMAGE, *SHOW])
    for rank, task in tasks_of(done).items():
        assert (task["RANK"], task["WORLD_SIZE"], task["LOCAL_WORLD_SIZE"]) == (str(rank), "4", "2")
        assert own_gpu(task) == task["SLURM_LOCALID"]
    assert our_lines(done) == []


@pytest.mark.parametrize("mode", ["first", "narrow"])
def test_the_plugin_that_comes_last_decides_local_rank(cluster, beside, mode):
    """With --bootstrap-gpu=first and narrow each task's own GPU is its device 0, where pyxis writes SLURM_LOCALID into
    LOCAL_RANK. The last plugin in plugstack.conf wins; README recommends that it is ours."""
    found = {}
    for order in ("before us", "behind us"):
        beside(pyxis(), order)
        found[order] = tasks_of(cluster.run(["srun", *NODES, IMAGE, f"--bootstrap-gpu={mode}", *SHOW]))
    for task in found["before us"].values():
        assert task["LOCAL_RANK"] == "0" and own_gpu(task) == task["SLURM_LOCALID"]
    assert [task["LOCAL_RANK"] for _, task in sorted(found["behind us"].items())] == ["0", "1", "0", "1"], "the control"


def test_a_hook_of_the_container_does_not_move_the_meeting_point(cluster, beside):
    beside(pyxis("MASTER_PORT=53333", "MASTER_ADDR=elsewhere"), "before us")
    asked = tasks_of(cluster.run(["srun", *NODES, IMAGE, "--bootstrap-port=23456", *SHOW]))
    assert {(task["MASTER_ADDR"], task["MASTER_PORT"]) for task in asked.values()} == {("node001", "23456")}
    computed = tasks_of(cluster.run(["srun", *NODES, IMAGE, *SHOW]))
    ports = {task["MASTER_PORT"] for task in computed.values()}
    assert len(ports) == 1 and ports != {"53333"}
    users = tasks_of(cluster.run(["srun", *NODES, IMAGE, "--export=ALL,MASTER_PORT=23457", *SHOW]))
    assert {task["MASTER_PORT"] for task in users.values()} == {"53333"}, "the user's port is left alone"


def test_control_the_hook_moves_the_meeting_point_without_us(cluster, beside):
    beside(pyxis("MASTER_PORT=53333"), "alone")
    done = tasks_of(cluster.run(["srun", *NODES, IMAGE, *SHOW]))
    assert {task["MASTER_PORT"] for task in done.values()} == {"53333"}
    assert {task["LOCAL_RANK"] for task in done.values()} == {"0", "1"}


@ORDERS
def test_the_preloaded_library_is_the_hosts_in_both_orders(cluster, beside, order):
    beside(pyxis(), order)
    done = cluster.run(["srun", *NODES, IMAGE, "--bootstrap-preload", *SHOW])
    assert {task["LD_PRELOAD"] for task in tasks_of(done).values()} == {FOR_GLIBC + LIBRARY}
    assert our_lines(done) == []


@ORDERS
def test_a_library_missing_on_the_host_is_not_preloaded_in_either_order(cluster, beside, order):
    beside(pyxis(), order, "preload_library=/no/such/library.so")
    done = cluster.run(["srun", *NODES, IMAGE, "--bootstrap-preload", *SHOW])
    assert {task["LD_PRELOAD"] for task in tasks_of(done).values()} == {""}
    said = [line.split("bootstrap: ", 1)[1] for line in our_lines(done)]
    assert len(said) == 2 and all(f"on {node}: " in line for node, line in zip(("node001", "node002"), sorted(said)))
    assert len({re.sub(r"on node\d+", "", line) for line in said}) == 1


def test_a_request_to_another_plugin_wins_over_our_choice(cluster, beside):
    beside(MPIBIND, "before us")
    done = cluster.run(["srun", *NODES, "--bootstrap=on", *SHOW])
    for task in tasks_of(done).values():
        assert task["CUDA_VISIBLE_DEVICES"] == task["SLURM_LOCALID"] and task["LOCAL_RANK"] == "0"
        assert (task["LOCAL_WORLD_SIZE"], task["BOOTSTRAP_GPU"], task["OMP_NUM_THREADS"]) == ("1", "0", "93")
    [sentence] = our_lines(done)
    assert "another Slurm plugin leaves a task 1 of 2 GPUs" in sentence


def test_an_unasked_step_keeps_the_choice_of_mpibind_without_a_message(cluster, beside):
    beside(MPIBIND, "before us")
    done = cluster.run(["srun", *NODES, *SHOW])
    for task in tasks_of(done).values():
        assert task["CUDA_VISIBLE_DEVICES"] == task["LOCAL_RANK"] == task["SLURM_LOCALID"]
        assert (task["LOCAL_WORLD_SIZE"], task["BOOTSTRAP_GPU"], task["OMP_NUM_THREADS"]) == ("2", "", "93")
    assert our_lines(done) == []


def test_a_step_that_asks_both_plugins_has_our_gpus_and_mpibinds_threads(cluster, beside):
    beside(MPIBIND, "before us")
    done = cluster.run(["srun", *NODES, "--bootstrap-gpu=index", *SHOW])
    for task in tasks_of(done).values():
        assert task["CUDA_VISIBLE_DEVICES"] == "0,1" and own_gpu(task) == task["SLURM_LOCALID"]
        assert task["OMP_NUM_THREADS"] == "93"
    assert our_lines(done) == []


def test_mpibind_behind_us_does_not_take_our_threads_for_the_users(cluster, beside):
    """mpibind keeps an OMP_NUM_THREADS that it finds in user_init as the user's. Ours is not set yet at that time."""
    beside(MPIBIND, "behind us")
    done = cluster.run(["srun", *NODES, *SHOW])
    assert {task["CUDA_VISIBLE_DEVICES"] for task in tasks_of(done).values()} == {"0", "1"}

"""Which variables a framework finds in each shape of step. The frameworks themselves run in test_real_frameworks.py."""

import json
import os
from collections import Counter

import pytest

from built_files import BUILT_INSIDE, LIBRARY
from harness import TESTS, needs_mpirun, needs_torchrun

FOLDER = f"{TESTS}/frameworks"
# PyTorch 1.13 on Python 3.11 takes no default here; see core/plan/framework_variables.cc.
REPAIR = {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}
FOUR = ("-N2", "--ntasks-per-node=2", "--gres=gpu:2")
AGENTS = ("-N2", "--ntasks-per-node=1", "--gres=gpu:2")

ASKED = {"SLURM_BOOTSTRAP": "on"}


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("frameworks")
    cluster.asks = False  # what a row has beside `srun` is on its line
    cluster.up("--nodes", "4", "--gpus", "4", "--cpus", "16")
    # A folder that all nodes see, as a site would configure it.
    line = cluster.plugstack.rstrip("\n")
    cluster.write_plugstack(f"{line} shared_dir=/home/%u\n")
    return cluster


def run(cluster, *command, env=None):
    done = cluster.run(["timeout", "80", *command], timeout=120, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def worlds(text):
    """(rank, size, local rank, host, sum) of each process, in order of rank."""
    found = [line.split()[1:] for line in text.splitlines() if line.startswith("world ")]
    return sorted((int(rank), int(size), int(local), host, int(total)) for rank, size, local, host, total in found)


def assert_world(text, size, per_host):
    """One world of `size` that has met, `per_host` to a host in order."""
    found = worlds(text)
    assert [rank for rank, *_ in found] == list(range(size)), text
    assert {total for *_, total in found} == {2**size - 1} and {world[1] for world in found} == {size}, text
    assert [local for _, _, local, _, _ in found] == list(range(per_host)) * (size // per_host), text
    assert set(Counter(host for *_, host, _ in found).values()) == {per_host}, text


def test_a_file_is_new_for_each_step(site):
    """The file of an earlier step would let ranks meet those of a world that has ended."""
    script = f"for i in 1 2; do srun {' '.join(FOUR)} python3 {FOLDER}/torch_world.py file; done"
    done = run(site, "bash", "-c", script)
    assert len(worlds(done.stdout)) == 8 and {world[1] for world in worlds(done.stdout)} == {4}


@needs_torchrun
def test_torchrun_without_the_variables_is_a_world_on_each_node(site):
    """The control of the rows of torchrun in test_real_frameworks.py."""
    done = run(site, "srun", *AGENTS, "--bootstrap-frameworks=none", "torchrun", f"{FOLDER}/torch_world.py", "env", env=REPAIR)
    assert {world[1] for world in worlds(done.stdout)} == {1}


@needs_torchrun
def test_an_allocation_alone_is_left_to_the_user(site):
    """torchrun by itself in a batch job: one node, a world of its own, and none of our variables."""
    script = f"env | grep -cE '^(RANK|PET_N|HOROVOD_|JAX_)' ; torchrun --standalone --nproc_per_node 2 {FOLDER}/torch_world.py env"
    done = run(site, "salloc", "--quiet", "-N1", "-n2", "--gres=gpu:2", "bash", "-c", script, env=REPAIR)
    assert done.stdout.splitlines()[0] == "0"
    assert [world[:2] for world in worlds(done.stdout)] == [(0, 2), (1, 2)]


def test_horovod_over_mpi_is_left_to_mpi(site):
    done = run(site, "srun", "--mpi=pmix", *FOUR, "bash", "-c", "env | grep -c ^HOROVOD_ || true")
    assert done.stdout.split() == ["0"] * 4
    done = run(site, "srun", "--mpi=pmix", *FOUR, "python3", f"{TESTS}/support/mpi_ranks.py")
    assert done.stdout == "equal: 4 ranks\n"


PRELOADED_MPIRUN = ("mpirun", "-x", f"LD_PRELOAD={BUILT_INSIDE}/{LIBRARY}")


def test_mpirun_with_the_preload(site):
    """On several nodes the user passes the address: mpirun starts rank 0 on the first node."""
    meet = "MASTER_ADDR=$(scontrol show hostnames | head -n 1) MASTER_PORT=24713; export MASTER_ADDR MASTER_PORT; exec \"$@\""
    line = (*PRELOADED_MPIRUN, "-x", "MASTER_ADDR", "-x", "MASTER_PORT", "-np", "4", "-npernode", "2")
    done = run(site, "salloc", "--quiet", *FOUR, "bash", "-c", meet, "bash", *line, "python3", f"{FOLDER}/torch_world.py", "env")
    assert_world(done.stdout, 4, 2)


@needs_mpirun
def test_mpirun_of_mpi_programs_with_the_preload(site):
    done = run(site, "salloc", "--quiet", *FOUR, *PRELOADED_MPIRUN, "-np", "2", "python3", f"{TESTS}/support/mpi_ranks.py")
    assert done.stdout == "equal: 2 ranks\n"


def test_mpirun_needs_the_preload(site):
    """The control: the plugin leaves the step of mpirun's daemon alone, so its ranks have no RANK."""
    done = run(site, "salloc", "--quiet", *FOUR, "mpirun", "-np", "4", "-npernode", "2", "bash", "-c", "echo rank=$RANK")
    assert done.stdout.split() == ["rank="] * 4


def readings(done):
    return sorted(map(json.loads, done.stdout.splitlines()), key=lambda reading: reading["task"]["rank"])


def assert_agreement(reading, size, is_uneven=False):
    """All frameworks of a task read the same ranks, which are returned."""
    task, found = reading["task"], reading["frameworks"]
    told = {name: what for name, what in found.items() if what}
    for name, what in told.items():
        if name == "lightning" and is_uneven:
            assert "error" in what  # it takes one number of tasks for all nodes
            continue
        assert "error" not in what, f"{name}: {what}"
        if name != "torchrun":
            assert what.get("rank", task["rank"]) == task["rank"], f"{name}: {what}"
            assert what.get("size", size) == size, f"{name}: {what}"
    for key in ("local_rank", "local_size"):
        assert len({what[key] for name, what in told.items() if key in what and name != "lightning"}) <= 1, told
    if task["visible"]:
        own = task["visible"][task["gpu"]]
        for name, what in told.items():
            if "device" in what:
                assert task["visible"][what["device"]] == own, f"{name} takes {what['device']}, not {task['gpu']}"
    return told


def test_servers_of_tensorflow_and_jax(site):
    done = run(site, "srun", *FOUR, "--bootstrap-frameworks=all", "python3", f"{FOLDER}/framework_readers.py", "listen")
    found = readings(done)
    assert [reading["task"]["servers"] for reading in found] == [2, 1, 1, 1]
    for reading in found:
        told = assert_agreement(reading, 4)
        assert told["tensorflow"]["cluster"] == found[0]["frameworks"]["tensorflow"]["cluster"]
        assert told["tensorflow"]["where"].startswith(reading["task"]["host"] + ":")
    found = readings(run(site, "srun", *FOUR, "python3", f"{FOLDER}/framework_readers.py", "listen"))
    assert [reading["task"]["servers"] for reading in found] == [1, 0, 0, 0]
    assert len({assert_agreement(reading, 4)["jax"]["where"] for reading in found}) == 1


SHAPES = {
    "two tasks a node": (FOUR, 4),
    "cyclic": (("-N2", "--ntasks-per-node=2", "--gres=gpu:2", "-m", "cyclic"), 4),
    "uneven": (("-N2", "-n3", "--gres=gpu:2"), 3),
    "gpus per task": (("-N2", "--ntasks-per-node=2", "--gpus-per-task=1"), 4),
    "one task with two GPUs": (AGENTS, 2),
    "own GPU first": ((*FOUR, "--bootstrap-gpu=first"), 4),
    "own GPU alone": ((*FOUR, "--bootstrap-gpu=narrow"), 4),
    "own GPU alone, bound by Slurm": (("-N2", "--ntasks-per-node=2", "--gres=gpu:2", "--gpu-bind=single:1"), 4),
    "two GPUs a task": (("-N2", "--ntasks-per-node=2", "--gres=gpu:4"), 4),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_all_readers_agree(site, shape):
    options, size = SHAPES[shape]
    for frameworks in ("auto", "all", *(["unasked"] if shape == "two tasks a node" else [])):
        asks = [] if frameworks == "unasked" else [f"--bootstrap-frameworks={frameworks}"]
        done = run(site, "srun", *options, *asks, "python3", f"{FOLDER}/framework_readers.py")
        found = readings(done)
        assert [reading["task"]["rank"] for reading in found] == list(range(size))
        told = [assert_agreement(reading, size, shape == "uneven") for reading in found]
        assert all(("tensorflow" in one) == (frameworks == "all") for one in told)
        assert all("jax" in one and "deepspeed" in one and "accelerate" in one for one in told)


def test_readers_can_disagree(site):
    """The control: Slurm's own binding, and our variables switched off for the GPU."""
    done = run(site, "srun", *FOUR, "--bootstrap-gpu=narrow", "env", "LOCAL_RANK=1", "python3", f"{FOLDER}/framework_readers.py")
    with pytest.raises((AssertionError, IndexError)):
        for reading in readings(done):
            assert_agreement(reading, 4)


def test_lightning_is_refused_without_the_number_of_tasks_per_node(site):
    """The control: srun -n4 leaves it out, and Lightning raises."""
    for frameworks, refused in (("none", True), ("auto", False)):
        done = run(site, "srun", "--exclusive", "-N2", "-n4", "--gres=gpu:2", f"--bootstrap-frameworks={frameworks}",
                   "python3", f"{FOLDER}/framework_readers.py")
        assert all(("error" in reading["frameworks"]["lightning"]) == refused for reading in readings(done))


def test_threads_are_the_tasks_cores(site):
    # The cluster plays nodes with more cores than the machine has, and no task can have more than are there.
    cores = len(os.sched_getaffinity(0))
    for options, threads in ((("-c4",), 4), (("-c1",), 1), ((), 1)):
        done = run(site, "srun", *FOUR, *options, "python3", f"{FOLDER}/framework_readers.py", env=ASKED)
        assert {reading["task"]["threads"] for reading in readings(done)} == {min(threads, cores)}
    done = run(site, "srun", *FOUR, "-c4", "python3", f"{FOLDER}/framework_readers.py", env=ASKED | {"OMP_NUM_THREADS": "3"})
    assert {reading["task"]["threads"] for reading in readings(done)} == {3}
    done = run(site, "srun", *AGENTS, "-c8", "python3", f"{FOLDER}/framework_readers.py", env=ASKED)
    assert {reading["task"]["threads"] for reading in readings(done)} == {max(1, min(8, cores) // 2)}  # for each GPU


def test_the_interface_is_the_one_to_the_master(site):
    by_default = run(site, "srun", *FOUR, "bash", "-c", "echo $GLOO_SOCKET_IFNAME,$NCCL_SOCKET_IFNAME", env=ASKED)
    assert set(by_default.stdout.split()) == {"eth0,"}
    for choice in ("auto", "eth0", "10.0.0.0/8"):
        done = run(site, "srun", *FOUR, f"--bootstrap-interface={choice}", "bash", "-c",
                   "echo $GLOO_SOCKET_IFNAME,$NCCL_SOCKET_IFNAME,$UCX_NET_DEVICES")
        assert set(done.stdout.split()) == {"eth0,=eth0,eth0"}
    done = run(site, "srun", *FOUR, "bash", "-c", "echo $GLOO_SOCKET_IFNAME", env=ASKED | {"NCCL_SOCKET_IFNAME": "ib0"})
    assert done.stdout.split() == []
    wrong = site.run(["srun", *FOUR, "--bootstrap-interface=ib7", "true"])
    assert wrong.returncode != 0
    assert "--bootstrap-interface=ib7: node001 has no such interface with an address; it has eth0" in wrong.stderr


def test_a_nested_srun_does_not_get_our_number_of_tasks_per_node(site):
    script = ("[ $SLURM_PROCID = 0 ] || exit 0; echo outer=$SLURM_NTASKS_PER_NODE; "
              "srun --overlap --bootstrap=off -N2 -n3 -l hostname; "
              "srun --overlap --bootstrap=off -N1 -n1 bash -c 'echo inner=$SLURM_NTASKS_PER_NODE'")
    done = run(site, "srun", "--exclusive", "-N2", "-n4", "--gres=gpu:2", "bash", "-c", script, env=ASKED)
    assert "outer=2\n" in done.stdout
    assert "can't honor --ntasks-per-node" not in done.stderr
    assert "inner=\n" in done.stdout

"""`slurm-bootstrap status` at real worlds: each case puts one rank out of step, and the first line names it."""

# SPDX-License-Identifier: Apache-2.0

import contextlib
import re

import pytest

from built_files import program
from harness import needs_pmix, stop, wait_for
from status_steps import DEBIAN_PYTHON, FOUR, frozen_mount, give_program, look, look_json, rank, running

WORLD = "status_world.py"
ODD = rank(2, "node002", 0)
MAYBE = "; it may be slow, in a checkpoint, or stuck"
first_lines = {}  # of each case, for the end of the run


@pytest.fixture(scope="module", autouse=True)
def table(request):
    yield
    for case, line in first_lines.items():
        request.config.pluginmanager.getplugin("terminalreporter").write_line(f"status: {case}: {line}")


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("status", asks=False).up("--nodes", "2", "--cpus", "64", "--gpus", "2")
    for name in (WORLD, "status_torchrun.py", "status_jax.py", "status_mpi.py"):
        give_program(cluster, name)
    return cluster


@pytest.fixture(scope="module")
def world(site):
    """Four ranks of PyTorch below shells; the tests take them from stage to stage, in the order of this file."""
    with frozen_mount(site, "frozen") as folder:
        shell = f"until {DEBIAN_PYTHON} {WORLD} world; do sleep 8; done"
        with running(site, "world", "--bootstrap=on", *FOUR, "bash", "-c", shell, orders={2: "asleep"}) as step:
            (step.folder / "frozen").write_text(folder)
            for other in (0, 1, 3):
                step.wait_until(other, "rendezvous")
            yield step


def phases(cluster, step):
    return [one["phase"] for one in look_json(cluster, step.id)["ranks"]]


def seen(case, done, pattern):
    first_lines[case] = done.first
    assert re.fullmatch(pattern, done.first), done.stdout


# -- one world of PyTorch


def test_a_rank_that_never_starts_torch_is_named(world):
    world.wait_until(2, "asleep")
    wait_until_connected(world)
    seen("never starts torch", world.look(),
         rf"{ODD} runs python3 \(below bash\) without PyTorch, which the other 3 ranks have loaded; it waits in sleep")


def wait_until_connected(world):
    """Waits until three ranks have connected, which is a moment after their last report."""
    wait_for(lambda: phases(world.cluster, world).count("connected") == 3)


def test_a_rank_that_was_killed_below_its_shell_is_named(world):
    """The shell keeps the task alive, and starts the program again later."""
    (world.folder / "2.at").unlink()
    world.cluster.run(["kill", "-KILL", str(world.pid_of(2))], node="node002")
    seen("killed below a shell", world.look(), rf"{ODD} runs sleep \(below bash\) without PyTorch, which the other 3 ranks have loaded")
    world.wait_until(2, "asleep")


def test_a_rank_in_import_on_a_frozen_mount_is_named(site, world):
    world.order(2, "import")
    world.wait_until(2, "import")
    seen("import on a frozen mount", world.look(), rf"{ODD} waits for a file system \(request_wait_answer\)")
    site.run(["pkill", "-f", "frozen_mount.py /home/alice/frozen"], user="root", node="node002")


def test_a_rank_at_another_port_is_named(world):
    world.order(2, "port")
    world.wait_until(2, "port")
    seen("another MASTER_PORT", world.look(), rf"{ODD} has no connection to MASTER_PORT \d+ of node001, where the other 3 are connected")
    world.order(2, None)
    world.wait_until(2, "round")


def test_a_healthy_world_has_no_finding(world):
    seen("healthy", world.look(), "all 4 ranks run alike")


def test_a_stopped_rank_is_named_with_its_duration(world):
    pid = world.pid_of(3)
    world.cluster.run(["kill", "-STOP", str(pid)], node="node002")
    stopped = rf"{rank(3, 'node002', 1)} is stopped \(SIGSTOP\)"
    seen("stopped", world.look(), stopped)
    watch = world.cluster.start(["slurm-bootstrap", "status", world.id, "--watch", "1"])
    reports = [line for _, line in zip(range(2), (line for line in watch.stdout if line.startswith("rank 3")))]
    stop(watch)
    world.cluster.run(["kill", "-CONT", str(pid)], node="node002")
    assert re.fullmatch(rf"{stopped}\n{stopped}, for at least \d+ s\n", "".join(reports)), reports


def test_a_rank_that_waits_for_input_is_named(world):
    world.order(2, "input")
    world.wait_until(2, "input")
    seen("input", world.look(), rf"{ODD} waits for input \(read of standard input\)")
    world.order(2, None)
    world.type_in("go on\n")
    world.wait_until(2, "round")


@pytest.mark.parametrize("number, act, sees", [
    (2, "loader", rf"{ODD} differs: waits in poll, the others in futex"),
    (0, "checkpoint", rf"{rank(0, 'node001', 0)} differs: \d+ % CPU.*; the others [\d-]+ %"),
    (2, "slow", rf"{ODD} differs: \d+ % CPU(, waits for a core)?; the others [\d-]+ %"),
], ids=["loader", "checkpoint", "slow"])  # fmt: skip
def test_a_rank_at_other_work_is_named(world, number, act, sees):
    """It waits for a stuck worker of its data loader, writes a checkpoint, or is slow."""
    world.order(number, act)
    world.wait_until(number, act)
    seen_in_time(act, world, sees + MAYBE)
    world.order(number, None)
    world.wait_until(number, "round")


def seen_in_time(case, step, pattern, *options, **more):
    """Repeats the look until the other ranks are in their collective: on a busy machine they first wait for a core."""
    looks = []

    def is_seen():
        looks.append(look(step.cluster, step.id, *options, **more))
        return re.fullmatch(pattern, looks[-1].first)

    with contextlib.suppress(AssertionError):
        wait_for(is_seen)
    seen(case, looks[-1], pattern)


@pytest.fixture(scope="module")
def py_spy(environments):
    return environments("status")


def test_a_rank_in_another_collective_is_named(world, py_spy):
    world.order(2, "barrier")
    world.wait_until(2, "barrier")
    wait_for(lambda: all(one["is_still"] for one in look_json(world.cluster, world.id)["ranks"]))
    assert look(world.cluster, world.id).first in ("all 4 ranks run alike", "none of the 4 ranks stands out"), "control: no stacks"
    line = (world.folder.parent / WORLD).read_text().splitlines()
    barrier, reduce = (next(i for i, text in enumerate(line, 1) if f"dist.{what}(" in text) for what in ("barrier", "all_reduce"))
    seen_in_time("barrier against all_reduce", world,
                 rf"{ODD} differs: in barrier, called by main \({WORLD}:{barrier}\); the others in all_reduce, called by main "
                 rf"\({WORLD}:{reduce}\){MAYBE}", "--stacks", env={"PATH": f"{py_spy}:/usr/bin:/bin"})


# -- others


def test_workers_of_torchrun(site):
    torchrun = ("torchrun --nnodes=2 --nproc_per_node=2 --rdzv_backend=static --master_addr=node001 --master_port=29871 "
                "--node_rank=$SLURM_NODEID status_torchrun.py")
    # torchrun of PyTorch 1.13 does not start on Python 3.11 without the first two.
    variables = {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1", "OMP_NUM_THREADS": "1"}
    with running(site, "torchrun", "-N2", "-n2", "--ntasks-per-node=1", "bash", "-c", torchrun, env=variables) as step:
        wait_for(lambda: len(list(step.folder.glob("?.at"))) == 4, what="the workers do not start")
        wait_for(lambda: phases(site, step).count("before_rendezvous") == 1, what="the workers do not meet")
        seen("torchrun", step.look(),
             rf"{rank(3, 'node002', 1)} has no connection to MASTER_PORT 29871 of node001, where the other 3 are connected")


@pytest.mark.parametrize("export, line", [
    ("MASTER_PORT=$((29600 + SLURM_PROCID))", r"ranks 1-3 \(.*\) were started with 3 values of MASTER_PORT, such as 29601, and rank 0 with 29600"),
    ("MASTER_ADDR=$(hostname) MASTER_PORT=29600", r"ranks 2-3 \(all of node002\) were started with MASTER_ADDR=node002, and rank 0 with node001"),
], ids=["port", "address"])  # fmt: skip
def test_an_address_or_port_that_a_task_chooses_itself_is_named(site, export, line):
    train = "import torch.distributed as dist; dist.init_process_group(\"gloo\")"
    with running(site, export.partition("=")[0], "--bootstrap=on", *FOUR, "bash", "-c", f"export {export}; exec {DEBIAN_PYTHON} -c '{train}'") as step:
        odd = 3 if "PORT=$" in export else 2
        wait_for(lambda: phases(site, step).count("before_rendezvous") == odd)
        seen("values of each task", step.look(), line)


@needs_pmix
def test_a_late_rank_of_mpi_is_named(site):
    with running(site, "mpi", "--mpi=pmix", *FOUR, DEBIAN_PYTHON, "status_mpi.py") as step:
        wait_for(lambda: all(one["framework"] for one in look_json(site, step.id)["ranks"]))
        seen_in_time("MPI", step, rf"{ODD} differs: 0 % CPU, waits in sleep; the others [\d-]+ %{MAYBE}")


def test_a_missing_rank_of_a_cpp_world_is_named(site):
    probe = program("exchange_probe")
    with running(site, "cpp", "--bootstrap=on", *FOUR, probe, "--rounds", "2", "--victim", "2", "--fault", "exit", "--before", "1",
                 "--timeout", "60000", env={"SLURM_BOOTSTRAP_GRACE": "off"}) as step:
        wait_for(lambda: "ended" in phases(site, step))
        seen("C++", step.look(), r"rank 2 \(node002, local rank 0\) has ended; 3 ranks are left")


def test_a_late_process_of_jax_is_named(site, environments):
    python = f"{environments('jax')}/python3"
    with running(site, "jax", *FOUR, "--gres=gpu:2", python, "status_jax.py") as step:
        wait_for(lambda: sorted(phases(site, step))[:1] == ["before_rendezvous"], what=(step.folder / "output").read_text())
        seen("JAX", step.look(), rf"{ODD} has no connection to JAX_COORDINATOR_PORT \d+ of node001, where the other 3 are connected")

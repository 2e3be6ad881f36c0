"""Features of newer Slurm: srun --async, which ends before its step begins, and a slurmctld that limits requests."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from activation_steps import TWO
from harness import since, wait_for

needs_async = pytest.mark.skipif(not since("srun has --async"), reason="this srun has no --async")

REASON = "NOT SET UP: srun --async ends before the step has nodes and tasks; use --bootstrap=on to set it up, or --bootstrap=off"
SHOW = "import os; print(os.environ.get('RANK'), os.environ['SLURM_PROCID'], os.environ.get('MASTER_ADDR'))"
TRAIN, SHELL = ["python3", "-c", SHOW], ["bash", "-c", 'echo "${RANK-None} $SLURM_PROCID ${MASTER_ADDR-None}"']
RANKS = [f"{rank} {rank} node001" for rank in range(4)]
NO_RANKS = [f"None {rank} None" for rank in range(4)]


@pytest.fixture(scope="module")
def start(cluster_factory):
    """Starts a step of a job, and returns the output of its tasks and our lines of srun."""
    cluster = cluster_factory("async", asks=False).up("--set", "SlurmctldParameters=enable_stepmgr", "--set", "PrologFlags=Contain")
    cluster.write_home("mpirun", f"#!/bin/bash\n{SHELL[2]}\n")
    job = cluster.allocate(*TWO.split())

    def start(*line, tasks=4, env=None):
        done = cluster.succeed(["srun", f"--jobid={job}", "--async", "--parsable", "--mpi=none", "-o", "%J.%t.out", *line],
                               env={"SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "2"} | (env or {}))
        files = [cluster.home / f"{done.stdout.strip()}.{task}.out" for task in range(tasks)]
        wait_for(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files), what=f"no output of {line}")
        return [file.read_text().strip() for file in files], [line for line in done.stderr.splitlines() if "bootstrap" in line]

    yield start
    cluster.run(["scancel", job])


@needs_async
@pytest.mark.parametrize("line", [["--bootstrap=on", *TRAIN], ["--bootstrap=on", "-m", "cyclic", *TRAIN], ["--bootstrap=on", *SHELL]], ids=str)
def test_a_step_that_asks_is_set_up(start, line):
    assert start(*line) == (RANKS, [])


@needs_async
def test_a_step_of_a_job_that_asks_is_set_up_unless_it_is_a_launcher(start):
    assert start(*TRAIN, env={"SLURM_BOOTSTRAP": "on"}) == (RANKS, [])
    tasks, told = start("./mpirun", env={"SLURM_BOOTSTRAP": "on"})
    assert tasks == NO_RANKS and len(told) == 1 and "asks for it" in told[0], told


@needs_async
def test_an_unasked_step_is_left_alone_with_a_message_if_it_may_be_a_world(start):
    tasks, told = start(*TRAIN)
    assert tasks == NO_RANKS and len(told) == 1 and told[0].endswith(REASON), told
    for line, count in ((SHELL, 4), (["-n1", "-N1", *TRAIN], 1), (["--bootstrap=off", *TRAIN], 4)):
        assert start(*line, tasks=count) == (NO_RANKS[:count], []), line


@needs_async
def test_an_arbitrary_order_of_ranks_ends_the_step_with_a_message(start):
    tasks, _ = start("--bootstrap=on", "-m", "arbitrary", "-w", "node002,node002,node001,node001", "-o", "%J.0.out", "--open-mode=append", *TRAIN,
                     tasks=1)
    assert "the order of ranks is arbitrary" in tasks[0] and tasks[0].endswith("start the step without --async"), tasks


# srun -v prints libslurm's messages.
AT_ONCE = """cd; for i in {1..12}; do srun -v --overlap -N2 --ntasks-per-node=2 --gres=gpu:2 python3 -c 'import os; print(os.environ["RANK"])' &
done; wait"""


@pytest.mark.skipif(not since("slurmctld limits requests"), reason="this slurmctld limits no requests")
def test_twelve_worlds_at_once_are_set_up_where_slurmctld_limits_requests(cluster_factory):
    cluster = cluster_factory("limits", asks=False).up(
        "--gpus", "4", "--cpus", "16", "--set", "SlurmctldParameters=rl_enable", "--set", "AuthInfo=cred_expire=120")
    done = cluster.run(["salloc", "-N2", "--ntasks-per-node=8", "--gres=gpu:4", "bash", "-c", AT_ONCE], timeout=300)
    assert sorted(done.stdout.split()) == sorted("0123" * 12) and "NOT SET UP" not in done.stderr, done
    assert "RPC rate limited" in done.stderr, "control: without a limit nothing is shown"

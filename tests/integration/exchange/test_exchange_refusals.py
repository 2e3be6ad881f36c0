"""Another user's PMIx, or a silent server: one sentence in time, and a process that ends."""

import re

import pytest

from built_files import program
from exchange_steps import run_step, sentences, successes
from harness import module_cluster
from port_steps import background

DEADLINE = 2  # seconds
SILENT_PORT = 23456
AT_ONCE = 3
TALLY_GOALS = {"M6": 400}
TALLY_CONTROL = "bare PMIx waits for a silent server"
SILENT = f"""import socket, time
listener = socket.create_server(("127.0.0.1", {SILENT_PORT}), backlog=50)
print("ready", flush=True)
held = []
while True:
    held.append(listener.accept())
"""
SET_PORT = "for name in ${!PMIX_SERVER_URI*}; do export $name=${!name%:*}:PORT; done"

# What is done before the program starts, options of srun, and what is said.
REFUSALS = {
    "rank out of range": ("export PMIX_RANK=99", "--mpi=pmix", r'PMIX_RANK is "99", but SLURM_PROCID is \d'),
    "closed port": (SET_PORT.replace("PORT", "9"), "--mpi=pmix", r"PMIx \S+ cannot connect to Slurm's server on this node: "),
    "silent server": (
        SET_PORT.replace("PORT", str(SILENT_PORT)),
        "--mpi=pmix",
        r"the PMIx server on this node \(node00[12]\) does not answer; look for slurmstepd in its slurmd.log",
    ),
    "unknown transport": ("export PMIX_MCA_ptl=usock", "--mpi=pmix", r"cannot connect to Slurm's server on this node: "),
    "no library": ("export SLURM_BOOTSTRAP_PMIX=/nowhere/libpmix.so", "--mpi=pmix", r"cannot load PMIx: /nowhere/libpmix.so: "),
}

refusals_cluster = module_cluster("refusals", "--nodes", "2", "--cpus", "8", "--no-plugin")


def run_script(cluster, before, mpi):
    script = f"{before}\nexec {program('exchange_probe')} --timeout {DEADLINE * 1000}"
    return run_step(cluster, 2, 2, "bash", "-c", script, options=(mpi,))


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_in_one_sentence(refusals_cluster, name, campaign, tally):
    before, mpi, sentence = REFUSALS[name]
    listen = ["python3", "-I", "-S", "-c", SILENT]
    with (
        background(refusals_cluster, listen, node="node001", ready=True),
        background(refusals_cluster, listen, node="node002", ready=True),
    ):
        steps = campaign.run(lambda _: run_script(refusals_cluster, before, mpi), range(campaign.size(50, 1)), AT_ONCE)
    for _, step in steps:
        told = sentences(step)
        # A thread that blocks the exit would block it for ever: no step was ended from outside.
        assert step.returncode not in (0, 124, 137) and not successes(step), step
        assert sorted(rank for rank, _ in told) == [0, 1, 2, 3], step
        assert all(re.search(sentence, text) for _, text in told), step
        tally("M6", "steps refused, each rank with its sentence")


@pytest.mark.parametrize("before", ["", "export PMIX_MCA_gds=hash"])
def test_control_it_works_where_nothing_is_wrong(refusals_cluster, before, tally):
    step = run_script(refusals_cluster, before, "--mpi=pmix")
    assert step.returncode == 0 and successes(step) == {0, 1, 2, 3}, step
    tally("M6", "done where nothing is wrong")


def test_control_bare_pmix_waits_for_a_silent_server(refusals_cluster):
    before = REFUSALS["silent server"][0]
    with background(refusals_cluster, ["python3", "-I", "-S", "-c", SILENT], node="node001", ready=True):
        step = run_step(refusals_cluster, 1, 1, "bash", "-c", f"{before}\nexec {program('exchange_bare')} 1", limit=6)
    assert step.returncode in (124, 137), step


def test_one_rank_that_cannot_connect_is_named_by_the_others(refusals_cluster):
    step = run_script(refusals_cluster, "if ((SLURM_PROCID == 2)); then export PMIX_RANK=99; fi", "--mpi=pmix")
    told = dict(sentences(step))
    assert 'PMIX_RANK is "99"' in told.pop(2) and set(told) == {0, 1, 3}, step
    assert all(text.endswith("missing: rank 2 (node002, local rank 0)") for text in told.values()), step

"""One cell of the table of faults: the command is run on a lane, and its outcome is put into words."""

# SPDX-License-Identifier: Apache-2.0

import itertools
import subprocess
import time

from fault_nodes import words_of_status
from fault_places import Outcome
from harness import wait_for

# Seconds after which a command is given up, and after which job and node are taken as they are.
PATIENCE = 12

_numbers = itertools.count()


def command_line(cell, job, node):
    place = ["-t1", "-J", job, "-w", node, "-n1"]
    program = "echo ran >/tmp/ran"
    if cell.command == "sbatch":
        return ["sbatch", *place, "-o", "/dev/null", "--wrap", program]
    if cell.command == "salloc":
        return ["salloc", *place, "sh", "-c", program]
    option = ["--fault=1"] if cell.place.startswith("option.") else []
    return ["srun", *place, *option, "sh", "-c", program]


def run_command(lane, cell, job):
    """Its status in words: "waits" for one that does not end."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = lane.cluster.start(command_line(cell, job, lane.node), node=lane.node, **quiet)
    try:
        return words_of_status(process.wait(PATIENCE))
    except subprocess.TimeoutExpired:
        return "waits"  # and is killed when the lane is brought back, since srun blocks SIGTERM before any plugin


def restart_slurmd(lane):
    lane.stop_slurmd(PATIENCE)
    lane.start_slurmd()
    try:
        wait_for(lambda: lane.listens() or lane.slurmd.poll() is not None, 3, "slurmd does not listen")
    except AssertionError:
        pass  # that it does not is what the step will find


def run_with_slurmd(lane, cell, job):
    """slurmd is started with the fault, runs a step and is asked to end; also, how it ended if not as it is to."""
    restart_slurmd(lane)
    early = lane.ended_slurmd()
    status = run_command(lane, cell, job)
    state = lane.settle(job, status == "exit 0", PATIENCE)
    if early:
        return status, state, [f"slurmd {early} at its start"]
    if not lane.stop_slurmd(PATIENCE):
        return status, state, ["slurmd does not end"]
    ended = words_of_status(lane.slurmd.returncode)
    return status, state, [] if ended == "exit 0" else [f"slurmd {ended} at its end"]


def run_cell(lane, cell):
    """(outcome, seconds until it was seen, seconds until the node was usable again)."""
    job = f"cell{next(_numbers)}"
    lane.take("ran")
    lane.take("witness.log")
    lane.write("plugstack.conf", cell.plugstack)
    began = time.monotonic()
    if cell.command == "slurmd":
        status, (job_state, node_state), died = run_with_slurmd(lane, cell, job)
    else:
        if cell.place.endswith(".job_script"):
            restart_slurmd(lane)  # it asks its own plugins whether any has such a callback, when it starts
        status = run_command(lane, cell, job)
        is_given_up = status == "waits"
        job_state, node_state = lane.settle(job, status == "exit 0", 1 if is_given_up else PATIENCE)
        died = [f"slurmd {lane.ended_slurmd()}"] if lane.ended_slurmd() else []
    died += [f"slurmstepd {how}" for how in sorted(set(lane.deaths()))]
    ran = "ran" if lane.take("ran") else "did not run"
    outcome = Outcome(status, ran, job_state, node_state, ", ".join(died) or "-")
    seconds = time.monotonic() - began
    return outcome, seconds, lane.bring_back(job)

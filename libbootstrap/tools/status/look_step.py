"""Starts the looking step with srun, reads what its processes print, and leaves nothing of it behind."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
from contextlib import suppress

from children import Child, read_all
from plain_text import printable
from records import StepState
from step_choice import LOOK_NAME, Refusal, ask_slurm, environment_for_slurm, find_program, hosts_of

LOOK_LIMIT = 8  # seconds
END_OF_SRUN = 0.7
CANCEL_LIMIT = 1
MAX_OUTPUT = 512 << 20
MAX_COMPLAINT = 400


def srun_words(own_path, step, part, nodes, what, py_spy):
    words = ["srun", "--quiet", f"--jobid={step.leader}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}",
             f"--nodelist={part.nodes}", "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--mpi=none",
             "--cpu-bind=none", "--input=none", "--export=NONE", "--chdir=/", "--time=1", "--kill-on-bad-exit=0",
             f"--job-name={LOOK_NAME}"]
    if step.is_heterogeneous:
        words.append(f"--het-group={part.component}")
    if part.gpus and what != "where":
        # Without it device cgroups hide the GPUs of the job from nvidia-smi.
        words.append(f"--gres=gpu:{part.gpus}")
    if what == "ras" and part.first_rank:
        what = "-"
    words += [own_path, "look-at-node", part.job, step.step, str(part.first_rank), what]
    return words + [find_program("scontrol"), py_spy or "-"]


def cancel(step, sruns):
    """srun cancels its step when it gets SIGTERM, and then waits for nodes that do not answer. scancel needs no node."""
    for srun in sruns:
        if srun.pid:
            os.kill(srun.pid, signal.SIGTERM)
    if read_all(sruns, END_OF_SRUN):
        return
    for part in step.parts:
        with suppress(Refusal):  # each process of the look ends by itself
            text = ask_slurm("scontrol", "-o", "show", "step", part.job, seconds=CANCEL_LIMIT)
            for look in re.findall(rf"^StepId=(\S+) .* Name={LOOK_NAME} ", text, re.M):
                ask_slurm("scancel", look, seconds=CANCEL_LIMIT)


def look_at_step(own_path, step, what="-", py_spy=""):
    """`what`: "ras" asks NCCL's RAS, too, and "where" reads environments alone. `py_spy`: its path; empty: no stacks."""
    state, sruns, wanted = StepState(), [], []
    for part in step.parts:
        nodes = hosts_of(part.nodes)
        wanted += nodes
        words = srun_words(own_path, step, part, len(nodes), what, py_spy)
        sruns.append(Child(words, joins_errors=True, most=MAX_OUTPUT, environment=environment_for_slurm()))
    if not read_all(sruns, LOOK_LIMIT):
        cancel(step, sruns)
    for srun in sruns:
        srun.end(END_OF_SRUN)
        for line in state.add_lines(srun.text()):
            # "cluster configuration lacks support for cpu binding" is no reason, and comes in spite of --quiet.
            if (not state.complaint or "execve" in line) and "cpu binding" not in line:
                state.complaint = printable(line[:MAX_COMPLAINT])
    answered = {node.node for node in state.nodes}
    state.silent_nodes = [node for node in wanted if node not in answered]
    return state

"""The outcome of a script, and when two are equal: the same exit status and the same lines in any order, except for values that
differ in each run of the same command: ids, ports, times, the cluster's own name."""

# SPDX-License-Identifier: Apache-2.0

import re
from collections import Counter
from dataclasses import dataclass

# Variables whose numbers differ between two runs; the form of their values is compared.
IDENTITIES = re.compile(
    r"SLURM_(ARRAY_)?JOB_?ID(_(HET|PACK)_GROUP_\d+)?|SLURM_HET_JOB_ID|SLURM_STEP_?ID|SLURM_TASK_PID|SLURM_STEP_LAUNCHER_PORT|"
    r"SLURM_SRUN_COMM_PORT|SLURM_PTY_PORT|SLURM_JOB_(START|END)_TIME|SLURM_STEP_RESV_PORTS|PMIX_\w+|PMI_FD|PMI_JOBID|"
    r"SLURM_PMIX\w*|SLURM_PMI_KVS\w*|SLURM_MPI\w*|OMPI_MCA_(orte|ess|orte_hnp)\w*|OMPI_MCA_\w*uri|SSH_\w+|PARALLEL_(PID|SEQ)|"
    r"SLURM_ARRAY_TASK_PID|PPID|INVOCATION_ID|SLURM_JOB_SLUID")

# Replacements in every line, in this order.
PATTERNS = [(re.compile(pattern), by) for pattern, by in (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"\b([Jj]ob(?: step| allocation)?|[Ss]tep|STEP|JOB|allocation|StepId=|JobId=|jobid)([ =]*)\d+(?:_\d+)?(?:\.\d+)?", r"\1\2ID"),
    (r"slurm-\d+(_\d+)?\.out", "slurm-ID.out"),
    (r"/job\d+/", "/jobID/"),
    (r"\bslurm_script\b|job\d{5}\b", "SCRIPT"),
    (r"\b(pid|PID|process|Process)([ =:]+)\d+", r"\1\2PID"),
    (r"\[(NODE\d|node\d+|head)[:,](\[?\d+,?\d*\]?,?\d*)(:\d+)?\]", r"[\1]"),
    (r"(task +\d+ +\d+) \[\d+\]", r"\1 [PID]"),
    (r"(line \d+:) *\d+ ", r"\1 PID "),
    (r"(tmp\.|/tmp/)[A-Za-z0-9._]{6,}", r"\1NAME"),
    (r"\s+$", ""),
)]  # fmt: skip

# Slurm's messages when it is busy, or about its own races.
NOISE = re.compile(
    r"(srun|salloc|sbatch): (job \d+ (queued and waiting for resources|has been allocated resources)|Requested partition|"
    r"Job (\d+ )?step creation (temporarily disabled, retrying|still disabled.*)|got SIGCONT|.*has been revoked|Step created for "
    r".*|Pending job allocation \d+|"
    r"Force Terminated|.*Waiting up to \d+ seconds for job step to finish.*|job \d+ is in (a )?complet|Nodes .* are ready for job|"
    r"Waiting for resource configuration|forcing job termination|launch/slurm: launch_p_step_launch: .*)|"
    r"srun: first task exited \d+s ago|srun: .*step:.*|srun: error: Timed out waiting for job step to complete|"
    r"slurmstepd-?\w*: error: (\*\*\* (STEP|JOB) .*|_send_launch_resp.*)|srun: launch/slurm: _step_signal.*|"
    r"srun: interrupt .*|srun: sending Ctrl-C.*|Script (started|done).*|"
    # The announcement; activation/test_announcement.py shows that only worlds have it.
    r"srun: bootstrap: StepId=\S+ \d+ (tasks|torchruns) on \S+ (are the ranks of|form) one world; .*; "
    r"use --bootstrap=off for independent runs$")
EXITS = re.compile(r"(srun: error: )(\S+: )(tasks? )([\d,\-]+)(: .*)")
# Numbers that depend on the load of the machine and on the order of events.
WITHIN = re.compile(r"^(?P<before>(?:[\w.]+: )*)(?P<name>[A-Za-z_]\w*)=(?P<value>.*)$")


@dataclass(frozen=True)
class Outcome:
    """The end and the output of a script."""

    status: int
    lines: tuple[str, ...]  # normalised and sorted; those of standard error begin with "2> "
    seconds: float = 0.0


def outcome(status: int, stdout: str, stderr: str, names: dict[str, str], seconds: float = 0.0) -> Outcome:
    """`names` has words of this run, such as the name of the cluster, and their replacements."""
    lines = [line for text in stdout.splitlines() for line in normalised(text, names)]
    lines += ["2> " + line for text in stderr.splitlines() for line in normalised(text, names)]
    return Outcome(status, tuple(sorted(lines)), seconds)


def normalised(line: str, names: dict[str, str]) -> list[str]:
    line = re.sub("\r|\b|\\^@", "", line)
    if NOISE.search(line):
        return []
    for word, stands_for in names.items():
        line = line.replace(word, stands_for)
    entry = WITHIN.match(line)
    if entry and IDENTITIES.fullmatch(entry["name"]):
        return [f"{entry['before']}{entry['name']}={re.sub(r'[0-9A-Fa-f]*[0-9][0-9A-Fa-f]*', '#', entry['value'])}"]
    for pattern, by in PATTERNS:
        line = pattern.sub(by, line)
    # Tasks that end at once share a line or not, by chance.
    exits = EXITS.fullmatch(line)
    if exits:
        return [f"{exits[1]}task {task}{exits[5]}" for task in members(exits[4])]
    return [line] if line else []


def members(numbers: str) -> list[int]:
    """ "0-2,5": [0, 1, 2, 5]."""
    found = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def differences(off: Outcome, on: Outcome, ignores: str = "") -> list[str]:
    """The differences, as lines for a reader; [] if there are none."""
    found = [] if off.status == on.status else [f"exit status {off.status} without the plugin, {on.status} with it"]
    kept = [Counter(line for line in each.lines if not (ignores and re.search(ignores, line))) for each in (off, on)]
    found += [f"only without: {line}" for line in sorted((kept[0] - kept[1]).elements())]
    found += [f"only with it: {line}" for line in sorted((kept[1] - kept[0]).elements())]
    return found

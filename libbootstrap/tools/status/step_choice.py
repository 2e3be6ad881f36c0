"""Chooses the step to look at, from what Slurm's own commands print about jobs and steps."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections import namedtuple
from contextlib import suppress
from types import SimpleNamespace

from children import output_of
from plain_text import counted, number_in, printable, quoted

ASK_LIMIT = 4  # seconds
MAX_LISTED = 8
STEP_FORMAT = "StepId=%i NodeList=%N Tasks=%A Name=%j Network="  # of squeue -s, as scontrol writes it
OWN_NAMES = "slurm-bootstrap-"  # our own steps have names that begin so; they are not looked at
LOOK_NAME = OWN_NAMES + "status"

# The part of a step that one job has; a heterogeneous step has several.
StepPart = namedtuple("StepPart", "job component tasks first_rank nodes gpus")


class StepLine(namedtuple("StepLine", "job step tasks nodes name srun")):
    """One line of squeue or scontrol. `job` as they write it: "12", or "12_3" of an array. `srun`: "host:4711", from scontrol."""

    @property
    def id(self):
        return f"{self.job}.{self.step}"


def say(text):
    with suppress(OSError):
        os.write(2, f"slurm-bootstrap: {text}\n".encode("utf-8", "surrogateescape"))


class Refusal(Exception):
    """Why there is nothing to look at, in one sentence; and the exit status."""

    def __init__(self, sentence, status=1):
        super().__init__(sentence)
        self.status = status


class NotRunning(Refusal):
    """The step has not started, or has ended."""


def use_commands(own_path):
    """Finds Slurm's commands in PATH, and in the folder of this command."""
    folders = os.environ.get("PATH", "").split(":") + [os.path.dirname(own_path)]
    os.environ["PATH"] = ":".join(folder for folder in folders if folder.startswith("/"))
    for name in ("srun", "scontrol", "squeue", "scancel"):
        if not find_program(name):
            raise Refusal(f"looked for {name} in PATH, which has none; run this command on a host with Slurm's commands, "
                          "such as a login node")


def find_program(name):
    """Its absolute path; empty: there is none."""
    paths = (f"{folder}/{name}" for folder in os.environ["PATH"].split(":"))
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def environment_for_slurm():
    """Without the variables of Slurm, PMIx and our own, which belong to another step."""
    dropped = ("SLURM", "PMI", "SQUEUE_", "SCONTROL_", "SCANCEL_")
    kept = {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith(dropped)}
    return {**kept, "SLURM_BOOTSTRAP": "off"}


def ask_slurm(*words, seconds=ASK_LIMIT, gone=None):
    """What a command of Slurm prints; empty if its error matches `gone`."""
    text, status = output_of(words, seconds, joins_errors=True, most=16 << 20, environment=environment_for_slurm())
    if status is None:
        raise Refusal(f"asked Slurm with {words[0]}, which did not answer within {seconds} s; slurmctld may be down")
    if status:
        first_line = printable(text.partition("\n")[0])
        if gone and re.search(gone, first_line):
            return ""
        raise Refusal(f"asked Slurm with {words[0]}, which failed: {first_line}")
    return text


def gpus_in(gres):
    """"gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:2)" is 3. Indexes in the parentheses may have commas of their own."""
    return sum(number_in(count, 1024) or 0 for count in re.findall(r"(?:^|,)gpu[^,(]*:(\d+)(?=[,(]|$)", gres))


def fields_in(line):
    return dict(reversed(re.findall(r"(?:^| )([\w:]+)=([^ ]*)", line)))  # the first one of a name counts


def parse_jobs(text):
    """The lines of `scontrol show job -d -o`."""
    jobs = []
    for line in text.split("\n"):
        fields = fields_in(line)
        if not line.startswith("JobId="):
            continue
        user = fields.get("UserId", "")  # "alice(10001)"
        jobs.append(SimpleNamespace(
            id=fields["JobId"],
            # As squeue writes it. The last task of an array has the id of the array.
            name="_".join(fields[name] for name in ("ArrayJobId", "ArrayTaskId") if name in fields) or fields["JobId"],
            leader=fields.get("HetJobId", ""),  # of a heterogeneous job
            component=number_in(fields.get("HetJobOffset", "")) or 0,
            user=user,
            user_id=number_in(user.rpartition("(")[2].rstrip(")")),
            state=fields.get("JobState", ""),
            nodes=fields.get("NodeList", "").replace("(null)", ""),
            gpus=min(map(gpus_in, re.findall(r" GRES=([^ ]*)", line)), default=0)))  # that each node has at least
    return jobs


def parse_steps(text):
    """The lines of `scontrol -o show step`, without the extern step and our own."""
    found = re.findall(r"^StepId=([^. ]*)\.(\S*) .*?NodeList=(\S*) .*?Tasks=(\d{1,9}) Name=(.*?) Network=(?:.* SrunHost:Pid=(\S+))?",
                       text, re.M)
    steps = [StepLine(job, step, int(tasks), nodes, name, srun) for job, step, nodes, tasks, name, srun in dict.fromkeys(found)]
    return [one for one in steps if one.step != "extern" and not one.name.startswith(OWN_NAMES)]


def parse_step_argument(text):
    """JOBID or JOBID.STEP as a pair; empty: the user's only one."""
    found = re.match(r"([0-9][0-9_+]{0,30})(?:\.(batch|interactive|[0-9]{1,10}))?\Z", text)
    if text and not found:
        raise Refusal(f"{quoted(text)} is no JOBID or JOBID.STEP, such as 12 or 12.0; squeue -s --me lists your steps", 2)
    return found.groups("") if found else ("", "")


def refuse_job(jobs, wanted, user_id):
    """Raises Refusal if the user cannot look at this job."""
    if not jobs:
        raise NotRunning(f"Slurm knows no job {wanted}; it has ended, or the number is wrong; squeue --me lists your jobs")
    job = jobs[0]
    if job.user_id != user_id:
        raise Refusal(f"job {wanted} belongs to {printable(job.user)}; only this user can look at it")
    if job.state == "SUSPENDED":
        raise Refusal(f"job {wanted} is suspended, so that no step can look at it; its processes are stopped until: "
                      f"scontrol resume {wanted}")
    if job.state == "PENDING":
        raise NotRunning(f"job {wanted} has not started; squeue -j {wanted} shows why")
    if job.state != "RUNNING":
        raise NotRunning(f"job {wanted} does not run; its state is {printable(job.state)}")


def list_of(steps):
    shown = [f"{one.id} ({printable(one.name)}, {counted(one.tasks, 'task')} on {one.nodes})" for one in steps]
    more = len(shown) - MAX_LISTED
    return ", ".join(shown[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def choose_step(steps, job, step):
    """Chooses among the user's steps of all jobs, or of one: the only step of several tasks, else the only step."""
    whose = f"job {job} has" if job else "you have"
    if not steps:
        raise NotRunning(f"{whose} no running step" + ("" if job else "; squeue --me lists your jobs"))
    choice = [one for one in steps if one.step == step] if step else [one for one in steps if one.tasks > 1] or steps
    if not choice:
        raise NotRunning(f"{whose} no running step {step}; running: {list_of(steps)}")
    # A batch script is a step, too, beside the one that it has started.
    if len(choice) == 2 and choice[0].job == choice[1].job and choice[0].tasks == choice[1].tasks == 1:
        choice = [one for one in choice if one.step != "batch"]
    if len({one.id for one in choice}) > 1:
        raise Refusal(f"{whose} several running steps; name one of them: {list_of(choice)}")
    return choice[0]


class ChosenStep:
    """The chosen step in all components of its job. `lines`: the steps of all components."""

    def __init__(self, jobs, lines, step):
        self.step, self.parts, self.tasks = step, [], 0
        self.is_heterogeneous = bool(jobs[0].leader)
        self.leader = jobs[0].leader or jobs[0].id  # the job that srun is given
        self.name = f"{jobs[0].leader or jobs[0].name}.{step}"
        for job in sorted(jobs, key=lambda one: one.component):
            for line in lines:
                if line.step == step and line.job == job.name:
                    self.parts.append(StepPart(job.id, job.component, line.tasks, self.tasks, line.nodes, job.gpus))
                    self.tasks += line.tasks
                    break


def ask_job(job):
    return parse_jobs(ask_slurm("scontrol", "show", "job", "-d", "-o", job, gone="nvalid job id"))


def ask_steps(*jobs):
    """Asks scontrol, since squeue does not list the steps of a job with a step manager (stepmgr)."""
    return parse_steps("\n".join(ask_slurm("scontrol", "-o", "show", "step", job, gone="nvalid job id|not found") for job in jobs))


def hosts_of(nodes):
    """The nodes in a node list of Slurm's."""
    return ask_slurm("scontrol", "show", "hostnames", nodes).split() if nodes else []


def fields_of_nodes(nodes):
    lines = ask_slurm("scontrol", "-o", "show", "node", ",".join(nodes)).split("\n") if nodes else []
    return {fields["NodeName"]: fields for fields in map(fields_in, lines) if "NodeName" in fields}


def find_step(job, step, choose=choose_step):
    """Asks Slurm for the steps of the user or of a job, and chooses one. Any component of a heterogeneous job may be named. The
    number of an array means all its tasks."""
    if not job:
        own = ("-u", str(os.getuid()))
        steps = parse_steps(ask_slurm("squeue", "-h", "-s", "-o", STEP_FORMAT, *own))
        if not steps:
            steps = ask_steps(*ask_slurm("squeue", "-h", "-t", "RUNNING", "-o", "%A", *own).split()[:MAX_LISTED])
        job, step = choose_step(steps, job, step)[:2]
    jobs = ask_job(job)
    if jobs and jobs[0].leader:
        jobs = ask_job(jobs[0].leader)
    jobs = [one for one in jobs if one.state == "RUNNING"] or jobs
    refuse_job(jobs, job, os.getuid())
    owners = {one.name: one.leader or one.name for one in jobs}
    lines = [line for line in ask_steps(*(one.id for one in jobs)) if line.job in owners]
    chosen = choose([line._replace(job=owners[line.job]) for line in lines], job, step)
    return ChosenStep([one for one in jobs if owners[one.name] == chosen.job], lines, chosen.step)

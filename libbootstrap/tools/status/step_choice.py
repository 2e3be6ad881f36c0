"""Which step is looked at, by what Slurm's own commands print about jobs and steps."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
from collections import namedtuple
from types import SimpleNamespace

from children import output_of
from plain_text import counted, number_in, printable, quoted

ASK_LIMIT = 4  # seconds
MAX_LISTED = 8
STEP_FORMAT = "StepId=%i NodeList=%N Tasks=%A Name=%j Network="  # of squeue -s, as scontrol writes it
OWN_NAMES = "slurm-bootstrap-"  # our own steps have names that begin so; they are not looked at
LOOK_NAME = OWN_NAMES + "status"

# Absolute paths on this host, that of this command first.
Commands = namedtuple("Commands", "own srun scontrol squeue scancel")
# The part of a step that one job has; a heterogeneous step has several.
StepPart = namedtuple("StepPart", "job component tasks first_rank nodes gpus")


class StepLine(namedtuple("StepLine", "job step tasks nodes name srun")):
    """One line of squeue or scontrol. Its job is as they write it: "12", of an array "12_3". `srun`: "host:4711", by scontrol."""

    @property
    def id(self):
        return f"{self.job}.{self.step}"


class Refusal(Exception):
    """Why there is nothing to look at, in one sentence; and the exit status."""

    def __init__(self, sentence, status=1):
        super().__init__(sentence)
        self.status = status


class NotRunning(Refusal):
    """Slurm has answered, and no such step runs."""


def find_program(name, own_path):
    """The absolute path of a program in PATH, or beside this command; empty: there is none."""
    folders = os.environ.get("PATH", "").split(":") + [os.path.dirname(own_path)]
    paths = (f"{folder}/{name}" for folder in folders if folder.startswith("/"))
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def find_commands(own_path):
    paths = [own_path]
    for name in Commands._fields[1:]:
        paths.append(find_program(name, own_path))
        if not paths[-1]:
            raise Refusal(f"looked for {name} in PATH, which has none; run this command on a host with Slurm's commands, "
                          "such as a login node")
    return Commands(*paths)


def environment_for_slurm():
    """Without variables of Slurm, PMIx and our own, which are of another step."""
    dropped = ("SLURM", "PMI", "SQUEUE_", "SCONTROL_", "SCANCEL_")
    kept = {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith(dropped)}
    return {**kept, "SLURM_BOOTSTRAP": "off"}


def ask_slurm(*words, seconds=ASK_LIMIT):
    """What a command of Slurm prints."""
    text, status = output_of(words, seconds, joins_errors=True, most=16 << 20, environment=environment_for_slurm())
    asked = f"asked Slurm with {os.path.basename(words[0])}"
    if status is None:
        raise Refusal(f"{asked}, which did not answer within {seconds} s; slurmctld may be down")
    if status:
        first_line = text.partition("\n")[0]
        raise Refusal(f"{asked}, which failed: {printable(first_line)}")
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
    """Raises why this job cannot be looked at, if it cannot."""
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
    """Among the user's steps of all jobs, or of one: the only one of several tasks, else the only one."""
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
    """The chosen step in all components of its job. `lines`: of all components."""

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


def ask_unless_gone(gone, *words):
    """Empty where Slurm's answer has one of the texts in `gone`: it has no such job, or no step of it."""
    try:
        return ask_slurm(*words)
    except Refusal as refusal:
        if any(text in str(refusal) for text in gone):
            return ""
        raise


def ask_job(slurm, job):
    return parse_jobs(ask_unless_gone(["nvalid job id"], slurm.scontrol, "show", "job", "-d", "-o", job))


def ask_steps(slurm, *jobs):
    """With a step manager squeue has no steps of them (stepmgr)."""
    gone = ["nvalid job id", "not found"]
    return parse_steps("\n".join(ask_unless_gone(gone, slurm.scontrol, "-o", "show", "step", job) for job in jobs))


def hosts_of(slurm, nodes):
    """The nodes of a list of Slurm's."""
    return ask_slurm(slurm.scontrol, "show", "hostnames", nodes).split() if nodes else []


def fields_of_nodes(slurm, nodes):
    lines = ask_slurm(slurm.scontrol, "-o", "show", "node", ",".join(nodes)).split("\n") if nodes else []
    return {fields["NodeName"]: fields for fields in map(fields_in, lines) if "NodeName" in fields}


def find_job(slurm, job):
    """All components of a heterogeneous job, whichever of them was named; of an array the tasks that run."""
    jobs = ask_job(slurm, job)
    if jobs and jobs[0].leader:
        jobs = ask_job(slurm, jobs[0].leader)
    jobs = [one for one in jobs if one.state == "RUNNING"] or jobs
    refuse_job(jobs, job, os.getuid())
    return jobs


def find_step(slurm, job, step, choose=choose_step):
    """Asks Slurm for the steps of the user or of a job, and chooses one."""
    if not job:
        own = ("-u", str(os.getuid()))
        steps = parse_steps(ask_slurm(slurm.squeue, "-h", "-s", "-o", STEP_FORMAT, *own))
        if not steps:
            names = ask_slurm(slurm.squeue, "-h", "-t", "RUNNING", "-o", "%A", *own).split()
            steps = ask_steps(slurm, *names[:MAX_LISTED])
        job, step = choose_step(steps, job, step)[:2]
    jobs = find_job(slurm, job)
    owners = {one.name: one.leader or one.name for one in jobs}
    # With the id of an array, Slurm lists the steps of all its tasks.
    lines = [line for line in ask_steps(slurm, *(one.id for one in jobs)) if line.job in owners]
    chosen = choose([line._replace(job=owners[line.job]) for line in lines], job, step)
    return ChosenStep([one for one in jobs if owners[one.name] == chosen.job], lines, chosen.step)

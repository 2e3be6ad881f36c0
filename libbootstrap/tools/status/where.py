"""`slurm-bootstrap where`: the host and port at which a step of a job is reached, looked at from outside."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import socket
import time

from children import write_all
from look_step import look_at_step
from plain_text import counted, number_in, printable
from records import NOT_STARTED
from step_choice import NotRunning, Refusal, ask_slurm, fields_of_nodes, find_step, hosts_of, list_of, use_commands

POLL = 0.5  # seconds


def parse_place(text):
    """The job and the step, by its name or number, of STEP or JOBID.STEP."""
    found = re.match(r"([0-9][0-9_+]{0,30})\.(.+)\Z", text, re.S)
    job, step = found.groups() if found else (os.environ.get("SLURM_JOB_ID", ""), text)
    if not job or not step:
        raise Refusal("SLURM_JOB_ID is not set, so this is no process of a job; name the job, too: JOBID.STEP", 2)
    return job, step


def refuse_other_cluster():
    """A container may reach another Slurm than the job's, which has jobs with the same numbers."""
    own = os.environ.get("SLURM_CLUSTER_NAME", "")
    found = re.search(r"^ClusterName\s*= (\S+)$", ask_slurm("scontrol", "show", "config"), re.M) if own else None
    if found and found.group(1) != own:
        raise Refusal(f"this process is of a job of cluster {printable(own)}, and the Slurm here is cluster "
                      f"{printable(found.group(1))}; use a slurm.conf of {printable(own)}")


def choose_named(steps, job, name):
    """The step of this name or number."""
    is_number = name in ("batch", "interactive") or name.isdigit()
    found = {one.id: one for one in steps if (one.step if is_number else one.name) == name}
    if not found:
        running = f"; running: {list_of(steps)}" if steps else ""
        raise NotRunning(f"job {job} has no running step {printable(name)}: it has not started, or has ended{running}")
    if len(found) > 1:
        raise Refusal(f"job {job} has {len(found)} running steps with the name {printable(name)}; use the number of one: "
                      f"{', '.join(sorted(found))}")
    return found.popitem()[1]


def look_at(own_path, step, rank):
    """The rank's record. Asks one node first: all ranks have the same MASTER_ADDR, and if Slurm placed the tasks in blocks,
    its default, that node has the rank. Else asks all nodes."""
    if rank is not None and rank >= step.tasks:
        raise Refusal(f"step {step.name} has no rank {rank}; its ranks are 0 to {step.tasks - 1}")
    parts, part = step.parts, step.parts[0]
    nodes = hosts_of(part.nodes)
    likely = nodes[min(len(nodes) - 1, (rank or 0) * len(nodes) // max(1, part.tasks))]
    for step.parts in ([part._replace(nodes=likely)], parts):
        state = look_at_step(own_path, step, "where")
        ranks = [one for one in state.ranks if rank in (None, one.rank)]
        if ranks:
            return ranks[0]
        if state.silent_nodes:
            why = f": {state.complaint}" if state.complaint else ""
            raise NotRunning(f"{', '.join(state.silent_nodes[:4])} of step {step.name} did not answer{why}")
    raise NotRunning(f"step {step.name} has no process of rank {rank or 0}: it has not started, or has ended")


def values_of(step, rank):
    """The plugin's variables of the program that Slurm started as this rank."""
    who = f"rank {rank.rank} of step {step.name}"
    if rank.unread:
        raise (NotRunning if rank.unread == NOT_STARTED else Refusal)(f"{who} cannot be read: {rank.unread}")
    values = dict(text.partition("=")[::2] for text in rank.variables)
    if "SLURM_JOB_ID" not in values:
        raise Refusal(f"the program of {who} cannot be read: it has cleared its environment (env -i), or protects it")
    tag = f"{step.leader}.{step.step}."  # JOB.STEP.RESTART
    if not values.get("SLURM_BOOTSTRAP_STEP", "").startswith(tag):
        raise Refusal(f"step {step.name} is not set up by the plugin; start it with srun --bootstrap=on")
    return values


def reachable(node):
    """The node's name if it resolves here, else the address that Slurm has."""
    try:
        socket.getaddrinfo(node, None)
        return node
    except OSError:
        return fields_of_nodes([node]).get(node, {}).get("NodeAddr", node)


def find_place(own_path, job, name, rank, number):
    """The rendezvous of the step, or the port of that number, from 1, of a rank."""
    step = find_step(job, name, choose_named)
    seen = look_at(own_path, step, rank)
    values = values_of(step, seen)
    if rank is None:
        host, port = (values.get(name) or values.get(f"PET_{name}", "") for name in ("MASTER_ADDR", "MASTER_PORT"))
        if not host or number_in(port, 0xffff) is None:
            raise Refusal(f"step {step.name} has no usable MASTER_ADDR and MASTER_PORT")
        return step, host, int(port)
    ports = [port for port in values.get("BOOTSTRAP_PORTS", "").split(",") if port.isdigit()]
    if len(ports) < number:
        has = counted(len(ports), "port") if ports else "no ports"
        raise Refusal(f"rank {rank} of step {step.name} has {has} in BOOTSTRAP_PORTS; start the step with --bootstrap-ports={number}")
    return step, reachable(seen.node), int(ports[number - 1])


def show_place(own_path, text, options):
    job, name = parse_place(text)
    use_commands(own_path)
    if job == os.environ.get("SLURM_JOB_ID"):
        refuse_other_cluster()
    rank = int(options["rank"] or 0) if options["rank"] or options["port"] else None
    seconds = int(options["wait"] or 0)
    deadline, place = time.monotonic() + seconds, None
    while place is None:
        try:
            place = find_place(own_path, job, name, rank, int(options["port"] or 1))
        except NotRunning as refusal:
            if time.monotonic() >= deadline:
                raise Refusal(f"{refusal}" + (f"; waited {seconds} s for it" if seconds else ""))
            time.sleep(POLL)
    step, host, port = place
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if options["json"] == "true":
        shown = json.dumps({"step": step.name, "rank": rank or 0, "host": host, "port": port})
    write_all(1, shown + "\n")

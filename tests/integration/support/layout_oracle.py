"""The values that each task must have, computed only from where each task really ran, without code under test.

A report is written by one probe.py: its environment, and under '@host' and '@verdict' its host and the result of its
meeting with the other ranks.
"""

from collections import Counter, defaultdict
from pathlib import Path

Report = dict[str, str]
StepKey = tuple[str, str, str]

NAIVE_PORT_RANGE = 20000


def read_reports(folder: Path) -> list[Report]:
    """All reports of a folder; a report is complete as soon as it has its name."""
    reports = []
    for path in sorted(folder.glob("*.task")):
        entries = path.read_bytes().decode(errors="surrogateescape").split("\0")
        reports.append(dict(entry.partition("=")[::2] for entry in entries if entry))
    return reports


def by_step(reports: list[Report]) -> dict[StepKey, list[Report]]:
    """Reports of each step, in order of rank. All components of a heterogeneous step are one step."""
    steps = defaultdict(list)
    for report in reports:
        steps[report["SLURM_JOB_ID"], report["SLURM_STEP_ID"], report.get("SLURM_RESTART_COUNT", "0")].append(report)
    return {key: sorted(tasks, key=lambda task: int(task["SLURM_PROCID"])) for key, tasks in sorted(steps.items())}


def expected(key: StepKey, tasks: list[Report]) -> list[Report]:
    """The right values for each task of one step, in the order given."""
    hosts = list(dict.fromkeys(task["@host"] for task in tasks))  # in order of their lowest rank
    seen: Counter[str] = Counter()
    sizes = Counter(task["@host"] for task in tasks)
    values = []
    for rank, task in enumerate(tasks):
        host = task["@host"]
        values.append({
            "SLURM_PROCID": str(rank),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(tasks)),
            "LOCAL_RANK": str(seen[host]),
            "LOCAL_WORLD_SIZE": str(sizes[host]),
            "NODE_RANK": str(hosts.index(host)),
            "GROUP_RANK": str(hosts.index(host)),
            "GROUP_WORLD_SIZE": str(len(hosts)),
            "MASTER_ADDR": tasks[0]["@host"],
            "MASTER_PORT": tasks[0].get("MASTER_PORT", "(not set)"),
            "SLURM_BOOTSTRAP_STEP": ".".join(key),
            "@verdict": "ok",
        })
        values[-1] |= of_frameworks(tasks, hosts, rank)
        seen[host] += 1
    return values


def of_frameworks(tasks: list[Report], hosts: list[str], rank: int) -> Report:
    """The variables of JAX and torchrun, from the same facts; None: must not be set."""
    coordinator = f"{tasks[0]['@host']}:{tasks[0].get('JAX_COORDINATOR_PORT')}"
    of_torchrun = {"PET_NNODES": len(tasks), "PET_NODE_RANK": rank, "PET_MASTER_ADDR": tasks[0]["@host"],
                   "PET_MASTER_PORT": tasks[0].get("MASTER_PORT")}
    has_torchrun = len(hosts) == len(tasks)
    return {"JAX_COORDINATOR_ADDRESS": coordinator, "JAX_COORDINATOR_PORT": tasks[0].get("JAX_COORDINATOR_PORT", "(not set)")} \
        | {name: str(value) if has_torchrun else None for name, value in of_torchrun.items()}


def differences(reports: list[Report], step_sizes: tuple[int, ...], hosts: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with the reports of one case, as readable lines; [] if nothing is.

    `step_sizes`: the tasks of each step that the case must start. `hosts`: the hosts of the ranks, if it has one step.
    """
    steps = by_step(reports)
    found = []
    if sorted(map(len, steps.values())) != sorted(step_sizes):
        found.append(f"steps of {sorted(step_sizes)} tasks were asked for, {sorted(map(len, steps.values()))} reported")
    meeting_points = Counter((tasks[0].get("MASTER_ADDR"), tasks[0].get("MASTER_PORT")) for tasks in steps.values())
    found += [f"{count} steps share the meeting point {point}" for point, count in meeting_points.items() if count > 1]
    for key, tasks in steps.items():
        name = ".".join(key)
        if hosts and tuple(task["@host"] for task in tasks) != hosts:
            found.append(f"step {name} ran on {[task['@host'] for task in tasks]}, not on {list(hosts)}")
        for rank, (task, right) in enumerate(zip(tasks, expected(key, tasks))):
            wrong = [f"{name}={task.get(name)!r} and not {value!r}" for name, value in right.items() if task.get(name) != value]
            if wrong:
                found.append(f"step {name}: rank {rank} on {task['@host']}: {'; '.join(wrong)}")
        port = tasks[0].get("MASTER_PORT", "")
        if not port.isdecimal() or not 1024 <= int(port) <= 65535:
            found.append(f"step {name}: MASTER_PORT={port!r} is no port")
        if port == tasks[0].get("JAX_COORDINATOR_PORT"):
            found.append(f"step {name}: two servers at port {port}")
    return found


def expand(hosts: str) -> list[str]:
    """The names of a host list with at most one bracket, which is enough for these clusters."""
    head, _, inside = hosts.partition("[")
    if not inside:
        return hosts.split(",")
    names = []
    for part in inside.rstrip("]").split(","):
        low, _, high = part.partition("-")
        names += [f"{head}{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)]
    return names


def as_launch_scripts_do(report: Report) -> Report:
    """The same task by the rules of launch scripts: the control, which shows that the oracle can fail."""
    return report | {
        "RANK": report["SLURM_PROCID"],
        "WORLD_SIZE": report["SLURM_NTASKS"],
        "LOCAL_RANK": report["SLURM_LOCALID"],
        "NODE_RANK": report["SLURM_NODEID"],
        "MASTER_ADDR": expand(report["SLURM_STEP_NODELIST"])[0],
        "MASTER_PORT": str(10000 + int(report["SLURM_JOB_ID"]) % NAIVE_PORT_RANGE),
    }

"""The GPU that each task really gets, computed like the CUDA runtime from the devices that it can open, against Slurm's GPUs.

It uses no code under test. A report is written by one probe.py: its environment, and under '@host', '@open', '@hidden'
and '@cpus' its host, the /dev/nvidiaN that it can open or not, and its CPUs. Slurm's GPUs come from `scontrol -d show
job`, which counts a node's GPUs like the device nodes, and from the devices that a step can open if device cgroups
constrain it.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from layout_oracle import Report, by_step, expand, expected

Given = dict[str, set[int]]  # host -> device numbers


@dataclass(frozen=True)
class Wanted:
    """A case's expectations about its steps."""

    mode: str = "index"  # of --bootstrap-gpu
    share: bool = False  # more tasks than GPUs are allowed
    bound: bool = False  # the user has Slurm bind GPUs to tasks
    distinct: bool = True  # ... with GPUs of its own for every task
    per_node: int = 0  # GPUs of the step on each of its nodes; 0: all of its job
    apart: bool = False  # the steps run at the same time, with GPUs of their own each
    constrained: bool = True  # a step can open the GPUs that Slurm gave it and no other


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def cuda_devices(report: Report, names: dict[str, int] | None = None) -> list[int]:
    """The device number behind each CUDA ordinal of the task, with CUDA_DEVICE_ORDER=PCI_BUS_ID.

    CUDA counts the devices that it can open; a list of numbers refers to this count, a list of names to `names`. The list
    ends at the first invalid entry; a repeated entry makes the whole list invalid; of several MIG instances a process gets
    the first.
    """
    opened = sorted(numbers(report["@open"]))
    if "CUDA_VISIBLE_DEVICES" not in report:
        return opened
    known = {str(ordinal): device for ordinal, device in enumerate(opened)}
    known |= {name: device for name, device in (names or {}).items() if device in opened}
    found: list[int] = []
    for word in report["CUDA_VISIBLE_DEVICES"].split(","):
        if word not in known:
            break
        if known[word] in found:
            return []
        found.append(known[word])
        if word.startswith("MIG-"):
            break
    return found


def given_to_jobs(folder: Path) -> dict[str, Given]:
    """Slurm's GPUs of each job, from `scontrol -d show job` inside it."""
    jobs: dict[str, Given] = {}
    for path in folder.glob("*.job"):
        given: Given = defaultdict(set)
        for hosts, rest in re.findall(r"\bNodes=(\S+) CPU_IDs=(.*)", path.read_text()):
            for ranges in re.findall(r"gpu\S*\(IDX:([\d,-]+)\)", rest):
                for host in expand(hosts):
                    given[host] |= set(map(int, expand(f"[{ranges}]")))
        jobs[path.stem] = given
    return jobs


@dataclass
class Task:
    """One task as its training program sees it."""

    report: Report
    visible: list[int]  # device of each ordinal
    ordinals: list[int]  # of its group, its own GPU first

    @property
    def name(self) -> str:
        return f"rank {self.report.get('RANK')} on {self.report['@host']}"

    @property
    def listed(self) -> list[str]:
        return self.report["CUDA_VISIBLE_DEVICES"].split(",") if "CUDA_VISIBLE_DEVICES" in self.report else []

    def device(self, ordinal: int) -> int | None:
        return self.visible[ordinal] if 0 <= ordinal < len(self.visible) else None

    def set_device(self, variable: str) -> int | None:
        """The device of cudaSetDevice(variable); None for an invalid ordinal."""
        value = self.report.get(variable, "")
        return self.device(int(value)) if value.isdecimal() else None

    @property
    def group(self) -> list[int | None]:
        return [self.device(ordinal) for ordinal in self.ordinals]


def task_of(report: Report, names: dict[str, int] | None) -> Task:
    words = [report.get("BOOTSTRAP_GPU", "")] + report.get("BOOTSTRAP_GPUS", "").split(",")
    ordinals = list(dict.fromkeys(int(word) for word in words if word.isdecimal()))
    return Task(report, cuda_devices(report, names), ordinals)


def check_ranks(tasks: list[Task], key, wanted: Wanted, given: Given):
    """RANK and related variables. Programs use LOCAL_RANK as an ordinal, so it is 0 of 1 if each task has its own list."""
    for task, right in zip(tasks, expected(key, [task.report for task in tasks])):
        names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]
        if given[task.report["@host"]]:
            if wanted.bound or wanted.mode in ("first", "narrow"):
                right |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            if wanted.mode != "off":
                right["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
                names.append("CUDA_DEVICE_ORDER")
        for name in names:
            if task.report.get(name) != right[name]:
                yield f"{task.name}: {name}={task.report.get(name)!r} and not {right[name]!r}"


def check_own(task: Task, given: set[int], shared: bool):
    """The promises of every mode about one task's own GPU and group."""
    own = task.set_device("BOOTSTRAP_GPU")
    if own is None:
        yield f"{task.name}: BOOTSTRAP_GPU={task.report.get('BOOTSTRAP_GPU')!r} of {task.visible} is no device"
        return
    if not shared and task.set_device("LOCAL_RANK") != own:
        yield f"{task.name}: set_device(LOCAL_RANK) is {task.set_device('LOCAL_RANK')}, BOOTSTRAP_GPU is {own}"
    if None in task.group or not set(task.group) <= given:
        yield f"{task.name}: its GPUs are {task.group}, Slurm gave {sorted(given)}"
    listed = numbers(task.report.get("BOOTSTRAP_GPUS", task.report["BOOTSTRAP_GPU"]))
    if sorted(listed) != sorted(task.ordinals):
        yield f"{task.name}: BOOTSTRAP_GPUS={listed} is without BOOTSTRAP_GPU={task.report['BOOTSTRAP_GPU']} or repeats"
    if task.listed and len(task.listed) != len(task.visible):
        yield f"{task.name}: of CUDA_VISIBLE_DEVICES={','.join(task.listed)} CUDA takes {len(task.visible)} only"


def check_together(tasks: list[Task], count: int):
    """The tasks of one node together: each has its own GPUs and groups of one size; shared GPUs are balanced."""
    owns = Counter(task.set_device("BOOTSTRAP_GPU") for task in tasks)
    host = tasks[0].report["@host"]
    if len(tasks) > count:
        loads = sorted(owns.values())
        if len(owns) != count or loads[-1] - loads[0] > 1:
            yield f"{host}: {len(tasks)} tasks on {count} GPUs are not balanced: {dict(owns)}"
        return
    yield from (f"{host}: {number} tasks have GPU {device}" for device, number in owns.items() if number > 1)
    members = Counter(device for task in tasks for device in set(task.group))
    yield from (f"{host}: GPU {device} is in {number} groups" for device, number in members.items() if number > 1)
    sizes = {len(task.group) for task in tasks}
    if sizes != {count // len(tasks)}:
        yield f"{host}: groups of {sorted(sizes)} GPUs, {count} GPUs and {len(tasks)} tasks make {count // len(tasks)}"


def check_list(task: Task, place: int, peers: int, given: set[int], count: int, mode: str):
    """The list of one task in this mode, and the place of its own GPUs in it."""
    group = len(task.ordinals)
    if mode == "index":
        right = [place % count] if peers > count else [place + turn * peers for turn in range(group)]
    else:
        right = list(range(group))
    if task.ordinals != right:
        yield f"{task.name}: its GPUs are at {task.ordinals} of the list, not at {right}"
    held = group if mode == "narrow" else count
    if len(task.visible) != held or len(task.listed) != held or not set(task.visible) <= given:
        yield f"{task.name}: the list has {task.visible}, {held} of {sorted(given)} belong there"


def check_node(tasks: list[Task], given: set[int], wanted: Wanted):
    """The tasks of one node of one step."""
    count = wanted.per_node or len(given)
    reachable = {tuple(numbers(task.report["@open"])) for task in tasks}
    host = tasks[0].report["@host"]
    if wanted.constrained and (len(reachable) != 1 or len(given) != count):
        yield f"{host}: tasks can open {sorted(reachable)}, {count} of {sorted(given)} belong to each"
    for place, task in enumerate(tasks):
        yield from check_own(task, given, len(tasks) > count)
        yield from check_list(task, place, len(tasks), given, count, wanted.mode)
    yield from check_together(tasks, count)
    lists = {task.report.get("CUDA_VISIBLE_DEVICES") for task in tasks}
    if wanted.mode == "index" and len(lists) != 1:
        yield f"{host}: the lists differ: {sorted(map(str, lists))}"
    if len(tasks) > count and not wanted.share:
        yield f"{host}: {len(tasks)} tasks were started on {count} GPUs"


def check_bound(tasks: list[Task], twins: list[Task], wanted: Wanted):
    """Slurm binds at the user's request: a task sees exactly Slurm's GPUs, and its own GPU is first."""
    for task, twin in zip(tasks, twins):
        yield from check_own(task, set(twin.visible), False)
        if sorted(task.visible) != sorted(twin.visible):
            yield f"{task.name}: sees {task.visible}, Slurm leaves it {twin.visible}"
        if task.report.get("BOOTSTRAP_GPU") != "0":
            yield f"{task.name}: BOOTSTRAP_GPU={task.report.get('BOOTSTRAP_GPU')!r} and not '0'"
    owns = Counter((task.report["@host"], task.set_device("LOCAL_RANK")) for task in tasks)
    if wanted.distinct:
        yield from (f"{host}: {number} tasks have GPU {device}" for (host, device), number in owns.items() if number > 1)


def check_untouched(tasks: list[Task], twins: list[Task]):
    """Without GPUs or with --bootstrap-gpu=off: the list is Slurm's, and no task has its own GPU."""
    for task, twin in zip(tasks, twins):
        ours = [name for name in task.report if name.startswith("BOOTSTRAP_GPU")]
        if ours:
            yield f"{task.name}: {', '.join(ours)} are set"
        found, right = task.report.get("CUDA_VISIBLE_DEVICES"), twin.report.get("CUDA_VISIBLE_DEVICES")
        if found != right:
            yield f"{task.name}: CUDA_VISIBLE_DEVICES={found!r}, without the plugin it is {right!r}"


def step_differences(key, reports: list[Report], twins: list[Report], given: Given, wanted: Wanted, names=None):
    """What is wrong with one step. `twins`: the same step without the plugin, if it ran, too."""
    tasks = [task_of(report, names) for report in reports]
    plain = [task_of(report, names) for report in twins]
    yield from check_ranks(tasks, key, wanted, given)
    if wanted.mode == "off" or not any(given.values()):
        yield from check_untouched(tasks, plain or [task_of({"@open": ""}, names)] * len(tasks))
    elif wanted.bound:
        yield from check_bound(tasks, plain, wanted)
    else:
        nodes = defaultdict(list)
        for task in tasks:
            nodes[task.report["@host"]].append(task)
        for host, neighbours in nodes.items():
            yield from check_node(neighbours, given[host], wanted)


def given_to_step(reports: list[Report], job: Given, wanted: Wanted) -> tuple[Given, list[str]]:
    """The GPUs of a step on each node: those that it can open, or all of its job if these are not known."""
    given: Given = defaultdict(set)
    for report in reports:
        given[report["@host"]] |= set(numbers(report["@open"])) if wanted.constrained else job.get(report["@host"], set())
    hides = wanted.bound or wanted.mode == "off" or wanted.per_node
    trouble = []
    for host, held in given.items():
        right = job.get(host, set())
        if not held <= right or (held != right and not hides):
            trouble.append(f"on {host} its tasks can open {sorted(held)}, Slurm gave the job {sorted(right)}")
    return given, trouble


def differences(reports: list[Report], jobs: dict[str, Given], sizes: tuple[int, ...], wanted: Wanted, names=None):
    """What is wrong with the reports of one case, as readable lines; [] if nothing is.

    Steps without a rank ran without the plugin, and show what Slurm does alone.
    """
    steps = by_step(reports)
    ours = {key: tasks for key, tasks in steps.items() if any("SLURM_BOOTSTRAP_STEP" in task for task in tasks)}
    twins = [tasks for key, tasks in steps.items() if key not in ours]
    found = []
    if sorted(map(len, ours.values())) != sorted(sizes):
        found.append(f"steps of {sorted(sizes)} tasks were asked for, {sorted(map(len, ours.values()))} reported")
    held: Counter[tuple[str, int]] = Counter()
    for key, tasks in ours.items():
        given, trouble = given_to_step(tasks, jobs.get(key[0], {}), wanted)
        found += [f"step {'.'.join(key)}: {line}" for line in trouble]
        found += [f"step {'.'.join(key)}: {line}" for line in step_differences(key, tasks, twins[0] if twins else [], given, wanted, names)]
        held.update({(task["@host"], device) for task in tasks for device in cuda_devices(task, names)})
    if wanted.apart:
        found += [f"{host}: {number} steps at the same time have GPU {device}" for (host, device), number in held.items() if number > 1]
    return found

"""--bootstrap=explain tells the truth: every variable as the tasks really have it, once, within 80 columns."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import Cluster
from layout_oracle import Report, read_reports

VALUE_COLUMN = 26
SHORT = 21  # what a column of values has room for
WIDTH = 80
IN_ONE_LINE = 160  # that a step is not set up, why, and what to say instead

ACTIVE = {
    "one task": "srun {explain} -n1 $PROBE",
    "uneven": "srun {explain} -N3 -n5 $PROBE",
    "cyclic": "srun {explain} -N4 -n11 -m cyclic $PROBE",
    "sixteen": "srun {explain} -N4 -n16 $PROBE",
    "arbitrary": "printf 'node003\\nnode001\\nnode003\\n' > $OUT/hosts; SLURM_HOSTFILE=$OUT/hosts srun {explain} -n3 -m arbitrary $PROBE",
    "GPUs": "srun {explain} -N2 --ntasks-per-node=2 --gres=gpu:2 $PROBE",
    "GPUs in groups": "srun {explain} -N1 --ntasks-per-node=2 --gres=gpu:4 $PROBE",
    "own GPU first": "srun {explain} --bootstrap-gpu=first -N1 -n3 --gpus-per-task=1 $PROBE",
    "own GPU alone": "srun {explain} --bootstrap-gpu=narrow -N1 -n2 --gres=gpu:4 $PROBE",
    "shared GPUs": "srun {explain} --bootstrap-gpu-share -N1 -n3 --gres=gpu:2 $PROBE",
    "components": "srun -Q {explain} -n2 -wnode002 $PROBE : -N2 -n3 -wnode[001,003] $PROBE",
    "export none": "srun {explain} --export=NONE -N2 -n3 $PROBE",
    "many settings": "SLURM_BOOTSTRAP_PORT_RANGE=21000-21999 srun {explain} --bootstrap-addr=%h --bootstrap-claim=off -N2 -n2 $PROBE",
    "by variable": "SLURM_BOOTSTRAP=explain srun -N2 -n2 $PROBE",
    "in a batch job": "printf '#!/bin/bash\\nsrun -N2 -n3 %s\\ntouch %s/done\\n' \"$PROBE\" $OUT > $OUT/batch; "
                      "sbatch -Q -N2 -n3 {explain} -o $OUT/log $OUT/batch; for ((i = 0; i < 100; i++)); do "
                      "[[ ! -e $OUT/done ]] || break; sleep 0.1; done; cat $OUT/log >&2",
}

# Nobody asked for these steps, but where the script says so itself.
INACTIVE = {
    "switched off": ("when=always", "srun --bootstrap=off,explain -N2 -n3 $PROBE", "switched off by --bootstrap=off"),
    "no GPUs": ("when=gpu", "srun --bootstrap=explain -N2 -n3 $PROBE", "it asked for no GPUs"),
    "not asked": ("when=asked", "srun --bootstrap=explain -N2 -n3 --gres=gpu:1 $PROBE", "nobody asked for it (when=asked)"),
    "submitit": ("when=gpu", "SUBMITIT_EXECUTOR=slurm srun --bootstrap=explain -N2 -n3 --gres=gpu:1 $PROBE", "submitit sets its own ranks"),
    "components": ("when=gpu", "srun -Q --bootstrap=explain -n2 -wnode002 $PROBE : -n1 -wnode001 $PROBE", "it has several components"),
}


@dataclass
class Explained:
    """One explained step: what was printed, and what its tasks had."""

    stdout: str
    lines: list[str]  # of ours on standard error
    tasks: list[Report]  # in order of rank
    rows: dict[str, list[str]] = field(default_factory=dict)  # by variable: what stands right of it, line by line
    nodes: list[tuple[str, str]] = field(default_factory=list)  # (node rank, host)
    frameworks: dict[str, str] = field(default_factory=dict)  # variables of frameworks, with the value of rank 0
    settings: str = ""  # the paragraph below the table

    def parse_frameworks(self) -> None:
        start = next((i for i, line in enumerate(self.lines) if line.startswith("FOR ")), len(self.lines))
        for line in self.lines[start + 1:]:
            if not line or line.startswith("Not set for "):
                break
            self.frameworks.update(word.split("=", 1) for word in line[12:].split() if "=" in word)

    def parse(self) -> "Explained":
        start = next(i for i, line in enumerate(self.lines) if line.startswith("VARIABLE "))
        name = ""
        for line in self.lines[start + 1:]:
            if not line:
                break
            name = line[:VALUE_COLUMN].strip() or name
            self.rows.setdefault(name, []).append(line[max(VALUE_COLUMN, len(line.split(" ")[0]) + 1):])
        self.parse_frameworks()
        below = " ".join(self.lines[start:]).partition("Settings: ")[2]
        self.settings = " ".join(re.findall(r"\w+:\w+=\S+", below))
        for line in self.lines[:start]:
            node = re.match(r"(\d+) +(node\d+) ", line)
            if node:
                self.nodes.append((node[1], node[2]))
        return self


class Stage:
    def __init__(self, cluster: Cluster, probe: str):
        self.cluster = cluster
        self.probe = probe
        self.count = 0
        self.original = cluster.plugstack
        self.plugin = self.original.split(" when=")[0].strip()
        self.configure("when=always")

    def configure(self, arguments: str) -> None:
        self.cluster.write_plugstack(f"{self.plugin} {arguments}\n")

    def run(self, script: str, asks: bool = True) -> Explained:
        self.count += 1
        out = f"/home/alice/explained/{self.count}"
        script = script.replace("{explain}", "--bootstrap=explain")
        preamble = f"export OUT={out} PROBE='{self.probe} {out} alone'; rm -rf $OUT; mkdir -p $OUT; "
        done = self.cluster.run(["timeout", "30", "bash", "-c", preamble + script], env={"SLURM_BOOTSTRAP": "on" if asks else ""})
        assert done.returncode == 0, done.stderr
        tasks = sorted(read_reports(Path(f"{self.cluster.state}{out}")), key=lambda task: int(task["SLURM_PROCID"]))
        return Explained(done.stdout, done.stderr.splitlines(), tasks)


@pytest.fixture(scope="module")
def stage(wide_cluster: Cluster, probe: str):
    stage = Stage(wide_cluster, probe)
    yield stage
    stage.cluster.write_plugstack(stage.original)


def shown(values: list[str]) -> str:
    """How the table shows the values of a variable in all tasks."""
    if len(set(values)) == 1:
        return values[0]
    listed = " ".join(values)
    if not all(map(str.isdecimal, values)):
        return listed if len(listed) < SHORT else f"{values[0]} ..."
    numbers = sorted(map(int, values))
    return listed if len(listed) < SHORT else f"{numbers[0]} to {numbers[-1]} by rank"


def untrue(step: Explained) -> list[str]:
    """Variables whose value in the table is not that of the tasks, or that the table leaves out."""
    found = []
    ours = [item.partition(":")[0] for item in step.tasks[0]["SLURM_BOOTSTRAP_EXPORTS"].split(",")]
    for name in {*ours, "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_EXPORTS"}:
        if name in step.frameworks:
            if step.frameworks[name] != step.tasks[0][name]:
                found.append(f"{name}: rank 0 has {step.tasks[0][name]!r}, the table says {step.frameworks[name]!r}")
            continue
        text = " ".join(step.rows.get(name, ["(not in the table)"])).strip()
        text = text.replace("(below)", step.settings)
        # What the settings are to the library begins with what the step is, which the table says in words.
        value = "..." if name == "SLURM_BOOTSTRAP_EXPORTS" else shown([task[name].removeprefix("set_up:world ") for task in step.tasks])
        if not f"{text} ".startswith(f"{value} "):
            found.append(f"{name}: the tasks have {value!r}, the table says {text!r}")
    return found


@pytest.mark.parametrize("name", ACTIVE)
def test_table_is_what_the_tasks_have(stage, name):
    step = stage.run(ACTIVE[name]).parse()
    assert sum(line.startswith("bootstrap: StepId=") for line in step.lines) == 1
    assert sum(line.startswith("VARIABLE ") for line in step.lines) == 1
    assert step.stdout == ""
    # But for a word that is longer itself: the path in the settings.
    assert [line for line in step.lines if len(line) > WIDTH and " " in line.strip()] == []
    assert [line for line in step.lines if line != line.rstrip()] == []
    assert {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= set(step.rows)
    assert untrue(step) == []
    hosts = list(dict.fromkeys(task["@host"] for task in step.tasks))
    assert step.nodes == [(str(rank), host) for rank, host in enumerate(hosts)]


def test_control_a_wrong_or_missing_row_is_found(stage):
    step = stage.run("srun {explain} -N2 -n4 $PROBE").parse()
    for change in (lambda: step.tasks[2].update(LOCAL_RANK="7"), lambda: step.rows.pop("MASTER_PORT"),
                   lambda: step.rows.update(WORLD_SIZE=["40 SLURM_STEP_NUM_TASKS"]),
                   lambda: step.frameworks.pop("JAX_COORDINATOR_ADDRESS"),
                   lambda: step.frameworks.update(JAX_COORDINATOR_PORT="40")):
        before = len(untrue(step))
        change()
        assert len(untrue(step)) == before + 1


@pytest.mark.parametrize("name", INACTIVE)
def test_inactive_step_says_why_in_one_line(stage, name):
    arguments, script, reason = INACTIVE[name]
    stage.configure(arguments)
    step = stage.run(script, asks=False)
    stage.configure("when=always")
    assert len(step.lines) == 1 and step.lines[0].startswith("bootstrap: StepId="), step.lines
    assert f": not set up: {reason}" in step.lines[0]
    assert len(step.tasks) == 3 and not any("RANK" in task for task in step.tasks)


def test_nothing_is_printed_unless_asked_for(stage):
    step = stage.run("srun -N2 -n3 $PROBE")
    assert (step.stdout, step.lines) == ("", []) and len(step.tasks) == 3


def test_value_of_the_user_is_shown_as_kept(stage):
    step = stage.run("MASTER_PORT=31017 MASTER_ADDR=node002 srun {explain} -wnode001 -n2 $PROBE").parse()
    for name, users, ours in (("MASTER_PORT", "31017", r"\d+"), ("MASTER_ADDR", "node002", "node001")):
        assert {task[name] for task in step.tasks} == {users}
        text = " ".join(step.rows[name])
        assert re.match(rf"{users} +kept: set by the user +{ours} +not used: ", text), text


def test_option_replaces_a_value_of_the_user_and_says_so(stage):
    step = stage.run("MASTER_PORT=31017 srun {explain} --bootstrap-port=31018 -n2 $PROBE").parse()
    assert {task["MASTER_PORT"] for task in step.tasks} == {"31018"}
    assert re.match(r"31018 +--bootstrap-port +31017 +replaced: asked for", " ".join(step.rows["MASTER_PORT"]))


def test_leftovers_of_an_outer_step_are_shown_as_replaced_or_removed(stage):
    # The outer step has GPUs, the inner one has not: CUDA_DEVICE_ORDER is left over and not set anew.
    step = stage.run("salloc -Q -N2 -n4 --gres=gpu:2 srun --overlap -N2 -n2 bash -c '[ $RANK = 0 ] || "
                     "srun --overlap --gres=none {explain} -N2 -n3 -m cyclic $PROBE'").parse()
    assert len(step.tasks) == 3 and untrue(step) == []
    assert re.search(r"\n?2 +replaced: left over from step\s+\d+\.0", "\n".join(step.rows["WORLD_SIZE"])), step.rows["WORLD_SIZE"]
    assert "CUDA_DEVICE_ORDER" not in step.tasks[0]
    assert re.match(r"\(removed\) +left over from an outer step", " ".join(step.rows["CUDA_DEVICE_ORDER"]))


def test_each_of_several_steps_is_explained_once(stage):
    step = stage.run("salloc -Q -N2 -n4 bash -c 'srun {explain} -n2 $PROBE; srun -n2 $PROBE; srun {explain} -n3 $PROBE'")
    assert len(step.tasks) == 7
    assert [line.split()[1].partition(".")[2] for line in step.lines if line.startswith("bootstrap: StepId=")] == ["0:", "2:"]

"""--bootstrap=explain shows every variable once, as the tasks really have it, within 80 columns. With
SLURM_BOOTSTRAP_DEBUG=1 it also shows the internal variables."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from built_files import PROBE
from harness import Cluster
from layout_oracle import Report, read_reports

VALUE_COLUMN = 26
SHORT = 21  # characters that fit into the column of values
WIDTH = 80

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

# These steps do not ask, except where the script does so itself.
INACTIVE = {
    "switched off": ("when=always", "srun --bootstrap=off,explain -N2 -n3 $PROBE", "--bootstrap=off,explain switches it off"),
    "no GPUs": ("when=gpu", "srun --bootstrap=explain -N2 -n3 $PROBE", "the step has no GPUs"),
    "not asked": ("when=asked", "srun --bootstrap=explain -N2 -n3 --gres=gpu:1 $PROBE",
                  "no option or variable asks for it, and the site sets when=asked"),
    "submitit": ("when=gpu", "SUBMITIT_EXECUTOR=slurm srun --bootstrap=explain -N2 -n3 --gres=gpu:1 $PROBE", "submitit sets its own ranks"),
    "components": ("when=gpu", "srun -Q --bootstrap=explain -n2 -wnode002 $PROBE : -n1 -wnode001 $PROBE",
                   "the step has several components (:)"),
}


@dataclass
class Explained:
    """One explained step: its lines, and the variables of its tasks."""

    stdout: str
    lines: list[str]  # of ours on standard error
    tasks: list[Report]  # in order of rank
    rows: dict[str, list[str]] = field(default_factory=dict)  # by variable: the lines to the right of it
    nodes: list[tuple[str, str]] = field(default_factory=list)  # (node rank, host)
    frameworks: dict[str, str] = field(default_factory=dict)  # variables of frameworks, with the value of rank 0

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
        for line in self.lines[:start]:
            node = re.match(r"(\d+) +(node\d+) ", line)
            if node:
                self.nodes.append((node[1], node[2]))
        return self


class Stage:
    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.count = 0
        cluster.configure("when=always")

    def run(self, script: str, asks: bool = True, shows_all: bool = True) -> Explained:
        self.count += 1
        out = f"/home/alice/explained/{self.count}"
        script = script.replace("{explain}", "--bootstrap=explain")
        preamble = f"export OUT={out} PROBE='{PROBE} {out} alone'; rm -rf $OUT; mkdir -p $OUT; "
        env = {"SLURM_BOOTSTRAP": "on" if asks else "", "SLURM_BOOTSTRAP_DEBUG": "1" if shows_all else ""}
        done = self.cluster.succeed(["timeout", "30", "bash", "-c", preamble + script], env=env)
        tasks = sorted(read_reports(Path(f"{self.cluster.state}{out}")), key=lambda task: int(task["SLURM_PROCID"]))
        return Explained(done.stdout, done.stderr.splitlines(), tasks)


@pytest.fixture(scope="module")
def stage(wide_cluster: Cluster):
    with wide_cluster.other_plugstack():
        yield Stage(wide_cluster)


def shown(values: list[str]) -> str:
    """The table's text for the values of a variable in all tasks."""
    if len(set(values)) == 1:
        return values[0]
    listed = " ".join(values)
    if not all(map(str.isdecimal, values)):
        return listed if len(listed) < SHORT else f"{values[0]} ..."
    numbers = sorted(map(int, values))
    return listed if len(listed) < SHORT else f"{numbers[0]} to {numbers[-1]} by rank"


def untrue(step: Explained) -> list[str]:
    """Variables with a wrong value in the table, or without a row."""
    found = []
    ours = [item.partition(":")[0] for item in step.tasks[0]["SLURM_BOOTSTRAP_EXPORTS"].split(",")]
    for name in {*ours, "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_EXPORTS"}:
        if name in step.frameworks:
            if step.frameworks[name] != step.tasks[0][name]:
                found.append(f"{name}: rank 0 has {step.tasks[0][name]!r}, the table says {step.frameworks[name]!r}")
            continue
        text = " ".join(step.rows.get(name, ["(not in the table)"])).strip()
        value = "..." if name == "SLURM_BOOTSTRAP_EXPORTS" else shown([task[name] for task in step.tasks])
        if name == "OMP_NUM_THREADS":  # each task knows only its own cores
            value = f"{step.tasks[0][name]} (rank 0)"
        if not f"{text} ".startswith(f"{value} "):
            found.append(f"{name}: the tasks have {value!r}, the table says {text!r}")
    return found


@pytest.mark.parametrize("name", ACTIVE)
def test_the_table_has_the_values_of_the_tasks(stage, name):
    step = stage.run(ACTIVE[name]).parse()
    assert sum(line.startswith("bootstrap: StepId=") for line in step.lines) == 1
    assert sum(line.startswith("VARIABLE ") for line in step.lines) == 1
    assert step.stdout == ""
    # Except for a single long word: the path in the settings.
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
def test_inactive_step_explains_why_in_one_line(stage, name):
    arguments, script, reason = INACTIVE[name]
    stage.cluster.configure(arguments)
    step = stage.run(script, asks=False)
    stage.cluster.configure("when=always")
    assert len(step.lines) == 1 and step.lines[0].startswith("bootstrap: StepId="), step.lines
    assert f": NOT SET UP: {reason}" in step.lines[0]
    assert len(step.tasks) == 3 and not any("RANK" in task for task in step.tasks)


def test_nothing_is_printed_without_explain(stage):
    step = stage.run("srun -N2 -n3 $PROBE", shows_all=False)
    assert (step.stdout, step.lines) == ("", []) and len(step.tasks) == 3


def test_value_of_the_user_is_shown_as_kept(stage):
    step = stage.run("MASTER_PORT=31017 MASTER_ADDR=node002 srun {explain} -wnode001 -n2 $PROBE").parse()
    for name, users, ours in (("MASTER_PORT", "31017", r"\d+"), ("MASTER_ADDR", "node002", "node001")):
        assert {task[name] for task in step.tasks} == {users}
        text = " ".join(step.rows[name])
        assert re.match(rf"{users} +kept: set by the user +{ours} +not used: ", text), text


def test_option_replaces_a_value_of_the_user_and_reports_it(stage):
    step = stage.run("MASTER_PORT=31017 srun {explain} --bootstrap-port=31018 -n2 $PROBE").parse()
    assert {task["MASTER_PORT"] for task in step.tasks} == {"31018"}
    assert re.match(r"31018 +--bootstrap-port +31017 +replaced: asked for", " ".join(step.rows["MASTER_PORT"]))


def test_leftovers_of_an_outer_step_are_shown_as_replaced_or_removed(stage):
    # The outer step has GPUs and the inner one has none: CUDA_DEVICE_ORDER is left over and removed.
    step = stage.run("salloc -Q -N2 -n4 --gres=gpu:2 srun --overlap -N2 -n2 bash -c '[ $RANK = 0 ] || "
                     "srun --overlap --gres=none {explain} -N2 -n3 -m cyclic $PROBE'").parse()
    assert len(step.tasks) == 3 and untrue(step) == []
    assert re.search(r"\n?2 +replaced: left over from step\s+\d+\.0", "\n".join(step.rows["WORLD_SIZE"])), step.rows["WORLD_SIZE"]
    assert "CUDA_DEVICE_ORDER" not in step.tasks[0]
    assert re.match(r"\(removed\) +left over from an outer step", " ".join(step.rows["CUDA_DEVICE_ORDER"]))


def test_each_of_several_steps_is_explained_once(stage):
    step = stage.run("salloc -Q -N2 -n4 bash -c 'srun {explain} -n2 $PROBE; srun -n2 $PROBE; srun {explain} -n3 $PROBE'", shows_all=False)
    assert len(step.tasks) == 7
    assert [line.split()[1].partition(".")[2] for line in step.lines if line.startswith("bootstrap: StepId=")] == ["0:", "2:"]


def test_the_default_rows_are_those_that_a_user_acts_on(stage):
    step = stage.run("srun {explain} -N2 --ntasks-per-node=2 --gres=gpu:2 $PROBE", shows_all=False).parse()
    assert list(step.rows) == ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
                               "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "BOOTSTRAP_GPU", "OMP_NUM_THREADS", "also set"]  # fmt: skip
    assert " ".join(step.lines).startswith("bootstrap: StepId=") and ": SET UP: SLURM_BOOTSTRAP=on asks for it" in step.lines[0]
    text = "\n".join(step.lines)
    assert "Not set for" not in text and "(removed)" not in text
    assert "\nSettings: SLURM_BOOTSTRAP=on, --bootstrap=explain, when=always in plugstack.conf\n" in text, text
    assert re.search(r"\nVersions: plugin \d+\.\d+\.\d+, Slurm \d\d\.\d\d", text), text


def decisions(stage, script, **settings):
    """Our lines without the step's number, and without the line about a world that is set up unasked."""
    done = stage.cluster.succeed(["bash", "-c", script], env={"SLURM_BOOTSTRAP": "", **settings})
    return [re.sub(r"StepId=\d+\.\d+", "StepId=ID", line.removeprefix("srun: ")) for line in done.stderr.splitlines()
            if "bootstrap: " in line and "--bootstrap=off for independent runs" not in line]


@pytest.fixture
def world(stage):
    """The step does not ask, and the site has no setting."""
    stage.cluster.configure("")
    yield "-N2 -w node[001-002] --ntasks-per-node=2 --gres=gpu:2 python3 -c 1"
    stage.cluster.configure("when=always")


def test_each_decision_is_a_line_of_srun_v_and_of_the_debug_variable(stage, world):
    users = {"MASTER_PORT": "29500", "WORLD_SIZE": "7"}
    assert len(decisions(stage, f"srun {world}", **users)) == 1, "control: the warning of WORLD_SIZE alone"
    for lines in (decisions(stage, f"srun -v {world}", **users), decisions(stage, f"srun {world}", SLURM_BOOTSTRAP_DEBUG="1", **users)):
        first, warning, size, address, port = lines
        assert first.startswith("bootstrap: StepId=ID: SET UP: a GPU for each task, and python3 runs Python code; use --bootstrap=off")
        assert "bootstrap: warning: " in warning
        assert size == "bootstrap: StepId=ID: WORLD_SIZE=7 is replaced by 4 (this step has 4)"
        assert address == "bootstrap: StepId=ID: MASTER_ADDR=node001 (host of rank 0, from srun)"
        assert port == "bootstrap: StepId=ID: MASTER_PORT=29500 is kept (set by the user)"
    assert re.fullmatch(r"bootstrap: StepId=ID: MASTER_PORT=\d+ \(chosen by srun in 20000-29999\), reserved until the step ends",
                        decisions(stage, f"srun -v {world}")[2])  # fmt: skip


def test_the_debug_variable_sets_up_no_step(stage, world):
    shell = world.replace("python3 -c 1", "bash -c 'echo $RANK$SLURM_BOOTSTRAP_STEP'")
    done = stage.cluster.run(["bash", "-c", f"srun {shell}"], env={"SLURM_BOOTSTRAP": "", "SLURM_BOOTSTRAP_DEBUG": "1"})
    assert done.stdout.split() == [] and "NOT SET UP: bash is a shell: " in done.stderr, done


def test_a_step_that_asks_reads_of_uneven_tasks_and_unused_gpus(stage, world):
    spread = decisions(stage, "srun -v --bootstrap=on --bootstrap-gpu-share -N2 -n4 --gres=gpu:2 true")
    assert any("Slurm spreads the 4 tasks unevenly (1 to 3 on a node); use --ntasks-per-node=2" in line for line in spread), spread
    unused = decisions(stage, "srun -v --bootstrap=on -N2 -n2 --gres=gpu:2 true")
    assert any("node001 has 1 task and 2 GPUs: a program that uses one GPU for each task leaves 1 unused" in line
               for line in unused), unused
    assert not any("unused" in line or "uneven" in line for line in decisions(stage, f"srun -v --bootstrap=on {world}"))

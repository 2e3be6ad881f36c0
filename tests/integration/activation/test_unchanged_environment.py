"""Where the plugin sets up nothing it changes nothing: what runs beside active steps has the very environment that it has on
a cluster without us."""

import base64
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import Cluster, since

# Differ between two runs of the same command by nature. Both runs must have them, as numbers of the same form.
IDENTITIES = re.compile(r"SLURM_(ARRAY_)?JOB_?ID(_(HET|PACK)_GROUP_\d+)?|SLURM_HET_JOB_ID|SLURM_STEP_?ID|SLURM_TASK_PID|"
                        r"SLURM_STEP_LAUNCHER_PORT|SLURM_SRUN_COMM_PORT|SLURM_PTY_PORT|SLURM_JOB_(START|END)_TIME")
NUMBER = re.compile(rb"\d+")

PREAMBLE = """
set -u
rm -rf ~/seen; mkdir ~/seen
program() { printf '#!/bin/bash\\nenv -0 > ~/seen/%s\\n' "$1" > ~/$1; chmod +x ~/$1; }
cat > ~/dump.py <<'TEXT'
import os
entries = b"".join(b"%s=%s\\0" % pair for pair in os.environb.items())
open(os.path.expanduser("~/seen/task." + os.environ["SLURM_PROCID"]), "wb").write(entries)
TEXT
dump() { printf 'env -0 > ~/seen/%s.$SLURM_PROCID' "$1"; }
submit() {
  { echo '#!/bin/bash'; cat; echo 'touch ~/seen/done'; } > ~/batch
  sbatch --quiet --output=/dev/null "$@" ~/batch
  for ((i = 0; i < 100; i++)); do [[ ! -e ~/seen/done ]] || break; sleep 0.1; done
  rm ~/seen/done
}
"""


@dataclass(frozen=True)
class Scenario:
    name: str
    arguments: str  # of the plugin in plugstack.conf
    script: str  # {off} is --bootstrap=off where there is a plugin that knows it
    files: tuple[str, ...]  # that it must leave, one for each process looked at


# In a step that is set up srun's own --epilog is the one exception: srun's environment is how its messages get to the
# nodes, and no hook of srun runs between the launch and that program.
SRUN_EPILOG = Scenario("epilog of srun itself", "when=always", "program epilog; srun -Q -n1 -wnode001 --epilog=$HOME/epilog true",
                       ("epilog",))
TWO = "--ntasks-per-node=2 --gres=gpu:2"
PYTHON = "python3 ~/dump.py"

# All GPUs of a node, so that each run gets the same ones.
SCENARIOS = [
    Scenario("shells in the shape of a world", "when=world", f'srun -Q -N2 {TWO} bash -c "$(dump task)"',
             tuple(f"task.{rank}" for rank in range(4))),
    Scenario("one task", "when=world", f"srun -Q -n1 -wnode001 --gres=gpu:2 {PYTHON}", ("task.0",)),
    Scenario("GPUs per task", "when=world", f"srun -Q -n2 -wnode001 --gpus-per-task=1 {PYTHON}", ("task.0", "task.1")),
    Scenario("several GPUs a task", "when=world", f"srun -Q -N2 -n2 --gres=gpu:2 {PYTHON}", ("task.0", "task.1")),
    Scenario("more tasks than GPUs", "when=world", f"srun -Q -n3 -wnode001 --gres=gpu:2 {PYTHON}", ("task.0", "task.1", "task.2")),
    Scenario("a world that is observed", "when=observe", f"srun -Q -n2 -wnode001 {TWO} {PYTHON}", ("task.0", "task.1")),
    Scenario("a terminal", "when=always",
             f"""script -qec "srun -Q -wnode001 -n2 {TWO} --pty bash -c '$(dump task)'" /dev/null""", ("task.0", "task.1")),
    Scenario("epilog of srun itself", "when=gpu", SRUN_EPILOG.script, SRUN_EPILOG.files),
    Scenario("batch step", "when=always", "submit -wnode001 --gres=gpu:2 <<< 'env -0 > ~/seen/batch'", ("batch",)),
    Scenario("batch step of an array", "when=always", "submit -wnode001 --array=7 <<< 'env -0 > ~/seen/batch'", ("batch",)),
    Scenario("interactive step", "when=always",
             "echo 'env -0 > ~/seen/shell; exit' | script -qec 'salloc -Q -wnode001 --gres=gpu:2' /dev/null", ("shell",)),
    Scenario("command of salloc", "when=always", "salloc -Q -wnode001 --gres=gpu:2 bash -c 'env -0 > ~/seen/command'", ("command",)),
    Scenario("srun without GPUs", "when=gpu", 'srun -Q -N2 -n3 bash -c "$(dump task)"', ("task.0", "task.1", "task.2")),
    Scenario("srun without GPUs, export none", "when=gpu", 'srun -Q -N2 -n2 --export=NONE /bin/bash -c "HOME=$HOME; $(dump task)"',
             ("task.0", "task.1")),
    Scenario("srun nobody asked about", "when=asked", 'srun -Q -N2 -n2 --gres=gpu:2 bash -c "$(dump task)"', ("task.0", "task.1")),
    Scenario("bootstrap=off", "when=always", 'srun -Q {off} -N2 -n2 --gres=gpu:2 bash -c "$(dump task)"', ("task.0", "task.1")),
    Scenario("SLURM_BOOTSTRAP=off", "when=always", 'SLURM_BOOTSTRAP=off srun -Q -n1 -wnode001 --gres=gpu:2 bash -c "$(dump task)"',
             ("task.0",)),
    Scenario("job of submitit", "when=gpu",
             'export SUBMITIT_EXECUTOR=slurm; srun -Q -N2 -n2 --gres=gpu:2 bash -c "$(dump task)"', ("task.0", "task.1")),
    Scenario("components without GPUs", "when=gpu",
             'srun -Q -n1 -wnode002 bash -c "$(dump task)" : -n1 -wnode001 bash -c "$(dump task)"', ("task.0", "task.1")),
    Scenario("components, bootstrap=off", "when=always",
             'srun -Q {off} -n1 -wnode002 bash -c "$(dump task)" : {off} -n1 -wnode001 bash -c "$(dump task)"', ("task.0", "task.1")),
    Scenario("srun in a batch job", "when=gpu", 'submit -N2 -n2 <<< "srun -Q bash -c \'$(dump task)\'"', ("task.0", "task.1")),
    Scenario("inactive step inside an active one", "when=always",
             'salloc -Q -N2 -n2 --gres=gpu:2 srun -Q --overlap -n1 -N1 bash -c '
             '"SLURM_BOOTSTRAP=off srun -Q --overlap -N1 -n2 -O bash -c \'$(dump inner)\'"', ("inner.0", "inner.1")),
    Scenario("prolog of srun itself", "when=gpu", "program prolog; srun -Q -n1 -wnode001 --prolog=$HOME/prolog true", ("prolog",)),
    Scenario("prolog and epilog of a task", "when=gpu",
             "program prolog; program epilog; srun -Q -n1 -wnode001 --task-prolog=$HOME/prolog --task-epilog=$HOME/epilog true",
             ("prolog", "epilog")),
]


class Stage:
    """A cluster whose plugin is there or not, from one step to the next."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.plugin = cluster.plugstack.strip()

    def configure(self, arguments: str | None) -> None:
        self.cluster.write_plugstack("" if arguments is None else f"{self.plugin} {arguments}\n")

    def play(self, scenario: Scenario, arguments: str | None) -> dict[str, list[bytes]]:
        """The environments that a scenario leaves, with the plugin's arguments, or without the plugin."""
        self.configure(arguments)
        script = PREAMBLE + scenario.script.replace("{off}", "" if arguments is None else "--bootstrap=off")
        done = self.cluster.run(["timeout", "30", "bash", "-c", script])
        assert done.returncode == 0, done.stderr
        folder = Path(f"{self.cluster.state}/home/alice/seen")
        seen = {path.name: normalised(path.read_bytes()) for path in folder.iterdir()}
        assert tuple(sorted(seen)) == tuple(sorted(scenario.files)), done.stderr
        return seen


def normalised(environment: bytes) -> list[bytes]:
    """Sorted entries; of identities only the form of the value."""
    entries = []
    for entry in environment.split(b"\0")[:-1]:
        name, _, value = entry.partition(b"=")
        if IDENTITIES.fullmatch(name.decode(errors="replace")):
            value = NUMBER.sub(b"#", value)
        if name == b"SLURM_JOB_SLUID":  # of 26.05: the job's number in letters and digits
            value = b"%d characters" % len(value)
        entries.append(name + b"=" + value)
    return sorted(entries)


def differences(ours: dict[str, list[bytes]], without: dict[str, list[bytes]]) -> list[str]:
    found = []
    for name in sorted(ours.keys() | without.keys()):
        mine, plain = Counter(ours.get(name, [])), Counter(without.get(name, []))
        found += [f"{name}: only with the plugin: {entry!r}" for entry in (mine - plain).elements()]
        found += [f"{name}: only without it: {entry!r}" for entry in (plain - mine).elements()]
    return found


@pytest.fixture(scope="module")
def stage(cluster_factory) -> Stage:
    cluster = cluster_factory("quiet")
    cluster.asks = False
    return Stage(cluster.up("--set", "LaunchParameters=use_interactive_step"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_environment_is_that_of_a_cluster_without_the_plugin(stage, scenario, tally):
    assert differences(stage.play(scenario, scenario.arguments), stage.play(scenario, None)) == []
    tally("C3", "scenarios with no variable of ours", part="inactive")


def test_epilog_of_srun_sees_the_messages_to_the_nodes_and_nothing_else(stage):
    found = differences(stage.play(SRUN_EPILOG, "when=always"), stage.play(SRUN_EPILOG, None))
    names = [re.search(r"only with the plugin: b'(\w+)=", line)[1] for line in found]
    assert sorted(names) == ["SLURM_BOOTSTRAP_DECISION", "SLURM_BOOTSTRAP_LAYOUT"], found


def test_extern_step_has_the_environment_it_has_without_the_plugin(cluster_factory):
    # Contain gives every job an extern step; each end of a job then takes seconds, hence a cluster of its own.
    cluster = cluster_factory("extern")
    cluster.asks = False
    stage = Stage(cluster.up("--nodes", "1", "--gpus", "4", "--set", "PrologFlags=contain"))

    def extern_environment(arguments: str | None) -> list[bytes]:
        stage.configure(arguments)
        job = stage.cluster.allocate("-n1", "--gres=gpu:2")
        listing = stage.cluster.run(["ps", "-eo", "pid,ppid,args"], user="root").stdout
        processes = [line.split(None, 2) for line in listing.splitlines()]
        step = next(pid for pid, _, command in processes if f"[{job}.extern]" in command)
        child = next((pid for pid, parent, _ in processes if parent == step), None)
        if child is None and since("an extern step may have no process"):
            pytest.skip("the extern step of this Slurm has no process")
        shown = stage.cluster.run(["base64", "-w0", f"/proc/{child}/environ"], user="root").stdout
        return sorted(base64.b64decode(shown).split(b"\0"))

    with_plugin = extern_environment("when=always")
    assert with_plugin == extern_environment(None)
    assert b"SLURMD_NODENAME=node001" in with_plugin


@pytest.mark.parametrize("send", ["sbatch -Q --wait -w node002 -o $HOME/sent.out --wrap env", "salloc -Q -w node002 env"])
def test_a_job_sent_from_a_task_is_no_part_of_its_step(stage, send):
    stage.configure("")
    script = f"env | grep -qE '^(RANK|MASTER_PORT|SLURM_BOOTSTRAP)' || exit 9; export MY_OWN=1 LOCAL_RANK=mine; {send} > $HOME/sent.env"
    script += "; cat $HOME/sent.out $HOME/sent.env 2>/dev/null; rm -f $HOME/sent.*"
    done = stage.cluster.run(["srun", "-w", "node001", "-n1", "--gres=gpu:1", "bash", "-c", script],
                             env={"SLURM_BOOTSTRAP": "on"})
    assert done.returncode == 0, done.stderr
    sent = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert sent["MY_OWN"] == "1", "the job did not run"
    left = {name for name in sent if name.startswith(("BOOTSTRAP_", "SLURM_BOOTSTRAP", "MASTER_"))}
    assert left == {"SLURM_BOOTSTRAP"}, "what the user said is for the job, too"
    assert "RANK" not in sent and "WORLD_SIZE" not in sent
    assert sent["LOCAL_RANK"] == "mine", "a value that the user changed is the user's"


def test_control_an_active_step_is_seen(stage):
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == "srun without GPUs")
    active, without = stage.play(scenario, "when=always"), stage.play(scenario, None)
    for name in scenario.files:
        added = {entry.partition(b"=")[0] for entry in set(active[name]) - set(without[name])}
        assert {b"RANK", b"MASTER_PORT", b"SLURM_BOOTSTRAP_STEP"} <= added


def test_control_one_added_variable_and_one_changed_byte_are_seen():
    environment = b"A=1\0SLURM_JOB_ID=12\0"
    assert normalised(environment) == normalised(b"SLURM_JOB_ID=99\0A=1\0")
    assert normalised(environment) != normalised(environment + b"RANK=0\0")
    assert normalised(environment) != normalised(environment.replace(b"A=1", b"A=2"))
    assert normalised(environment) != normalised(environment.replace(b"JOB_ID=12", b"JOB_ID=x12"))
    assert normalised(environment) != normalised(b"A=1\0")

"""Every setting from every source, which source wins, and wrong variables and arguments of plugstack.conf.
test_option_abuse.py has wrong options."""

import json
import re
from dataclasses import dataclass

import pytest

from harness import REPOSITORY, Cluster
from option_cases import WRONG

# Prints each setting as a task sees it. It tries to bind the port, to find out whether it is reserved.
SHOW = """#!/usr/bin/python3 -SE
import json, os, socket
seen = {"mode": "on" if "RANK" in os.environ else "off"}
seen["addr"] = os.environ.get("MASTER_ADDR")
seen["port"] = seen["port_range"] = os.environ.get("MASTER_PORT")
try:
    socket.socket(socket.AF_INET6).bind(("::", int(os.environ.get("MASTER_PORT", 0))))
    seen["claim"] = "off"
except OSError:
    seen["claim"] = "on"
print(json.dumps(seen))
"""

@dataclass(frozen=True)
class Setting:
    name: str  # as SHOW prints it
    option: str
    variable: str
    site: str  # "": no argument of plugstack.conf
    values: tuple[str, str]  # two that differ
    seen: tuple[str, str]  # what the task then sees


SETTINGS = [
    Setting("mode", "--bootstrap", "SLURM_BOOTSTRAP", "", ("on", "off"), ("on", "off")),
    Setting("port", "--bootstrap-port", "SLURM_BOOTSTRAP_PORT", "port", ("23001", "23002"), ("23001", "23002")),
    Setting("port_range", "--bootstrap-port-range", "SLURM_BOOTSTRAP_PORT_RANGE", "port_range", ("24001-24001", "24002-24002"),
            ("24001", "24002")),
    Setting("addr", "--bootstrap-addr", "SLURM_BOOTSTRAP_ADDR", "master_addr", ("%h-ib0", "10.20.1.1"), ("node001-ib0", "10.20.1.1")),
    Setting("claim", "--bootstrap-claim", "SLURM_BOOTSTRAP_CLAIM", "claim", ("off", "on"), ("off", "on")),
]
LONGEST_VARIABLE = 100000  # less than the limit of an option, since `env` has it as an argument and as a variable
WAYS = ("site", "variable", "option")  # in order of rising precedence


def ways_of(setting: Setting) -> tuple[str, ...]:
    return WAYS if setting.site else WAYS[1:]


def pairs_of(setting: Setting) -> list[tuple[str, str]]:
    ways = ways_of(setting)
    return [(lower, higher) for i, lower in enumerate(ways) for higher in ways[i + 1:]]


class Desk:
    """A cluster whose plugstack arguments are changed from one step to the next."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.show = cluster.write_home("show", SHOW)

    def run(self, *command: str, **more):
        return self.cluster.run(command, **more)

    def seen(self, command: str, env: dict[str, str] | None = None) -> list[dict[str, str]]:
        """What each task of a shell command saw; the program is $show in it."""
        done = self.cluster.succeed(["timeout", "40", "bash", "-c", f"show={self.show}; {command}"], env=env)
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def shared_desk(cluster_factory) -> Desk:
    # when= and these words are the only arguments
    return Desk(cluster_factory("options", asks=False).up("--cpus", "16", "--plugin-args", "when=always"))


@pytest.fixture
def desk(shared_desk: Desk) -> Desk:
    shared_desk.cluster.configure("when=always")
    return shared_desk


def set_by(setting: Setting, chosen: dict[str, str]) -> tuple[str, str, dict[str, str]]:
    """The plugstack arguments, option and variables that set it in the chosen ways."""
    # when=asked, so that "mode" alone decides whether the step is set up.
    site = "when=asked" if setting.name == "mode" else "when=always"
    site += f" {setting.site}={chosen['site']}" if "site" in chosen else ""
    option = f"{setting.option}={chosen['option']}" if "option" in chosen else ""
    return site, option, {setting.variable: chosen["variable"]} if "variable" in chosen else {}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_each_source_wins_over_the_default_and_over_weaker_sources(desk, setting):
    def seen(chosen: dict[str, str]) -> str:
        site, option, variables = set_by(setting, chosen)
        desk.cluster.configure(site)
        return desk.seen(f"srun -w node001 {option} $show", variables)[0][setting.name]

    for way in ways_of(setting):
        for value, expected in zip(setting.values, setting.seen):
            assert seen({way: value}) == expected, f"{way}={value}"
    for lower, higher in pairs_of(setting):
        for mine, other, expected in zip(setting.values, reversed(setting.values), setting.seen):
            assert seen({lower: other, higher: mine}) == expected, f"{lower}={other} under {higher}={mine}"
    assert seen(dict(zip(reversed(ways_of(setting)), (setting.values[0], setting.values[1], setting.values[1])))) == setting.seen[0]


def test_each_setting_has_its_default(desk):
    seen = desk.seen("srun -w node001 $show")[0]
    assert (seen["mode"], seen["addr"], seen["claim"]) == ("on", "node001", "on") and 20000 <= int(seen["port"]) <= 29999
    desk.cluster.configure("when=asked")
    assert desk.seen("srun $show")[0]["mode"] == "off"
    desk.cluster.configure("when=gpu")
    assert [desk.seen(f"srun {gpus} $show")[0]["mode"] for gpus in ("", "--gres=gpu:1")] == ["off", "on"]
    desk.cluster.configure("")
    worlds = ("-n2", "-n2 --gres=gpu:1", "-n1 --gres=gpu:1", "-N1 -n2 --gres=gpu:2")
    assert [desk.seen(f"srun {world} $show")[0]["mode"] for world in worlds] == ["off", "off", "off", "on"]


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_an_option_of_the_job_applies_to_steps_without_their_own(desk, setting, command):
    desk.cluster.configure("when=asked" if setting.name == "mode" else "when=always")
    (given, other), (expected, overridden) = setting.values, setting.seen
    steps = f"srun $show; srun {setting.option}={other} $show; {setting.variable}={other} srun $show; srun --export=NONE $show"
    desk.cluster.write_home("steps", f"#!/bin/bash\nshow={desk.show}\n{steps}\ntouch steps.done\n")
    if command == "salloc":
        found = desk.seen(f"salloc -Q -w node001 {setting.option}={given} ./steps")
    else:
        # -Q hides srun's own messages: srun of 24.11 prints one if it waits for the step before.
        found = desk.seen(f"rm -f steps.done; sbatch -Q -w node001 -o steps.out -e steps.err {setting.option}={given} ./steps; "
                          "for ((i = 0; i < 200; i++)); do [[ ! -e steps.done ]] || break; sleep 0.1; done; "
                          "cat steps.out; cat steps.err >&2")
    # The job's option wins over a variable, which may be left over from a login shell.
    assert [seen[setting.name] for seen in found] == [expected, overridden, expected, expected]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_export_none_loses_no_setting(desk, setting):
    desk.cluster.configure("when=asked" if setting.name == "mode" else "when=always")
    variables = {setting.variable: setting.values[0]}
    for export in ("NONE", "NIL", "HOME"):
        srun = f"srun -w node001 --export={export}"
        assert desk.seen(f"{srun} $show", variables)[0][setting.name] == setting.seen[0], export
        assert desk.seen(f"{srun} {setting.option}={setting.values[0]} $show")[0][setting.name] == setting.seen[0], export


@pytest.mark.parametrize("given", ["{} : ", " : {}"])
def test_an_option_of_one_component_applies_to_the_step(desk, given):
    components = [f"{part.format('--bootstrap-port=23456')} -n1 $show" for part in given.split(":")]
    assert [seen["port"] for seen in desk.seen(f"srun -Q {' : '.join(components)}")] == ["23456"] * 2


def warned(done, name: str) -> None:
    """The step ran, and one line names the wrong variable, which is not used."""
    sentences = [line for line in done.stderr.splitlines() if "bootstrap: " in line]
    assert done.returncode == 0 and len(sentences) == 1, done
    assert sentences[0].removeprefix("srun: ").startswith("bootstrap: warning: StepId=") and f'{name}="' in sentences[0], sentences
    assert " is not valid: use " in sentences[0] and sentences[0].isascii() and len(sentences[0]) < 400


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_wrong_variable_is_a_warning_where_the_step_does_not_ask(desk, setting):
    """test_option_abuse.py has the steps that ask."""
    wrong = {setting.variable: next(filter(None, WRONG[setting.option.removeprefix("--")]))}
    warned(desk.run("srun", desk.show, env=wrong), setting.variable)
    assert desk.run("sbatch", "-Q", "-o", "/dev/null", "--wrap=true", env=wrong).stderr == ""
    desk.cluster.configure("when=asked")
    silent = desk.run("srun", desk.show, env=wrong)
    # srun itself may report that it waited.
    assert silent.returncode == 0 and "bootstrap" not in silent.stderr, silent


def test_the_longest_variable_is_reported_like_any_other(desk):
    """The shell sets it, since `env` would also have it as an argument."""
    desk.cluster.write_home("long", f"#!/bin/bash\nSLURM_BOOTSTRAP_ADDR={'a' * LONGEST_VARIABLE} exec srun true\n")
    warned(desk.run("./long"), "SLURM_BOOTSTRAP_ADDR")


@pytest.mark.parametrize("argument", ["colour=blue", "when", "when=", "when=sometimes", "when=always,gpu", "port=1", "port_range=5-1",
                                      "master_addr=%x", "claim=maybe", "mode=on", "=", "when=gpu=always", "\udcff", "x" * 4000])
def test_a_wrong_argument_in_plugstack_refuses_steps_that_ask_and_leaves_others_alone(desk, argument):
    desk.cluster.write_plugstack("")
    line = f"optional {desk.cluster.plugin} {argument}\n"
    (desk.cluster.state / "etc" / "plugstack.conf").write_bytes(line.encode(errors="surrogateescape"))
    asked = desk.run("srun", "--bootstrap=on", "true")
    assert asked.returncode != 0
    sentences = [line for line in asked.stderr.splitlines() if "bootstrap: " in line]
    assert 1 <= len(sentences) <= 2 and all("plugstack.conf" in line for line in sentences), asked.stderr
    world = desk.run("srun", "-N1", "-n2", "--gres=gpu:2", desk.show)
    assert world.returncode == 0 and {json.loads(line)["mode"] for line in world.stdout.splitlines()} == {"off"}
    assert "bootstrap: " not in world.stderr, world.stderr
    weak = desk.run("srun", desk.show, env={"SLURM_BOOTSTRAP": "on"})
    assert weak.returncode == 0 and json.loads(weak.stdout)["mode"] == "off" and weak.stderr.count("bootstrap: warning: ") == 1, weak
    other = desk.run("srun", "echo", "ran")
    assert (other.returncode, other.stdout) == (0, "ran\n") and "bootstrap: " not in other.stderr, other.stderr
    shown = desk.run("srun", "-v", "-w", "node001", "true")
    assert any("bootstrap: " in line and "plugstack.conf" in line for line in shown.stderr.splitlines()), shown.stderr
    assert "in plugstack.conf" in desk.cluster.log("slurmd.node001"), "and the administrator reads it in the log"


def test_help_names_every_option(desk):
    for command in ("srun", "sbatch", "salloc"):
        shown = desk.run(command, "--help").stdout
        assert all(f"{setting.option}=" in shown for setting in SETTINGS)


# After an option without a value srun reads --version as an option, prints its version and ends.
TRY_OPTIONS = """
for option in $(srun --help | grep -oE '^ +(-., +)?--[a-z0-9-]+|^ +-.' | grep -oE -- '-(-[a-z0-9-]+|[A-Za-z])') "$@"; do
  printf '%s %s\n' "$option" "$(srun "$option" --version 2>&1 </dev/null | head -n 1)"
done"""


def test_our_list_of_options_without_a_value_matches_this_srun(desk):
    source = (REPOSITORY / "libbootstrap/core/program/srun_arguments.cc").read_text()
    ours = set("".join(re.findall('"(.*)"', re.search(r"kSrunFlags =\n(.*?);", source, re.S)[1])).split())
    lines = desk.run("bash", "-c", TRY_OPTIONS, "bash", *ours).stdout.splitlines()
    said = {option: line for option, _, line in (line.partition(" ") for line in lines) if not option.startswith("--bootstrap")}
    flags = {option for option, line in said.items() if line.startswith(("slurm ", "slurm-wlm "))}
    unknown = {option for option, line in said.items() if "unrecognized option" in line or "invalid option" in line}
    assert flags - ours == set() and len(flags) > 40
    assert ours - flags - unknown <= {"-h", "--help", "--usage", "--wait-for-children"}, "srun ends at these, too"


def test_every_node_can_still_run_jobs(desk):
    assert desk.cluster.script("status").returncode == 0

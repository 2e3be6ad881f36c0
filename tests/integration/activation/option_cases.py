"""Abuses of our options and of their variables: the typed line, and the exit status and text that must follow."""

# SPDX-License-Identifier: Apache-2.0

import re
from dataclasses import dataclass, field

from harness import OF_SLURMSTEPD

ECHO = 'echo "${RANK-none} $MASTER_ADDR $MASTER_PORT"'
SHOW = ("/bin/sh", "-c", ECHO)
RAN = r"0 node\d+ \d+"  # the output of a task that was set up
LONG = "1" * 65536
LONGEST = "a" * (131072 - 64)  # the kernel's limit for one string, less the name

# The values of each option, in the words of its refusal.
TAKES = {
    "bootstrap": 'use on, off, auto or explain ("on,explain" for both)',
    "bootstrap-port": "use auto or a port from 1024 to 65535",
    "bootstrap-port-range": "use two ports from 1024 to 65535 in ascending order, such as 20000-29999",
    "bootstrap-ports": "use off or a number of ports from 1 to 8",
    "bootstrap-addr": "use a host name or address, or a template such as %h-ib0, where %h is the host of rank 0, and %a the address by "
                      "which Slurm reaches it",
    "bootstrap-claim": "use off or on",
    "bootstrap-gpu": "use index, first, narrow or off",
    "bootstrap-gpu-share": "use off or on",
    "bootstrap-cpu": "use off or near",
    "bootstrap-preload": "use off or on",
    "bootstrap-frameworks": "use auto, all, none or a list of pytorch, torchrun, accelerate, lightning, "
                            "tensorflow, jax, nvshmem, nccl-tests, openmp",
    "bootstrap-interface": "use gloo, auto, off, the name of a network interface or a network such as 10.0.0.0/8",
    "bootstrap-grace": "use off or a number of seconds from 1 to 86400",
    "bootstrap-shared-dir": "use the absolute path of a folder that all nodes share; %u stands for the user",
}  # fmt: skip
VARIABLES = {"bootstrap": "SLURM_BOOTSTRAP"}  # for options with other names of their variables
REFUSED_BY_NODE = OF_SLURMSTEPD + r" error: bootstrap: StepId=\d+\.\d+: "  # a wrong value in the environment: srun does not report it

# Values, and how a message shows them: characters that cannot be printed in hexadecimal, and long texts cut.
WRONG = {
    "bootstrap": {"": "", "yes": "yes", "ON": "ON", "on,off": "on,off", "on,": "on,", " on": " on", "on\n": r"on\x0a",
                  "on,on": "on,on", "explain,explain": "explain,explain", ",": ",", "on off": "on off", "1": "1", "true": "true",
                  "ön": None, "\udcff\udcfe": r"\xff\xfe", "off;reboot": "off;reboot", LONG: None},
    "bootstrap-port": {"": "", "0": "0", "1023": "1023", "65536": "65536", "-1": "-1", "0x5000": "0x5000", "20000\n": r"20000\x0a",
                       "+2000": "+2000", "20000-20001": "20000-20001", "9" * 40: None, "2e4": "2e4", "auto,": "auto,", "20000 ": "20000 ",
                       "２０００": None, "%h": "%h", "\udcff": None,
                       "\x01\x1b[2J": r"\x01\x1b[2J", "%00": "%00", "\\0": None, "%n%s": "%n%s",
                       LONG: None},
    "bootstrap-port-range": {"": "", "20000": "20000", "30000-20000": "30000-20000", "a-b": "a-b", "1-2-3": "1-2-3",
                             "20000-": "20000-", "-20000": "-20000", "0-70000": "0-70000", "1000-2000": "1000-2000",
                             "20000..30000": "20000..30000", "\udcc3": None,
                             LONG: None},
    "bootstrap-ports": {"": "", "0": "0", "9": "9", "-1": "-1", "4294967297": "4294967297", "1,2": "1,2", "on": "on", LONG: None},
    "bootstrap-addr": {"": "", "a b": "a b", "$(id)": "$(id)", "%x": "%x", "a/b": "a/b", "h" * 256: None, "a;b": "a;b", "%": "%",
                       "%%h": "%%h", "a\tb": None, "\udcff": None, LONGEST: None},
    "bootstrap-claim": {"": "", "yes": "yes", "ON": "ON", "0": "0", "on,off": "on,off", "\udc80": None, LONG: None},
    "bootstrap-gpu": {"": "", "all": "all", "index,first": "index,first"},
    "bootstrap-gpu-share": {"perhaps": "perhaps", "ON": "ON"},
    "bootstrap-cpu": {"": "", "far": "far"},
    "bootstrap-preload": {"maybe": "maybe", "1": "1"},
    "bootstrap-frameworks": {"colour": "colour", "jax,": "jax,", ",": ",", LONG: None},
    "bootstrap-interface": {"a b": "a b", "10.0.0.0/99": "10.0.0.0/99", LONG: None},
    "bootstrap-grace": {"": "", "0": "0", "86401": "86401", "-5": "-5", "1.5": "1.5", "soon": "soon"},
    "bootstrap-shared-dir": {"x": "x", "/a b": "/a b", "/" + LONG: None},
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    line: tuple
    status: int
    text: str = ""  # a regular expression of the one line of ours on standard error; "": there is none
    output: str = ""  # one of the whole standard output
    slurm: str = ""  # one of Slurm's own messages beside it
    env: dict = field(default_factory=dict)


def refusal(name, option, value, shown):
    """The message. `shown` is None if it shows a part of the value, or other characters."""
    value = '"[^"]{0,130}"' if shown is None else re.escape(f'"{shown}"')
    return f"{re.escape(name)}={value} is not valid: {re.escape(TAKES[option])}$"


def as_line(command, options, task):
    """The line with which srun, sbatch or salloc runs one task."""
    if command == "sbatch":
        return ("sbatch", *options, "--wrap", "true")
    return (command, *options, *(task if command == "srun" else ("srun", *task)))


def wrong_values():
    """Each value as an option of the three commands in turn, and as a variable of a step that asks; 0 tasks run."""
    commands = ("srun", "sbatch", "salloc")
    count = 0
    for option, values in WRONG.items():
        for value, shown in values.items():
            label = f"{value[:20]!r}" + (f"... of {len(value)}" if len(value) > 20 else "")
            command = commands[count % 3]
            text = f"{command}: error: bootstrap: " + refusal(f"--{option}", option, value, shown)
            yield Case(f"{command} --{option}={label}", as_line(command, [f"--{option}={value}"], SHOW), 255, text,
                       slurm=f"error: Invalid --{option} argument")  # fmt: skip
            if value and value != LONGEST and count % 2:  # an empty variable counts as none; `env` starts the command with both
                variable = VARIABLES.get(option, "SLURM_" + option.replace("-", "_").upper())
                asks = "--bootstrap-claim=on" if option == "bootstrap" else "--bootstrap=on"
                text = REFUSED_BY_NODE + refusal(variable, option, value, shown)
                yield Case(f"{variable}={label} srun", ("srun", asks, *SHOW), 1, text, env={variable: value})
            count += 1


PORT_80 = refusal("--bootstrap-port", "bootstrap-port", "80", "80")
PORT_80_SET = refusal("SLURM_BOOTSTRAP_PORT", "bootstrap-port", "80", "80")


def at(port):
    return rf"0 node\d+ {port}"


def other_ways():
    """Options that are repeated, set in two ways, shortened, misspelt, without a value, or inside one another."""
    srun, salloc = "srun", ("salloc", "-Q")
    yield Case("the last of two counts", (srun, "--bootstrap-port=25001", "--bootstrap-port=25002", *SHOW), 0, output=at(25002))
    yield Case("a wrong one before a right one", (srun, "--bootstrap-port=80", "--bootstrap-port=25003", *SHOW), 255,
               f"srun: error: bootstrap: {PORT_80}")
    yield Case("a right one before a wrong one", (srun, "--bootstrap-port=25003", "--bootstrap-port=80", *SHOW), 255,
               f"srun: error: bootstrap: {PORT_80}")
    yield Case("a hundred times", (srun, *["--bootstrap-port=25004"] * 100, *SHOW), 0, output=at(25004))
    yield Case("right option, wrong variable", (srun, "--bootstrap-port=25007", *SHOW), 1,
               f"{REFUSED_BY_NODE}{PORT_80_SET}", env={"SLURM_BOOTSTRAP_PORT": "80"})
    yield Case("empty variables", (srun, *SHOW), 0, output=RAN,
               env={"SLURM_BOOTSTRAP_PORT": "", "SLURM_BOOTSTRAP": "", "SLURM_BOOTSTRAP_ADDR": ""})
    yield Case("on after off", (srun, "--bootstrap=off", "--bootstrap=on", *SHOW), 0, output=RAN)
    yield Case("off after on", (srun, "--bootstrap=on", "--bootstrap=off", *SHOW), 0, output="none *")
    yield Case("shortened", (srun, "--bootstrap-cl=off", *SHOW), 0, output=RAN)
    yield Case("shortened too far", (srun, "--bootstrap-p=25008", *SHOW), 255,
               slurm="option '--bootstrap-p=25008' is ambiguous")
    yield Case("misspelt", (srun, "--bootstrap-prot=25008", *SHOW), 255, slurm="unrecognized option '--bootstrap-prot=25008'")
    yield Case("unknown", (srun, "--bootstrap-colour=red", *SHOW), 255, slurm="unrecognized option '--bootstrap-colour=red'")
    yield Case("one dash", (srun, "-bootstrap-port=25008", *SHOW), 255, slurm="error: Invalid .* (specification|argument)")
    yield Case("nothing after it", (srun, "--bootstrap-port"), 255, slurm="option '--bootstrap-port' requires an argument")
    yield Case("the program taken for a value", (srun, "--bootstrap", "true"), 255,
               "srun: error: bootstrap: " + refusal("--bootstrap", "bootstrap", "true", "true"))
    yield Case("a switch alone", (srun, "--bootstrap-gpu-share", *SHOW), 0, output=RAN)
    yield Case("the other switch alone", (srun, "--bootstrap-preload", *SHOW), 0, output=RAN)
    yield Case("all that is right at once",
               (srun, "--bootstrap=on", "--bootstrap-port=auto", "--bootstrap-port-range=25100-25199", "--bootstrap-addr=%h",
                "--bootstrap-claim=on", "--bootstrap-gpu=index", "--bootstrap-gpu-share=off", "--bootstrap-cpu=off",
                "--bootstrap-frameworks=none", "--bootstrap-interface=off", *SHOW), 0, output=at(r"251\d\d"))
    yield Case("wrong in a job", (*salloc, srun, "--bootstrap-port=80", *SHOW), 255, f"srun: error: bootstrap: {PORT_80}")
    yield Case("wrong variable in a job", (*salloc, "/bin/sh", "-c", f"SLURM_BOOTSTRAP_PORT=80 srun {SHOW[0]} -c '{ECHO}'"), 0,
               rf"bootstrap: warning: StepId=\d+\.0: {PORT_80_SET}", output=RAN)
    yield Case("wrong step in a step", (srun, "--bootstrap-port=25013", srun, "--overlap", "--bootstrap-port=80", *SHOW), 255,
               f"srun: error: bootstrap: {PORT_80}")
    yield Case("step in a step", (srun, "--bootstrap-port=25014", srun, "--overlap", "--bootstrap-port=25015", *SHOW), 0,
               output=at(25015))
    yield Case("one wrong component", (srun, "--bootstrap-port=25016", ":", "--bootstrap-port=80", *SHOW), 255,
               f"srun: error: bootstrap: {PORT_80}")
    for name, value in (("bootstrap_port", "80"), ("bootstrap", "perhaps")):
        variable = f"SLURM_SPANK__SLURM_SPANK_OPTION_bootstrap_{name}"
        yield Case(f"Slurm's own variable {name}={value}", (srun, *SHOW), 1,
                   "srun: error: bootstrap: .* is not valid: ",
                   slurm="error: Invalid argument", env={variable: value})


def all_cases():
    return [*wrong_values(), *other_ways()]


def clashes(is_first):
    """With another plugin that has --bootstrap and --bootstrap-port, too: the first one in plugstack.conf gets both."""
    told = r'spank: option "bootstrap-port" provided by both'
    yield Case("an option of ours alone", ("srun", "--bootstrap-claim=maybe", *SHOW), 255, slurm=told,
               text="srun: error: bootstrap: " + refusal("--bootstrap-claim", "bootstrap-claim", "maybe", "maybe"))
    yield Case("our variable", ("srun", *SHOW), 0, output=at(25020), slurm=told, env={"SLURM_BOOTSTRAP_PORT": "25020"})
    yield Case("no option", ("srun", *SHOW), 0, output=RAN, slurm=told)
    if is_first:
        yield Case("theirs", ("srun", "--bootstrap-port=80", *SHOW), 0, output=RAN, slurm="site_double: given 80")
        yield Case("theirs, mode", ("srun", "--bootstrap=off", *SHOW), 0, output=RAN, slurm="site_double: given off")
    else:
        yield Case("ours, wrong", ("srun", "--bootstrap-port=80", *SHOW), 255, f"srun: error: bootstrap: {PORT_80}", slurm=told)
        yield Case("ours", ("srun", "--bootstrap-port=25021", *SHOW), 0, output=at(25021), slurm=told)

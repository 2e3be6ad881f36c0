"""The command line of `slurm-bootstrap`: help, usage errors, and completion in bash. It needs no cluster."""

# SPDX-License-Identifier: Apache-2.0

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from built_files import built
from harness import REPOSITORY, run_here

SUBCOMMANDS = ["explain", "check", "run", "status", "where", "supervise", "near"]
COMPLETION = REPOSITORY / "etc/completions/slurm-bootstrap"
USAGE = 2


def call(*words, **more):
    """Runs the command outside of a step."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return run_here([built("libbootstrap/slurm-bootstrap"), *words], env=environment, timeout=60, **more)


def test_a_changed_script_is_embedded_again():
    ninja = Path(built("build.ninja")).read_text()
    scripts = (REPOSITORY / "libbootstrap/tools").glob("*/*.py")
    assert [path.name for path in scripts if f"tools/{path.parent.name}/{path.name}" not in ninja] == []


@pytest.mark.parametrize("subcommand", [[], *([name] for name in SUBCOMMANDS)], ids=lambda words: "".join(words) or "all")
def test_help_has_each_section_in_80_columns(subcommand):
    done = call(*subcommand, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(" ".join(["Usage: slurm-bootstrap", *subcommand]))
    assert max(map(len, done.stdout.splitlines())) <= 80
    for part in "\nOptions:\n", "\nExamples:\n", "\nExit status", "--version":
        assert part in done.stdout, part
    # Texts that CLI11 would print by itself.
    assert not re.search(r"REQUIRED|UINT|TEXT|ENUM|:\w+ in |\{|\[\d", done.stdout)
    assert call(*subcommand, "-h").stdout == done.stdout
    assert call(*subcommand, "--version").stdout.startswith("slurm-bootstrap ")


def test_the_help_names_every_subcommand():
    assert re.findall(r"^  ([a-z]+) ", call("--help").stdout.split("Commands:")[1].split("Options:")[0], re.M) == SUBCOMMANDS


@pytest.mark.parametrize("words, sentence", [
    ([], "name a subcommand: explain, check, run, status, where, supervise or near; see slurm-bootstrap --help"),
    (["foo"], "The following argument was not expected: foo; see slurm-bootstrap --help"),
    (["--jason"], "The following argument was not expected: --jason; see slurm-bootstrap --help"),
    (["check", "--jason"], "The following argument was not expected: --jason; see slurm-bootstrap check --help"),
    (["check", "all"], "The following argument was not expected: all; see slurm-bootstrap check --help"),
    (["status", "12.0", "--json", "13.0"], "The following argument was not expected: 13.0; see slurm-bootstrap status --help"),
    (["check", "--json=no"], "json was given a disallowed flag override; see slurm-bootstrap check --help"),
    (["check", "--timeout"], "--timeout: 1 required SECONDS missing; see slurm-bootstrap check --help"),
    (["check", "--timeout", "0"], '--timeout: "0" is not a whole number from 1 to 3600; see slurm-bootstrap check --help'),
    (["check", "--timeout=1h"], '--timeout: "1h" is not a whole number from 1 to 3600; see slurm-bootstrap check --help'),
    (["run"], "run needs a program: slurm-bootstrap run PROGRAM [ARGUMENT...]; see slurm-bootstrap run --help"),
    (["run", "--keep", "echo"], 'run has no option "--keep": slurm-bootstrap run PROGRAM [ARGUMENT...]; see slurm-bootstrap run --help'),
    (["near"], "near needs a program: slurm-bootstrap near PROGRAM [ARGUMENT...]; see slurm-bootstrap near --help"),
    (["near", "--show", "echo"], "near --show and --topology print a table and start no program; remove the option or the program"),
    (["near", "--cards", "nccl", "echo"], "--cards: it sets cards for ucx alone; see slurm-bootstrap near --help"),
    (["explain", "--rank", "-1"], '--rank: "-1" is not a whole number from 0 to 1048575; see slurm-bootstrap explain --help'),
])  # fmt: skip
def test_usage_errors_are_named_and_end_with_2(words, sentence):
    done = call(*words)
    assert (done.returncode, done.stdout, done.stderr) == (USAGE, "", f"slurm-bootstrap: {sentence}\n")


def test_options_behind_a_program_are_its_own():
    """Outside of a step `run` accepts the line, and then reports that there is no step."""
    for words in ["echo", "--its", "--options"], ["--", "echo"], ["--timeout", "5", "echo", "--timeout"], ["check", "--", "status"]:
        done = call("run", *words)
        assert done.returncode == USAGE and "SLURM_JOB_ID is not set" in done.stderr, (words, done)


@pytest.mark.parametrize("line, named", [
    ("", "put the line of srun behind --"), ("mpirun -n 2 ./a", "put the line of srun behind --"),
    ("srun -N2 -n2 --pty ./a", "--pty"), ("srun -N2 -n2 --het-group=0 ./a", "--het-group"), ("srun -N1 -n1 ./a : -n1 ./b", "one component"),
    ("srun -N2 -n2 -w node001,node002 ./a", "--nodelist"), ("srun -N2 -n2 -Fnodes ./a", "--nodefile"),
    ("srun -N2 -n2 -r1 ./a", "--relative"), ("srun -N2 -n2 --async ./a", "--async"), ("srun -n2 ./a", "add -N"), ("srun ./a -N2", "add -N"),
    ("srun -N2 ./a -n2", "add -n"), ("srun -N2 -n2 --exclude=./file ./a", "--exclude"), ("srun --jobid=5 -N2 -n2 ./a", "its own job"),
])  # fmt: skip
def test_a_line_that_cannot_be_repeated_is_refused(line, named):
    done = run_here([built("libbootstrap/slurm-bootstrap"), "supervise", "--grace=5", "--", *line.split()],
                    env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "4"}, timeout=60)  # fmt: skip
    assert done.returncode == USAGE and done.stdout == "" and done.stderr.count("\n") == 1 and named in done.stderr, done


def local_check(terminal, **variables):
    """The output of `check --local` on a terminal, or in a pipe."""
    ours, theirs = pty.openpty()
    environment = dict(os.environ, TERM="xterm", SLURM_CONF="/no/such/slurm.conf") | variables
    # A failure on any machine: /dev/null is no NCCL. Too little room in /dev/shm would be a warning only.
    environment["SLURM_BOOTSTRAP_NCCL"] = "/dev/null"
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in variables else None
    program = subprocess.Popen([built("libbootstrap/slurm-bootstrap"), "check", "--local"], env=environment,
                               stdout=theirs if terminal else subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours if terminal else program.stdout.fileno(), 4096):
            text += part
    except OSError:  # a terminal ends so
        pass
    os.close(ours)
    assert program.wait() == 1
    return text.decode()


def test_a_failure_is_red_only_on_a_terminal():
    assert "NCCL           \x1b[1;31mFAILED\x1b[0m" in local_check(terminal=True)
    for plain in local_check(terminal=False), local_check(True, NO_COLOR="1"), local_check(True, TERM="dumb"):
        assert "NCCL           FAILED" in plain and "\x1b" not in plain


def complete(*words):
    """The completions of bash for the last of these words."""
    command = f"{built('libbootstrap/slurm-bootstrap')}"
    script = f"""source {COMPLETION}
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _slurm_bootstrap "$1" "${{@: -1}}" "${{@: -2:1}}"
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = run_here(["bash", "--norc", "-c", script, "bash", command, *words], cwd="/", timeout=60)
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


def test_bash_completes_subcommands_and_options():
    assert complete("") == sorted([*SUBCOMMANDS, "--help", "--version"])
    assert complete("ch") == ["check"]
    for subcommand in SUBCOMMANDS:
        known = re.findall(r"^  (?:-h, )?(--[a-z-]+)", call(subcommand, "--help").stdout, re.MULTILINE)
        assert {"--help", "--version"} < set(known) and complete(subcommand, "--") == sorted(known)
    assert complete("check", "--ti") == ["--timeout"]
    assert complete("check", "--timeout", "") == [] and complete("check", "") == []


def test_bash_completes_files_and_programs():
    assert complete("explain", "--env", "/et") == ["/etc"]
    assert "/etc/passwd" in complete("explain", "--env", "/etc/pass")
    assert "env" in complete("run", "en") and "env" in complete("run", "--timeout", "5", "en")
    assert complete("run", "--keep-going", "--hor") == ["--horovod"]
    assert complete("run", "cat", "/etc/passw") == complete("run", "--", "cat", "/etc/passw") != []
    assert complete("run", "cat", "--hor") == []  # the program's own
    assert "srun" in complete("supervise", "--grace", "5", "--", "sru")


def test_bash_finds_the_completion_by_the_name_of_the_command(tmp_path):
    """In an interactive shell, by two presses of Tab."""
    (tmp_path / "slurm-bootstrap").symlink_to(built("libbootstrap/slurm-bootstrap"))
    done = run_here(["bash", "--norc", "--noprofile", "-i"], timeout=60,
                    input=f"source {COMPLETION}\nslurm-bootstrap che\t--lo\t > {tmp_path}/out\nexit\n",
                    env={"PATH": f"{tmp_path}:/usr/bin:/bin", "TERM": "xterm", "HOME": str(tmp_path)})  # fmt: skip
    said = (tmp_path / "out").read_text() if (tmp_path / "out").exists() else ""
    assert said.startswith("bootstrap: this machine only"), (said, done.stderr)

"""A rank fails: a line names the first one, a step that asked ends, and tasks that another process ended are not named."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from built_files import COMMAND
from harness import our_lines, since
from port_steps import background

SHAPE = ("-N2", "--ntasks-per-node=2", "--gres=gpu:2")
PROGRAM = "first_failure_program.py"
WHO = r"task (\d+) \((\w+), local rank (\d+)\) failed first: (.*), (\d+\.\d) s after the step began"
NAMED = re.compile(rf"srun: bootstrap: warning: StepId=(?P<step>\d+\.\d+): {WHO}(?P<advice>; other tasks .*)?")
ENDED = re.compile(rf"srun: error: bootstrap: StepId=\d+\.\d+: {WHO}; the plugin ends the step now, (\d+) s after the failure "
                   rf"\(--bootstrap-grace\)")
FIRST_IS_3 = ("3", "node002", "1", "exit code 3")
ASKED = "--bootstrap=on"


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("failure").up("--nodes", "2", "--gpus", "8", "--cpus", "32")  # four steps at once
    (cluster.home / PROGRAM).write_text(Path(__file__).with_name(PROGRAM).read_text())
    return cluster


def step(cluster, *words, options=(), env=None, before="", timeout=90):
    """(result, seconds) of a step whose ranks run first_failure_program.py with these words."""
    start = time.monotonic()
    srun = [*before.split(), "srun", *SHAPE, *options, "python3", PROGRAM, *words]
    done = cluster.run(["sh", "-c", 'cd && exec "$@"', "sh", *srun], "alice", "head", env, timeout, "")
    return done, time.monotonic() - start


def script(cluster, text, timeout=120):
    return cluster.run(["bash", "-c", f"cd; {text}"], "alice", "head", None, timeout, "")


def named(done):
    """The parts of the one line; None if there is none."""
    lines = our_lines(done)
    if not lines:
        return None
    assert len(lines) == 1, done.stderr
    found = NAMED.fullmatch(lines[0])
    assert found, lines[0]
    return found


def who(found):
    return found.groups()[1:5]


# -- the line, and the end of the step


def test_an_unasked_step_is_as_it_would_be_without_us(site):
    done, seconds = step(site, "3", "0.5", "exit 3", "2.5")
    off, _ = step(site, "3", "0.5", "exit 3", "2.5", options=("--bootstrap=off",))
    assert done.returncode == off.returncode == 3
    assert seconds >= 2.5
    found = named(done)
    assert who(found) == FIRST_IS_3 and found["advice"] is None
    assert 0.5 <= float(found[6]) <= seconds
    assert done.stderr.splitlines()[-1] == found[0]
    assert our_lines(off) == []


def test_the_line_names_how_to_end_the_tasks_that_still_run(site):
    done, seconds = step(site, "3", "0", "exit 3", "13")
    found = named(done)
    assert who(found) == FIRST_IS_3
    assert found["advice"] == (f"; other tasks still run; look at them with: slurm-bootstrap status {found['step']}; end them with: "
                               f"scancel {found['step']}")
    assert seconds >= 13 and done.returncode == 3


def test_the_line_comes_while_other_tasks_run(site):
    done = script(site, f"srun {' '.join(SHAPE)} python3 {PROGRAM} 3 0 'exit 3' 600 2>err & "
                        "until grep -q 'end them with: ' err; do sleep 0.1; done; cat err >&2; "
                        "eval $(sed -n 's/.*end them with: //p' err); wait $!; exit 0", 300)
    found = named(done)
    assert who(found) == FIRST_IS_3 and found["advice"]


@pytest.mark.parametrize("asks", [(ASKED,), ("--bootstrap-grace=2",)], ids=["asked", "by the grace option"])
@pytest.mark.parametrize("term, least", [("default", 2), ("ignore", 11)])
def test_an_asked_step_ends_after_its_grace(site, term, least, asks):
    """SIGTERM first, then SIGKILL for tasks that still run."""
    done, seconds = step(site, "3", "0", "exit 3", "60", term, options=asks, env={"SLURM_BOOTSTRAP_GRACE": "2"})
    assert seconds >= least
    lines = our_lines(done)
    assert len(lines) == 1, done.stderr
    found = ENDED.fullmatch(lines[0])
    assert found.groups()[:4] == FIRST_IS_3 and found[6] == "2"
    assert done.returncode == 128 + (9 if term == "ignore" else 15)  # srun's own status for killed tasks


def test_an_asked_step_that_ends_within_its_grace_is_left_alone(site):
    done, _ = step(site, "3", "0", "exit 3", "1", options=(ASKED,), env={"SLURM_BOOTSTRAP_GRACE": "60"})
    assert done.returncode == 3 and who(named(done)) == FIRST_IS_3


@pytest.mark.parametrize("options, env", [((ASKED,), {"SLURM_BOOTSTRAP_GRACE": "off"}), ((ASKED, "--bootstrap-grace=off"), {})],
                         ids=["variable", "option"])
def test_an_asked_step_without_grace_goes_on(site, options, env):
    done, seconds = step(site, "3", "0", "exit 3", "5", options=options, env=env)
    assert seconds >= 5 and done.returncode == 3 and who(named(done)) == FIRST_IS_3


@pytest.mark.parametrize("end, cause", [("exit 77", "exit code 77"), ("kill 11", "killed by signal 11 (SIGSEGV)"),
                                        ("kill 6", "killed by signal 6 (SIGABRT)")])
def test_the_cause_of_a_failure_is_named(site, end, cause):
    done, _ = step(site, "2", "0.3", end, "1")
    assert who(named(done)) == ("2", "node002", "0", cause)


def test_memory_is_not_guessed_as_a_cause(site):
    """The task was killed, and the others lived on: no more is known."""
    done, _ = step(site, "2", "0.3", "kill 9", "13")
    assert who(named(done)) == ("2", "node002", "0", "killed by signal 9 (SIGKILL)")
    assert "memory" not in done.stderr


def test_tasks_that_fail_in_the_same_way_are_one_line(site):
    done, _ = step(site, "all", "0.5", "exit 2", "0")
    assert len(our_lines(done)) == 1, done.stderr
    assert re.fullmatch(r"srun: bootstrap: warning: StepId=\d+\.0: all 4 tasks failed in the same way, task \d \(node00\d, local rank "
                        r"\d\) first: "
                        r"exit code 2, \d\.\d s after the step began",
                        our_lines(done)[0])


@pytest.mark.parametrize("options", [("-K",), ("--wait=1",)])
def test_a_failure_is_named_if_srun_ends_the_other_tasks(site, options):
    done, _ = step(site, "3", "0.5", "exit 3", "60", "exit", options=options)
    assert who(named(done)) == FIRST_IS_3


def test_the_first_failure_of_a_heterogeneous_step_is_named(site):
    part = ["-n2", "--gres=gpu:2", "python3", PROGRAM, "3", "0.5", "exit 9", "2"]
    words = ["srun", "-N1", *part, ":", "-N1", *part]
    done = site.run(["sh", "-c", 'cd && exec "$@"', "sh", *words], "alice", "head", None, 60, "")
    found = named(done)
    assert (found[2], found[4], found[5]) == ("3", "1", "exit code 9")


def test_an_asked_heterogeneous_step_can_save_in_each_component(site):
    """The second component is ready before the first one fails. Its shell continues until its own SIGTERM, which follows sleep's."""
    done = script(site, f"srun {ASKED} --bootstrap-grace=1 -N1 sh -c 'until [ -e ready ]; do sleep 0.1; done; exit 3' : "
                        "-N1 sh -c 'trap \"echo saved; exit\" TERM; touch ready; while :; do sleep 1; done'")
    assert done.stdout == "saved\n" and ENDED.fullmatch("".join(our_lines(done))), done


def test_an_asked_step_ends_at_once_where_a_node_refuses_it(site):
    """The port is taken on the node of rank 0; the ranks of the other node would sleep for ten minutes."""
    hold = "import socket, time; s = socket.create_server(('', 31901)); print('ready', flush=True); time.sleep(600)"
    with background(site, ["python3", "-c", hold], user="bob", ready=True):
        done, _ = step(site, "none", "0", "-", "600", options=(ASKED, "--bootstrap-port=31901", "-K0"), timeout=300)
    assert done.returncode != 0
    assert "31901" in done.stderr and not re.search("failed first|failed in the same way", done.stderr), done.stderr


# -- no line


def test_a_task_that_another_process_ends_has_not_failed(site):
    """Also if programs handle SIGTERM. The next test is the control: a task that ends by itself with that status is named."""
    run = f"srun {' '.join(SHAPE)} python3 {PROGRAM}"
    asleep, exits = f"{run} none 0 - 300", f"{run} none 0 - 300 exit"
    job = "-J $NAME"
    of_name = "$(squeue -h -n $NAME -o %i)"
    scripts = {
        "timeout of srun": f"timeout 2 {exits}",
        "scancel of the job": f"{exits.replace('srun', f'srun {job}')} & sleep 2; scancel {of_name}; wait",
        "scancel of the job, killed": f"{asleep.replace('srun', f'srun {job}')} & sleep 2; scancel {of_name}; wait",
        "scancel of the step": f"{exits.replace('srun', f'srun {job}')} & sleep 2; scancel {of_name}.0; wait",
        "scancel of the step, killed": f"{asleep.replace('srun', f'srun {job}')} & sleep 2; scancel {of_name}.0; wait",
        "SIGKILL for the step": f"{asleep.replace('srun', f'srun {job}')} & sleep 2; scancel -s KILL {of_name}.0; wait",
        "signal of the job": f"{asleep.replace('srun', f'srun {job}')} & sleep 2; scancel -s TERM {of_name}; wait",
        "Ctrl-C twice": f"{asleep} & sleep 2; kill -INT $!; sleep 0.3; kill -INT $!; sleep 0.3; kill -INT $!; wait",
        "Ctrl-C twice, at once": f"{exits.replace('srun', 'srun --quit-on-interrupt')} & sleep 2; kill -INT $!; wait",
        "--wait after a success": f"{run.replace('srun', 'srun --wait=1')} 3 0 'exit 0' 300 exit",
        "srun killed by its shell": f"{exits} & sleep 2; kill -HUP $!; wait",
        "a limit": f"{exits.replace('srun', 'srun -t 1')}",
    }
    if not since("srun waits for signals in no thread"):
        scripts["a signal that srun passes on"] = f"{exits} & sleep 2; kill -USR1 $!; wait"

    def one(item):
        number, (name, text) = item
        return name, script(site, f"set -m; NAME=silent{number}; {text}; exit 0", 240)

    with ThreadPoolExecutor(4) as pool:
        results = dict(pool.map(one, enumerate(scripts.items())))
    spoken = {name: done.stderr for name, done in results.items() if our_lines(done)}
    assert not spoken, "\n".join(f"{name}:\n{text}" for name, text in spoken.items())
    not_ended = {name: done.stderr for name, done in results.items()
                 if not re.search(r"tasks? [\d,-]+: (Exited with|Killed|Terminated)|DUE to SIGNAL Killed|Traceback", done.stderr)}
    assert not not_ended


def test_control_a_task_that_ends_itself_with_that_code_is_named(site):
    """The control of the test above: the same exit code, but no other process ended the step."""
    done, _ = step(site, "1", "2", "exit 1", "3")
    assert who(named(done)) == ("1", "node001", "1", "exit code 1")


def test_the_killed_rank_is_named_where_pmix_kills_the_others(site):
    """Slurm's PMIx ends a step if a rank ends without MPI_Finalize. Rank 3 on the same node was healthy until then."""
    program = ("import os, signal, time; from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); "
               "time.sleep(1) or os.environ['RANK'] == '2' and os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)")
    done = site.run(["srun", "--mpi=pmix", *SHAPE, "/usr/bin/python3", "-c", program], "alice", "head", None, 90, "")
    assert done.returncode == 137 and "task 3: Killed" in done.stderr.replace("tasks 3", "task 3"), done.stderr
    assert who(named(done)) == ("2", "node002", "0", "killed by signal 9 (SIGKILL)")


def test_our_own_command_as_the_program_reports_its_failure_itself(site):
    done = site.run(["srun", *SHAPE, COMMAND, "no-such-command"], "alice", "head", None, 60, "")
    assert done.returncode != 0
    assert not re.search("failed first|failed in the same way", done.stderr), done.stderr


def test_nothing_is_printed_if_nothing_failed(site):
    for words, options in ((("none", "0", "-", "0"), ()), (("3", "0", "exit 5", "0"), ("--bootstrap=off",))):
        done, _ = step(site, *words, options=options)
        assert our_lines(done) == [], done.stderr


# -- the socket


SOCKETS = ("python3 -c \"print(sum(line.split()[3] == '07' for name in ('udp', 'udp6') for line in open('/proc/net/' + "
           "name).readlines()[1:]))\"")
FLOOD = """python3 -c "
import socket
ports = [int(line.split()[1].split(':')[1], 16) for name in ('udp', 'udp6') for line in open('/proc/net/' + name).readlines()[1:]]
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(6000):
    text = b'bootstrap-failure-4 %016x1\t1\tnode001\t256\t1\t0\t0\t0\t' % number if number % 2 else b'junk'
    sender.sendto(text, ('127.0.0.1', ports[number % len(ports)]))
print(len(ports))
\""""


def while_it_runs(cluster, command, *options):
    return script(cluster, f"srun {' '.join(SHAPE + options)} python3 {PROGRAM} 3 3 'exit 3' 3.5 & sleep 1.5; {command}; wait $!; exit 0")


def test_a_flood_of_datagrams_does_not_hide_the_line(site):
    done = while_it_runs(site, FLOOD)
    assert done.stdout.strip() == "1"
    assert who(named(done)) == FIRST_IS_3


def test_only_a_step_that_is_set_up_has_a_socket(site):
    threads = "; ls /proc/$!/task | wc -l"
    on = while_it_runs(site, SOCKETS + threads).stdout.split()
    off = while_it_runs(site, SOCKETS + threads, "--bootstrap=off").stdout.split()
    assert (on[0], off[0]) == ("1", "0")
    assert int(on[1]) == int(off[1]) + 1


def test_tasks_do_not_have_the_address_of_sruns_socket(site):
    done = site.run(["srun", *SHAPE, "python3", "-c", "import os; print(os.environ)"], "alice", "head", None, 60, "")
    assert "'RANK': '3'" in done.stdout
    assert "SLURM_BOOTSTRAP_FAILURE" not in done.stdout

"""`status` reads texts of /proc, of other tools, of Slurm's commands and of its own step. It needs no cluster."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from harness import REPOSITORY, wait_for

NEEDS_IPV6 = pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")
sys.path.insert(0, str(REPOSITORY / "libbootstrap" / "tools" / "status"))
import node_look  # noqa: E402
import read_task  # noqa: E402
import step_choice  # noqa: E402
from children import Child, output_of  # noqa: E402
from findings import describe_stack  # noqa: E402
from node_look import add_gpus, add_stacks, ask_ras, explain_stack_failure, parse_stack, parse_task_list, refuse_ras  # noqa: E402
from parse_proc import (Launchers, chain_to, describe_wchan, find_ranks, framework_in, nccl_in, parse_environ,  # noqa: E402
                        parse_stat, parse_tcp, version_in)
from plain_text import quoted  # noqa: E402
from read_task import read_lines, task_at  # noqa: E402
from records import NODE, StepState, make_rank, make_record, record_lines  # noqa: E402
from step_choice import ChosenStep, Refusal, choose_step, find_step, parse_jobs, parse_step_argument, parse_steps, refuse_job  # noqa: E402


# -- /proc


def test_the_stat_of_a_name_with_parentheses_is_read():
    stat = parse_stat("12 (a) T (b) S 7 12 12 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 1")
    assert (stat.name, stat.state, stat.parent, stat.ticks) == ("a) T (b", "S", 7, 200)
    assert [parse_stat(text).state for text in ("", "12", "12 (a", "12 (a) S 1", ")(")] == ["X"] * 5


def test_the_first_variable_of_a_name_counts():
    variables = parse_environ("A=1\0AB=2\0A=3\0EMPTY=\0")
    assert [variables.get(name) for name in ("A", "AB", "EMPTY", "B")] == ["1", "2", "", None]


def test_the_release_of_nccl_is_read_from_its_path():
    paths = {"/opt/nccl-2.26.5/lib/libnccl.so.2": "2.26.5", "/usr/lib/libnccl.so.2.24.3": "2.24.3", "/usr/lib/libnccl.so.2": "",
             "/opt/cuda-12.8/nccl-2.2.9/libnccl.so.2.24.3": "2.24.3"}
    assert {path: version_in(path) for path in paths} == paths


def test_framework_and_nccl_are_found_in_the_maps():
    maps = ("7f00-7f01 r--p 00000000 fe:00 42 /opt/nccl-2.26.5/lib/libnccl.so.2\n"
            "7f01-7f02 r-xp 00000000 fe:00 42 /opt/nccl-2.26.5/lib/libnccl.so.2\n"
            "7f02-7f03 r-xp 00000000 fe:00 43 /usr/lib/libmpi.so.40\n"
            "7f03-7f04 r-xp 00000000 fe:00 44 /usr/lib/python3/dist-packages/torch/lib/libtorch_cpu.so\n"
            "7ffe-7fff rw-p 00000000 00:00 0 [stack]\n")
    assert framework_in(maps.split("\n")) == "PyTorch"
    assert nccl_in(maps.split("\n")) == SimpleNamespace(file="fe:00 42", version="2.26.5", address=0x7f00)
    assert framework_in(["x /usr/lib/libc.so.6", ""]) == "" and nccl_in(["x /usr/lib/libc.so.6", ""]) is None


def test_tcp_sockets_are_read_by_inode():
    text = ("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
            "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000 10001        0 11 1 0\n"
            "   1: 0101140A:733C 0201140A:9C40 01 00000000:00000000 00:00000000 00000000 10001        0 12 1 0\n"
            "   2: 0101140A:9C42 0201140A:733C 01 00000000:00000000 00:00000000 00000000 10002        0 99 1 0\nbroken line\n")
    assert parse_tcp(text.split("\n"), {"11", "12", "13"}) == {"11": ("0A", 29500, 0), "12": ("01", 29500, 40000)}


def test_a_system_call_that_cannot_be_read_is_none(monkeypatch):
    """Yama lets only a tracer read the system call of a process."""
    calls = {1: "", 2: "running", 3: "0 0x0 0x7f00 0x1 0x0 0x0 0x0 0x7f00 0x7f00"}
    monkeypatch.setattr(read_task, "read_proc", lambda pid, name: calls[pid])
    monkeypatch.setattr(read_task, "READS", (0,))
    assert [read_task.describe_call(pid) for pid in calls] == ["", "", "read of standard input"]


def test_an_error_of_the_shell_itself_is_no_part_of_an_answer(tmp_path, monkeypatch):
    """A shell in a deleted folder prints an error."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert output_of(["echo", "node001"], 60, joins_errors=True) == ("node001\n", 0)


def test_functions_of_the_kernel_get_readable_names():
    waits = {"futex_do_wait": "futex", "__futex_wait": "futex", "request_wait_answer": "file system (request_wait_answer)",
             "hrtimer_nanosleep": "sleep", "something_new": "something_new", "0": ""}
    assert {wchan: describe_wchan(wchan) for wchan in waits} == waits


# -- processes of a task


LAUNCHERS = Launchers("map numactl swift torchrun", "torch.distributed.run", "bash")


def process(pid, parent, words, framework="", rank=""):
    words = words.split()
    return SimpleNamespace(pid=pid, parent=parent, name=words[0], words=words, framework=framework, rank=rank)


def test_the_program_below_shells_is_the_rank():
    rank, = find_ranks([process(1, 0, "bash"), process(2, 1, "numactl"), process(3, 2, "python3", "PyTorch"),
                        process(4, 3, "python3", "PyTorch")], LAUNCHERS)
    assert (rank.main.pid, len(rank.members), chain_to(rank.main), rank.is_launcher) == (3, 4, "bash, numactl, python3", False)


def test_a_task_that_runs_only_a_shell_is_a_launcher():
    assert find_ranks([process(1, 0, "bash-5.2")], LAUNCHERS)[0].is_launcher
    asleep, = find_ranks([process(1, 0, "bash"), process(2, 1, "sleep")], LAUNCHERS)
    assert (asleep.main.pid, asleep.is_launcher) == (2, False) and not find_ranks([], LAUNCHERS)


@pytest.mark.parametrize("agent", ["python3 -m torch.distributed.run train.py", "python3 -X dev -u /usr/bin/torchrun train.py",
                                   "python3 -mtorch.distributed.run train.py", "python3 -uW ignore -m torch.distributed.run train.py"])
def test_workers_of_torchrun_are_the_ranks(agent):
    ranks = find_ranks([process(1, 0, agent, "PyTorch"), process(2, 1, "python3 train.py", "PyTorch", "4"),
                        process(3, 1, "python3 train.py", "PyTorch", "5"), process(4, 2, "python3", "", "4")], LAUNCHERS)
    assert [(rank.main.pid, [one.pid for one in rank.members], rank.is_worker) for rank in ranks] == [(2, [2, 4], True), (3, [3], True)]
    assert find_ranks([process(1, 0, agent, "PyTorch")], LAUNCHERS)[0].is_launcher


@pytest.mark.parametrize("words", ["python3 -c torchrun", "python3 - torchrun", "python3 torch.distributed.run", "python3 -W torchrun x.py",
                                   "map-1", "swift-5.9"])
def test_a_name_like_that_of_a_launcher_is_no_launcher(words):
    assert not find_ranks([process(1, 0, words)], LAUNCHERS)[0].is_launcher


# -- other tools


def test_only_frames_of_the_main_thread_are_shown():
    stack = parse_stack("Process 12: python3 train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
                        'Thread 13 (idle): "worker"\n    wait (/usr/lib/python3.11/threading.py:1)\nThread 12 (active): "MainThread"\n'
                        "    all_reduce (/usr/lib/python3/dist-packages/torch/x.py:7)\n    main (/home/a/train.py:9)\n"
                        'Thread 14 (idle): "other"\n    poll (/usr/lib/python3.11/selectors.py:2)\n')
    assert stack == ["all_reduce (torch/x.py:7)", "* main (train.py:9)"]
    assert describe_stack(stack) == "all_reduce, called by main (train.py:9)"
    assert describe_stack(["* main (train.py:9)"]) == "main (train.py:9)"
    assert parse_stack("Error: Permission Denied") == []
    assert "kernel.yama.ptrace_scope=0" in explain_stack_failure("Error: Permission Denied: Try again", "node001")


def test_a_few_stacks_are_read_at_once_and_each_missing_one_has_a_reason(monkeypatch, tmp_path):
    """One after the other they would take longer than the look."""
    py_spy = tmp_path / "py-spy"
    py_spy.write_text("#!/bin/sh\nprintf '\\nThread %s (active): \"MainThread\"\\n    main (/home/a/train.py:9)\\n' $5\n")
    py_spy.chmod(0o755)
    read_all, reads, ranks = node_look.read_all, [], [make_rank(pid=pid, program="python3", node="node001") for pid in range(1, 21)]
    monkeypatch.setattr(node_look, "read_all", lambda dumps, seconds: reads.append(len(dumps)) or read_all(dumps, 60))
    add_stacks(ranks, str(py_spy), 60)
    assert reads == [16, 4] and {(*rank.stack, rank.stack_trouble) for rank in ranks} == {("* main (train.py:9)", "")}
    for program, limit, why in (py_spy, 0, "the other tasks of its node took all the time"), ("/bin/true", 60, "it did not answer within 2 s"):
        add_stacks(ranks, str(program), limit)
        assert {rank.stack_trouble for rank in ranks} == {f"py-spy shows no stack on node001: {why}"}


def test_the_ras_gets_the_time_that_the_look_leaves(monkeypatch):
    given, look, fill_in_time = [], 0.1, node_look.fill_in_time
    for name, value in (("find_tasks", lambda *_: [task_at("node001", 12, 0, 0)]), ("LOOK_LIMIT", look),
                        ("look_at_task", lambda *_: time.sleep(60)), ("write_all", lambda *_: None),
                        ("fill_in_time", lambda fill, lists, seconds, *more: given.append(seconds) or fill_in_time(fill, lists, seconds, *more))):
        monkeypatch.setattr(node_look, name, value)
    for name, value in (("SLURMD_NODENAME", "node001"), ("SLURM_NODEID", "0")):
        monkeypatch.setenv(name, value)
    node_look.main("", "", "", "12", "0", "0", "ras", "scontrol", "-")
    assert 0 < given[1] <= node_look.TOTAL_LIMIT - look


@pytest.fixture
def crowded(monkeypatch):
    """A node with 128 tasks, which are all this process; and an event that the end of the test sets."""
    released = threading.Event()
    with subprocess.Popen(["sleep", "600"]) as program:
        tasks = [task_at("node001", program.pid, rank, rank) for rank in range(128)]
        for name, value in (("find_tasks", lambda *_: tasks), ("LOOK_LIMIT", 60)):
            monkeypatch.setattr(node_look, name, value)
        monkeypatch.setenv("SLURMD_NODENAME", "node001")
        yield released
        released.set()
        program.kill()


def ranks_of_look(capfd):
    node_look.main("", "", "", "12", "0", "0", "-", "scontrol", "-")
    ranks = state_of(capfd.readouterr().out.splitlines()).ranks
    assert [rank.rank for rank in ranks] == list(range(128))
    return ranks


def test_one_process_looks_at_all_tasks_of_a_node(crowded, capfd, monkeypatch):
    children, threads = [], threading.active_count()
    monkeypatch.setattr(node_look, "Child", lambda words: children.append(words[0]) or Child(words))
    ranks = ranks_of_look(capfd)
    assert all(rank.program == "sleep" and rank.memory_kib and not rank.unread for rank in ranks)
    assert children == ["nvidia-smi"] * 2 and threading.active_count() == threads


def test_a_task_that_cannot_be_read_delays_no_other(crowded, capfd, monkeypatch):
    """Most tasks wait for their memory, and are shown with their program; rank 40 meets a defect."""
    look, troubles = node_look.look_at_all_processes, {40: lambda *_: 1 / 0} | {rank: lambda *_: crowded.wait(60) for rank in range(41, 128)}
    monkeypatch.setattr(node_look, "look_at_all_processes", lambda task, names: troubles.get(task.rank, look)(task, names))
    monkeypatch.setattr(node_look, "LOOK_LIMIT", 8)
    assert [(rank.rank, rank.program, rank.unread) for rank in ranks_of_look(capfd) if rank.unread] == [
        (40, "", "the look at it failed: ZeroDivisionError('division by zero')"),
        *((rank, "sleep", node_look.NO_ANSWER) for rank in range(41, 128))]


def test_a_task_without_a_thread_is_not_taken_for_one_that_has_ended(crowded, capfd, monkeypatch):
    start, started = threading.Thread.start, []

    def start_some(thread):
        if len(started) == 20:
            raise RuntimeError("can't start new thread")
        started.append(start(thread))

    monkeypatch.setattr(threading.Thread, "start", start_some)
    assert [rank.unread for rank in ranks_of_look(capfd)] == [""] * 20 + [node_look.NO_ANSWER] * 108


def test_a_file_of_proc_is_read_line_by_line():
    with open("/proc/self/maps", encoding="utf-8") as file:
        read, shown = ([line.split()[0] for line in lines if "libc.so" in line] for lines in (read_lines("self", "maps"), file))
    assert read == shown and read


def test_processes_of_nvidia_smi_are_read():
    ranks = [make_rank(pid=pid) for pid in (12, 4711, 13)]
    add_gpus(ranks, "GPU-1, 0, 87\nGPU-2, 1, [N/A]\n", "4711, GPU-2\n12, GPU-1\n4711, GPU-1\n13, GPU-9\n14, GPU-1\n")
    add_gpus(ranks, "NVIDIA-SMI has failed, a, b\n", "No devices were found\n")
    assert [(rank.gpus, rank.gpu_ids) for rank in ranks] == [
        ("0 (87 %)", ["GPU-1"]), ("1 ([N/A] %), 0 (87 %)", ["GPU-2", "GPU-1"]), ("", [])]


@pytest.mark.parametrize("version, says", [("2.26.5", "NVIDIA/nccl issue 1762"), ("2.29.7", "NVIDIA/nccl issue 2346"),
                                           ("2.23.4", "has no RAS"), ("", "ncclras --port 28028"), ("2.30.3", ""), ("2.30.3-1", ""),
                                           ("2.28.9-1+cuda12.9", "NVIDIA/nccl issue 1762")])
def test_releases_of_nccl_that_crash_are_not_asked(version, says):
    refusal = refuse_ras(version, 28028)
    assert says in refusal and bool(refusal) == bool(says)


@pytest.mark.parametrize("family, address", [(socket.AF_INET, "127.0.0.1"), pytest.param(socket.AF_INET6, "::1", marks=NEEDS_IPV6)])
@pytest.mark.parametrize("answer, whole", [(b"", 0), (b"a\nb\nha", 2), (b"a\nb\nc\nd\n", 3)], ids=["empty", "half a line", "too long"])
def test_whole_lines_of_the_ras_count_before_it_ends(monkeypatch, family, address, answer, whole):
    monkeypatch.setattr(node_look, "MAX_RAS", 6)
    with socket.create_server((address, 0), family=family) as server:
        server.settimeout(60)
        ranks = [make_rank(), make_rank(ras_port=server.getsockname()[1], nccl_version="2.30.3")]
        asking = threading.Thread(target=ask_ras, args=(lines := [], ranks, "node001"), daemon=True)
        asking.start()
        with server.accept()[0] as client:
            assert client.recv(99) == b"verbose status\n"
            client.sendall(answer)
            wait_for(lambda: len(lines) == whole, 60)
        asking.join()
    assert lines == ["a", "b", "c"][:whole]
    ask_ras(closed := [], ranks, "node001")
    assert closed == [f"NCCL's RAS of node001 does not accept a connection at port {ranks[1].ras_port}"]


# -- the step


def test_an_argument_is_a_job_or_a_step():
    assert [parse_step_argument(text) for text in ("12.3", "12_3.batch", "")] == [("12", "3"), ("12_3", "batch"), ("", "")]
    for text in ("x", ".0", "12.", "12.x", "12 3", "-1", "12.3.4", "12;id"):
        with pytest.raises(Refusal, match=re.escape(f'"{text}" is no JOBID')):
            parse_step_argument(text)


def test_jobs_are_read_from_scontrol():
    job, = jobs = parse_jobs("JobId=3 HetJobId=2 HetJobOffset=1 JobName=a b UserId=alice(10001) JobState=RUNNING JOB_GRES=gpu:4   "
                             "Nodes=node001 GRES=gpu:a100:2(IDX:0,3),gpu:t4:1(IDX:1) "
                             "Nodes=node002 GRES=gpu:2(IDX:0-1)\nslurm_load_jobs error\n")
    assert (job.leader, job.user_id, job.gpus) == ("2", 10001, 2)
    refuse_job(jobs, "3", 10001)
    with pytest.raises(Refusal, match=r"belongs to alice\(10001\)"):
        refuse_job(jobs, "3", 10002)


def steps_by_scontrol(*steps):
    """scontrol's lines for steps, each given as its number, tasks, nodes and name."""
    return "".join(f"StepId={number} UserId=10001 State=RUNNING NodeList={nodes} Nodes=1 CPUs=1 Tasks={tasks} Name={name} Network=(null)\n"
                   for number, tasks, nodes, name in steps)


def test_the_only_world_is_chosen():
    steps = parse_steps(steps_by_scontrol(("12.extern", 1, "n1", "extern"), ("12.batch", 1, "n1", "batch"), ("12.0", 4, "n[1-2]", "a b"),
                                          ("12.1", 2, "n[1-2]", "slurm-bootstrap-status")) + "broken\n")
    assert [one.name for one in steps] == ["batch", "a b"] and choose_step(steps, "12", "").step == "0"
    with pytest.raises(Refusal, match=r"^job 12 has no running step 7; running: 12\.batch \(batch, 1 task on n1\), "
                                      r"12\.0 \(a b, 4 tasks on n\[1-2\]\)$"):
        choose_step(steps, "12", "7")
    with pytest.raises(Refusal, match="^you have no running step; squeue --me lists your jobs$"):
        choose_step([], "", "")


def test_components_are_one_step():
    jobs = parse_jobs("JobId=3 HetJobId=2 HetJobOffset=1\nJobId=2 HetJobId=2 HetJobOffset=0\n")
    step = ChosenStep(jobs, parse_steps(steps_by_scontrol(("3.0", 1, "n2", "a"), ("2.0", 2, "n1", "a"))), "0")
    assert (step.name, step.tasks, step.parts[1].job, step.parts[1].first_rank) == ("2.0", 3, "3", 2)


# For each task of an array: its name, job and state, and its steps. The last task has the id of the array.
ARRAY = [("36_2", "38", "PENDING", ()), ("36_3", "36", "RUNNING", (("36_3.0", 4, "n[3-4]", "a"),)),
         ("36_1", "37", "RUNNING", (("36_1.0", 2, "n1", "a"), ("36_1.1", 2, "n1", "a")))]  # fmt: skip


def answer_of_slurm(*words, gone):
    """For job 36 scontrol shows all tasks of the array."""
    found = [task for task in ARRAY if words[-1] in ("36", *task[:2])]
    if "step" in words:
        return "".join(steps_by_scontrol(*steps) for *_, steps in found)
    return "".join(f"JobId={number} ArrayJobId=36 ArrayTaskId={name[3:]} UserId=a({os.getuid()}) JobState={state}\n"
                   for name, number, state, _ in found)


@pytest.mark.parametrize("job, step, found", [
    ("36_3", "", "36_3.0 is of job 36 and has 4 tasks"), ("36_1", "1", "36_1.1 is of job 37 and has 2 tasks"),
    ("37", "1", "36_1.1 is of job 37 and has 2 tasks"), ("36", "1", "36_1.1 is of job 37 and has 2 tasks"),
    ("36_3", "1", "job 36_3 has no running step 1; running: 36_3.0 (a, 4 tasks on n[3-4])"),
    ("36_2", "", "job 36_2 has not started; squeue -j 36_2 shows why"),
    ("36", "0", "job 36 has several running steps; name one of them: 36_3.0 (a, 4 tasks on n[3-4]), 36_1.0 (a, 2 tasks on n1)"),
])  # fmt: skip
def test_a_task_of_an_array(monkeypatch, job, step, found):
    monkeypatch.setattr(step_choice, "ask_slurm", answer_of_slurm)
    try:
        chosen = find_step(job, step)
        assert f"{chosen.name} is of job {chosen.leader} and has {chosen.tasks} tasks" == found and len(chosen.parts) == 1
    except Refusal as refusal:
        assert str(refusal) == found


# -- lines of status's own step


def full(pid=4711, **more):
    return make_rank(rank=5, task=5, local_rank=1, node="node002", pid=pid, program='a "b" \\', is_launcher=True, state="S",
                     links=["40000:29500", "40001:29500"], listens=[29500, 1], stack=["* main (train.py:12)"] * 40, **more)


def state_of(lines):
    state = StepState()
    for line in lines:
        assert not state.add_lines(line), line
    return state


def test_records_arrive_unchanged_in_any_order():
    node = make_record(NODE, {"node": "node001", "ras": ["line 1", "line 2"]})
    ones, others = (record_lines("rank", full(pid), pid).splitlines() for pid in (4711, 12))
    assert len(ones) > 1 and max(map(len, ones)) < 1000, "srun may mix longer lines"
    mixed = [line for pair in zip(ones, others) for line in pair]
    state = state_of(mixed + record_lines("node", node, 77).splitlines())
    assert state.ranks == [full(), full(12)] and state.nodes == [node]
    assert not state_of(ones[:-1]).ranks, "a rank counts once it is complete"


def test_lines_of_other_processes_are_no_records():
    assert all(StepState().add_lines(line) for line in ("srun: error: x", "status", "status rank", "status rank a 1", "status step a 1 . {}"))
    broken = ["status rank n 1 . {", "status rank n 1 . [1]", "status rank n 1 . 7", 'status rank n 1 . {"rank": 4294967295}',
              "status rank n 1 . " + "[" * 100000, *["status rank n 1 + 1"] * 5000]
    assert not state_of(broken).ranks
    rank, = state_of(['status rank n 1 . {"program": "\\u001b[2J\\u0007", "rank": "x", "listens": [1, "x"], "is_still": 1, "none": 1}']).ranks
    assert (rank.program, rank.rank, rank.listens, rank.is_still) == (r'"\x1b[2J\x07"', 0, [1, 0], False)


def test_a_number_from_a_task_has_few_digits_and_no_sign():
    for text, value in (("-5", 0), ("1" * 5000, 0), ("1e400", 0), ("true", 0), ("4711", 4711)):
        rank, = state_of(record_text(f'{{"rank": 3, "task": {text}, "pid": {text}}}')).ranks
        assert (rank.rank, rank.task, rank.pid) == (3, value, value), text[:8]


def record_text(text):
    chunks = [text[begin:begin + 800] for begin in range(0, len(text), 800)]
    return [f"status rank n 1 {'+' if chunk != chunks[-1] else '.'} {chunk}" for chunk in chunks]


def test_a_text_from_a_task_is_cut():
    tasks = ",".join(map(str, range(1000)))
    rank = make_rank(program="a" * 5000, stack=["b" * 5000], node_tasks=tasks)
    assert (rank.program, rank.stack, rank.node_tasks) == ("a" * 800, ["b" * 800], tasks)


@pytest.mark.parametrize("text", ["caf\u00e9", "\x7f", "a\n", "\udce9", "\u0661"], ids=ascii)
def test_text_that_is_not_ascii_is_escaped(text):
    rank = make_rank(program=text, stack=["a", text])
    assert (rank.program, rank.stack) == (quoted(text), ["a", quoted(text)]) and quoted(text) != text


def test_the_list_of_tasks_is_read():
    lines = "PID   JOBID  STEPID  LOCALID  GLOBALID", "314  12  0  0  2", "316  12  0  1  3", "319  12  0  -  -", "320  13  0  0  0", "x  12  0  0  0"
    tasks = parse_task_list("\n".join(lines) + "\n", "12", "0", 8, "node001")
    assert [(task.pid, task.rank, task.task, task.local_rank) for task in tasks] == [(314, 10, 10, 0), (316, 11, 11, 1)]

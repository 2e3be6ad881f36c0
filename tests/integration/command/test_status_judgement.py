"""Which ranks `status` names as out of step. It needs no cluster."""

# SPDX-License-Identifier: Apache-2.0

import sys
from types import SimpleNamespace

import pytest

from harness import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "libbootstrap" / "tools" / "status"))
import status  # noqa: E402
from findings import far_apart, group_ranks, list_ranks, range_of  # noqa: E402
from judge import Judgement  # noqa: E402
from records import NODE, StepState, make_rank, make_record  # noqa: E402
from status import add_durations, status_text, write_memory  # noqa: E402
from step_choice import NotRunning, Refusal  # noqa: E402

RANKS = 8
ODD = "rank 5 (node002, local rank 1, pid 105) "


def healthy(changes=None):
    """Eight ranks of PyTorch on two nodes that wait for each other in a collective, with changes to some ranks."""
    state = StepState()
    state.nodes = [make_record(NODE, {"node": node}) for node in ("node001", "node002")]
    for i in range(RANKS):
        known = {"rank": i, "task": i, "local_rank": i % 4, "node": f"node00{1 + i // 4}", "pid": 100 + i, "program": "python3",
                 "node_tasks": "0,1,2,3" if i < 4 else "4,5,6,7", "chain": "python3", "state": "S", "is_still": True,
                 "waits_in": "futex", "framework": "PyTorch", "meetings": ["MASTER_PORT 29500"],
                 "links": [f"{40000 + i}:29500"], "listens": [] if i else [29500]}
        state.ranks.append(make_rank(**{**known, **(changes or {}).get(i, {})}))
    return state


def judge(state):
    return Judgement(state, RANKS)


def first_line(state):
    return judge(state).findings[0].sentence


def maybe(who, what):
    return f"{what}; {who} may be slow, in a checkpoint, or stuck"


@pytest.mark.parametrize("change, one, several", [
    ({"state": "T"}, "is stopped (SIGSTOP)", "are stopped (SIGSTOP)"),
    ({"state": "t"}, "is stopped by a debugger", None),
    ({"state": "D"}, "waits for a disk or file system (D state)", "wait for a disk or file system (D state)"),
    ({"waits_in": "file system (fuse_x)"}, "waits for a file system (fuse_x)", None),
    ({"state": "Z"}, "has ended, and its parent has not noticed (zombie)", "have ended, and their parents have not noticed (zombies)"),
    ({"links": []}, "has no connection to MASTER_PORT 29500 of node001, where the other 7 are connected", None),
    ({"links": [], "tries": [29500, 29501]}, "has no connection to MASTER_PORT 29500 of node001, where the other 7 are connected; "
     "it tries port 29501", None),
    ({"links": [], "cpu_percent": 90}, "has no connection to MASTER_PORT 29500 of node001, where the other 7 are connected; "
     "it may still be starting", None),
    ({"links": [], "meetings": ["MASTER_PORT 29511"]}, "was started with MASTER_PORT=29511, and rank 0 with 29500",
     "were started with MASTER_PORT=29511, and rank 0 with 29500"),
    ({"unread": "no"}, "is unknown: no", None),
    ({"waits_in": "poll"}, maybe("it", "differs: waits in poll, the others in futex"),
     maybe("they", "differ: wait in poll, the others in futex")),
    ({"cpu_percent": 99}, maybe("it", "differs: 99 % CPU, waits in futex; the others 0 %"),
     maybe("they", "differ: 99 % CPU; the others 0 %")),
    ({"cpu_wait_percent": 99, "is_still": False}, maybe("it", "differs: 0 % CPU, waits for a core; the others 0 %"), None),
    ({"child": "python3 (pid 9) is stopped (SIGSTOP)"}, "has a child process that is held up: python3 (pid 9) is stopped (SIGSTOP)", None),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")  # fmt: skip
def test_ranks_out_of_step_are_named(change, one, several):
    assert first_line(healthy({5: change})) == ODD + one
    if several:
        assert first_line(healthy({4: change, 5: change})) == f"ranks 4-5 (node002) {several}"


def test_a_rank_that_sleeps_is_idle_on_a_busy_node():
    """It waits for a core when it wakes up; a rank that never sleeps would run."""
    assert first_line(healthy({5: {"cpu_wait_percent": 60}})) == f"all {RANKS} ranks run alike"


NO_FRAMEWORK = {"framework": "", "program": "sleep", "chain": "bash, sleep"}
STACK = ["all_reduce (torch/x.py:7)", "* main (train.py:20)"]


@pytest.mark.parametrize("changes, line", [
    ({}, "all 8 ranks run alike"),
    ({5: {"state": "D", "is_still": False}}, "none of the 8 ranks stands out"),  # a moment in a disk wait
    ({number: {"links": []} for number in range(4, 8)},
     "ranks 4-7 (all of node002) have no connection to MASTER_PORT 29500 of node001, where the other 4 are connected"),
    # A rank with connections to others has passed the rendezvous.
    ({5: {"links": ["50000:60000"]}, 6: {"links": ["40006:29500", "60000:50000"]}}, "none of the 8 ranks stands out"),
    # A port of MPI is no rendezvous.
    ({number: {"framework": "MPI", "meetings": [], "links": ["40000:1024"] if number != 5 else [], "listens": [1024]}
      for number in range(8)}, "all 8 ranks run alike"),
    ({2: NO_FRAMEWORK}, "rank 2 (node001, local rank 2, pid 102) runs sleep (below bash) without PyTorch, which the other 7 ranks have "
     "loaded; it waits in futex"),
    ({2: {**NO_FRAMEWORK, "cpu_percent": 90, "waits_in": ""}}, "rank 2 (node001, local rank 2, pid 102) runs sleep (below bash) without "
     "PyTorch, which the other 7 ranks have loaded; it may still be starting"),
    # A program may set other values than its environment has.
    ({5: {"meetings": ["MASTER_PORT 29511"]}}, "all 8 ranks run alike"),
    ({2: {**NO_FRAMEWORK, "is_launcher": True}}, "rank 2 (node001, local rank 2, pid 102) runs only bash, sleep; no program runs below"),
    ({number: {"stack": STACK} for number in range(8)}, "all 8 ranks run alike"),
    ({number: {"stack": STACK if number != 5 else ["barrier (torch/x.py:9)", "* main (train.py:14)"]} for number in range(8)},
     ODD + maybe("it", "differs: in barrier, called by main (train.py:14); the others in all_reduce, called by main (train.py:20)")),
])  # fmt: skip
def test_the_first_line_compares_the_ranks(changes, line):
    assert first_line(healthy(changes)) == line


def test_ended_ranks_are_named():
    state = healthy()
    del state.ranks[3]
    assert first_line(state) == "rank 3 (node001, local rank 3) has ended; 7 ranks are left"
    del state.ranks[3:]
    assert first_line(state) == "ranks 3-7 (node001, node002) have ended; 3 ranks are left"


@pytest.mark.parametrize("size, ranks, line", [(12, 12, "ranks 8-11 have ended; 8 ranks are left"), (1 << 20, 8, "all 8 ranks run alike")])
def test_a_launchers_number_of_ranks_counts_if_it_is_plausible(size, ranks, line):
    judgement = judge(healthy({5: {"world_size": size}}))
    assert (len(judgement.ranks), judgement.findings[0].sentence) == (ranks, line)
    assert judgement.also == ([] if ranks > RANKS else [f"a launcher counts {size} ranks, of which 8 run; the others are left out here"])


class Counted(list):
    """Counts the iterations over it."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


@pytest.mark.parametrize("changes", [
    {number: {"meetings": [f"MASTER_PORT {20000 + number}"], "listens": [20000 + number]} for number in range(RANKS)},
    {number: {"meetings": [], "listens": list(range(30000, 30064)) if number == 0 else []} for number in range(RANKS)},
], ids=["a farm", "many ports"])  # fmt: skip
def test_connections_are_read_once_for_all_ports(changes):
    """There may be millions of connections, and thousands of ports."""
    state = healthy(changes)
    for rank in state.ranks:
        rank.links = Counted(rank.links * 2)
    judge(state)
    assert max(rank.links.times for rank in state.ranks) <= 3


def test_whole_records_are_not_compared():
    class Record(SimpleNamespace):
        def __eq__(self, other):
            raise AssertionError("which takes minutes at thousands of ranks")

    state = healthy({5: {"waits_in": "poll"}})
    state.ranks = [Record(**vars(rank)) for rank in state.ranks]
    assert first_line(state) == ODD + maybe("it", "differs: waits in poll, the others in futex")


def test_ranks_of_several_worlds_have_numbers_of_their_own():
    judgement = judge(healthy({number: {"rank": number - 4} for number in range(4, 8)}))
    assert [rank.rank for rank in judgement.ranks] == list(range(RANKS)) and judgement.also


def test_shared_gpus_shared_cores_and_other_libraries_are_noted():
    changes = {number: {"nccl_build": "aa"} for number in range(RANKS)}
    changes[0]["gpu_ids"] = changes[1]["gpu_ids"] = changes[4]["gpu_ids"] = ["GPU-1"]
    changes[2]["cores"] = changes[3]["cores"] = "7"
    changes[1]["cores"] = "0-7"
    changes[6]["nccl_build"] = "bb"
    assert judge(healthy(changes)).also == [
        "ranks 0-1 of node001 use one GPU, GPU-1", "ranks 2-3 of node001 may run on one core only, core 7",
        "ranks have loaded 2 different builds of libnccl; rank 6 (node002, local rank 2, pid 106) has build bb"]


@pytest.mark.parametrize("cpu, apart", [
    ([], ""), ([100], ""), ([0, 1, 2, 12], ""),
    ([30, 45, 60, 75, 90], ""),  # a busy node
    ([100, 0, 98, 99], ".x.."),
    ([8, 14, 0, 9], "..x."),  # a machine with much other work
    ([2, 25, 30, 28], "x..."),  # many ranks on few cores
    ([42, 20, 0, 30], "..x."),  # the widest gap is between other ranks
    ([100, 0], ".x"),  # not rank 0 of two
    ([(3, 60), (7, 92), (6, 93), (6, 91)], ""),  # ten times more threads than cores on the node
    ([(3, 10), (7, 92), (6, 93), (6, 91)], ""),
    ([(1, 70), (7, 92), (6, 93), (6, 91)], ""),
    ([(7, 92), (1, 40), (6, 93), (6, 91)], ".x.."),  # this rank sleeps, and waits for a core when it wakes up
])  # fmt: skip
def test_a_rank_far_from_the_others_in_its_use_of_cpu_is_marked(cpu, apart):
    """`cpu`: each rank's use of CPU in percent, or this and its waits for a core."""
    used_and_waited = [one if isinstance(one, tuple) else (one, 0) for one in cpu]
    ranks = [make_rank(cpu_percent=used, cpu_wait_percent=waited) for used, waited in used_and_waited]
    found = list(map(id, far_apart(ranks)))
    assert "".join("x" if id(rank) in found else "." for rank in ranks) == (apart or "." * len(ranks))


def test_the_smallest_group_comes_first():
    judgement = judge(healthy({5: {"state": "T"}}))
    assert [list_ranks(group) for group in group_ranks(judgement.ranks)] == ["5", "0-4,6-7"]
    assert "\n0-4,6-7  2 nodes  -    connected" in status_text(judgement, "12.0", False)


@pytest.mark.parametrize("most, cell", [(9500, "9500 MiB"), (9800, "9500-9800 MiB"), (12 << 10, "9500 MiB-12 GiB")])
def test_a_range_of_memory_has_each_unit(most, cell):
    ranks = [make_rank(memory_kib=mebibytes << 10) for mebibytes in (9500, most)]
    assert range_of(ranks, "memory_kib", write_memory) == cell


def test_a_duration_needs_two_looks_that_agree():
    stopped, since, sentences = {5: {"state": "T"}}, {}, []
    for changes, now in ((stopped, 0), (stopped, 12), ({}, 20), (stopped, 30)):
        judgement = judge(healthy(changes))
        since = add_durations(judgement, since, now)
        sentences.append(judgement.findings[0].sentence.removeprefix(ODD))
    assert sentences == ["is stopped (SIGSTOP)", "is stopped (SIGSTOP), for at least 12 s", "all 8 ranks run alike", "is stopped (SIGSTOP)"]


RUNS, ENDED, SILENT = SimpleNamespace(name="12.0", tasks=RANKS), NotRunning("it does not run"), Refusal("Slurm did not answer")


@pytest.mark.parametrize("answers, looks, exit_status", [
    ([ENDED], "", 1),
    ([RUNS, ENDED], "+", 0),
    ([RUNS, SILENT], "+", 1),
    ([RUNS, RUNS, ENDED], "+-", 0),  # the step ended during a look, which then failed
    ([RUNS, RUNS, RUNS], "+-", 1),
])  # fmt: skip
def test_a_watch_succeeds_when_the_step_ends(monkeypatch, answers, looks, exit_status):
    """`answers` come from Slurm. In `looks`, "-" is a look that fails."""
    answers, looks = iter(answers), iter(looks)

    def find_step(*_):
        answer = next(answers)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def look_at_step(*_):
        state = healthy()
        if next(looks) == "-":
            state.nodes, state.complaint = [], "srun failed"
        return state

    for name, value in (("find_step", find_step), ("look_at_step", look_at_step), ("use_commands", str), ("write_all", lambda *_: None)):
        monkeypatch.setattr(status, name, value)
    with pytest.raises(Refusal) as refusal:
        status.show_status("", "12.0", {"json": "", "stacks": "", "nccl": "", "watch": "0.001"})
    assert refusal.value.status == exit_status

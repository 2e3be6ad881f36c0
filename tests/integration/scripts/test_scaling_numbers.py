"""The scaling report's statistics, judgements, findings and pages, with invented numbers and no cluster."""

import json
import math
import re
import statistics
import subprocess
from types import SimpleNamespace

import numpy
import pytest

from scaling import options, steps
from scaling.options import Cell, make_cells, why_impossible
from scaling.place import Node, loads, read, table
from scaling.report import findings, measures, page
from scaling.steps import DONE, FAILED, NOT_RUN, Folder, Result, Runner

STEPS = 20


def made_rows(ranks, compute, transfer, waits=(), steps=STEPS, jitter=0.0, samples=8):
    """Rows of a training: `compute` is the time of the slowest rank, and `waits` is each rank's wait for it."""
    waits = waits or [0.0] * ranks
    rows = []
    for step in range(-4, steps):
        slow = 100.0 if step < 0 else 1 + jitter * (-1) ** step
        for rank in range(ranks):
            own = compute * slow - waits[rank]
            values = {"rank": rank, "step": step, "samples": samples, "forward": own / 2, "backward": own / 4,
                      "communication": transfer * slow + waits[rank], "update": own / 4, "loss": 3.0 - 0.1 * step}
            rows.append(values)
    return rows


def made(backend, nodes, tasks, compute=0.010, transfer=0.0, cores=64, machines=None, **more):
    """A cell's result; each node is a machine unless `machines` is given."""
    cell = Cell(backend, "mlp", nodes, tasks)
    ranks = [{"rank": rank, "machine": f"m{rank // tasks if machines is None else rank % machines}",
              "cores": ",".join(map(str, range(cores)))} for rank in range(cell.ranks)]
    return Result(cell, DONE, rows=made_rows(cell.ranks, compute, transfer, **more), ranks=ranks)


def table_of(*results):
    return measures.make_table([result for result in results if result.status == DONE])


def sentences(*results):
    return findings.all_findings(table_of(*results), results)


def verdict(*results, hosts=2, machines=2):
    return findings.verdict(table_of(*results), hosts, machines)


def test_the_spread_is_that_of_blocks_of_steps():
    """Control: the spread of single steps would make a slow drift look three times smaller."""
    values = numpy.array([float(number % 7) for number in range(40)])
    blocks = [statistics.fmean(values[start:start + 4]) for start in range(0, 40, 4)]
    mean, spread = measures.mean_and_spread(values)
    assert mean == pytest.approx(statistics.fmean(values))
    assert spread == pytest.approx(1.96 * statistics.stdev(blocks) / math.sqrt(10))
    assert math.isnan(measures.mean_and_spread(numpy.array([1.0]))[1])
    drift = numpy.array([float(number // 10) for number in range(100)])
    assert measures.mean_and_spread(drift)[1] > 3 * 1.96 * statistics.stdev(drift) / 10


def test_a_ratio_has_the_errors_of_both():
    table = table_of(made("gloo", 1, 1, jitter=0.3, steps=9), made("gloo", 1, 2, jitter=0.1, steps=9))
    relative = [line.step_seconds_spread / line.step_seconds for line in table.itertuples()]
    assert table.speedup[1] == pytest.approx(2, rel=0.1) and min(relative) > 0
    assert table.speedup_spread[1] == pytest.approx(table.speedup[1] * math.hypot(*relative))
    assert findings.with_spread(2.0, math.nan) == "2.00" and findings.with_spread(2.0, 0.25) == "2.00 +- 0.25"


def test_computing_transfer_and_waiting_are_separate():
    """The other ranks wait for rank 1; warm-up steps, which are a hundred times slower, do not count."""
    found = measures.numbers_of(made_rows(4, compute=0.02, transfer=0.004, waits=[0.008, 0.0, 0.008, 0.008]))
    assert (found["transfer_seconds"], found["wait_seconds"], found["compute_seconds"]) == pytest.approx((0.004, 0.006, 0.014))
    assert found["samples_per_step"] == 32 and found["samples_per_second"] == pytest.approx(32 / found["step_seconds"])


@pytest.mark.parametrize("cells, speedup, efficiency", [
    ([(1, 1, 0.0), (1, 2, 0.0025), (2, 2, 0.015)], [1, 1.6, 1.6], [1, 0.8, 0.4]),
    ([(2, 2, 0.005), (4, 2, 0.010)], [4, 6], [1, 0.75]),  # the smallest world is the baseline, with its number of processes
])
def test_speedup_and_efficiency_are_relative_to_one_process(cells, speedup, efficiency):
    table = table_of(*(made("gloo", nodes, tasks, transfer=transfer) for nodes, tasks, transfer in cells))
    assert list(table.speedup) == pytest.approx(speedup) and list(table.efficiency) == pytest.approx(efficiency)


@pytest.mark.parametrize("nodes, machines, load, crowded", [(4, 1, (4, 2), True), (4, None, (1, 2), False), (2, 1, (2, 2), False)])
def test_processes_are_counted_by_machine_and_not_by_host(nodes, machines, load, crowded):
    line, = table_of(made("gloo", nodes, 1, cores=2, machines=machines)).itertuples()
    assert (line.processes_on_a_machine, line.cores_of_it) == load and line.oversubscribed == crowded


def test_the_verdict_is_that_of_the_largest_sound_layout():
    base, half = made("gloo", 1, 1), made("gloo", 2, 1, transfer=0.005)
    assert verdict(base, half) == (
        "gloo trains mlp 1.33 times as fast with 2 processes (2 servers x 1) as one process would: 67 % of the ideal.")
    unsure = verdict(base, made("gloo", 2, 1, transfer=0.005, jitter=0.3, steps=9))
    assert re.search(r"mlp 1\.\d\d \+- 0\.\d\d times .*: 6\d \+- [1-9]\d? % of the ideal", unsure), unsure
    larger = verdict(base, half, made("gloo", 2, 2, transfer=0.010))
    assert larger.startswith("gloo trains mlp 2.00 times as fast with 4 processes (2 servers x 2)")
    mixed = verdict(base, made("gloo", 1, 2, transfer=0.005), made("gloo", 1, 4, cores=2))
    assert mixed.endswith("(1 server x 2) as one process would: 67 % of the ideal. "
                          "The other layouts say nothing about scaling: 4 processes share 2 cores.")
    assert verdict() == "This run has no result: no cell gave numbers."


@pytest.mark.parametrize("slower, word", [(1.3, "disturbed"), (1.05, "105 % of the ideal")])
def test_more_than_the_ideal_is_a_disturbed_baseline(slower, word):
    found = verdict(made("gloo", 1, 1, compute=0.010 * slower), made("gloo", 1, 2))
    assert word in found, found
    assert ("130 % of the ideal, so 1x1 was slower than it is alone" in found) == (word == "disturbed")


@pytest.mark.parametrize("results, machines, why", [
    ([(1, 1, {}), (1, 4, {"cores": 2})], 2, "4 processes share 2 cores"),
    ([(1, 1, {}), (2, 1, {"machines": 1})], 1, "the 2 servers are 1 machine, with no network between them"),
    ([(1, 1, {})], 2, "no cell has more than one process"),
    ([(2, 2, {})], 2, "there is no smaller world to compare with"),
])
def test_the_verdict_has_the_reason_why_a_run_shows_no_scaling(results, machines, why):
    cells = [made("gloo", nodes, tasks, **more) for nodes, tasks, more in results]
    assert verdict(*cells, machines=machines) == f"This run says nothing about scaling: {why}."


@pytest.mark.parametrize("cells, sentence", [
    # Cells as (back end, transfer, more), all on two servers.
    ([("gloo", 0.01, {}), ("mpi", 0, {})], "mpi in 1 of 1 comparison. The largest difference: mpi with mlp at 2 servers x 1 is 2.00 times"),
    ([("gloo", 0.001, {}), ("mpi", 0, {})], "mpi"),
    ([("gloo", 0.001, {"jitter": 0.9, "steps": 9}), ("mpi", 0, {"jitter": 0.9, "steps": 9})], "none."),
])
def test_a_back_end_is_fastest_beyond_the_spread_alone(cells, sentence):
    found = sentences(*(made(backend, 2, 1, transfer=transfer, **more) for backend, transfer, more in cells))
    assert any(line.startswith(f"Fastest: {sentence}") for line in found), found


def test_the_finding_about_communication_names_the_least_and_the_most():
    found = sentences(made("gloo", 1, 1), made("gloo", 2, 1, transfer=0.010), made("gloo", 4, 1, transfer=0.030))
    assert found == ["Communication takes 50 % of a step for gloo with mlp at 2 servers x 1, the least, and 75 % for gloo with mlp at 4 "
                     "servers x 1, the most."]


def test_findings_name_what_failed_and_what_was_not_run():
    no_gpu = [Result(Cell("nccl", model, 1, 1), NOT_RUN, "no GPU") for model in ("cnn", "mlp")]
    assert sentences(Result(Cell("mpi", "cnn", 2, 2), FAILED, "rank 3 died"), *no_gpu) == [
        "Failed: 1 cell. mpi, cnn, 2 servers x 2: rank 3 died.", "Not run: 2 cells (nccl): no GPU."]
    failed = [Result(Cell("mpi", "cnn", nodes, 2), FAILED, "rank 3 died") for nodes in range(1, 6)]
    many = sentences(*failed)[0]
    assert many.startswith("Failed: 5 cells. ") and many.endswith("; and 2 more.") and many.count("rank 3 died") == 3


PLACE = SimpleNamespace(nodes=[Node(4, 2), Node(4, 2)], gpus=2, machines=2, has_pmix=True, no_gpu="there is no GPU")


@pytest.mark.parametrize("cell, device, reason", [
    (("gloo", 2, 4), "cpu", ""),
    (("gloo", 4, 1), "cpu", "the cluster has 2 nodes that can be used"),
    (("gloo", 1, 8), "cpu", "need nodes of 8 CPUs"),
    (("nccl", 1, 1), "cpu", "there is no GPU"),
    (("nccl", 2, 2), "cuda", ""),
    (("nccl", 1, 4), "cuda", "4 on a node, and the nodes have 2"),
])
def test_a_cell_that_cannot_be_run_is_known_before(cell, device, reason):
    backend, nodes, tasks = cell
    found = why_impossible(Cell(backend, "mlp", nodes, tasks), device, PLACE)
    assert found == reason == "" or (reason and reason in found)


def test_nodes_of_one_machine_share_its_gpus():
    one_machine = SimpleNamespace(**{**vars(PLACE), "machines": 1})
    assert "have the same GPUs" in why_impossible(Cell("gloo", "mlp", 2, 1), "cuda", one_machine)
    assert not why_impossible(Cell("gloo", "mlp", 1, 2), "cuda", one_machine)


def test_cells_that_differ_in_the_model_alone_are_neighbours():
    cells = make_cells(["gloo", "mpi"], ["mlp", "cnn"], [1, 2], [1, 2])
    assert len(cells) == 16 and [cell.ranks for cell in cells] == sorted(cell.ranks for cell in cells)
    assert [cell.group for cell in cells[::2]] == [cell.group for cell in cells[1::2]]


def line_of(label, kind, **fields):
    return f"{label}: @{json.dumps({'kind': kind, 'model': 'mlp', **fields})}"


def output_of(ranks=2, change=lambda row: row, **end):
    """The output of a good training, with changes."""
    output = steps.Output()
    for row in map(change, made_rows(ranks, 0.01, 0.0, steps=4)):
        output.take(line_of(0, "step", **row))
    for rank in range(ranks):
        fields = {"digest": "aa", "difference": 0, "scale": 2.5, **{name: values[rank] for name, values in end.items()}}
        output.take(line_of(rank, "end", rank=rank, **fields))
    return output


@pytest.mark.parametrize("output, reason", [
    (output_of(), ""),
    (output_of(digest=["aa", "bb"], difference=[1e-7, 1e-7]), ""),
    (output_of(difference=[0.1, 0.1]), "do not hold the same parameters in the end: they differ by 0.1"),
    (output_of(digest=["aa", "bb"]), "the checksums of these differ"),
    (output_of(difference=[math.nan, 0]), "not finite numbers"),
    (output_of(change=lambda row: {**row, "rank": 0}), "8 of 16 lines"),
    (output_of(change=lambda row: {**row, "loss": 2.0}), "the loss did not fall: 2 in the first 4 steps, 2 in the last"),
])
def test_a_result_that_cannot_be_right_is_noticed(output, reason):
    assert output.finished("mlp", 2)
    found = steps.judge(output, "mlp", 2, 4)
    assert found == reason == "" or (reason and reason in found)


def test_a_line_that_was_cut_off_is_no_sign_of_life():
    output = steps.Output()
    assert not output.take('0: @{"kind": "st') and output.errors == ['0: @{"kind": "st']


def test_the_reason_of_a_failed_step_is_the_last_line_of_the_rank_that_failed_first():
    output = steps.Output()
    output.errors = [
        "01: Traceback (most recent call last):", '01:   File "train.py", line 3, in <module>', "01: RuntimeError: the disk is on fire",
        "00: RuntimeError: connection closed by peer", "srun: error: node001: tasks 0-1: Exited with exit code 1",
        "srun: error: bootstrap: StepId=12.0: task 1 (node002, local rank 0) failed first: exit code 1, 3.2 s after the step began",
        "srun: launch/slurm: _step_signal: Terminating StepId=12.0"]
    reason = output.reason()
    assert reason.startswith("task 1 (node002, local rank 0) failed first: exit code 1")
    assert reason.endswith("RuntimeError: the disk is on fire") and "peer" not in reason


class StubPlace:
    """Stands for a cluster: a list of scripts, and each start runs the next one."""

    waits_in_queue = False

    def __init__(self, *scripts):
        self.scripts, self.started = list(scripts), []

    def program(self, name, *arguments):
        return [name, *arguments]

    def step(self, nodes, tasks, words, **_):
        return words

    def start(self, words):
        self.started.append(words[2])
        return subprocess.Popen(["bash", "-c", self.scripts.pop(0)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def prints(*models):
    """A script with the output of a good training of these models."""
    lines = []
    for model in models:
        lines += [line_of(0, "begin", model=model), *(line_of(0, "step", **{**row, "model": model}) for row in made_rows(1, 0.01, 0, steps=4)),
                  line_of(0, "end", model=model, rank=0, digest="aa", difference=0, scale=1)]
    return "".join(f"echo '{line}';" for line in lines)


def run_stub(*scripts, models=("mlp", "cnn"), silence=60):
    place, results = StubPlace(*scripts), []
    parameters = {"device": "cpu", "scaling": "weak", "steps": 4}
    Runner(place, parameters, results.append, silence).run_group([Cell("gloo", model, 1, 1) for model in models])
    return place.started, {result.cell.model: result for result in results}


def test_a_model_that_fails_is_not_run_again_and_the_others_go_on():
    dies = f"echo '{line_of(0, 'begin', model='cnn')}'; echo '0: out of luck' >&2; exit 3"
    started, results = run_stub(prints("mlp") + dies, prints("rnn"), models=("mlp", "cnn", "rnn"))
    assert started == ["mlp,cnn,rnn", "rnn"] and results["cnn"].reason == "out of luck"
    assert [results[model].status for model in ("mlp", "cnn", "rnn")] == [DONE, FAILED, DONE]


def test_a_step_that_fails_when_all_is_done_is_noted():
    _, results = run_stub(prints("mlp", "cnn") + "echo '0: cannot say goodbye' >&2; exit 1")
    assert [results[model].status for model in ("mlp", "cnn")] == [DONE, DONE]
    assert "its step failed after that: cannot say goodbye" in results["cnn"].notes and len(results["mlp"].notes) == 1


def test_a_step_that_cannot_start_is_not_tried_for_each_model():
    started, results = run_stub("exit 7")
    assert len(started) == 1 and {result.status for result in results.values()} == {FAILED}
    assert results["cnn"].reason == "srun ended with 7 and said nothing"


@pytest.mark.parametrize("first, when", [("", "at its start"), (f"echo '{line_of(0, 'begin')}';", "after 'mlp' began")])
def test_a_step_that_hangs_is_stopped(first, when):
    _, results = run_stub(f"{first} exec sleep 60", models=("mlp",), silence=1)
    assert results["mlp"].reason == f"no sign of life for 1 s {when}, so it was stopped"


def test_resume_takes_what_was_done_with_the_same_parameters_alone(tmp_path):
    folder, done = Folder(tmp_path), made("gloo", 1, 1)
    done.parameters = {"steps": 20}
    folder.save(done)
    assert folder.load(done.cell, {"steps": 20}) == done and folder.load(done.cell, {"steps": 30}) is None
    done.status = FAILED
    folder.save(done)
    assert folder.load(done.cell, {"steps": 20}) is None
    (tmp_path / "cells" / f"{done.cell.key}.json").write_text('{"cell": ')
    assert folder.load(done.cell, {"steps": 20}) is None


@pytest.mark.parametrize("words, reason", [
    (["--nodes", "0"], "'0' is no list of numbers"),
    (["--backends", "gloo,smoke"], "there is no back end 'smoke'; there are gloo, mpi, horovod-gloo, horovod-mpi, nccl"),
    (["--models", "mlpp"], "there is no model 'mlpp'"),
    (["--steps", "3"], "'3' is no number of steps, 4 at least"),
])
def test_a_wrong_command_line_is_one_sentence(tmp_path, capsys, words, reason):
    with pytest.raises(SystemExit) as ended:
        options.parse([*words, "--out", str(tmp_path / "new")])
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and reason in printed and printed.count("\n") == 1 and printed.startswith("scaling-report: ")


def test_a_folder_with_files_needs_resume(tmp_path, capsys):
    (tmp_path / "cells").mkdir()
    assert options.parse(["--out", str(tmp_path)]), "a report that found no cluster may have made the folder"
    (tmp_path / "cells" / "gloo-mlp-1x1.json").write_text("{}")
    with pytest.raises(SystemExit):
        options.parse(["--out", str(tmp_path)])
    assert "is not empty; say --resume" in capsys.readouterr().err
    assert options.parse(["--out", str(tmp_path), "--resume"]).resume


def test_the_environment_separates_nodes_that_differ():
    hosts = read("0: @fact host a\n0: @fact kernel 6.1\n0: @fact GPU_links none\n1: @fact host b\n1: @fact kernel 6.2\n"
                 "1: @fact GPU_links none\nnoise\n")
    place = SimpleNamespace(cluster="c", slurm="slurm 22.05", has_plugin=True)
    rows = dict(table(hosts, place, "command", "now", "0.1"))
    assert rows["kernel (a)"] == "6.1" and rows["kernel (b)"] == "6.2" and rows["GPU links"] == "none"


def test_the_load_is_that_of_the_busiest_machine_at_begin_and_end():
    first, last = made("gloo", 1, 2), made("gloo", 2, 2)
    for result, values in ((first, "0.1 0.3"), (last, "2.0 2.5 0.5 0.5")):
        for rank, load in zip(result.ranks, values.split(), strict=True):
            rank["load"] = float(load)
    assert loads([first, last]) == "0.3 before the first training, 2.5 before the last one"


def test_output_of_users_and_programs_cannot_break_the_page():
    reason = '<script>alert("1")</script> | **bold** & _it_ ü'
    failed = Result(Cell("mpi", "cnn", 2, 2), FAILED, reason)
    text = page.compose([failed], table_of(), "a **verdict**", sentences(failed), [("hosts", reason)], {
        "device": "cpu", "scaling": "weak", "steps": 4}, {})
    shown = page.as_html(text, {})
    assert "<script>" not in shown and shown.count("&lt;script&gt;") == 3 and "<strong>bold" not in shown
    rows = re.findall(r"<tr>\n(.*?)</tr>", shown, re.S)
    assert {row.count("<td>") for row in rows[1:] if "script" in row} == {2, 5}

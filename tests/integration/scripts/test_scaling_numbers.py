"""The scaling report's statistics, judgements and pages, on numbers made up for the purpose; no cluster."""

import math
import statistics
import subprocess
from types import SimpleNamespace

import pytest

from scaling import options, output, records
from scaling.cells import DONE, FAILED, Cell, make_cells, why_impossible
from scaling.environment import read, table
from scaling.place import Node
from scaling.report import document, measures, pages, plots
from scaling.report.measures import Value
from scaling.runner import Runner

from scaling_results import WARM_UP, made, made_rows


def test_the_mean_and_its_spread_are_those_of_blocks():
    values = [float(number % 7) for number in range(40)]
    blocks = [statistics.fmean(values[start:start + 4]) for start in range(0, 40, 4)]
    value = measures.mean_of(values)
    assert value.mean == pytest.approx(statistics.fmean(values))
    assert value.spread == pytest.approx(1.96 * statistics.stdev(blocks) / math.sqrt(10))
    assert math.isnan(measures.mean_of([1.0]).spread)


def test_neighbouring_steps_are_no_independent_samples():
    """Control: single steps would make the spread of a slow drift seem three times as small."""
    drift = [float(number // 10) for number in range(100)]
    naive = 1.96 * statistics.stdev(drift) / 10
    assert measures.mean_of(drift).spread > 3 * naive


def test_a_ratio_has_the_errors_of_both():
    ratio = Value(6.0, 0.6).over(Value(2.0, 0.1))
    assert ratio.mean == 3 and ratio.spread == pytest.approx(3 * math.sqrt(0.1**2 + 0.05**2))


def test_computing_transfer_and_waiting_are_told_apart():
    """Rank 1 is the one the others wait for; warm-up steps, a hundred times as slow, do not count."""
    figures = measures.figures_of(made_rows(4, compute=0.02, transfer=0.004, waits=[0.008, 0.0, 0.008, 0.008]))
    assert figures.transfer == pytest.approx(0.004)
    assert figures.wait == pytest.approx(0.006)
    assert figures.communication == pytest.approx(0.010)
    assert figures.samples == 32
    assert figures.throughput.mean == pytest.approx(32 / figures.step.mean)
    assert figures.rates[0] == pytest.approx(8 / figures.step.mean)


def test_speedup_and_efficiency_are_relative_to_one_process():
    rows = measures.make_rows([made("gloo", 1, 1, 0.010, 0.0), made("gloo", 1, 2, 0.010, 0.0025), made("gloo", 2, 2, 0.010, 0.015)])
    assert [row.speedup.mean for row in rows] == pytest.approx([1, 1.6, 1.6])
    assert [row.efficiency.mean for row in rows] == pytest.approx([1, 0.8, 0.4])


def test_without_one_process_the_smallest_world_counts_as_many_as_it_has():
    rows = measures.make_rows([made("gloo", 2, 2, 0.010, 0.005), made("gloo", 4, 2, 0.010, 0.010)])
    assert [row.speedup.mean for row in rows] == pytest.approx([4, 6])
    assert [row.efficiency.mean for row in rows] == pytest.approx([1, 0.75])


def test_processes_are_counted_by_machine_and_not_by_host():
    """Control: the same four processes on machines of their own are not crowded."""
    crowded, = measures.make_rows([made("gloo", 4, 1, 0.01, 0.0, cores=2, machines=1)])
    alone, = measures.make_rows([made("gloo", 4, 1, 0.01, 0.0, cores=2)])
    assert crowded.load == (4, 2) and crowded.oversubscribed
    assert alone.load == (1, 2) and not alone.oversubscribed
    just, = measures.make_rows([made("gloo", 2, 1, 0.01, 0.0, cores=2, machines=1)])
    assert just.load == (2, 2) and not just.oversubscribed  # a core for each


def test_cores_of_a_machine_are_those_of_all_its_ranks():
    ranks = [{"machine": "a", "cores": "0,1"}, {"machine": "a", "cores": "2,3"}, {"machine": "b", "cores": "0"}]
    assert measures.load_of(ranks) == (1, 1)
    assert measures.load_of(ranks[:2]) == (2, 4)


PLACE = SimpleNamespace(nodes=[Node("a", 4, 2), Node("b", 4, 2)], gpus=2, one_machine=False, has_pmix=True, no_gpu="there is no GPU")
PARAMETERS = {"threads": 1, "device": "cpu", "scaling": "weak", "batch": 0}


@pytest.mark.parametrize("cell, change, reason", [
    (("gloo", 2, 4), {}, ""),
    (("gloo", 4, 1), {}, "the cluster has 2 nodes that can be used"),
    (("gloo", 1, 8), {}, "need nodes of 8 CPUs"),
    (("gloo", 1, 4), {"threads": 2}, "need nodes of 8 CPUs"),
    (("nccl", 1, 1), {}, "there is no GPU"),
    (("nccl", 2, 2), {"device": "cuda"}, ""),
    (("nccl", 1, 4), {"device": "cuda"}, "4 on a node, and the nodes have 2"),
    (("gloo", 2, 2), {"scaling": "strong", "batch": 3}, "4 processes cannot share a batch of 3 samples"),
])
def test_a_cell_that_cannot_be_run_is_known_before(cell, change, reason):
    backend, nodes, tasks = cell
    said = why_impossible(Cell(backend, "mlp", nodes, tasks), {**PARAMETERS, **change}, PLACE)
    assert said == reason == "" or (reason and reason in said)


def test_cells_that_differ_in_the_model_alone_are_neighbours():
    cells = make_cells(["gloo", "mpi"], ["mlp", "cnn"], [1, 2], [1, 2])
    assert len(cells) == 16 and [cell.ranks for cell in cells] == sorted(cell.ranks for cell in cells)
    assert [cell.group for cell in cells[::2]] == [cell.group for cell in cells[1::2]]


def heard(ranks=2, steps=4, change=lambda row: row, **end):
    """What a good training prints, with lines changed."""
    said = output.Output()
    for row in made_rows(ranks, 0.01, 0.0, steps=steps):
        row = change(row)
        if row:
            said.take("0: @step model=mlp " + " ".join(f"{name}={value}" for name, value in row.items()))
    for rank in range(ranks):
        fields = {"digest": "aa", "difference": "0", "scale": "2.5", **{name: values[rank] for name, values in end.items()}}
        said.take(f"{rank}: @end model=mlp rank={rank} " + " ".join(f"{name}={value}" for name, value in fields.items()))
    return said


@pytest.mark.parametrize("said, reason", [
    (heard(), ""),
    (heard(digest=["aa", "bb"], difference=["1e-7", "1e-7"]), ""),
    (heard(difference=["0.1", "0.1"]), "do not hold the same parameters in the end: they differ by 0.1"),
    (heard(digest=["aa", "bb"]), "the checksums of these differ"),
    (heard(difference=["nan", "0"]), "no finite numbers"),
    (heard(scale=["inf", "inf"]), "no finite numbers"),
    (heard(change=lambda row: row if row["rank"] + row["step"] != "11" else None), "15 of 16 lines"),
    (heard(change=lambda row: {**row, "rank": "0"}), "8 of 16 lines"),
    (heard(change=lambda row: {**row, "loss": "2.0"}), "the loss did not fall: 2 in the first 4 steps, 2 in the last"),
    (heard(change=lambda row: {**row, "loss": "nan"}), "the loss did not fall: nan"),
])
def test_a_result_that_cannot_be_right_is_noticed(said, reason):
    assert said.finished("mlp", 2)
    found = output.judge(said, "mlp", 2, 4, WARM_UP)
    assert found == reason == "" or (reason and reason in found)


def test_a_failed_step_is_told_with_the_last_words_of_the_first_rank_that_failed():
    said = output.Output()
    said.errors = [
        "01: Traceback (most recent call last):", '01:   File "train.py", line 3, in <module>', "01: RuntimeError: the disk is on fire",
        "00: RuntimeError: connection closed by peer", "srun: error: node001: tasks 0-1: Exited with exit code 1",
        "srun: error: bootstrap: StepId=12.0: task 1 (node002, local rank 0) failed first: exit code 1, 3.2 s after the step began",
        "srun: launch/slurm: _step_signal: Terminating StepId=12.0"]
    reason = said.reason()
    assert reason.startswith("task 1 (node002, local rank 0) failed first: exit code 1")
    assert reason.endswith("RuntimeError: the disk is on fire") and "peer" not in reason


class StubPlace:
    """Steps of a cluster that is a list of scripts; each start takes the next one."""

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


def prints(*models, steps=4):
    """A script that says what a good training of these models says."""
    lines = []
    for model in models:
        lines.append(f"@begin model={model}")
        lines += [f"@step model={model} " + " ".join(f"{name}={value}" for name, value in row.items()) for row in made_rows(1, 0.01, 0, steps=steps)]
        lines.append(f"@end model={model} rank=0 digest=aa difference=0 scale=1")
    return "".join(f"echo '0: {line}';" for line in lines)


def run_stub(*scripts, models=("mlp", "cnn"), timeout=60):
    place, results = StubPlace(*scripts), []
    parameters = {**PARAMETERS, "steps": 4, "warm_up": WARM_UP, "size": "small"}
    Runner(place, parameters, timeout, results.append).run_group([Cell("gloo", model, 1, 1) for model in models])
    return place.started, {result.cell.model: result for result in results}


def test_a_model_that_fails_is_not_run_again_and_the_others_go_on():
    dies = "echo '0: @begin model=cnn'; echo '0: out of luck' >&2; exit 3"
    started, results = run_stub(prints("mlp") + dies, prints("rnn"), models=("mlp", "cnn", "rnn"))
    assert started == ["mlp,cnn,rnn", "rnn"]
    assert [results[model].status for model in ("mlp", "cnn", "rnn")] == [DONE, FAILED, DONE]
    assert results["cnn"].reason == "out of luck"


def test_a_step_that_fails_when_all_is_done_is_noted():
    _, results = run_stub(prints("mlp", "cnn") + "echo '0: cannot say goodbye' >&2; exit 1")
    assert [results[model].status for model in ("mlp", "cnn")] == [DONE, DONE]
    assert "its step failed after that: cannot say goodbye" in results["cnn"].notes and len(results["mlp"].notes) == 1


def test_a_step_that_cannot_start_is_not_tried_for_each_model():
    started, results = run_stub("exit 7")
    assert len(started) == 1 and {result.status for result in results.values()} == {FAILED}
    assert results["cnn"].reason == "srun ended with 7 and said nothing"


@pytest.mark.parametrize("said, when", [("", "at its start"), ("echo '0: @begin model=mlp';", "after 'mlp' began")])
def test_a_step_that_hangs_is_stopped(said, when):
    _, results = run_stub(f"{said} exec sleep 60", models=("mlp",), timeout=1)
    assert results["mlp"].reason == f"no sign of life for 1 s {when}, so it was stopped"


def test_resume_takes_what_was_done_with_the_same_parameters_alone(tmp_path):
    folder = records.Folder(tmp_path)
    done = made("gloo", 1, 1, 0.01, 0.0)
    done.parameters = {"steps": 20}
    folder.save(done)
    assert folder.load(done.cell, {"steps": 20}) == done
    assert folder.load(done.cell, {"steps": 30}) is None
    done.status = FAILED
    folder.save(done)
    assert folder.load(done.cell, {"steps": 20}) is None
    (tmp_path / "cells" / f"{done.cell.key}.json").write_text('{"cell": ')
    assert folder.load(done.cell, {"steps": 20}) is None


@pytest.mark.parametrize("words, reason", [
    (["--nodes", "0"], "outside 1 to 65536"),
    (["--nodes", "two"], "'two' is no list of numbers"),
    (["--nodes", ""], "'' is no list of numbers"),
    (["--tasks-per-node", "-1"], "outside 1 to 65536"),
    (["--backends", "gloo,smoke"], "there is no back end 'smoke'; there are gloo, mpi, horovod-gloo, horovod-mpi, nccl"),
    (["--models", "mlpp"], "there is no model 'mlpp'"),
    (["--steps", "3"], "3 is too little, the least is 4"),
    (["--steps", "many"], "'many' is no whole number"),
    (["--scaling", "odd"], "invalid choice: 'odd'"),
    (["--srun-options", "'--account"], "cannot be taken apart into words: No closing quotation"),
    (["--frobnicate"], "unrecognized arguments: --frobnicate"),
])
def test_a_wrong_command_line_is_one_sentence(tmp_path, capsys, words, reason):
    with pytest.raises(SystemExit) as ended:
        options.parse([*words, "--out", str(tmp_path / "new")])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and reason in said and said.count("\n") == 1 and said.startswith("scaling-report: ")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "used" / "cells").mkdir(parents=True)
    for name, reason in (("file", "cannot be made a folder"), ("file/below", "cannot be made a folder"),
                         ("used", "holds cells of an earlier run; say --resume"), (".", "is not empty and holds no report")):
        with pytest.raises(SystemExit):
            options.parse(["--out", str(tmp_path / name)])
        assert reason in capsys.readouterr().err
    assert options.parse(["--out", str(tmp_path / "used"), "--resume"]).resume


def test_nodes_that_differ_are_told_apart_in_the_environment():
    hosts = read("0: @fact host a\n0: @fact kernel 6.1\n0: @fact GPU_driver none\n1: @fact host b\n1: @fact kernel 6.2\n"
                 "1: @fact GPU_driver none\nnoise\n")
    place = SimpleNamespace(cluster="c", one_machine=False, slurm="slurm 22.05", has_plugin=True)
    rows = dict(table(hosts, place, "command", "now"))
    assert rows["kernel (a)"] == "6.1" and rows["kernel (b)"] == "6.2" and rows["GPU driver"] == "none"


def test_what_users_and_programs_said_cannot_break_the_page():
    nasty = '<script>alert("1")</script> | **bold** ü'
    blocks = [document.heading("x", 1), document.table(["what", "here"], [["reason", nasty]])]
    page = document.as_html("x", blocks)
    assert "<script>" not in page and "&lt;script&gt;" in page
    row = document.as_markdown(blocks).splitlines()[-1]
    assert row.count(" | ") == 1 and "<script>" not in row and "\\|" in row


def test_a_picture_that_cannot_be_drawn_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(plots.PlotError, match="gnuplot could not draw x.svg: "):
        plots.draw("plot nothing_of_this_name", tmp_path / "x.svg", "svg")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(plots.PlotError, match="gnuplot, which is not installed"):
        plots.draw("plot x", tmp_path / "x.svg", "svg")


def test_numbers_without_a_spread_show_none():
    assert pages.with_spread(Value(2.0, math.nan)) == "2.0"
    assert pages.with_spread(Value(2.0, 0.25), "{:.2f}") == "2.00 +- 0.25"

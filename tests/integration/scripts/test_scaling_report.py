"""scripts/scaling-report on real clusters: numbers, pictures and sentences, failing cells, --resume, and signals."""

import html
import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from harness import INSIDE as TREE, REPOSITORY, Cluster, run_here, wait_for

SCRIPT = REPOSITORY / "scripts/scaling-report"
INSIDE = f"{TREE}/scripts/scaling-report"
STEPS = 8
SMALL = ("--models", "mlp,cnn", "--steps", str(STEPS), "--backends", "gloo,mpi,nccl", "--nodes", "1,2,4", "--tasks-per-node", "1,2")
LIMIT = 400
SVG = "{http://www.w3.org/2000/svg}"
ONE = ("--nodes", "1", "--tasks-per-node", "2", "--steps", str(STEPS), "--models", "mlp,cnn", "--backends")


@pytest.fixture(scope="module")
def cluster(cluster_factory) -> Cluster:
    """Two nodes whose GPUs are device nodes without a driver."""
    cluster = cluster_factory("scaling").up("--nodes", "2", "--gpus", "2", "--cpus", "4")
    cluster.write_home("sitecustomize.py", (REPOSITORY / "tests/integration/scripts/scaling_faults.py").read_text())
    return cluster


def report(cluster: Cluster, out: str, *options, fault: str = ""):
    """Runs it as a user of the cluster. The result's `trained` has the trainings that it started."""
    diary = cluster.home / "trained"
    diary.unlink(missing_ok=True)
    done = cluster.run([INSIDE, "--out", out, *options], timeout=LIMIT, env={"PYTHONPATH": "/home/alice", "SCALING_FAULT": fault})
    done.trained = diary.read_text().split() if diary.exists() else []
    return done


def cells_of(folder: Path) -> dict:
    """cells.json by names such as gloo-mlp-2x1."""
    return {f"{cell['backend']}-{cell['model']}-{cell['nodes']}x{cell['tasks']}": cell
            for cell in json.loads((folder / "cells.json").read_text())}


@pytest.fixture(scope="module")
def first(cluster):
    """A report with all cells; the last rank of one training is killed."""
    done = report(cluster, "report", *SMALL, fault="kill mpi cnn 2x4")
    done.folder = cluster.home / "report"
    assert (done.folder / "report.html").exists(), done.stderr
    # A test below resumes in this folder; the other tests read its files as they are now.
    done.cells, done.page = cells_of(done.folder), (done.folder / "report.html").read_text()
    done.markdown, done.steps = (done.folder / "report.md").read_text(), (done.folder / "steps.csv").read_text()
    done.pictures = {path.name: path.read_bytes() for path in (done.folder / "pictures").iterdir()}
    return done


def test_every_cell_has_a_result_and_the_one_that_fails_has_a_reason(first):
    status = {name: cell["status"] for name, cell in first.cells.items()}
    assert len(status) == 36
    failed = [name for name, what in status.items() if what == "failed"]
    assert failed == ["mpi-cnn-2x2"], {name: first.cells[name]["reason"] for name in failed}
    assert sum(what == "done" for what in status.values()) == 15
    assert "failed first" in first.cells["mpi-cnn-2x2"]["reason"]
    assert first.cells["gloo-mlp-4x1"]["reason"] == "the cluster has 2 nodes that can be used"
    assert re.match(r"Slurm counts 2 GPUs on each node, PyTorch there finds none", first.cells["nccl-mlp-1x1"]["reason"])
    progress = re.findall(r"^scaling-report: \[ ?(\d+)/16\] \S+ \S+ \S+: (?:failed|[\d.]+ ms a step)", first.stderr, re.M)
    assert [int(number) for number in progress] == list(range(1, 17)), first.stderr
    assert first.returncode == 1 and "Failed: 1 cell. mpi, cnn, 2 servers x 2: task 3 (" in first.stdout
    assert "failed" in first.markdown and "failed first" in first.page


def test_the_pages_table_holds_the_numbers_of_the_cells(first):
    """test_scaling_numbers shows how these follow from the raw rows."""
    done, found = [cell for cell in first.cells.values() if cell["status"] == "done"], 0
    for line in first.markdown.splitlines():
        row = re.match(r"\| (\w+) \| (\d+) \| (\d+)(?:\\\*)? \| (\w+) \| ([\d.,]+) .*?\| ([\d.,]+) .*?\| ([\d.]+).*?\| ([\d.]+)", line)
        if row:
            values = first.cells[f"{row[4]}-{row[1]}-{row[2]}x{row[3]}"]
            shown = [float(text.replace(",", "")) for text in row.groups()[4:]]
            assert shown == pytest.approx([1000 * values["step_seconds"], values["samples_per_second"], values["speedup"],
                                           100 * values["efficiency"]], abs=0.51, rel=0.01)
            found += 1
    assert found == 15 == len(done) and first.page.count("<td>") > 15 * 8
    assert len({tuple(line.split(",")[:4]) for line in first.steps.splitlines()[1:]}) == 15


def test_rows_are_marked_where_processes_outnumber_the_cores(first):
    cores = len(os.sched_getaffinity(0))
    done = {name: cell for name, cell in first.cells.items() if cell["status"] == "done"}
    for name, cell in done.items():
        assert cell["oversubscribed"] == (cell["nodes"] * cell["tasks"] > cores), name
        assert (cell["processes_on_a_machine"], cell["cores_of_it"]) == (cell["nodes"] * cell["tasks"], cores)
    crowded = sum(cell["oversubscribed"] for cell in done.values())
    assert len(re.findall(r"<td>\d\*</td>", first.page)) == crowded
    assert ("share cores: these rows show what a layout costs" in first.page) == bool(crowded)
    assert "the 2 servers are 1 machine" in first.page
    assert re.search(r"<h1>.*</h1>\n<p><strong>\S.*</strong></p>", first.page), "the verdict comes first"


def test_the_page_stands_alone_and_shows_the_environment(first):
    links = re.findall(r"(?:src|href)=\"([^\"]*)", first.page)
    assert links and all(link.startswith("data:image/svg+xml;base64,") for link in links)
    assert "<script" not in first.page and "@import" not in first.page and "url(" not in first.page
    version = run_here(["srun", "--version"]).stdout.strip()
    text = html.unescape(first.page)
    for words in (version, os.uname().release, "node001", "eth0", "with gloo", "Open MPI v", "Debian", "1.96 standard errors"):
        assert words in text, words
    for name in ("GPUs and driver", "GPU links", "InfiniBand or RoCE"):
        assert re.search(rf"\| {name} \| none \|", first.markdown), name
    assert re.search(r"\| load average of a minute \| [\d.]+ before the first training, [\d.]+ before the last one \|", first.markdown)


def test_the_pictures_hold_a_point_and_a_bar_for_each_cell(first):
    done = [cell for cell in first.cells.values() if cell["status"] == "done"]
    assert set(first.pictures) == {"speedup.svg", "efficiency.svg", "steps.svg"}
    for name in ("speedup.svg", "efficiency.svg"):
        groups = ElementTree.fromstring(first.pictures[name]).iter(f"{SVG}g")
        points = sum(len(list(group.iter(f"{SVG}use"))) for group in groups if group.get("id", "").startswith("series-"))
        assert points == 3 * len(done)  # a point and both ends of its bar
    words = [text.text for text in ElementTree.fromstring(first.pictures["steps.svg"]).iter(f"{SVG}text")]
    assert sorted(word.rstrip("*") for word in words if re.fullmatch(r"\w+ \dx\d\*?", word)) == sorted(
        f"{cell['backend']} {cell['nodes']}x{cell['tasks']}" for cell in done)


def test_resume_runs_what_failed_and_nothing_else(cluster, first):
    done = report(cluster, "report", *SMALL, "--resume")
    assert set(done.trained) == {"mpi-cnn-2x4"}, done.stderr  # the record has the number of all tasks, not of tasks on a node
    assert done.returncode == 0 and "15 are done already" in done.stderr
    cells = cells_of(first.folder)
    assert cells["mpi-cnn-2x2"]["status"] == "done"
    assert {name: cell for name, cell in cells.items() if name != "mpi-cnn-2x2"} == {
        name: cell for name, cell in first.cells.items() if name != "mpi-cnn-2x2"}
    again = report(cluster, "report", *SMALL, "--resume")
    assert again.trained == [] and again.returncode == 0


@pytest.mark.parametrize("backend, fault, reason", [
    ("gloo", "differ mlp", "the ranks do not hold the same parameters in the end: they differ by "),
    ("mpi", "differ mlp", "the ranks do not hold the same parameters in the end: they differ by "),
    ("gloo", "raise mlp", r"task 1 \(node00., local rank 1\) (failed )?first: exit code 1, .*: RuntimeError: the disk is on fire$"),
])
def test_a_cell_that_goes_wrong_has_failed_and_the_next_one_is_run(cluster, backend, fault, reason):
    name = fault.replace(" ", "-") + backend
    done = report(cluster, name, *ONE, backend, fault=fault)
    cells = cells_of(cluster.home / name)
    assert done.returncode == 1, done.stderr
    failed = cells[f"{backend}-mlp-1x2"]
    assert failed["status"] == "failed" and re.match(reason, failed["reason"]), failed["reason"]
    assert cells[f"{backend}-cnn-1x2"]["status"] == "done"


def test_without_the_plugin_the_preloaded_library_sets_up_the_world(cluster):
    with cluster.other_plugstack():
        done = report(cluster, "preloaded", "--nodes", "2", "--tasks-per-node", "1", "--steps", "4", "--models", "mlp,resnet50",
                      "--backends", "gloo,mpi")
        assert done.returncode == 0, done.stderr
        page, cells = (cluster.home / "preloaded/report.md").read_text(), cells_of(cluster.home / "preloaded")
        assert "library, LD_PRELOAD" in page
    assert {cell["status"] for cell in cells.values()} == {"done"} and "| resnet50 | 2 | 1 | gloo | " in page


def test_a_disk_that_takes_no_more_is_one_sentence(cluster):
    """The test replaces a full disk by a limit on the size of files."""
    words = f"ulimit -f 2; exec {INSIDE} --out full --nodes 1 --tasks-per-node 1 --backends gloo --models mlp --steps 30"
    done = cluster.run(["bash", "-c", words], timeout=LIMIT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"scaling-report: .* could not be used: File too large; .*--resume goes on there", done.stderr), done.stderr


@pytest.mark.parametrize("gpus, sentence", [
    ([], "the nodes have no GPU that PyTorch can use"),
    (["--gres=gpu:1"], "Slurm counts 1 GPUs on each node"),
    (["--gpus-per-node=2"], "Slurm counts 2 GPUs on each node"),
])
def test_in_an_allocation_its_nodes_cpus_and_gpus_are_what_there_is(cluster, gpus, sentence):
    out = f"allocated{gpus[0] if gpus else ''}"
    words = ["--out", out, "--steps", "4", "--models", "mlp", "--backends", "gloo,nccl", "--nodes", "1,2", "--tasks-per-node", "2,4"]
    cluster.succeed(["salloc", "-N1", "-n1", "-c2", *gpus, INSIDE, *words], timeout=LIMIT)
    cells = cells_of(cluster.home / out)
    assert cells["nccl-mlp-1x2"]["reason"].startswith(sentence)
    assert cells["gloo-mlp-1x2"]["status"] == "done"
    assert cells["gloo-mlp-2x2"]["reason"] == "the cluster has 1 node that can be used"
    assert "need nodes of 4 CPUs, and 0 of the cluster's nodes have so many" in cells["gloo-mlp-1x4"]["reason"]


def test_a_signal_ends_it_and_resume_goes_on(cluster):
    options = ["--nodes", "1", "--tasks-per-node", "1", "--steps", "4", "--models", "mlp", "--backends", "gloo,mpi"]
    process, said = cluster.start([INSIDE, "--out", "stopped", *options]), ""
    while "[1/2] " not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped by SIGINT" in rest and "Traceback" not in rest, said + rest
    wait_for(lambda: cluster.run(["squeue", "-h", "-t", "R"]).stdout == "", 30, "the step of the cell does not end")
    done = report(cluster, "stopped", *options, "--resume")
    assert done.returncode == 0 and "1 are done already" in done.stderr and "[1/1] mpi mlp 1x1" in done.stderr, done.stderr
    assert done.stdout.strip().endswith("stopped/report.html")
    assert {cell["status"] for cell in cells_of(cluster.home / "stopped").values()} == {"done"}


def test_horovod_stands_beside_the_others(cluster, environments):
    """Over Gloo and MPI. The control: with Debian's Python, which has no Horovod, a cell fails with this reason."""
    options = ("--nodes", "1,2", "--tasks-per-node", "1,2", "--models", "mlp", "--steps", "6")
    without = report(cluster, "no-horovod", *options, "--backends", "horovod-mpi")
    assert without.returncode == 1
    assert all("horovod-mpi needs Horovod" in cell["reason"] for cell in cells_of(cluster.home / "no-horovod").values())
    python = f"{environments('horovod')}/python3"
    done = report(cluster, "horovod", *options, "--backends", "gloo,mpi,horovod-gloo,horovod-mpi", "--python", python)
    assert done.returncode == 0 and len(cells_of(cluster.home / "horovod")) == 16, done.stderr
    assert "| Horovod | 0.28.1 |" in (cluster.home / "horovod/report.md").read_text()


def test_without_a_cluster_it_names_what_to_do(tmp_path):
    if subprocess.run(["sinfo", "-h"], capture_output=True).returncode == 0:
        pytest.skip("a Slurm cluster answers here")
    done = run_here([SCRIPT, "--out", tmp_path / "report"])
    assert done.returncode == 1 and "scripts/cluster up" in done.stderr and done.stderr.count("\n") == 1, done

"""Runs every command of the README, the other pages and the examples of the manual pages, word for word.

A block of kind `sh` (of a manual page: .EX under EXAMPLES) is run as a whole by `bash -e`, as an ordinary user of a cluster
with two nodes and two GPUs each, in a folder with the examples. Its output must have the lines of a `text` block that
directly follows it, in order. A comment directly above a block changes this:

  machine            as root on a throwaway machine, in a clean clone of the repository
  root               as root on a node of the cluster
  job                as the body of a batch script; without #SBATCH lines of its own on both nodes with a task for each GPU
  fails              it has to end with a status other than 0
  not run: REASON    it is skipped

Words can be combined with commas. Blocks of a page depend on earlier ones, so select a page (-k README), not a block."""

import pytest

from checks.pages import Block, all_pages, read_page
from document_runner import DocumentCluster, DocumentMachines, judge, missing_line

COMMANDS = [(page.name, block) for page in map(read_page, all_pages()) for block in page.blocks if block.kind == "sh"]


@pytest.fixture(scope="module")
def document_cluster(cluster_factory):
    try:
        cluster = DocumentCluster(cluster_factory)
    except OSError as error:
        pytest.skip(f"no overlay over this machine: {error}")
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def document_machines():
    machines = DocumentMachines()
    yield machines
    machines.close()


def run(cluster, machines, page, block):
    """Runs a block; returns '' or what went wrong."""
    if "machine" in block.words:
        return judge(block, *machines.run(page, block.text))
    return judge(block, *cluster.run(page, block.text, block.words))


@pytest.mark.parametrize(("page", "block"), COMMANDS, ids=[f"{page}:{block.line}" for page, block in COMMANDS])
def test_the_commands_of_a_page_work(request, document_cluster, document_machines, page, block):
    if block.reason:
        request.config.pluginmanager.getplugin("terminalreporter").write_line(f"\nnot run: {page}:{block.line}: {block.reason}")
        pytest.skip(block.reason)
    trouble = run(document_cluster, document_machines, page, block)
    assert not trouble, f"{page}:{block.line}:\n{block.text}{trouble}"


@pytest.mark.parametrize(
    "block",
    [Block(1, "sh", "srun true\nfalse\ntrue\n"), Block(1, "sh", "srun true\n", "fails"), Block(1, "sh", "srun false\n", "job"),
     Block(1, "sh", "srun echo 1\n", output="2\n"), Block(1, "sh", "exit 3\n", "root"), Block(1, "sh", "false\n", "machine")],
)
def test_a_page_that_is_wrong_fails(document_cluster, document_machines, block):
    assert run(document_cluster, document_machines, "control.md", block)


def test_output_is_compared_in_order_and_numbers_loosely():
    printed = "StepId=7.0: port 24711, 0.3 ms\nnode001  ok\n4 ranks\n"
    assert missing_line("StepId=1.0: port 20001, 12 ms\n...\n4 ranks\n", printed) is None
    assert missing_line("node001 ...\n", printed) is None
    for wrong in "3 ranks\n", "4 ranks\nnode001 ok\n", "node002 ok\n", "StepId=1.0\n":
        assert missing_line(wrong, printed), wrong

"""scripts/scaling-report with Horovod's allreduce over Gloo and MPI beside those of PyTorch and mpi4py."""

# SPDX-License-Identifier: Apache-2.0

import json

import pytest

BACKENDS = ("gloo", "mpi", "horovod-gloo", "horovod-mpi")
INSIDE = "/run/slurm-bootstrap-tree/scripts/scaling-report"


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return cluster_factory("horovod-scaling").up("--nodes", "2", "--cpus", "4")


def statuses(cluster, out, *options):
    """Of each cell: its status, and the reason or notes."""
    done = cluster.run([INSIDE, "--out", out, "--nodes", "1,2", "--tasks-per-node", "1,2", "--models", "mlp", "--steps", "6", *options],
                       timeout=300)
    cells = json.loads((cluster.home / out / "cells.json").read_text())
    return done, {(cell["backend"], cell["nodes"], cell["tasks"]): cell for cell in cells}


@pytest.mark.full
def test_horovod_stands_beside_the_others(cluster, environments):
    python = f"{environments('horovod')}/python3"
    done, cells = statuses(cluster, "report", "--backends", ",".join(BACKENDS), "--python", python)
    assert done.returncode == 0, done.stderr
    assert set(cells) == {(backend, nodes, tasks) for backend in BACKENDS for nodes in (1, 2) for tasks in (1, 2)}
    assert {cell["status"] for cell in cells.values()} == {"done"}, done.stderr
    page = (cluster.home / "report" / "report.md").read_text()
    assert "| Horovod | 0.28.1 |" in page and "horovod-gloo: Horovod's allreduce over Gloo" in page


def test_a_back_end_that_is_not_there_is_named(cluster):
    """Control: Debian's Python has no Horovod."""
    done, cells = statuses(cluster, "without", "--backends", "horovod-mpi")
    assert {cell["status"] for cell in cells.values()} == {"failed"}, done.stderr
    assert all("horovod-mpi needs Horovod" in cell["reason"] for cell in cells.values()), cells

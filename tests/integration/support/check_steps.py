"""`slurm-bootstrap check` in a step: its table as rows."""

# SPDX-License-Identifier: Apache-2.0

import json
from dataclasses import dataclass

from built_files import BUILT_INSIDE, COMMAND
from harness import Cluster

NEW_NCCL = f"{BUILT_INSIDE}/tests/doubles/nccl-2.28.9/libnccl.so.2"

NAMES = ["versions", "plan", "ranks", "network", "port", "clocks", "exchange", "frameworks", "NCCL", "CUDA", "GPUs",
         "GPU peers", "CPUs", "/dev/shm", "locked memory", "system"]
FRAMEWORKS = "frameworks"  # this row is missing if the Python has no frameworks
TWO_BY_TWO = ("-w", "node001,node002", "--ntasks-per-node=2")  # rank 0 is on node001
CPU = (*TWO_BY_TWO, "--gres=none")
GPU = (*TWO_BY_TWO, "--gres=gpu:2")


@dataclass
class Check:
    """One check: its table as rows, and its other messages."""

    rows: dict[str, dict]
    status: int
    stderr: str
    stdout: str

    def result(self, name: str) -> str:
        return self.rows[name]["result"]

    def text(self, name: str) -> str:
        return self.rows[name]["text"]

    def ranks(self, name: str) -> list[int]:
        return self.rows[name]["ranks"]

    @property
    def failed(self) -> list[str]:
        return [name for name, row in self.rows.items() if row["result"] == "FAILED"]

    @property
    def troubled(self) -> list[str]:
        return [name for name, row in self.rows.items() if row["result"] not in ("ok", "not there")]


def check(cluster: Cluster, *options, program=(COMMAND, "check", "--json"), **more) -> Check:
    done = cluster.run(["srun", "--quiet", *options, *program], **more)
    assert done.stdout.startswith("{"), f"{done.stdout}\n{done.stderr}"
    table = json.loads(done.stdout)
    rows = {row["check"]: row for row in table["checks"]}
    assert [name for name in NAMES if name in rows or name != FRAMEWORKS] == list(rows)
    words = {row["result"] for row in rows.values()}
    worst = next((word for word in ("FAILED", "warning") if word in words), "ok")
    assert table["result"] == worst
    return Check(rows, done.returncode, done.stderr, done.stdout)

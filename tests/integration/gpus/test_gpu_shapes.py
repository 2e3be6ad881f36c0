"""The table of etc/doc/gpus.md: each way to ask Slurm for GPUs, with the plugin off and on, under device cgroups of both versions."""

import re
from pathlib import Path

import pytest

from built_files import PROBE
from case_shell import run_script
from gpu_oracle import cuda_devices, numbers
from harness import CGROUP_VERSIONS, REPOSITORY, slurm_release
from layout_oracle import by_step, read_reports

PAGE = REPOSITORY / "etc/doc/gpus.md"
pytestmark = pytest.mark.skipif(slurm_release() != (22, 5), reason="the page has the table of another Slurm")

# Options of srun, and the rest of the row.
TABLE = PAGE.read_text(encoding="utf-8").partition("| `srun` of Slurm 22.05 |")[2]
ROWS = re.findall(r"^\| `(-.*?)` \| (.*) \|$", TABLE, re.MULTILINE)
# One after the other, each while no other job has GPUs, so that Slurm gives each the first GPUs that fit.
SCRIPT = """
for word in off on; do
  for ((i = 0; i < 200; i++)); do [[ $(squeue --noheader) ]] || break; sleep 0.1; done
  mkdir $word && srun --quiet --bootstrap=$word $options $probe $OUT/$word gpus || exit
done
"""


def in_short(devices: list[int]) -> str:
    """Numbers as ranges: 0,1,2,3 is 0-3."""
    if len(devices) > 2 and devices == list(range(devices[0], devices[-1] + 1)):
        return f"{devices[0]}-{devices[-1]}"
    return ",".join(map(str, devices)) or "none"


def cell(tasks: list[list[int]]) -> str:
    """A word for each task, or one word for all."""
    words = [in_short(task) for task in tasks]
    return f"{words[0]} each" if len(set(words)) == 1 < len(words) else " ".join(words)


@pytest.fixture(scope="module", params=CGROUP_VERSIONS)
def cluster(cluster_factory, request):
    return cluster_factory(f"shapes-{request.param}").up("--nodes", "2", "--gpus", "4", "--cpus", "8", f"--constrain-devices={request.param}")


@pytest.mark.parametrize("options, row", ROWS)
def test_the_page_has_what_each_task_can_open_with_the_plugin_off_and_on(cluster, options, row):
    """CUDA shows a task the GPUs that it can open. The plugin adds none: all are GPUs that Slurm gave the step."""
    out = "/home/alice/shape"
    done = run_script(cluster, SCRIPT, {"OUT": out, "options": options, "probe": PROBE})
    assert done.returncode == 0, done.stderr
    cells, of_nodes = [], []
    for word in ("off", "on"):
        [tasks] = by_step(read_reports(Path(f"{cluster.state}{out}/{word}"))).values()
        assert all(("RANK" in task) == (word == "on") for task in tasks)
        opened = [numbers(task["@open"]) for task in tasks]
        assert [sorted(cuda_devices(task)) for task in tasks] == opened
        of_nodes.append({(task["@host"], device) for task, devices in zip(tasks, opened) for device in devices})
        cells.append(cell(opened))
    assert " | ".join(cells) == row and of_nodes[0] == of_nodes[1]

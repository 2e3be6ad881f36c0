"""The GPU shapes: each way to ask Slurm for GPUs, with the plugin off and on, under device cgroups of version 1 and 2. What each task
can open and what CUDA would show it is printed, and is the table of etc/doc/gpus.md."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from built_files import program
from case_shell import run_script
from gpu_oracle import cuda_devices, numbers
from harness import CGROUP_VERSIONS, REPOSITORY, slurm_release
from layout_oracle import by_step, read_reports

PAGE = REPOSITORY / "etc/doc/gpus.md"
SLURM_OF_PAGE = (22, 5)

# Options of srun, and who hides from a task GPUs that the step has on its node: no one, Slurm for want of the plugin, or Slurm
# because the user chose a binding.
NOBODY, SLURM, USER = "nobody", "Slurm", "user"
SHAPES = {
    "-n1 --gres=gpu:2": NOBODY,
    "-n4 --gres=gpu:4": NOBODY,
    "-n2 --gpus=2": NOBODY,
    "-n2 --gpus-per-node=4": NOBODY,
    "-n2 --gpus-per-socket=2 --sockets-per-node=1": NOBODY,
    "-n4 --gpus-per-task=1": SLURM,
    "-n2 --gpus-per-task=2": SLURM,
    "-N2 --ntasks-per-node=2 --gpus-per-task=1": SLURM,
    "--gpus=4 --ntasks-per-gpu=1": SLURM,
    "-n4 --gpus-per-task=1 --gpu-bind=none": NOBODY,
    "-n4 --gres=gpu:4 --gpu-bind=closest": NOBODY,
    "-n4 --gres=gpu:4 --gpu-bind=single:1": USER,
    "-n4 --gres=gpu:4 --gpu-bind=per_task:1": USER,
    "-n4 --gres=gpu:4 --gpu-bind=map_gpu:3,2,1,0": USER,
    "-n2 --gres=gpu:4 --gpu-bind=mask_gpu:0x3,0xc": USER,
    "-n2": NOBODY,
}
# One after the other, each when no other has GPUs: so Slurm gives each the first that fit.
SCRIPT = """
for word in off on; do
  for ((i = 0; i < 200; i++)); do [[ $(squeue --noheader) ]] || break; sleep 0.1; done
  mkdir $word && srun --quiet --bootstrap=$word $options $probe $OUT/$word || exit
done
"""


@dataclass
class Step:
    """The node of each task, by rank, the devices that it could open, and those that CUDA would show it, in this order."""

    nodes: list[str]
    opened: list[list[int]]
    shown: list[list[int]]

    @property
    def on_nodes(self) -> list[set[int]]:
        """For each task, what any task of its node could open."""
        return [{device for other, devices in zip(self.nodes, self.opened) if other == node for device in devices} for node in self.nodes]


def in_short(devices: list[int]) -> str:
    """Numbers, with 0,1,2,3 as 0-3."""
    if len(devices) > 2 and devices == list(range(devices[0], devices[-1] + 1)):
        return f"{devices[0]}-{devices[-1]}"
    return ",".join(map(str, devices)) or "none"


def cell(tasks: list[list[int]]) -> str:
    """A word for each task, or one for all."""
    words = [in_short(task) for task in tasks]
    return f"{words[0]} each" if len(set(words)) == 1 < len(words) else " ".join(words)


def run_shape(cluster, options: str) -> tuple[Step, Step]:
    """The step with the plugin off, and on."""
    out = "/home/alice/shape"
    done = run_script(cluster, SCRIPT, {"OUT": out, "options": options, "probe": program("gpu_probe")})
    assert done.returncode == 0, f"{options}: {done.stderr}"
    steps = []
    for word in ("off", "on"):
        [tasks] = by_step(read_reports(Path(f"{cluster.state}{out}/{word}"))).values()
        assert all(("RANK" in task) == (word == "on") for task in tasks)
        steps.append(Step([task["@host"] for task in tasks], [numbers(task["@open"]) for task in tasks],
                          [cuda_devices(task) for task in tasks]))
    return tuple(steps)


@pytest.fixture(scope="module")
def shapes(cluster_factory):
    """By version: what became of each shape, by its options."""

    def run_all(version):
        cluster = cluster_factory(f"shapes-{version}")
        cluster.up("--nodes", "2", "--gpus", "4", "--cpus", "8", f"--constrain-devices={version}")
        return {options: run_shape(cluster, options) for options in SHAPES}

    with ThreadPoolExecutor() as pool:
        return dict(zip(CGROUP_VERSIONS, pool.map(run_all, CGROUP_VERSIONS)))


def lines_of(rows) -> list[str]:
    """The table, as text: who can open and sees what."""
    found = [("", "opens, off", "sees, off", "opens, on", "sees, on")]
    found += [(options, *(cell(devices) for step in steps for devices in (step.opened, step.shown))) for options, steps in rows.items()]
    widths = [max(map(len, column)) for column in zip(*found)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in found]


@pytest.mark.parametrize("version", CGROUP_VERSIONS)
def test_only_who_binds_has_peers_hidden_with_the_plugin(shapes, version, capsys):
    """Without it Slurm hides them from each task with GPUs of its own. CUDA shows what a task can open, with and without."""
    rows = shapes[version]
    with capsys.disabled():
        print(f"\nGPU shapes, cgroup {version}, plugin off and on:\n" + "\n".join(lines_of(rows)))
    for options, (off, on) in rows.items():
        for step, has_peers in ((off, SHAPES[options] == NOBODY), (on, SHAPES[options] != USER)):
            for opened, shown, all_of_node in zip(step.opened, step.shown, step.on_nodes):
                assert sorted(shown) == opened, options
                assert (set(opened) == all_of_node) == has_peers, options
        # The step itself has the same GPUs: the plugin opens none that Slurm did not give it.
        assert (on.nodes, on.on_nodes) == (off.nodes, off.on_nodes), options


@pytest.mark.skipif(len(CGROUP_VERSIONS) < 2, reason="needs a machine with cgroups of both versions")
def test_both_versions_give_the_same(shapes):
    assert shapes["v1"] == shapes["v2"]


@pytest.mark.skipif(slurm_release() != SLURM_OF_PAGE, reason="the page has the table of another Slurm")
@pytest.mark.parametrize("version", CGROUP_VERSIONS)
def test_the_page_has_the_table(shapes, version):
    rows = [f"| `{options}` | {cell(off.opened)} | {cell(on.opened)} |" for options, (off, on) in shapes[version].items()]
    table = "\n".join(rows)
    assert table in PAGE.read_text(), f"the rows of {PAGE.name} are now:\n{table}"

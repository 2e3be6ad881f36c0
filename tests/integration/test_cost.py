"""What the plugin's hooks cost in the real slurmstepd, measured with a clock before and one behind it in plugstack.conf."""

import os
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from statistics import median, quantiles

import pytest

from harness import REPOSITORY, Cluster, stop

CLOCK = REPOSITORY / "build/release/tests/doubles/clock_spank.so"
TOPOLOGY = REPOSITORY / "tests/data/topologies/dgx-h100.xml"
IN_SHORT, IN_FULL = 40, 1000  # steps with the plugin and a topology file
CONTROL_EVERY = 4  # after every which of them the controls run once
TASKS = 8
STEP = f"timeout 30 srun -Q -N1 -n{TASKS} --gres=gpu:{TASKS}"
CALLS = {"user_init": range(1), "task_post_fork": range(TASKS), "task_init": range(TASKS)}  # of each hook in a step
GOALS = {"user_init": 1000, "task_init": 100}  # microseconds, for the median


class Bench:
    """One allocation in which steps run one after another, each under a plugstack.conf of its own."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.times = cluster.state / "log" / "times"
        etc = cluster.state / "etc"
        for name in ("clock_before.so", "clock_after.so"):
            shutil.copy(CLOCK, etc / name)  # two files, since the same one loaded twice is one plugin
        self.topology = etc / "topology.xml"
        self.topology.write_bytes(TOPOLOGY.read_bytes())  # root's, whoever owns the repository
        self.topology.chmod(0o644)
        ours = (etc / "plugstack.conf").read_text().strip()
        cached = f"{ours} topology={self.topology}"
        self.ways = {"on": (cached, ""), "live": (ours, ""), "off": (cached, "--bootstrap=off"), "none": ("", "")}
        self.ran: list[str] = []  # by step id, the way of that step

    def select(self, way: str) -> str:
        """Lists our plugin between the clocks, or not; returns the option for srun."""
        line, option = self.ways[way]
        etc = self.cluster.state / "etc"
        clocks = [f"optional {etc}/clock_{clock}.so clock={clock} out={self.times}" for clock in ("before", "after")]
        self.cluster.write_plugstack("\n".join([clocks[0], line, clocks[1], ""]))
        return option

    def run(self, count: int) -> None:
        command = ["salloc", "-Q", "-N1", f"-n{TASKS}", f"--gres=gpu:{TASKS}", "bash"]
        shell = self.cluster.start(command, stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for number in range(count):
                for way in self.ways if number % CONTROL_EVERY == 0 else ["on"]:
                    option = self.select(way)
                    shell.stdin.write(f"{STEP} {option} true; echo status $?\n")
                    shell.stdin.flush()
                    answer = shell.stdout.readline()
                    assert answer == "status 0\n", f"step {len(self.ran)} ({way}): {answer}"
                    self.ran.append(way)
            shell.communicate("exit\n", timeout=10)
        finally:
            if shell.poll() is None:
                stop(shell)

    def read(self) -> tuple[dict[tuple[str, str], list[float]], Counter]:
        """How long each hook took in each way, in microseconds, and how often a call was not noted by both clocks."""
        noted = {}
        for line in self.times.read_text().splitlines():
            clock, hook, _node, _job, step, task, nanoseconds = line.split()
            noted[clock, hook, int(step), int(task)] = int(nanoseconds)
        took, missing = defaultdict(list), Counter()
        for step, way in enumerate(self.ran):
            for hook, tasks in CALLS.items():
                for task in tasks:
                    before, after = (noted.get((clock, hook, step, task)) for clock in ("before", "after"))
                    if before is None or after is None:
                        missing[way, hook] += 1
                    else:
                        took[way, hook].append((after - before) / 1000)
        return took, missing

    def results(self) -> dict[tuple[str, str], list[float]]:
        """Slurm writes the times of a step when it has ended, which may be after srun's end."""
        deadline = time.monotonic() + 10
        while True:
            took, missing = self.read()
            if not missing or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert not missing, f"calls that were not noted by both clocks: {dict(missing)}"
        return took


def table(took: dict[tuple[str, str], list[float]], count: int) -> str:
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    lines = [
        f"hooks in slurmstepd, {count} steps of {TASKS} tasks, microseconds with Slurm's own part ({load}):",
        f"{'':16}{'topology file':24}{'live':>10}{'off':>10}{'no plugin':>10}",
    ]
    for hook in CALLS:
        tenths = quantiles(took["on", hook], n=10)
        here = f"{median(took['on', hook]):.1f} ({tenths[0]:.1f}-{tenths[-1]:.1f})"
        others = "".join(f"{median(took[way, hook]):10.1f}" for way in ("live", "off", "none"))
        goal = GOALS.get(hook)
        verdict = "" if goal is None else f"   goal {goal}: {'met' if median(took['on', hook]) <= goal else 'not met'}"
        lines.append(f"{hook:16}{here:24}{others}{verdict}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def bench(cluster_factory) -> Bench:
    if not CLOCK.exists():
        pytest.fail(f"{CLOCK} is not built; run cmake --preset release && cmake --build --preset release")
    cluster = cluster_factory("cost").up("--nodes", "1", "--gpus", str(TASKS), "--cpus", "64", "--plugin-args", "when=gpu")
    return Bench(cluster)


def test_hooks_take_little_time(bench, request, capsys):
    """Nothing fails for being slow, since the machine may be busy; it fails when something else was measured."""
    bench.cluster.write_plugstack(bench.ways["on"][0] + "\n")
    shown = bench.cluster.run(["srun", f"-n{TASKS}", f"--gres=gpu:{TASKS}", "--bootstrap=explain", "true"])
    assert f"{bench.topology}\n" in shown.stderr and "because" not in shown.stderr, shown.stderr
    count = IN_FULL if request.config.getoption("--full") else IN_SHORT
    bench.run(count)
    took = bench.results()
    with capsys.disabled():
        print(f"\n{table(took, count)}")
    for hook, tasks in CALLS.items():
        assert len(took["on", hook]) == count * len(tasks)
        # Controls: with a plugin that has nothing to do, and without one, there is far less between the clocks (between a
        # sixth and a hundredth, so that no busy machine makes it half).
        assert median(took["off", hook]) < median(took["on", hook]) / 2
        assert median(took["none", hook]) < median(took["on", hook]) / 2

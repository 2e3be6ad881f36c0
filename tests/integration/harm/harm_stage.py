"""Two clusters that differ only in plugstack.conf, and the cases on them: each case runs on the same nodes of both clusters
at the same time, and several cases run at once on other nodes."""

# SPDX-License-Identifier: Apache-2.0

import copy
import queue
import shutil
import subprocess
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from built_files import BUILT_INSIDE
from framework_environments import programs_of
from harm_case import Case, Site
from harness import TESTS
from normaliser import Outcome, outcome

LANES = 3  # cases at once; each has its own partition of two nodes
UP = ("--nodes", str(2 * LANES), "--gpus", "4", "--cpus", "8", "--set", "TaskPlugin=task/affinity",
      "--set", "LaunchParameters=use_interactive_step")  # fmt: skip
BUILT = f"{BUILT_INSIDE}/tests"
ENDED = (124, 137)

# Runs before each script. A case begins when its nodes are free, so it gets the same nodes in both clusters.
PREAMBLE = """
set -u
cd; rm -rf cases/$CASE; mkdir -p cases/$CASE; cd cases/$CASE
export OUT=$PWD
# These three have no bound of their own: the row's time ends them.
ready() {
  until [[ -z $(squeue -h -p $SLURM_PARTITION) && $(sinfo -h -p $SLURM_PARTITION -t idle -o %D) == 2 ]]; do sleep 0.05; done
}
await() { until [[ -s $1 ]]; do sleep 0.05; done; }  # waits for a file that is not empty
running() { until [[ $(squeue -h -j $1 -o %T) == RUNNING ]]; do sleep 0.05; done; }  # waits for a job
ready
job() {  # what a batch job wrote, and its exit status, without the waits of `sbatch --wait`: 2 s, 6 s, ...
  { echo '#!/bin/bash'; echo "trap 'echo \\$? > $OUT/status' EXIT"; cat; } > batch
  sbatch --quiet --output=log "$@" batch || return
  await status; cat log; return $(< status)
}
SHOW='env -0 | tr "\\n\\0" " \\n" | sed "s/^/${SLURM_PROCID:-none}: /"'
terminal() { script -qec "$1" /dev/null < /dev/null; }
# Two nodes with two tasks each, with one task each; one node with two tasks; one task. Two GPUs on each node.
W4="srun -N2 --ntasks-per-node=2 --gres=gpu:2" W2="srun -N2 --ntasks-per-node=1 --gres=gpu:2"
L2="srun -N1 --ntasks-per-node=2 --gres=gpu:2" L1="srun -N1 -n1 --gres=gpu:2"
READ="python3 $P/readers.py"
train() {  # a training: which ranks there were, and what Slurm and we said
  "$@" > trained 2>&1
  echo "status $?"; grep -oE 'rank [0-9]+ of [0-9]+|on [0-9]+ ranks|(srun|slurmstepd|bootstrap): .*' trained
}
export SHOW W4 W2 L2 L1 READ
"""
LEFTOVERS = """squeue --me --noheader -p "$SLURM_PARTITION" --format=%A | xargs -r scancel"""


class Side:
    """One of the clusters, and the current content of its plugstack.conf."""

    def __init__(self, cluster, line: str, word: str):
        self.cluster, self.line, self.word = cluster, line, word
        self.settings = (cluster.state / "etc" / "slurm.conf").read_text()
        for lane in range(LANES):
            nodes = f"node[{2 * lane + 1:03}-{2 * lane + 2:03}]"
            cluster.succeed(["scontrol", "create", f"PartitionName=lane{lane}", f"Nodes={nodes}", "State=UP"], user="root")
            self.settings += f"PartitionName=lane{lane} Nodes={nodes} State=UP\n"

    @classmethod
    def of(cls, other: "Side", line: str, word: str) -> "Side":
        """The same cluster with another line of plugstack.conf."""
        side = copy.copy(other)
        side.line, side.word = line, word
        return side

    def arrange(self, site: Site, arguments: str) -> None:
        own = f"{self.line} {arguments}" if self.line else ""
        lines = [line.replace("{doubles}", f"{BUILT}/doubles") for line in (site.before, own, site.after)]
        self.cluster.write_plugstack("\n".join(filter(None, lines)) + "\n")

    def set_up(self, settings: tuple[str, ...]) -> None:
        (self.cluster.state / "etc" / "slurm.conf").write_text(self.settings + "".join(f"{line}\n" for line in settings))
        self.cluster.succeed(["scontrol", "reconfigure"], user="root")

    def play(self, case: Case, lane: int) -> Outcome:
        variables = {
            "CASE": case.name, "P": f"{TESTS}/harm/programs", "T": f"{TESTS}/frameworks/programs",
            "E": f"{TESTS}/../../etc/examples", "B": f"{BUILT}/integration/harm",
            "D": f"{BUILT}/doubles", "LC_ALL": "C.UTF-8", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
            **{f"{command}_PARTITION": f"lane{lane}" for command in ("SLURM", "SBATCH", "SALLOC")}, **case.variables,
        }  # fmt: skip
        folder = programs_of(case.environment) if case.environment else None
        activate = f"export PATH={folder}:$PATH VIRTUAL_ENV={Path(folder).parent}\n" if folder else ""
        script = activate + PREAMBLE + case.script.replace("{off}", self.word)
        line = ["timeout", "--kill-after=2", str(case.seconds), "bash", "-c", script]
        began = time.monotonic()
        try:
            done = self.cluster.run(line, env=variables, timeout=case.seconds + 20)
        except subprocess.TimeoutExpired as held:
            said = [(text or b"").decode(errors="replace") for text in (held.stdout, held.stderr)]
            done = subprocess.CompletedProcess(line, ENDED[0], *said)
        seconds = time.monotonic() - began
        if done.returncode in ENDED:
            self.cluster.run(["bash", "-c", LEFTOVERS], env=variables)
        return outcome(done.returncode, done.stdout, done.stderr, self.names(lane), seconds)

    def names(self, lane: int) -> dict[str, str]:
        """The words that differ between runs on other nodes or in another cluster."""
        first, second = 2 * lane + 1, 2 * lane + 2
        return {
            self.cluster.name: "CLUSTER", f"lane{lane}": "LANE", f"node[{first:03}-{second:03}]": "NODES",
            f"node{first:03}": "NODE1", f"node{second:03}": "NODE2", f"10.20.1.{first}": "ADDRESS1", f"10.20.1.{second}": "ADDRESS2",
        }  # fmt: skip


def lacking(case: Case) -> list[str]:
    missing = [program for program in case.needs if not shutil.which(program, path="/usr/bin:/bin:/usr/sbin")]
    return missing + ([case.environment] if case.environment and not programs_of(case.environment) else [])


class Play:
    """Runs all cases on some sides, cases of one site together, and collects the results."""

    def __init__(self, sides: list[Side], cases: list[Case]):
        self.sides = sides
        self.lanes: queue.Queue[int] = queue.Queue()
        for lane in range(LANES):
            self.lanes.put(lane)
        self.results: dict[str, Future] = {case.name: Future() for case in cases}
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(cases,), daemon=True)
        self.thread.start()

    def of(self, name: str) -> list[Outcome]:
        return self.results[name].result()

    def stop(self) -> None:
        """Begins no other case."""
        self.is_over.set()
        self.thread.join()

    def _run(self, cases: list[Case]) -> None:
        groups: dict[tuple[Site, str], list[Case]] = {}
        for case in cases:
            groups.setdefault((case.site, case.arguments), []).append(case)
        try:
            for (site, arguments), members in groups.items():
                if not self.is_over.is_set():
                    self._run_group(site, arguments, members)
        except BaseException as error:
            for future in self.results.values():
                if not future.done():
                    future.set_exception(error)
            raise

    def _run_group(self, site: Site, arguments: str, members: list[Case]) -> None:
        for side in self.sides:
            side.arrange(site, arguments)
            if site.settings:
                side.set_up(site.settings)
        # Long cases first, which wait for something.
        with ThreadPoolExecutor(LANES) as pool, ThreadPoolExecutor(LANES * len(self.sides)) as both:
            list(pool.map(lambda case: self._run_case(both, case), sorted(members, key=lambda case: not case.is_slow)))
        for side in self.sides:
            if site.settings:
                side.set_up(())

    def _run_case(self, both: ThreadPoolExecutor, case: Case) -> None:
        if self.is_over.is_set():
            return
        lane = self.lanes.get()
        try:
            running = [both.submit(side.play, case, lane) for side in self.sides]
            self.results[case.name].set_result([each.result() for each in running])
        except BaseException as error:
            self.results[case.name].set_exception(error)
        finally:
            self.lanes.put(lane)

"""Steps of many kinds for tests that watch slurmstepd and not the outcome of steps: sanitizers, strace.

A shape is a shell script with an environment, for the login host of a cluster started with UP. Other tests judge its
outcome. The tasks run `true` unless the shape has another program.
"""

# SPDX-License-Identifier: Apache-2.0

import json
import random
from dataclasses import dataclass, field

import gpu_cases
import layout_cases
from case_shell import FUNCTIONS
from harness import Cluster
from malformed_environments import NAMES, RUN, VALUES

UP = ("--nodes", "4", "--gpus", "8", "--cpus", "64")
SPACE = {"node001": 4, "node002": 4, "node003": 2}  # free GPUs for gpu_cases, beside the job that has the others

PREAMBLE = f"""
set -u
OUT=~/shapes/$SHAPE; mkdir -p $OUT
IN="srun --jobid=$WIDE --overlap"
PROBE=true TOGETHER=true
export PROBE TOGETHER OUT
{FUNCTIONS}
"""


@dataclass(frozen=True)
class Shape:
    name: str
    script: str
    variables: dict[str, str] = field(default_factory=dict)  # added to the script's environment; any bytes, as Latin-1


def pair(name: str, options: str, program: str = "true", **variables: str) -> Shape:
    """A step on two nodes with two tasks and two GPUs each."""
    return Shape(name, f"srun -N2 --ntasks-per-node=2 --gres=gpu:2 {options} {program}", variables)


def fixed() -> list[Shape]:
    """One of each kind; the first four differ most."""
    return [
        pair("a rank is killed while the others run", "--bootstrap-interface=auto",
             "sh -c 'if [ $SLURM_PROCID = 1 ]; then kill -KILL $$; fi; sleep 0.3'"),
        pair("a rank of each node fails", "--bootstrap-frameworks=all", "sh -c 'exit $((SLURM_PROCID % 3 == 0))'"),
        Shape("refused: more tasks than GPUs", "srun -N2 --ntasks-per-node=4 --gres=gpu:2 --bootstrap=on true"),
        pair("malformed values", "", SLURM_BOOTSTRAP_EXPORTS="\xff=,,=", SLURM_BOOTSTRAP_LAYOUT="1" * 65536,
             SLURM_STEP_TASKS_PER_NODE="2(x4294967295)", SLURM_BOOTSTRAP_SETTINGS="\n\n=%n%s"),
        pair("explained", "--bootstrap=explain --bootstrap-gpu=narrow -m cyclic"),
        pair("torchrun's shape", "--ntasks-per-node=1 --bootstrap-interface=auto --bootstrap-cpu=near"),
        pair("first, preloaded, shared folder", "--bootstrap-gpu=first --bootstrap-preload --bootstrap-shared-dir=/home/%u"),
        pair("a wrong option, smuggled in", "", **{"_SLURM_SPANK_OPTION_bootstrap_bootstrap_port": "99999999999999999999"}),
        pair("refused: an interface that is not there", "--bootstrap-interface=ib7"),
        pair("a rank that crashes", "--mpi=pmix", "sh -c '[ $SLURM_PROCID != 1 ] || kill -SEGV $$'"),
        pair("a program that is not there", "", "/nowhere/program"),
        Shape("more tasks than GPUs, shared", "srun -n7 -N1 --gres=gpu:3 --bootstrap-gpu-share true"),
        Shape("no GPUs, asked for", "srun -N4 -n9 --bootstrap=on --export=NONE /bin/true"),
        pair("a world that nobody asked for", "", SLURM_BOOTSTRAP=""),
        pair("a world that nobody asked for, with wrong values", "--export=ALL,RANK=7,MASTER_ADDR=localhost", SLURM_BOOTSTRAP="",
             SLURM_BOOTSTRAP_PORT="80"),
        pair("left alone in a job that asks", "--ntasks-per-node=4"),
        Shape("not set up", "export SLURM_BOOTSTRAP=; srun -N2 -n3 true; srun -n1 --bootstrap=explain --bootstrap=off --gres=gpu:1 true"),
        Shape("heterogeneous step", "srun --jobid=$WIDE --overlap -n2 -wnode003 true : --overlap -N2 -n3 -wnode[001-002] true"),
        Shape("batch job", "submit -N2 --ntasks-per-node=2 --gres=gpu:2 <<< 'srun true; srun -n1 -N1 false'"),
        Shape("GPUs per task, one at a time", "srun -N1 -n4 --gpus-per-task=1 --bootstrap-frameworks=tensorflow,jax true"),
    ]


def malformed(count: int, source: random.Random) -> list[Shape]:
    """Some variables of ours or Slurm's with malformed values."""
    shapes = []
    for number in range(count):
        kind = source.choice(list(VALUES))
        names = source.sample(NAMES, source.randint(1, 3 if len(VALUES[kind]) < 70000 else 1))
        variables = dict.fromkeys(names, VALUES[kind])
        shapes.append(pair(f"{number}: {kind} in {', '.join(names)}", source.choice(["", "--export=NONE", "-m cyclic"]),
                           "/bin/true", **variables))
    return shapes


def generated(count: int, seed: int) -> list[Shape]:
    """`count` shapes of all kinds; the same shapes for the same seed."""
    source = random.Random(seed)
    third = count // 3
    shapes = [Shape(case.name, case.script) for case in layout_cases.generated(third, seed)]
    shapes += [Shape(case.name, case.script) for case in gpu_cases.generated(SPACE, third, seed)]
    shapes += malformed(count - 2 * third, source)
    source.shuffle(shapes)
    return shapes


class ShapeRunner:
    """Runs shapes in a cluster, in which a job holds all nodes for steps inside it."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.count = 0
        self.wide = cluster.allocate("-N4", "--ntasks-per-node=16", "--gres=gpu:4")
        self.program = cluster.write_home("shape", RUN)

    def run(self, shape: Shape):
        """The outcome as a CompletedProcess; RUN ends a script that takes too long."""
        self.count += 1
        script = f"{PREAMBLE}\n{shape.script}"
        # The script's own environment may contain any bytes; that of `cluster exec` may not.
        given = {"SHAPE": str(self.count), "WIDE": self.wide, **shape.variables}
        order = {"given": given, "lacking": [], "is_empty": False}
        return self.cluster.run([self.program, "bash", "-c", script], stdin=json.dumps(order), timeout=300)

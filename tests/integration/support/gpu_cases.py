"""The steps with GPUs that the tests start: a list of named difficult ones, and any number generated from a seed.

A case is a shell script for the login host, for one of two clusters:
  uneven  node001 ... node004 with 1, 2, 4 and 8 GPUs; a step can open those that Slurm gave it
  open    node001 ... node003 with 4, 4 and 2 GPUs; a step can open all, and Slurm's lists name the step's own
The script finds there:
  $PROBE     the command of every task: probe.py with its folder
  $TOGETHER  the same for two steps that must run at the same time: it ends when both have begun, or fails
  hostfile, submit   as for the layouts
A step with `--bootstrap=off` beside the others shows what Slurm does alone.
"""

import random
from dataclasses import dataclass, replace

from case_shell import FUNCTIONS
from gpu_oracle import Wanted
from harness import HAS_PMIX, since

UNEVEN = {"node001": 1, "node002": 2, "node003": 4, "node004": 8}
OPEN = {"node001": 4, "node002": 4, "node003": 2}
OUR_MODES = ("index", "first", "narrow")

TASK = """#!/bin/bash
# Runs in every task: gpu_task PROBE FOLDER [STEPS]
[[ $SLURM_PROCID != 0 ]] || scontrol -d show job "$SLURM_JOB_ID" >"$2/$SLURM_JOB_ID.job" || exit 3
"$1" "$2" gpus || exit 4
[[ $# -ge 3 ]] || exit 0
touch "$2/$SLURM_JOB_ID.$SLURM_STEP_ID.began"
for ((i = 0; i < 200; i++)); do
  set -- "$1" "$2" "$3" "$2"/*.began
  (($# - 3 < $3)) || exit 0
  sleep 0.1
done
echo "gpu_task: the $3 steps did not run at the same time" >&2
exit 5
"""

PREAMBLE = """
set -u
PROBE="$HOME/gpu_task $probe $OUT"
TOGETHER="$PROBE 2"
export PROBE TOGETHER OUT
""" + FUNCTIONS


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    steps: tuple[int, ...]  # the tasks of each step with the plugin, in the script's order
    wanted: Wanted = Wanted()
    warnings: int | None = 0  # our sentences; None: any number
    slow: bool = False  # takes seconds or waits for many GPUs: started first


def both(*lines: str) -> str:
    """Runs commands in the background; fails if one of them fails. (`wait -n` forgets one of two that end together.)"""
    return " ".join(f"{line} $TOGETHER & ids+=\" $!\";" for line in lines) + " for id in $ids; do wait $id || exit; done"


def step(name: str, options: str, tasks: int, mode: str = "index", **wanted) -> Case:
    """A step that is its own job."""
    script = f"srun --quiet {options} {'' if mode == 'index' else f'--bootstrap-gpu={mode}'} $PROBE"
    return Case(f"{name}, {mode}", script, (tasks,), Wanted(mode, **wanted))


def beside_slurm(name: str, job: str, options: str, tasks: int, warnings: int | None = 0, **wanted) -> Case:
    """A step, and before it the same without the plugin: two steps of a job, or two jobs that each have all options."""
    mode = wanted.get("mode", "index")
    ours = "" if mode == "index" else f"--bootstrap-gpu={mode}"
    line = f"srun --quiet --bootstrap=off {options} $PROBE && srun --quiet {options} {ours} $PROBE"
    return Case(name, f"salloc -Q {job} bash -c '{line}'" if job else line, (tasks,), Wanted(**wanted), warnings)


def at_once(name: str, job: str, steps: list[str], sizes: tuple[int, ...], **wanted) -> Case:
    """Steps of one job at the same time, each with other GPUs of the job."""
    line = both(*(f"srun --exact --mem=0 {options}" for options in steps))
    script = f"TOGETHER=\"$PROBE {len(steps)}\"; salloc -Q {job} bash -c '{line}'"
    return Case(name, script, sizes, Wanted(apart=True, **wanted), slow=True)


def basic_cases(mode: str) -> list[Case]:
    """Common steps, in every mode, on one node with at least 4 GPUs."""
    return [
        step("a task for each GPU", "-N1 -n4 --gres=gpu:4", 4, mode),
        step("one task, all GPUs", "-N1 -n1 --gres=gpu:4", 1, mode),
        step("two GPUs for each task", "-N1 -n2 --gres=gpu:4", 2, mode),
        step("three GPUs, two tasks", "-N1 -n2 --gres=gpu:3", 2, mode),
        step("a GPU per task", "-N1 -n4 --gpus-per-task=1", 4, mode),
        step("two GPUs per task", "-N1 -n2 --gpus-per-task=2", 2, mode),
        step("a task per GPU", "-N1 -n3 -w {largest} --ntasks-per-gpu=1 --gpus=3", 3, mode),
        step("shared", "-N1 -n5 --gres=gpu:2 --bootstrap-gpu-share", 5, mode, share=True),
    ]


def request_cases() -> list[Case]:
    """The ways to ask for GPUs. --gpus names a node: beside other jobs Slurm 26.05 may choose one whose step it then refuses."""
    return [
        step("one GPU, one task", "-N1 -n1 -w {largest} --gpus=1", 1),
        step("GPUs of the job", "-N1 -n3 -w {largest} --gpus=3", 3),
        step("GPUs per node, one node", "-N1 -n2 --gpus-per-node=2", 2),
        step("GPUs per node", "-N2 --ntasks-per-node=2 --gpus-per-node=2", 4),
        step("tasks follow from GPUs", "-N1 -w {largest} --gpus=2 --ntasks-per-gpu=1", 2),
        step("two tasks per GPU, shared", "-N1 -n4 --ntasks-per-gpu=2 --bootstrap-gpu-share", 4, share=True),
        step("shared on two nodes", "-N2 --ntasks-per-node=5 --gres=gpu:2 --bootstrap-gpu-share", 10, share=True),
        step("allowed to share, without need", "-N1 -n2 --gres=gpu:2 --bootstrap-gpu-share", 2, share=True),
        step("no GPUs", "-N2 -n3 --bootstrap=on", 3),
        step("no GPUs, more tasks", "-N1 -n6 --bootstrap=on", 6, "narrow"),
        step("two nodes, a GPU per task", "-N2 --ntasks-per-node=2 --gpus-per-task=1", 4),
        step("list in the environment", "-N1 -n2 --gres=gpu:2 --export=ALL,CUDA_VISIBLE_DEVICES=1,BOOTSTRAP_GPU=7", 2),
    ]


def order_cases() -> list[Case]:
    """Orders of ranks, and options that change the environment."""
    two = "-N2 --ntasks-per-node=2 --gres=gpu:2"
    files = "hostfile node003 node002 node003 node002; srun --quiet -n4 -m arbitrary"
    return [
        step("cyclic", f"{two} -m cyclic", 4),
        step("cyclic, first", f"{two} -m cyclic", 4, "first"),
        step("plane", f"{two} -m plane=1", 4),
        Case("arbitrary", f"{files} --gres=gpu:2 $PROBE", (4,)),
        Case("arbitrary, narrow", f"{files} --gres=gpu:2 --bootstrap-gpu=narrow $PROBE", (4,), Wanted("narrow")),
        step("export none", "-N1 -n2 --gpus-per-task=1 --export=NONE", 2),
        step("export nil", "-N1 -n2 --gpus-per-task=1 --export=NIL", 2),
        step("export a list", "-N1 -n2 --gpus-per-task=1 --export=HOME", 2),
        *([step("with PMIx", "-N1 -n2 --gpus-per-task=1 --mpi=pmix", 2)] if HAS_PMIX else []),
        step("bound to CPUs", "-N1 -n2 --gpus-per-task=1 --cpu-bind=cores", 2),
        Case("several programs", "printf '0 %s\\n1-2 %s\\n' \"$PROBE\" \"$PROBE\" > $OUT/programs; "
             "srun --quiet -N1 -n3 --gpus-per-task=1 --multi-prog $OUT/programs", (3,)),
    ]


def bound_cases() -> list[Case]:
    """Slurm's own binding, at the user's request."""
    # Maps and masks count the node's GPUs, not the job's, so these jobs have all of them.
    four = "-w {with 4} --gres=gpu:4"
    two = "-w {with 2} --gres=gpu:2"

    def bound(bind: str, tasks: int, **more) -> Case:
        return beside_slurm(f"bound: {bind}", "", f"-n{tasks} {four} --gpu-bind={bind}", tasks, **{"bound": True, "warnings": 1, **more})

    return [
        bound("single:1", 4),
        bound("per_task:1", 4),
        bound("per_task:2", 2),
        bound("map_gpu:3,2,1,0", 4),
        bound("mask_gpu:0x3,0xc", 2),
        bound("mask_gpu:0x3,0x3,0xc,0xc", 4),
        bound("verbose,map_gpu:1,0", 2),
        bound("single:2", 4, distinct=False),
        bound("none", 4, bound=False, warnings=0),
        bound("closest", 4, bound=False, warnings=0),
        beside_slurm("bound and first", "", f"-n4 {four} --gpu-bind=map_gpu:2,3,0,1", 4, 1, bound=True, mode="first"),
        beside_slurm("bound and narrow", "", f"-n2 {four} --gpu-bind=mask_gpu:0xc,0x3", 2, None, bound=True, mode="narrow"),
        beside_slurm("bound in a job", f"-n4 {four}", "--gpu-bind=map_gpu:2,3,0,1", 4, 1, bound=True),
        beside_slurm("bound, GPUs per task", "-N1 -n2 --gpus-per-task=1", "--gpu-bind=per_task:1", 2, 1, bound=True),
        beside_slurm("bound by the job", f"-n4 {four} --gpu-bind=map_gpu:3,2,1,0", "", 4, 1, bound=True),
        Case("bound by variable", f"export SLURM_GPU_BIND=map_gpu:1,0; srun --quiet --bootstrap=off -n2 {two} $PROBE && "
             f"srun --quiet -n2 {two} $PROBE", (2,), Wanted(bound=True), 1),
        Case("not bound by variable", "SLURM_GPU_BIND=none srun --quiet -N1 -n4 --gpus-per-task=1 $PROBE", (4,)),
        beside_slurm("off", "-N1 -n2 --gres=gpu:3", "", 2, mode="off"),
        beside_slurm("off, a GPU per task", "-N1 -n3 --gpus-per-task=1", "", 3, mode="off"),
        beside_slurm("off, more tasks than GPUs", "-N1 -n3 --gres=gpu:2", "", 3, mode="off"),
        beside_slurm("off, bound", f"-n2 {two}", "--gpu-bind=map_gpu:1,0", 2, mode="off"),
    ]


def job_cases() -> list[Case]:
    """Jobs with several steps, steps beside others, batch jobs, steps inside tasks."""
    pair = ["-n2 --gres=gpu:2"] * 2
    two_jobs = both(*["srun --quiet -N1 -n2 -w {largest} {asked}"] * 2)
    # Else the inner srun of Slurm 24.11 gives each of its tasks the four CPUs of the outer step.
    nested = "srun --quiet -N1 -n1 -c4 --gres=gpu:4 bash -c '$PROBE; srun --overlap -c1 -n{} {} $PROBE'"
    cases = [
        *(at_once(f"two steps at once, {mode}", "-N1 -n4 --gres=gpu:4", [f"{line} --bootstrap-gpu={mode}" for line in pair],
                  (2, 2), per_node=2, mode=mode) for mode in OUR_MODES),
        at_once("three steps at once", "-N1 -n3 --gres=gpu:3", ["-n1 --gres=gpu:1"] * 3, (1, 1, 1), per_node=1),
        *(Case(f"two jobs on a node {asked}", two_jobs.replace("{asked}", asked), (2, 2), Wanted(apart=True), slow=True)
          for asked in ("--gres=gpu:2", "--gpus-per-task=1")),
        Case("overlapping steps", f"salloc -Q -N1 -n2 --gres=gpu:2 bash -c '{both(*['srun --overlap'] * 2)}'", (2, 2)),
        Case("fewer tasks than the job", "salloc -Q -N1 -n4 --gres=gpu:4 srun -n2 $PROBE", (2,)),
        Case("fewer GPUs than the job", "salloc -Q -N1 -n4 --gres=gpu:4 srun -n2 --gres=gpu:2 $PROBE", (2,),
             Wanted(per_node=2)),
        Case("salloc with GPUs per task", "salloc -Q -N1 -n4 --gpus-per-task=1 srun $PROBE", (4,)),
        Case("salloc with GPUs per task, narrow", "salloc -Q -N1 -n2 --gpus-per-task=2 --bootstrap-gpu=narrow srun $PROBE",
             (2,), Wanted("narrow")),
        Case("batch job", "submit -N1 -n4 --gres=gpu:4 <<< 'srun $PROBE; srun -n2 $PROBE'", (4, 2)),
        Case("batch job with GPUs per task", "submit <<< '#SBATCH -N1 -n4 --gpus-per-task=1\nsrun $PROBE'", (4,)),
        Case("batch job, first", "submit --bootstrap-gpu=first -N1 -n2 --gres=gpu:4 <<< 'srun $PROBE'", (2,), Wanted("first")),
        Case("batch job, tasks per GPU", "submit -N1 -w {largest} --gpus=2 --ntasks-per-gpu=1 <<< 'srun -n2 $PROBE'", (2,)),
        Case("step inside a task", nested.format(2, ""), (1, 2)),
        Case("step inside a task, a GPU per task", nested.format(4, "--gpus-per-task=1"), (1, 4)),
    ]
    return cases


def uneven_cases() -> list[Case]:
    """Different nodes, and steps that Slurm itself refuses on the other cluster."""
    return [
        step("GPUs per socket", "-N1 -n2 -w {largest} --gpus-per-socket=2 --sockets-per-node=1", 2),
        Case("arbitrary, a GPU per task", "hostfile node003 node002 node003 node002; "
             "srun --quiet -n4 -m arbitrary --gpus-per-task=1 $PROBE", (4,)),
        Case("every GPU of every node", "srun --quiet -N4 -n15 --gpus-per-task=1 $PROBE", (15,), slow=True),
        Case("every GPU of every node, narrow", "srun --quiet -N4 -n15 --gpus-per-task=1 --bootstrap-gpu=narrow $PROBE",
             (15,), Wanted("narrow"), slow=True),
        Case("a task per node, all GPUs", "srun --quiet -N4 -n4 --ntasks-per-node=1 --gpus=15 $PROBE", (4,), slow=True),
        Case("some GPUs of several nodes", "srun --quiet -w node002,node003 -N2 -n2 --gpus=3 $PROBE", (2,)),
        Case("as many tasks as GPUs, backwards", "hostfile node003 node003 node003 node003 node002 node002 node001; "
             "srun --quiet -n7 -m arbitrary --gpus-per-task=1 $PROBE", (7,), slow=True),
        Case("more tasks than GPUs on one node alone", "hostfile node002 node001 node001 node001; "
             "srun --quiet -n4 -m arbitrary --gres=gpu:1 --bootstrap-gpu-share $PROBE", (4,), Wanted(share=True)),
        Case("het job", "srun --quiet -n2 --gres=gpu:2 -wnode003 $PROBE : -n1 --gres=gpu:2 -wnode002 $PROBE", (3,), slow=True),
        Case("het job, a GPU per task", "srun --quiet -n3 --gpus-per-task=1 -wnode003 $PROBE : "
             "-n2 --gpus-per-task=1 -wnode002 $PROBE", (5,), slow=True),
    ]


def refused_cases() -> list[Case]:
    """More tasks than GPUs on a node: one sentence from each such node."""
    return [
        Case("three on two", "srun --quiet -N1 -n3 --gres=gpu:2 --bootstrap=on $PROBE", (3,), warnings=1),
        Case("three on two, first", "srun --quiet -N1 -n3 --gres=gpu:2 --bootstrap-gpu=first $PROBE", (3,), warnings=1),
        Case("three on two, narrow", "srun --quiet -N1 -n3 --gres=gpu:2 --bootstrap-gpu=narrow $PROBE", (3,), warnings=1),
        Case("two nodes", "srun --quiet -N2 --ntasks-per-node=3 --gres=gpu:2 --bootstrap=on $PROBE", (6,), warnings=2),
        Case("two tasks per GPU", "srun --quiet -N1 -n4 --ntasks-per-gpu=2 --bootstrap=on $PROBE", (4,), warnings=1),
        Case("batch job", "submit -N1 -n3 --gres=gpu:2 <<< 'srun --bootstrap=on $PROBE; echo srun ended with $?'", (3,), warnings=1),
    ]


def placed(case: Case, cluster: dict[str, int]) -> Case:
    """The case with this cluster's node names: the node with most GPUs, and the nodes with a number of GPUs."""
    names = {"{largest}": max(cluster, key=lambda name: cluster[name])}
    names |= {f"{{with {count}}}": name for name, count in cluster.items()}
    script = case.script
    for word, name in names.items():
        script = script.replace(word, name)
    return replace(case, script=script, wanted=replace(case.wanted, constrained=cluster is UNEVEN))


def fixed(cluster: dict[str, int]) -> list[Case]:
    cases = [case for mode in OUR_MODES for case in basic_cases(mode)]
    cases += bound_cases() + job_cases() + order_cases() + request_cases()
    if cluster is UNEVEN:
        cases += uneven_cases()
    return [placed(case, cluster) for case in cases]


def generated(cluster: dict[str, int], count: int, seed: int) -> list[Case]:
    """`count` steps that fit on the cluster's nodes; the same steps for the same seed."""
    source = random.Random(seed)
    cases = []
    for number in range(count):
        mode = source.choice(["index", "index", "index", "first", "narrow"])
        gpus = source.randint(1, source.choice([2, 4, max(cluster.values())]))
        fitting = sum(size >= gpus for size in cluster.values())
        nodes = source.randint(1, min(fitting, 2))
        tasks = source.randint(1, gpus)
        share = source.random() < 0.2
        if share:
            tasks += source.randint(0, 3)
        shape = f"-N{nodes} --ntasks-per-node={tasks}"
        form = source.choice(["gres", "gres", "node", "task", "salloc", "part", "batch"])
        if form == "task" and (share or gpus % tasks):
            form = "gres"
        asked = {"node": f"--gpus-per-node={gpus}", "task": f"--gpus-per-task={gpus // tasks}"}.get(form, f"--gres=gpu:{gpus}")
        order = source.choice(["", "-m block", "-m cyclic", "-m plane=1"])
        if form == "task" and order == "-m plane=1" and since("-m plane=1 is refused beside --gpus-per-task"):
            order = "-m cyclic"
        ours = f"{order} --bootstrap-gpu={mode} {'--bootstrap-gpu-share' if share else ''}"
        script = f"srun --quiet {shape} {asked} {ours} $PROBE"
        wanted = Wanted(mode, share)
        if form == "salloc":
            script = f"salloc -Q {shape} {asked} srun {ours} $PROBE"
        elif form == "batch":
            script = f"submit {shape} {asked} <<< 'srun {ours} $PROBE'"
        elif form == "part":
            more = source.randint(gpus, sorted(cluster.values())[-nodes])
            script = f"salloc -Q {shape} --gres=gpu:{more} srun --gres=gpu:{gpus} {ours} $PROBE"
            wanted = replace(wanted, per_node=gpus)
        name = f"{number}: {nodes} nodes, {tasks} tasks, {gpus} GPUs each, {form} {order} {mode}{' shared' if share else ''}"
        cases.append(placed(Case(name, script, (nodes * tasks,), wanted), cluster))
    return cases

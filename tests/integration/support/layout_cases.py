"""The layouts that the tests start: a list of named difficult ones, and any number generated from a seed.

A case is a shell script for the login host. It finds there:
  $PROBE     the command of every task: the probe with its folder ($probe and $OUT are its two parts)
  $WIDE      a job on all four nodes, 16 CPUs and 4 of 8 GPUs each;  IN is `srun` for a step in it beside others
  $ODD       a job on all four nodes with 11 CPUs on the first and one on each of the others
  submit     sbatch with a script from standard input, waits for its end
"""

import random
from dataclasses import dataclass

from case_shell import FUNCTIONS
from harness import HAS_PMIX

NODES = ("node001", "node002", "node003", "node004")
MAX_TASKS = 16

PREAMBLE = """
set -u
IN="srun --jobid=$WIDE --overlap"
PROBE="$probe $OUT"
export PROBE OUT
""" + FUNCTIONS


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    steps: tuple[int, ...]  # tasks of each step that the script starts
    hosts: tuple[str, ...] = ()  # of the ranks in order, if the case names them
    naive_fails: bool = False  # the rules of launch scripts give wrong values
    slow: bool = False  # takes seconds: started first

    def __str__(self) -> str:
        return self.name


def inside(name: str, options: str, tasks: int, **more) -> Case:
    """A step in the wide job."""
    return Case(name, f"$IN -n{tasks} {options} $PROBE", (tasks,), **more)


def arbitrary(name: str, hosts: list[str], options: str = "", **more) -> Case:
    wrong = hosts[0] != min(hosts)
    script = f"hostfile {' '.join(hosts)}; $IN -n{len(hosts)} -m arbitrary {options} $PROBE"
    return Case(name, script, (len(hosts),), tuple(hosts), naive_fails=wrong, **more)


# srun's variables for the other components of a step with a list in --export.
HEARD = "SLURM_BOOTSTRAP_DECISION,SLURM_BOOTSTRAP_LAYOUT"


def named(*numbers: int) -> list[str]:
    return [NODES[number - 1] for number in numbers]


def plain_cases() -> list[Case]:
    return [
        inside("one task", "-N1", 1),
        inside("uneven: 5 tasks on 3 nodes", "-N3", 5),
        inside("uneven cyclic", "-N3 -m cyclic", 11),
        inside("plane that does not divide", "-N3 -m plane=2", 7),
        inside("plane larger than the step", "-N2 -m plane=32", 6),
        inside("block on sockets", "-N4 -m block:cyclic,nopack", 9),
        Case("cyclic by variable", "SLURM_DISTRIBUTION=cyclic $IN -N4 -n10 $PROBE", (10,)),
        inside("tasks per node", "-N4 --ntasks-per-node=3", 12),
        inside("two CPUs a task", "-N2 -c2", 6),
        inside("node list backwards", "-w node004,node002", 4),
        inside("node list in brackets", "-w node[002-003] -m cyclic", 5),
        inside("relative", "-N2 --relative=2", 5),
        inside("relative, cyclic", "-N3 -r1 -m cyclic", 8),
        inside("without the first node", "-N3 -x node001", 7),
        inside("without one in the middle", "-N3 -x node002 -m plane=2", 8),
        inside("all", "-N4", 16),
        inside("overcommitted", "-N1 -O", 16),
        inside("with GPUs", "-N2 --gres=gpu:2", 4),
        inside("with GPUs of its own", "-N4 --gres=gpu:1 --bootstrap=on -m cyclic", 6),
        inside("labelled", "-N2 --label --unbuffered", 5),
        *([inside("with PMIx", "-N2 --mpi=pmix", 6)] if HAS_PMIX else []),
        inside("export none", "-N3 --export=NONE -m cyclic", 6),
        inside("export nil", "-N2 --export=NIL", 3),
        inside("export all and one", "-N2 --export=ALL,WORD=1", 4),
        inside("export a list", "-N2 --export=HOME,WORD=1 -m cyclic", 5),
        Case("odd job, block", "srun --jobid=$ODD --overlap -n14 $PROBE", (14,)),
        Case("odd job, cyclic", "srun --jobid=$ODD --overlap -n14 -m cyclic $PROBE", (14,)),
        Case("odd job, plane", "srun --jobid=$ODD --overlap -n14 -m plane=3 $PROBE", (14,)),
        Case("odd job, fewer tasks, cyclic", "srun --jobid=$ODD --overlap -N2-4 -n9 -m cyclic:cyclic $PROBE", (9,)),
        inside("the job's counts, kept", "-E -N3 -m cyclic", 7),
        Case("odd job, cyclic without the first", "srun --jobid=$ODD --overlap -N3 -r1 -n3 -m cyclic $PROBE", (3,)),
        Case("terminal", "script -qec \"$IN -N2 -n3 --pty --bootstrap=on $PROBE\" /dev/null", (3,)),
    ]


def crowded_cases() -> list[Case]:
    """More tasks than CPUs, on nodes of which one has many more CPUs than the others. Ranks of MPI would take minutes there."""
    return [Case(f"odd job, overcommitted, {order}", f"srun --jobid=$ODD --overlap -O -n16 {order} $PROBE", (16,))
            for order in ("-m block", "-m block:fcyclic,pack", "-m cyclic:block", "-m plane=2")]


def arbitrary_cases() -> list[Case]:
    return [
        arbitrary("rank 0 on the last node", named(3, 1, 2)),
        arbitrary("backwards", named(4, 3, 2, 1)),
        arbitrary("interleaved", named(2, 1, 2, 1, 3, 2)),
        arbitrary("repeated", named(4, 4, 4, 1, 1, 4)),
        arbitrary("all on a node that is not the first", named(3, 3, 3)),
        arbitrary("uneven", named(2, 3, 3, 3, 3, 1, 3, 3)),
        arbitrary("as cyclic", named(1, 2, 3, 1, 2, 3)),
        arbitrary("arbitrary and export none", named(4, 2, 4), "--export=NONE"),
        arbitrary("arbitrary and export nil", named(2, 1), "--export=NIL"),
        arbitrary("arbitrary and an export list", named(3, 2, 1), "--export=HOME"),
        Case("arbitrary in a job of its own", "hostfile node003 node001 node003; srun -n3 -m arbitrary $PROBE", (3,),
             ("node003", "node001", "node003"), naive_fails=True),
        Case("arbitrary by variable", "hostfile node002 node001; SLURM_DISTRIBUTION=arbitrary $IN -n2 $PROBE", (2,),
             ("node002", "node001"), naive_fails=True),
        Case("arbitrary by node list", "$IN -m arbitrary -n3 -w node003,node001,node003 $PROBE", (3,),
             ("node003", "node001", "node003"), naive_fails=True),
        Case("arbitrary in a batch job", "submit -N4 <<< 'printf \"node004\\nnode001\\n\" > $OUT/hosts; "
             "SLURM_HOSTFILE=$OUT/hosts srun -n2 -m arbitrary $PROBE'", (2,),
             ("node004", "node001"), naive_fails=True),
    ]


def het_cases() -> list[Case]:
    """Heterogeneous jobs, and steps of several components inside a plain job."""
    # Components that share a node are not here: Slurm refuses them ("overlaps with excluded node" in a step,
    # "Invalid node name specified" in a job).
    def step(name: str, components: str, tasks: int, options: str = "", **more) -> Case:
        parts = " : ".join(f"--overlap {options} {component} $PROBE" for component in components.split(" : "))
        return Case(name, f"srun --jobid=$WIDE {parts}", (tasks,), **more)

    def job(name: str, components: str, tasks: int, options: str = "", **more) -> Case:
        parts = " : ".join(f"{options} {component} $PROBE" for component in components.split(" : "))
        return Case(name, f"srun --quiet {parts}", (tasks,), slow=True, **more)

    groups = "salloc -Q -n2 -wnode004 : -N2 -n3 -wnode[001-002] : -n1 -wnode003 bash -c 'srun --het-group={} $PROBE'"
    return [
        step("components in a plain job", "-N1 -n1 : -N2 -n3", 4),
        step("equal components in a plain job", "-N2 -n2 : -N2 -n2", 4),
        step("three components, the first on the last node",
             "-N1 -n2 -wnode004 : -N2 -n5 -m cyclic -wnode[001,003] : -n1 -wnode002", 8, naive_fails=True),
        step("components, exporting a list", "-N1 -n2 -wnode003 : -N2 -n3 -wnode[001-002]", 5,
             f"--export={HEARD},HOME", naive_fails=True),
        step("components, exporting all and one", "-N1 -n1 -wnode002 : -N1 -n2 -wnode001", 3,
             f"--export=ALL,{HEARD},WORD=1", naive_fails=True),
        Case("arbitrary order in a component", "hostfile node003 node001 node003; srun --jobid=$WIDE --overlap -n3 "
             "-m arbitrary $PROBE : --overlap -n2 -N1 -wnode002 -m block $PROBE", (5,),
             tuple(named(3, 1, 3, 2, 2)), naive_fails=True),
        job("het job of two", "-N1 -n2 : -N2 -n3", 5),
        job("het job of three", "-n1 -wnode004 : -N2 -n5 -m cyclic -wnode[002-003] : -n4 -wnode001", 10, naive_fails=True),
        job("het job with GPUs", "-n2 --gres=gpu:2 -wnode002 : -n1 --gres=gpu:1 -wnode001", 3, naive_fails=True),
        job("het job, exporting nothing but our messages", "-n2 -wnode002 : -N2 -n3 -wnode[001,003]", 5,
            f"--export={HEARD}", naive_fails=True),
        Case("het groups: all", groups.format("0-2"), (6,), slow=True, naive_fails=True),
        Case("het groups: two of three", groups.format("0,2"), (3,), slow=True, naive_fails=True),
        Case("het groups: the last two", groups.format("1,2"), (4,), slow=True),
        Case("het groups: one, not the first", groups.format("1"), (3,), slow=True),
        Case("het batch job", "submit -n2 -wnode003 : -N2 -n2 -wnode[001-002] <<< "
             "'srun --het-group=0,1 $PROBE; srun $PROBE'", (4, 2), slow=True, naive_fails=True),
    ]


def unheard_cases() -> list[Case]:
    """Steps with a component that srun's decision cannot reach: one sentence, and no component is set up."""
    return [
        Case(f"components and {export}", f"srun --jobid=$WIDE --overlap {export} -n2 -wnode003 $PROBE : "
             f"--overlap {export} -N2 -n3 -wnode[001-002] $PROBE", ())
        for export in ("--export=NONE", "--export=NIL", "--export=HOME", "--export=ALL,WORD=1")
    ] + [Case("het job and --export=NONE", "srun --export=NONE -n2 -wnode002 $PROBE : "
              "--export=NONE -n3 -wnode001 $PROBE", ())]


def job_cases() -> list[Case]:
    """Batch jobs, arrays, requeued jobs, interactive jobs, simultaneous steps, steps inside tasks."""
    nested = "$IN -N4 -n4 bash -c '$PROBE; [ $RANK != 3 ] || {} srun --overlap -N3 -n5 -m cyclic $PROBE'"
    return [
        Case("salloc", "salloc -Q -N3 -n7 srun $PROBE", (7,)),
        Case("salloc cyclic", "salloc -Q -N3 -n8 -m cyclic srun $PROBE", (8,)),
        Case("interactive salloc", "echo \"srun $PROBE; exit\" | script -qec 'salloc -Q -N2 -n3' /dev/null", (3,)),
        Case("sbatch", "submit -N3 -n8 <<< 'srun $PROBE; srun -N2 -n2 $PROBE'", (8, 2)),
        Case("sbatch, export none", "submit -N2 -n5 --export=NONE <<< \"srun -m cyclic $PROBE\"", (5,)),
        Case("job array", "submit --array=1-4 -N2 -n3 <<< 'srun $PROBE'; "
             "for ((i = 0; i < 200; i++)); do ls $OUT/*.task | wc -l | grep -qx 12 && break; sleep 0.1; done",
             (3, 3, 3, 3), slow=True),
        Case("requeue", "submit --requeue -N2 -n4 <<< 'srun $PROBE\n"
             "[ ${SLURM_RESTART_COUNT:-0} != 0 ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }'", (4, 4), slow=True),
        Case("several steps at once", "salloc -Q -N2 -n8 bash -c "
             "'for i in 1 2 3 4 5; do srun --overlap -N2 -n3 $PROBE & done; wait'", (3,) * 5, naive_fails=True),
        Case("several exact steps at once", "salloc -Q -N2 -n8 --ntasks-per-node=4 bash -c "
             "'for i in 1 2; do srun --exact -N2 -n4 $PROBE & done; wait'", (4, 4), slow=True, naive_fails=True),
        Case("several programs", "printf '0,2 %s\\n1,3-4 %s\\n' \"$PROBE\" \"$PROBE\" > $OUT/programs; "
             "$IN -N2 -n5 -m cyclic --multi-prog $OUT/programs", (5,)),
        Case("step inside a task", nested.format(""), (4, 5)),
        Case("step inside a task, port chosen there", nested.format("MASTER_PORT=31013"), (4, 5)),
        Case("job sent from a task",
             "printf '#!/bin/bash\\nsrun -N2 -n3 -m cyclic %s\\ntouch %s/done\\n' \"$PROBE\" $OUT > $OUT/inner; "
             "$IN -N2 -n2 bash -c '$PROBE; [ $RANK = 0 ] || sbatch -Q -N2 -n3 -o $OUT/log $OUT/inner'; "
             "for ((i = 0; i < 200; i++)); do [[ ! -e $OUT/done ]] || break; sleep 0.1; done", (2, 3)),
        Case("srun of another job from a task", "$IN -N2 -n2 bash -c '$PROBE; [ $RANK = 0 ] || "
             "srun --jobid='$ODD' --overlap -N2 -n6 -m cyclic $PROBE'", (2, 6)),
    ]


def generated(count: int, seed: int) -> list[Case]:
    """`count` layouts with one step each; the same layouts for the same seed."""
    source = random.Random(seed)
    exports = ["", "", "", "--export=ALL", "--export=NONE", "--export=NIL", "--export=HOME,WORD=2"]
    cases = []
    for number in range(count):
        nodes = source.randint(1, 4)
        tasks = max(nodes, source.randint(1, MAX_TASKS), source.randint(1, MAX_TASKS))
        export = source.choice(exports)
        order = source.choice(["", "-m block:cyclic,pack", "-m cyclic:fcyclic", f"-m plane={source.randint(1, 5)}", "arbitrary", "arbitrary"])
        name = f"{number}: n={tasks} N={nodes} {order} {export}"
        if order == "arbitrary":
            hosts = source.choices(source.sample(NODES, nodes), weights=[1, 2, 4, 8][:nodes], k=tasks)
            cases.append(arbitrary(name, hosts, export))
            continue
        where = source.choice([f"-N{nodes}", f"-N{nodes}", f"-N{nodes} -r{source.randint(0, 4 - nodes)}",
                               f"-w {','.join(source.sample(NODES, nodes))}"])
        form = source.choice(["$IN {}"] * 8 + ["srun {}", "salloc -Q {}", "gpus"])
        step = f"{where} -n{tasks} {order} {export} $PROBE"
        if form == "gpus":
            step = f"$IN --gres=gpu:{source.randint(1, 4)} {step}"
        elif form.startswith("$IN"):
            step = form.format(step)
        else:  # --relative counts nodes of an existing job; planes must reach every node
            plain = f"-N{nodes} -n{tasks} {'-m plane=1' if 'plane' in order else order}"
            step = f"srun {plain} {export} $PROBE" if form.startswith("srun") else f"salloc -Q {plain} srun {export} $PROBE"
        cases.append(Case(name, step, (tasks,)))
    return cases


def fixed() -> list[Case]:
    return plain_cases() + arbitrary_cases() + het_cases() + job_cases()

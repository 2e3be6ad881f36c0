"""Kinds A and E of the reports: single tasks, tasks that start their own processes, and programs that count threads."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import WEEK, Site, rows

FABRIC = {"environment": "pytorch-debian", "seconds": 120}
COMPOSER = {"environment": "pytorch-2.7", "is_slow": True, "seconds": 90}
FABRIC_TWO = "python3 $T/lightning_train.py fabric 2 1"

ALONE = rows(
    "a task that stands alone",
    ("lightning_pty", "Lightning 16730", "Fabric(devices=2) in a shell on a terminal starts its own two processes.",
     f"""train terminal "$L1 --pty bash -c '{FABRIC_TWO}'" """, FABRIC),
    ("lightning_pty_named", "Lightning 19762", "The same with a job name of the user's own.",
     f"""train terminal "$L1 -J train --pty bash -c '{FABRIC_TWO}'" """, FABRIC),
    ("lightning_bash", "Lightning 16730", "Lightning with two devices in a shell, in a job named bash.",
     f"train $L1 -J bash bash -c '{FABRIC_TWO}'", FABRIC),
    ("lightning_direct", "framework trial, 5", "One task, Lightning with two devices, as the program of the step.",
     f"train $L1 {FABRIC_TWO}", FABRIC),
    ("composer", "llm-foundry 439", "composer is one task and starts one process for each GPU.",
     "train $L1 composer -n 2 $T/composer_train.py", COMPOSER),
    ("composer_bash", "llm-foundry 243", "The same in a shell.",
     "train $L1 bash -c 'composer -n 2 $T/composer_train.py'", COMPOSER),
    ("composer_in_scripts", "framework trial, 3", "One composer on each of two nodes, each a world of its own.",
     "train srun -N2 --ntasks-per-node=1 --gres=gpu:1 bash -c 'composer -n 2 $T/composer_train.py'", COMPOSER),
    ("deepspeed_mpirun", "DeepSpeed 461", "mpirun in a step's shell, and DeepSpeed finds its ranks over MPI.",
     """$L1 -c4 bash -c "mpirun --oversubscribe -n 2 $READ deepspeed" """, {"needs": ("mpirun",)}),
    ("deepspeed_mpirun_pty", "DeepSpeed 608", "The same on a terminal.",
     """terminal "$L1 -c4 --pty bash -c 'mpirun --oversubscribe -n 2 $READ deepspeed'" """, {"needs": ("mpirun",)}),
    ("accelerate_mpirun_pty", "framework trial, A", "Accelerate under mpirun on a terminal.",
     """terminal "$L1 -c4 --pty bash -c 'mpirun --oversubscribe -n 2 $READ mpi_accelerate'" """, {"needs": ("mpirun",)}),
    ("device_map", "accelerate 2682", "One task loads a model over both of its GPUs.", """$L1 $READ accelerate device_map"""),
    ("device_map_bash", "transformers 31557", "The same in a shell.", """$L1 bash -c "$READ accelerate device_map" """),
    ("ultralytics_one", "ultralytics 16446", "One task with one GPU trains, RANK is nobody's business.",
     """srun -n1 --gres=gpu:1 $READ ultralytics 0"""),
    ("ultralytics_two", "ultralytics 13833", "One task with two GPUs starts its own two processes.", """$L1 $READ ultralytics 0,1"""),
    ("spawn", "framework trial, 8", "torch.multiprocessing.spawn on each of two nodes, MASTER_ADDR by setdefault.",
     "train $W2 python3 $T/spawn_train.py", {"needs": ("torchrun",), "seconds": 120}),
    ("ray_script", "framework trial, 11", "Ray's documented script: one task a node, and its workers inherit the environment.",
     "train job -N2 --ntasks-per-node=1 --gres=gpu:2 <<< 'export RAY_DEDUP_LOGS=0; cd $T; bash ray_nodes.sh' | grep -v srun",
     {"environment": "pytorch", "is_slow": True, "seconds": 240}),
    ("ray_direct", "framework trial, 11", "ray as the program of the step.",
     """mkdir bin; cp $P/show_env.py bin/ray; $W2 bin/ray start"""),
    ("env_mpirun", "flux-core 5203", "mpirun behind env.", """$L1 -c4 env A=1 mpirun --oversubscribe -n 2 $READ deepspeed""",
     {"needs": ("mpirun",)}),
    ("timeout_mpirun", "flux-core 5206", "mpirun behind timeout and nice.",
     """$L1 -c4 timeout 20 nice -n 1 mpirun --oversubscribe -n 2 $READ deepspeed""", {"needs": ("mpirun",)}),
    ("prterun", "flux-core 223", "prterun, prun, smpd, jsrun and mpiexec.hydra as programs of a step in a world's shape.",
     """for name in prterun prun smpd jsrun mpiexec.hydra; do cp $P/show_env.py $name; ready; $W4 ./$name -n 4 prog; done"""),
    ("launchers_by_name", "rules", "Launchers and agents whose file is Python, in a world's shape.",
     """for name in accelerate-launch composer deepspeed fabric horovodrun dask snakemake orted clush; do cp $P/show_env.py $name; ready; $L2 ./$name; done"""),
    ("orted_behind_wrapper", "pyxis 88", "mpirun in a batch job of two nodes, its daemons behind a script of the site.",
     """printf '#!/bin/sh\\nexec orted "$@"\\n' > wrapper; chmod +x wrapper
job -N2 --ntasks-per-node=2 --gres=gpu:2 <<< 'mpirun --mca orte_launch_agent $OUT/wrapper $B/mpi_ring'""", {"needs": ("mpirun",)}),
    ("one_task_env", "rules", "The environment of one task with one GPU, whose program is Python.",
     """srun -n1 --gres=gpu:1 python3 $P/show_env.py"""),
    ("one_task_elf_env", "rules", "The environment of one task with two GPUs, whose program is compiled.", """$L1 $B/show_env"""),
    ("pty_env", "rules", "The environment on a terminal.", """terminal "$W4 --pty bash -c \\"\\$SHOW\\"" """),
    ("pty_python", "rules", "Python on a terminal in a world's shape.", """terminal "$L2 --pty python3 $P/show_env.py" """),
)  # fmt: skip

GMX = """
cat > tiny.top <<'X'
[ defaults ]
1 1 no 1.0 1.0
[ atomtypes ]
A 18 39.948 0.0 A 0.00622 0.0000097
[ moleculetype ]
AR 1
[ atoms ]
1 A 1 AR A 1 0.0 39.948
[ system ]
argon
[ molecules ]
AR 64
X
{ echo argon; echo 64; for ((i = 0; i < 64; i++)); do
  printf '%5d%-5s%5s%5d%8.3f%8.3f%8.3f\\n' $((i + 1)) AR A $((i + 1)) 0.$((i % 4 * 2 + 1)) 0.$((i / 4 % 4 * 2 + 1)) 0.$((i / 16 * 2 + 1)); done
  echo ' 3.0 3.0 3.0'; } > tiny.gro
printf 'integrator=md\\nnsteps=20\\ndt=0.001\\ncutoff-scheme=Verlet\\nrlist=1.0\\nrcoulomb=1.0\\nrvdw=1.0\\nnstlog=20\\n' > tiny.mdp
gmx -quiet grompp -f tiny.mdp -c tiny.gro -p tiny.top -o tiny.tpr > grompp.log 2>&1 || cat grompp.log
run() { "$@" > run.log 2>&1; echo "status $?"; grep -hE 'Using [0-9]+ (MPI|OpenMP)|different values|Fatal|Finished mdrun' run.log md.log | sed 's/ on .*//' | sort -u; }
"""

THREADS = rows(
    "threads and cores",
    ("gromacs", "public reports, E", "gmx mdrun with one thread on its command line, in a step with a GPU.",
     GMX + "run srun -n1 -c2 --gres=gpu:1 gmx -quiet mdrun -s tiny.tpr -ntmpi 1 -ntomp 1 -nb cpu", {"needs": ("gmx",), "seconds": 120}),
    ("gromacs_threads", WEEK, "gmx mdrun that takes the threads it finds.",
     GMX + "run srun -n1 -c2 --gres=gpu:2 gmx -quiet mdrun -s tiny.tpr -ntmpi 1 -nb cpu",
     {"needs": ("gmx",), "seconds": 120, "is_slow": True}),
    ("gromacs_bash", WEEK, "gmx in a shell that sets OMP_NUM_THREADS itself.",
     GMX + "run srun -n1 -c2 --gres=gpu:1 bash -c 'export OMP_NUM_THREADS=1; gmx -quiet mdrun -s tiny.tpr -ntmpi 1 -nb cpu'",
     {"needs": ("gmx",), "seconds": 120, "is_slow": True}),
    ("nproc_one_task", "parallelly 55", "nproc of one task with three GPUs and six cores.", """srun -n1 -c6 --gres=gpu:3 nproc"""),
    ("nproc_world", "enroot 175", "nproc in a world's shape.", """$W4 nproc"""),
    ("nproc_bash", "parallelly 55", "nproc in a shell of each task.", """$L2 -c2 bash -c 'make -j $(nproc) -f /dev/null -n 2>&1; nproc'"""),
    ("omp_default", "public reports, E", "OpenMP's own default in a world's shape.", """$W4 -c2 $B/omp_threads | sed 's/, GPUs.*//'"""),
    ("omp_user", WEEK, "OMP_NUM_THREADS of the user's is kept.", """OMP_NUM_THREADS=3 $L2 $B/omp_threads"""),
    ("omp_from_slurm", WEEK, "OMP_NUM_THREADS from SLURM_CPUS_PER_TASK in a batch script.",
     """job -n1 -c3 --gres=gpu:1 <<< 'export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK; srun $B/omp_threads'"""),
    ("vllm_threads", "public reports, E", "vLLM and Ray take the presence of OMP_NUM_THREADS for the user's word.",
     """$W4 $READ threads"""),
    ("lammps", "public reports, E", "LAMMPS says how many threads it takes.",
     """cat > in.lj <<'X'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 4 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
velocity all create 1.0 87287
fix 1 all nve
run 10
X
srun --mpi=pmix -n1 -c2 --gres=gpu:1 lmp -in in.lj -log none 2>&1 | grep -E 'OMP|omp|Created|Step|^ +(0|10) '""",
{"needs": ("lmp",), "seconds": 120}),
    ("lammps_omp", "public reports, E", "LAMMPS with its OpenMP style.",
     """printf 'package omp 0\\ninfo config\\n' > in.omp; srun --mpi=pmix -n1 -c2 --gres=gpu:1 lmp -sf omp -in in.omp -log none 2>&1 | grep -iE 'omp_num|thread'""",
     {"needs": ("lmp",), "seconds": 120, "is_slow": True}),
    ("python_pool", WEEK, "A pool of processes as large as the affinity.",
     """cat > pool.py <<'X'
import multiprocessing, os
with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
    print(os.environ["SLURM_PROCID"], sum(pool.map(abs, range(-50, 50))), pool._processes)
X
$L2 -c2 python3 pool.py"""),
    ("numpy", WEEK, "numpy in a world's shape.",
     """$L2 python3 -c 'import numpy; print(numpy.arange(10).sum(), (numpy.eye(3) @ numpy.eye(3)).trace())'"""),
)  # fmt: skip

BOUND = rows(
    "another plugin of the site",
    *((f"mpibind_{order}_{name}", "public reports, E", f"mpibind {order} our line: {what}", script, {"site": site})
      for order, site in (("before", Site("mpibind first", before="optional {doubles}/site_spank.so mpibind")),
                          ("after", Site("mpibind last", after="optional {doubles}/site_spank.so mpibind")))
      for name, what, script in (
          ("omp", "the threads of an OpenMP program.", "srun -n2 -c2 --gres=gpu:2 $B/omp_threads"),
          ("shell", "the environment of shells.", '$W4 bash -c "$SHOW"'),
          ("one", "the environment of one task.", "$L1 -c2 python3 $P/show_env.py"))),
    *((f"pyxis_{order}_{name}", "public reports, K", f"pyxis {order} our line: {what}", script, {"site": site, **more})
      for order, site in (("before", Site("pyxis first", before="optional {doubles}/site_spank.so pyxis")),
                          ("after", Site("pyxis last", after="optional {doubles}/site_spank.so pyxis")))
      for name, what, script, more in (
          ("one", "one task in an image of PyTorch.", "$L1 --container-image=pytorch python3 $P/show_env.py", {}),
          ("plain", "an image without PyTorch, no GPUs.", "srun -N2 -n4 --container-image=ubuntu python3 $P/show_env.py", {}),
          ("none", "a step without an image.", '$L2 bash -c "$SHOW"', {}),
          ("ranks", "each task of a world in an image of PyTorch has its own GPU.",
           "$W4 --container-image=pytorch python3 -c 'import os; place = int(os.environ[\"LOCAL_RANK\"]); "
           "print(os.environ[\"RANK\"], os.environ[\"WORLD_SIZE\"], os.environ[\"CUDA_VISIBLE_DEVICES\"].split(\",\")[place])'", {}))),
)  # fmt: skip

CASES = ALONE + THREADS + BOUND

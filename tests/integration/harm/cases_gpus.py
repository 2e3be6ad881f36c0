"""Kinds C and F of the reports: which GPUs a task takes, and steps that share them."""

# SPDX-License-Identifier: Apache-2.0

from cases_torchrun import SAID_AGAIN
from harm_case import KNOWN, WEEK, Site, rows

FIRST = "$READ first_device"

MIG = Site("MIG", before="optional {doubles}/site_spank.so uuids=MIG-0,MIG-1,MIG-2,MIG-3")

APART = rows(
    "GPUs per task",
    ("per_task_first", "libensemble 1206", "Four tasks with a GPU each, whose programs take device 0.",
     f"srun -n4 --gpus-per-task=1 {FIRST}"),
    ("per_task_env", "mace 435", "The environment of a compiled program, GPUs per task.", "srun -n4 --gpus-per-task=1 $B/show_env"),
    ("per_task_jax", "jax 23452", "JAX of each task takes its own GPU, which is its first.",
     f"srun -n4 --gpus-per-task=1 python3 $P/show_env.py"),
    ("per_task_torchrun", "public reports, C", "Two torchruns with two GPUs each.",
     "srun -n2 --gpus-per-task=2 torchrun --standalone --nproc-per-node=2 $P/readers.py all_devices " + SAID_AGAIN,
     {"environment": "pytorch", "is_slow": True, "variables": {"OMP_NUM_THREADS": "1"}, "seconds": 90}),
    ("per_task_vllm", "public reports, C", "Two vllm -tp 2 replicas.", "srun -n2 --gpus-per-task=2 $READ all_devices"),
    ("per_task_job", "rules", "GPUs per task of the job, not of its step.", f"job -n4 --gpus-per-task=1 <<< 'srun {FIRST}'"),
    ("per_task_two_nodes", WEEK, "GPUs per task on two nodes.", f"srun -N2 -n4 --gpus-per-task=1 {FIRST}"),
    ("ntasks_per_gpu", "public reports, F", "One GPU and two tasks for it, the user's explicit word.",
     f"srun --gpus=1 --ntasks-per-gpu=2 {FIRST}"),
    ("ntasks_per_gpu_env", "rules", "The same with two GPUs.", "srun --gpus=2 --ntasks-per-gpu=1 python3 $P/show_env.py"),
    *((f"gpu_bind_{name}", "rules", f"--gpu-bind={value} in a world's shape.", f"$L2 --gpu-bind={value} python3 $P/show_env.py")
      for name, value in (("single", "single:1"), ("map", "map_gpu:1,0"), ("mask", "mask_gpu:0x1,0x3"),
                          ("verbose", "verbose,map_gpu:0,1"))),
    ("gpu_bind_variable", "rules", "SLURM_GPU_BIND of the user's.", "SLURM_GPU_BIND=map_gpu:1,0 $L2 python3 $P/show_env.py"),
    ("gpu_bind_none", "rules", "--gpu-bind=none: all lists stay as Slurm leaves them.",
     "$L2 --gpu-bind=none python3 -c 'import os; print(os.environ.get(\"CUDA_VISIBLE_DEVICES\"), os.environ.get(\"SLURM_STEP_GPUS\"))'"),
    ("select_gpu_wrapper", "LUMI, NERSC, OLCF pages", "A wrapper that gives each task one GPU, and a program that takes LOCAL_RANK or 0.",
     """printf '#!/bin/bash\\nexport CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\\nexec "$@"\\n' > select_gpu; chmod +x select_gpu
$W4 ./select_gpu $READ torch_mpi"""),
    ("select_gpu_inline", "framework trial, 1", "A sweep in shells, one GPU each (Accelerate).",
     "train $L2 bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python3 $T/accelerate_train.py'",
     {"environment": "pytorch-debian", "seconds": 120}),
    ("select_gpu_lightning", "framework trial, 2", "The same with Lightning, one device.",
     "train $L2 -J bash bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python3 $T/lightning_train.py fabric 1 1'",
     {"environment": "pytorch-debian", "seconds": 120}),
    ("mig_world", "rules", "A world's shape with MIG.", "$L2 python3 $P/show_env.py",
     {"site": MIG, "ignores": "NOT SET UP: Slurm allocated MIG instances"}),
    ("mig_one", "rules", "One task with MIG.", "$L1 $B/show_env", {"site": MIG}),
    ("tasks_gpus_hand_made", "rules", "A hand-made map from local ids to GPUs stays right.",
     """cat > map.py <<'X'
import os
order = [2, 3, 0, 1]
print(os.environ["SLURM_PROCID"], os.environ["CUDA_VISIBLE_DEVICES"].split(",")[order[int(os.environ["SLURM_LOCALID"])]])
X
srun -N1 --ntasks-per-node=4 --gres=gpu:4 python3 map.py"""),
    ("gpu_list_as_slurm_sets_it", "rules", "The list of GPUs in a world is byte for byte that of Slurm.",
     """cat > lists.py <<'X'
import os
for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL", "SLURM_GPUS_ON_NODE"):
    print(os.environ["SLURM_PROCID"], name, os.environ.get(name))
X
$W4 python3 lists.py"""),
)  # fmt: skip

SHARED = rows(
    "shared and uneven steps",
    ("four_on_one", "vlasiator 447", "Four ranks of an MPI program share one GPU.", "srun --mpi=pmix -n4 --gres=gpu:1 $B/mpi_ring"),
    ("four_on_one_python", "jax 29669", "Four Python tasks share one GPU.", f"srun -n4 --gres=gpu:1 python3 $P/show_env.py"),
    ("eight_on_four", "E3SM 6169", "Eight ranks share four GPUs of two nodes.", "srun --mpi=pmix -N2 -n8 --gres=gpu:2 $B/mpi_ring"),
    ("hostname_in_job", "horovod 1038", "srun hostname in a job with more tasks than GPUs makes its host file.",
     """job -N2 --ntasks-per-node=4 --gres=gpu:2 <<'X'
srun hostname | sort | uniq -c > hosts; cat hosts; [ -s hosts ] || exit 9
X"""),
    ("overlap_four_in_two", "public reports, F", "Four tasks into a job with two GPUs, from outside.",
     """id=$(sbatch --parsable -N1 -n2 --gres=gpu:2 -o /dev/null --wrap 'sleep 20'); running $id
srun --jobid=$id --overlap -n4 -O python3 $P/show_env.py; status=$?; scancel $id; exit $status"""),
    ("overlap_one", "fine already", "One more task into a running job, to look at it.",
     """id=$(sbatch --parsable -N1 -n2 --gres=gpu:2 -o /dev/null --wrap 'sleep 20'); running $id
srun --jobid=$id --overlap -n1 bash -c "$SHOW"; status=$?; scancel $id; exit $status"""),
    ("dealt_3_and_1", "framework trial, 6", "salloc -N2 -n4 that Slurm deals as 3 and 1.",
     "salloc -N2 -n4 -c2 --gres=gpu:2 srun -n4 -m plane=3 $B/show_env"),
    ("dealt_3_and_1_jax", "framework trial, 6", "The same with JAX.",
     "train salloc -Q -N2 -n4 -c2 --gres=gpu:2 srun -n4 -m plane=3 python3 $E/train_jax.py", {"environment": "jax", "seconds": 120}),
    ("five_on_two_nodes", "rules", "Five tasks on two nodes, three and two.", "srun -N2 -n5 --gres=gpu:3 python3 $P/show_env.py"),
    ("five_gpus_even_tasks", "rules", "Five GPUs on two nodes, three and two, with two tasks on each.",
     "srun -N2 --ntasks-per-node=2 -c3 --gpus=5 python3 $P/show_env.py"),
    ("five_gpus_a_task_each", "rules", "Five GPUs on two nodes, four and one, with a task for each.",
     "srun -N2 -n5 --gpus=5 python3 $P/show_env.py"),
    ("fewer_tasks", "rules", "Fewer tasks than GPUs.", "srun -N1 -n2 --gres=gpu:4 python3 $P/show_env.py"),
    ("several_gpus_a_task", "rules", "Two nodes, one task and two GPUs on each.", "$W2 python3 $P/show_env.py"),
    ("gpus_of_the_job", "rules", "Two nodes with --gpus=4 alone.", "srun -N2 -n4 --gpus=4 python3 $P/show_env.py"),
    ("gpus_per_socket", "rules", "GPUs per socket.", "srun -N1 -n2 --sockets-per-node=1 --gpus-per-socket=2 python3 $P/show_env.py"),
    ("no_gpus", "rules", "Two nodes, four tasks, no GPUs.", "srun -N2 -n4 python3 $P/show_env.py"),
    ("cpu_step_in_gpu_job", WEEK, "A step without GPUs in a job that has some.",
     """job -N2 --ntasks-per-node=2 --gres=gpu:2 <<< 'srun --gres=none python3 $P/show_env.py'"""),
    ("het_step", "fine already", "Two components of a het step, each in a world's shape.",
     "srun -n2 -N1 --gres=gpu:2 python3 $P/show_env.py : -n2 -N1 --gres=gpu:2 python3 $P/show_env.py", {"ignores": "SLURM_DISTRIBUTION"}),
    ("het_without_gpus", WEEK, "A het step: a server without GPUs, and clients with.",
     "srun -n1 -N1 bash -c \"$SHOW\" : -n2 -N1 --gres=gpu:2 $B/show_env", {"ignores": "SLURM_DISTRIBUTION"}),
    ("het_off", "rules", "A het step with --bootstrap=off.",
     "srun {off} -n2 -N1 --gres=gpu:2 $B/show_env : {off} -n2 -N1 --gres=gpu:2 $B/show_env", {"ignores": "SLURM_DISTRIBUTION"}),
    ("het_job", WEEK, "A het job and a step on its first component.",
     """cat > batch <<'X'
#!/bin/bash
#SBATCH -n1 -N1 --gres=gpu:1
#SBATCH hetjob
#SBATCH -n2 -N1 --gres=gpu:2
srun --het-group=0 bash -c "$SHOW"; srun --het-group=1 $READ first_device; echo $? > status
X
sbatch --quiet --output=log batch; await status; cat log"""),
    ("exact_farm", WEEK, "--exact steps in the background, each with one GPU.",
     """job -N1 -n4 --gres=gpu:4 <<'X'
for i in 0 1 2 3; do srun --exact -n1 -c1 --gres=gpu:1 -o out.$i $B/show_env & done; wait
for i in 0 1 2 3; do grep -c . out.$i; done
X"""),
    ("exclusive_steps", WEEK, "srun --exclusive steps in a job, as older scripts have it.",
     """job -N1 -n2 --gres=gpu:2 <<'X'
for i in 0 1; do srun --exclusive -n1 --gres=gpu:1 -o out.$i $READ all_devices & done; wait; cat out.* | wc -l
X"""),
    ("salloc_shell", "fine already", "A shell of salloc, with srun hostname in it.",
     """terminal "salloc -Q -N2 --ntasks-per-node=2 --gres=gpu:2 bash -c 'srun hostname; srun -n1 -N1 nproc; env | grep -c RANK'" """),
)  # fmt: skip

FARM = "$L2 python3 $P/readers.py trainer 0.1"

KNOWN_ROWS = rows(
    "known, with its remedy",
    ("farm_python", "rules", "A farm whose program is Python itself, in a world's shape.", FARM,
     {"relation": KNOWN, "remedy": "farm_python_off"}),
    ("farm_python_off", "rules", "Remedy: --bootstrap=off.", "$L2 {off} python3 $P/readers.py trainer 0.1"),
    ("farm_python_variable", "rules", "Remedy: SLURM_BOOTSTRAP=off.", f"export SLURM_BOOTSTRAP=off; {FARM}"),
    ("farm_python_sbatch", "rules", "Remedy: one line of #SBATCH.",
     """job -N1 --ntasks-per-node=2 --gres=gpu:2 {off} <<< 'srun python3 $P/readers.py trainer 0.1'"""),
    ("farm_env_off", "rules", "With --bootstrap=off the whole environment is stock's.",
     "$W4 {off} python3 $P/show_env.py"),
    ("farm_env_variable", "rules", "With SLURM_BOOTSTRAP=off, too.", "SLURM_BOOTSTRAP=off $W4 python3 $P/show_env.py"),
    ("nested_ntasks_per_gpu", "rules", "A nested srun --ntasks-per-gpu in a Python world.",
     """cat > nested.py <<'X'
import os, subprocess, sys
if os.environ["SLURM_PROCID"] == "0":
    sys.exit(subprocess.run(["srun", "--overlap", "-N1", "--gpus=1", "--ntasks-per-gpu=1", "hostname"]).returncode)
X
job -N1 --ntasks-per-node=2 --gres=gpu:2 <<< 'env -u SLURM_NTASKS_PER_NODE srun -n2 python3 nested.py'""",
     {}),
    ("nested_ntasks_per_gpu_unset", "rules", "The same with SLURM_NTASKS_PER_NODE unset.",
     """cat > nested.py <<'X'
import os, subprocess, sys
if os.environ["SLURM_PROCID"] == "0":
    sys.exit(subprocess.run("env -u SLURM_NTASKS_PER_NODE srun --overlap -N1 --gpus=1 --ntasks-per-gpu=1 hostname", shell=True).returncode)
X
job -N1 --ntasks-per-node=2 --gres=gpu:2 <<< 'env -u SLURM_NTASKS_PER_NODE srun -n2 python3 nested.py'"""),
    ("fastest_first", "rules", "A program that counts GPUs fastest-first, on a node with two kinds.", "$L2 $READ fastest_first",
     {"relation": KNOWN, "remedy": "fastest_first_said"}),
    ("fastest_first_said", "rules", "Remedy: CUDA_DEVICE_ORDER=FASTEST_FIRST.", "CUDA_DEVICE_ORDER=FASTEST_FIRST $L2 $READ fastest_first"),
    ("jupyter_terminal", "rules", "A terminal inside a step: srun -n2 there is what Slurm makes of it.",
     """job -N1 -n2 --gres=gpu:2 <<< 'srun -n1 bash -c "srun --overlap \\$READ torch_env"'"""),
)  # fmt: skip

CASES = APART + SHARED + KNOWN_ROWS

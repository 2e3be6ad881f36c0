"""Kinds G to K of the reports, the benefit for training programs, and values that cannot be right."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import BETTER, WEEK, Site, rows

PORTS = Site("reserved ports", settings=("MpiParams=ports=20000-20999",))
DEBIAN = {"environment": "pytorch-debian", "seconds": 120}
NEWEST = {"environment": "pytorch", "seconds": 200, "is_slow": True}
FOUR_RANKS = ("rank 3 of 4", "on 4 ranks")
CRAY = Site("HPE Cray EX", before="optional {doubles}/site_spank.so cray", settings=PORTS.settings)

FRAMEWORKS = rows(
    "frameworks",
    ("kubeflow_jax", "public reports, G", "A program that takes JAX_COORDINATOR_ADDRESS for Kubeflow's contract.", "$W4 $READ kubeflow"),
    ("jax", "framework trial", "JAX finds Slurm by itself.", "train $W4 python3 $E/train_jax.py", {"environment": "jax", "seconds": 120}),
    ("torch_and_jax", "public reports, G", "torch.distributed and jax.distributed in one program: two ports.",
     """cat > both.py <<'X'
import os, socket
if os.environ["SLURM_PROCID"] == "0":
    job = int(os.environ["SLURM_JOB_ID"])
    ports = [int(os.environ.get("MASTER_PORT", 29500)), int(os.environ.get("JAX_COORDINATOR_PORT", job % 4096 + 61440))]
    held = [socket.create_server(("", port)) for port in ports]
    print("both listen")
X
$W4 python3 both.py"""),
    ("horovod_mpi", "public reports, H", "Horovod in a launch of Intel MPI: PMI-1, nobody says gloo.", "$W4 --mpi=none $READ horovod"),
    ("no_server", "public reports, H", "Nothing listens on the nodes for a step in a world's shape.",
     """cat > listeners.py <<'X'
import os, subprocess
listeners = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True).stdout.splitlines()
print(os.environ["SLURM_PROCID"], len(listeners))
X
$W4 python3 listeners.py"""),
    ("horovodrun_salloc", "framework trial", "horovodrun's daemons through srun --overlap in an allocation.",
     """cat > daemons <<'X'
for node in $(scontrol show hostnames $SLURM_JOB_NODELIST); do srun --overlap -n1 -N1 -w $node $READ horovod; done
X
salloc -Q -N2 --ntasks-per-node=2 --gres=gpu:2 bash daemons"""),
    ("pyxis_no_warning", "public reports, H", "With pyxis before us a step prints nothing but its own lines.",
     "$W4 --container-image=pytorch $READ horovod",
     {"site": Site("pyxis first", before="optional {doubles}/site_spank.so pyxis")}),
    ("submitit", "submitit 1782", "A job of submitit, whose helper raises where a variable is set.", 
     """SUBMITIT_EXECUTOR=slurm $W4 python3 -c 'import submitit; e = submitit.helpers.TorchDistributedEnvironment().export(); print(e.rank, e.world_size)'""",
     DEBIAN),
    ("submitit_env", "submitit 1782", "The whole environment of a job of submitit.", "SUBMITIT_EXECUTOR=slurm $W4 python3 $P/show_env.py"),
    ("ignite", "framework trial", "Ignite raises where ranks differ from Slurm's.", "train $W4 python3 $T/ignite_train.py", DEBIAN),
    ("lightning_world", "framework trial", "Lightning in its documented form.",
     "train job -N2 --ntasks-per-node=2 --gres=gpu:2 -J train <<< 'srun python3 $T/lightning_train.py fabric 2 2'", DEBIAN),
    ("fabric_run", "framework trial", "fabric run as the program of the step.",
     "train $L1 fabric run --accelerator cpu --devices 2 $T/lightning_train.py cli", NEWEST),
    ("deepspeed_launcher", "framework trial", "DeepSpeed's launcher as the program of the step.",
     "train $L1 deepspeed --num_gpus 2 $T/deepspeed_train.py", NEWEST),
    ("horovodrun", "framework trial", "horovodrun as the program of the step.",
     "train $L1 horovodrun --gloo -np 2 python3 $T/horovod_train.py train",
     {"environment": "horovod", "seconds": 90, "is_slow": True}),
    ("cray_control_port", "public reports, I", "Cray PMI binds the port that Slurm reserved for it.",
     """cat > cray.py <<'X'
import os, socket
if os.environ["SLURM_PROCID"] == "0":
    socket.socket().bind(("", int(os.environ["PMI_CONTROL_PORT"])))  # without SO_REUSEADDR
    print("bound")
X
$W4 python3 cray.py""", {"site": CRAY}),
    ("reserved_ports_shell", WEEK, "A site with MpiParams=ports=, and shells.", '$W4 bash -c "$SHOW"', {"site": PORTS}),
    ("sbatch_from_rank", "spd 955", "sbatch from rank 0 of a world, and what the next job's script sees.",
     """cat > inner <<'X'
#!/bin/bash
env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|GROUP_|PET_|JAX_|SLURM_BOOTSTRAP)'
srun --overlap --cpu-bind=none bash -c 'echo "$SLURM_PROCID: ${RANK:-none} ${WORLD_SIZE:-none} ${MASTER_ADDR:-none}"'
echo done > inner.status
X
cat > outer.py <<'X'
import os, subprocess
if os.environ["SLURM_PROCID"] == "0":
    subprocess.run("sbatch -Q -N1 -n2 -o inner.log inner", shell=True, check=True)
X
$L2 python3 outer.py; await inner.status; cat inner.log"""),
    ("sbatch_from_rank_world", "lcls2 93", "sbatch from rank 1 of a world, and a step of two nodes in that job.",
     """cat > outer.py <<'X'
import os, subprocess
if os.environ["SLURM_PROCID"] == "1":
    job = "srun --cpu-bind=none $READ mpi_accelerate; echo done > inner.status"
    subprocess.run(["sbatch", "-Q", "-N2", "--ntasks-per-node=1", "-o", "inner.log", "--wrap", job], check=True)
X
$L2 python3 outer.py; await inner.status; cat inner.log"""),
    ("sbatch_from_pty", "fine already", "sbatch from a terminal of a step.",
     """printf '#!/bin/bash\\nenv | grep -cE "^(RANK|WORLD_SIZE)="; echo done > inner.status\\n' > inner
terminal "$L1 --pty sbatch -Q -n1 -o $OUT/inner.log inner"; await inner.status; cat inner.log"""),
    ("srun_in_rank", WEEK, "srun in a rank: a step in a step, whose shells see nothing of the outer one.",
     """cat > outer.py <<'X'
import os, subprocess, sys
if os.environ["SLURM_PROCID"] == "0":
    show = "echo $SLURM_PROCID ${RANK:-none} ${MASTER_ADDR:-none} ${LOCAL_RANK:-none}"
    sys.exit(subprocess.run(["srun", "--overlap", "-N1", "-n2", "-O", "bash", "-c", show]).returncode)
X
$L2 python3 outer.py"""),
)  # fmt: skip

GAINS = rows(
    "what a training program gains",
    *((f"gain_{name}", "framework trial", what, f"train $W4 python3 $T/{program}", {"relation": BETTER, "gives": FOUR_RANKS} | more)
      for name, what, program, more in (
        ("ddp", "DDP by env://.", "torch_train.py env", DEBIAN),
        ("accelerate", "Accelerate without a launcher.", "accelerate_train.py", DEBIAN),
        ("trainer", "transformers' Trainer without a launcher.", "trainer_train.py", NEWEST),
        ("composer", "composer's program: stock has four trainings of one.", "composer_train.py", NEWEST | {"environment": "pytorch-2.7"}),
        # With ranks, DeepSpeed compiles a C++ library for each user: minutes on a busy machine.
        ("deepspeed", "DeepSpeed without mpi4py.", "deepspeed_train.py", NEWEST | {"seconds": 900}))),
    ("gain_lightning_n", "framework trial", "Lightning after -n 4, where stock wants --ntasks-per-node.",
     "train srun -N2 -n4 -c3 --gres=gpu:2 -J train python3 $T/lightning_train.py fabric 2 2",
     {"relation": BETTER, "gives": FOUR_RANKS} | DEBIAN),
    ("gain_shebang", "rules", "A Python script as the program itself.",
     "printf '#!/usr/bin/env python3\\nimport os; print(\"rank\", os.environ[\"RANK\"])\\n' > train; chmod +x train; $W4 ./train",
     {"relation": BETTER, "gives": ("rank 0", "rank 3")}),
    ("gain_elf", "rules", "A compiled training program.", "$W4 $B/show_env | grep -E ': (RANK|WORLD_SIZE|LOCAL_RANK)='",
     {"relation": BETTER, "gives": ("3: RANK=3", "3: WORLD_SIZE=4", "3: LOCAL_RANK=1")}),
    ("gain_prefixes", "rules", "A program behind env, timeout and nice.",
     "$W4 env A=1 timeout 20 nice -n 1 python3 $P/readers.py torch_env",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_sbatch", "rules", "A step inside a batch job.", "job -N2 --ntasks-per-node=2 --gres=gpu:2 <<< 'srun $READ torch_env'",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_export_none", "rules", "The same under --export=NONE.", "$W4 --export=NONE /usr/bin/python3 $P/readers.py torch_env",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_gpus_per_node", "rules", "GPUs per node by --gpus-per-node, in an allocation.",
     "salloc -Q -N2 --ntasks-per-node=2 --gpus-per-node=2 srun $READ torch_env", {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_gpus_one_node", "rules", "--gpus=2 alone, on one node.", "srun -N1 -n2 --gpus=2 $READ torch_env",
     {"relation": BETTER, "gives": ("1: member 1 of 2",)}),
    ("gain_jax_two_steps", "framework trial, 10", "Two JAX steps of one job at once have a port each.",
     """cat > port.py <<'X'
import os
if os.environ["SLURM_PROCID"] == "0":
    print(os.environ.get("JAX_COORDINATOR_PORT", "the port of the job"))
X
job -N1 -n4 --gres=gpu:4 <<'Y'
for i in 0 1; do srun --exact -N1 -n2 --ntasks-per-node=2 --gres=gpu:2 -o port.$i python3 port.py & done; wait
[ "$(cat port.0 port.1 | sort -u | wc -l)" = 2 ] && echo "two ports"
exit 0
Y""", {"relation": BETTER, "gives": ("two ports",)}),
    ("gain_arbitrary", "framework trial", "MASTER_ADDR is the host of rank 0, also where that is not the first one (-m arbitrary).",
     """nodes=($(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)")); printf '%s\\n' ${nodes[1]} ${nodes[0]} > hosts
SLURM_HOSTFILE=hosts srun -N2 -n2 --gres=gpu:1 -m arbitrary python3 -c 'import os, socket
if os.environ["SLURM_PROCID"] == "0": print("right" if os.environ.get("MASTER_ADDR", "") == socket.gethostname() else "wrong")'""",
     {"relation": BETTER, "gives": ("right",)}),
    ("gain_user_rank", "rules", "RANK and LOCAL_RANK of the user's for all tasks are replaced, with a warning.",
     "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR= $W4 $READ torch_env",
     {"relation": BETTER, "gives": ("3: member 3 of 4", "bootstrap: .*RANK")}),
    ("gain_user_localhost", "public reports, L", "MASTER_ADDR=localhost on several nodes is replaced, with a warning.",
     "MASTER_ADDR=localhost $W4 $READ torch_env", {"relation": BETTER, "gives": ("3: member 3 of 4 at NODE1", "bootstrap: .*MASTER_ADDR")}),
)  # fmt: skip

CASES = FRAMEWORKS + GAINS

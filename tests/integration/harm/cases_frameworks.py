"""Harm G, H, I and J, what training programs gain, and values that cannot be right."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import BETTER, WEEK, Site, rows

PORTS = Site("reserved ports", settings=("MpiParams=ports=20000-20999",))
CRAY = Site("HPE Cray EX", before="optional {doubles}/site_spank.so cray", settings=PORTS.settings)

FRAMEWORKS = rows(
    "frameworks",
    ("kubeflow_jax", "no-harm.md G", "A program that takes JAX_COORDINATOR_ADDRESS for Kubeflow's contract.", "$W4 $READ kubeflow"),
    ("jax", "frameworks.md", "JAX finds Slurm by itself.", "$W4 $READ jax"),
    ("torch_and_jax", "no-harm.md G", "torch.distributed and jax.distributed in one program: two ports.",
     """cat > both.py <<'X'
import os, socket
if os.environ["SLURM_PROCID"] == "0":
    job = int(os.environ["SLURM_JOB_ID"])
    ports = [int(os.environ.get("MASTER_PORT", 29500)), int(os.environ.get("JAX_COORDINATOR_PORT", job % 4096 + 61440))]
    held = [socket.create_server(("", port)) for port in ports]
    print("both listen")
X
$W4 python3 both.py"""),
    ("horovod_mpi", "no-harm.md H", "Horovod in a launch of Intel MPI: PMI-1, nobody says gloo.", "$W4 --mpi=none $READ horovod"),
    ("no_server", "no-harm.md H", "Nothing listens on the nodes for a step in a world's shape.",
     "$W4 python3 -c 'import os, subprocess; print(os.environ[\"SLURM_PROCID\"], len(subprocess.run([\"ss\", \"-Hltn\"], capture_output=True, text=True).stdout.splitlines()))'"),
    ("horovodrun_salloc", "frameworks.md", "horovodrun's daemons through srun --overlap in an allocation.",
     """salloc -Q -N2 --ntasks-per-node=2 --gres=gpu:2 bash -c 'for node in $(scontrol show hostnames $SLURM_JOB_NODELIST); do srun --overlap -n1 -N1 -w $node python3 $P/readers.py horovod; done'"""),
    ("pyxis_no_warning", "no-harm.md H", "With pyxis before us a step prints nothing but its own lines.", "$W4 --container-image=pytorch $READ horovod",
     {"site": Site("pyxis first", before="optional {doubles}/site_spank.so pyxis")}),
    ("submitit", "submitit 1782", "A job of submitit, whose helper raises where a variable is set.", "SUBMITIT_EXECUTOR=slurm $W4 $READ submitit"),
    ("submitit_env", "submitit 1782", "The whole environment of a job of submitit.", "SUBMITIT_EXECUTOR=slurm $W4 python3 $P/show_env.py"),
    ("ignite", "frameworks.md", "Ignite raises where ranks differ from Slurm's.", "$W4 $READ ignite"),
    ("lightning_world", "frameworks.md", "Lightning in its documented form.",
     "job -N2 --ntasks-per-node=2 --gres=gpu:2 -J train <<< 'srun $READ lightning 2 2'"),
    ("cray_control_port", "no-harm.md I", "Cray PMI binds the port that Slurm reserved for it.",
     """cat > cray.py <<'X'
import os, socket
if os.environ["SLURM_PROCID"] == "0":
    socket.create_server(("", int(os.environ["PMI_CONTROL_PORT"])), reuse_port=False).close()
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
$L2 python3 outer.py; for ((i = 0; i < 200; i++)); do [[ -s inner.status ]] && break; sleep 0.1; done; cat inner.log"""),
    ("sbatch_from_rank_world", "lcls2 93", "sbatch from rank 1 of a world, and a step of two nodes in that job.",
     """cat > outer.py <<'X'
import os, subprocess
if os.environ["SLURM_PROCID"] == "1":
    subprocess.run("sbatch -Q -N2 --ntasks-per-node=1 -o inner.log --wrap 'srun --cpu-bind=none $READ composer_program; echo done > inner.status'", shell=True, check=True)
X
$L2 python3 outer.py; for ((i = 0; i < 200; i++)); do [[ -s inner.status ]] && break; sleep 0.1; done; sed 's/local.*//' inner.log""",
     ),
    ("sbatch_from_pty", "fine already", "sbatch from a terminal of a step.",
     """printf '#!/bin/bash\\nenv | grep -cE "^(RANK|WORLD_SIZE)="; echo done > inner.status\\n' > inner
terminal "$L1 --pty sbatch -Q -n1 -o $OUT/inner.log inner"; for ((i = 0; i < 200; i++)); do [[ -s inner.status ]] && break; sleep 0.1; done; cat inner.log"""),
    ("srun_in_rank", WEEK, "srun in a rank: a step in a step, whose shells see nothing of the outer one.",
     """cat > outer.py <<'X'
import os, subprocess, sys
if os.environ["SLURM_PROCID"] == "0":
    sys.exit(subprocess.run(["srun", "--overlap", "-N1", "-n2", "-O", "bash", "-c", "echo $SLURM_PROCID ${RANK:-none} ${MASTER_ADDR:-none} ${LOCAL_RANK:-none}"]).returncode)
X
$L2 python3 outer.py"""),
)  # fmt: skip

GAINS = rows(
    "what a training program gains",
    *((f"gain_{name}", "frameworks.md", what, f"$W4 $READ {reader}", {"relation": BETTER, "gives": gives}) for name, what, reader, gives in (
        ("ddp", "DDP by env://.", "torch_env", ("0: member 0 of 4", "3: member 3 of 4", "3: .*GPU 1")),
        ("accelerate", "Accelerate without a launcher.", "accelerate", ("0: member 0 of 4, GPU 0", "1: member 1 of 4, GPU 1", "2: member 2 of 4, GPU 0")),
        ("trainer", "transformers' Trainer without a launcher.", "trainer", ("member 3 of 4",)),
        ("composer", "composer's program: stock has four trainings of one.", "composer_program", ("member 3 of 4, local 1 of 2",)),
        ("deepspeed", "DeepSpeed without mpi4py.", "deepspeed", ("3: member 3 of 4",)))),
    ("gain_lightning_n", "frameworks.md", "Lightning after -n 4, where stock wants --ntasks-per-node.", "srun -N2 -n4 --gres=gpu:2 -J train $READ lightning 2 2",
     {"relation": BETTER, "gives": ("0: slurm: member 0 of 4", "3: slurm: member 3 of 4")}),
    ("gain_shebang", "design", "A Python script as the program itself.", "printf '#!/usr/bin/env python3\\nimport os; print(\"rank\", os.environ[\"RANK\"])\\n' > train; chmod +x train; $W4 ./train",
     {"relation": BETTER, "gives": ("rank 0", "rank 3")}),
    ("gain_elf", "design", "A compiled training program.", "$W4 $B/show_env | grep -E ': (RANK|WORLD_SIZE|LOCAL_RANK)='",
     {"relation": BETTER, "gives": ("3: RANK=3", "3: WORLD_SIZE=4", "3: LOCAL_RANK=1")}),
    ("gain_prefixes", "design", "A program behind env, timeout and nice.", "$W4 env A=1 timeout 20 nice -n 1 python3 $P/readers.py torch_env",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_sbatch", "design", "A step inside a batch job.", "job -N2 --ntasks-per-node=2 --gres=gpu:2 <<< 'srun $READ torch_env'",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_export_none", "design", "The same under --export=NONE.", "$W4 --export=NONE /usr/bin/python3 $P/readers.py torch_env",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_gpus_per_node", "design", "GPUs per node by --gpus-per-node, in an allocation.",
     "salloc -Q -N2 --ntasks-per-node=2 --gpus-per-node=2 srun $READ torch_env", {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("gain_jax_two_steps", "frameworks.md 10", "Two JAX steps of one job at once have a port each.",
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
    ("gain_arbitrary", "frameworks.md", "MASTER_ADDR is the host of rank 0, also where that is not the first one (-m arbitrary).",
     """nodes=($(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)")); printf '%s\\n' ${nodes[1]} ${nodes[0]} > hosts
SLURM_HOSTFILE=hosts srun -N2 -n2 --gres=gpu:1 -m arbitrary python3 -c 'import os, socket
if os.environ["SLURM_PROCID"] == "0": print("right" if os.environ.get("MASTER_ADDR", "") == socket.gethostname() else "wrong")'""",
     {"relation": BETTER, "gives": ("right",)}),
    ("gain_user_rank", "design", "RANK and LOCAL_RANK of the user's for all tasks are replaced, with a warning.",
     "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR= $W4 $READ torch_env", {"relation": BETTER, "gives": ("3: member 3 of 4", "bootstrap: .*warning.*RANK")}),
    ("gain_user_localhost", "no-harm.md L", "MASTER_ADDR=localhost on several nodes is replaced, with a warning.",
     "MASTER_ADDR=localhost $W4 $READ torch_env", {"relation": BETTER, "gives": ("3: member 3 of 4 at node", "bootstrap: .*warning.*MASTER_ADDR")}),
    ("torchrun_real", "PyTorch 1.13", "torchrun of PyTorch and a gloo group over two nodes.",
     """cat > group.py <<'X'
import torch, torch.distributed as dist
dist.init_process_group("gloo"); x = torch.ones(1); dist.all_reduce(x)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", int(x)); dist.destroy_process_group()
X
$W2 torchrun --nproc_per_node=2 group.py""", {"relation": BETTER, "gives": ("rank 3 of 4 sum 4",), "needs": ("torchrun",), "is_slow": True, "seconds": 90}),
    ("ddp_real", "PyTorch 1.13", "A gloo group of plain srun python3.",
     """cat > group.py <<'X'
import torch, torch.distributed as dist
dist.init_process_group("gloo"); x = torch.ones(1); dist.all_reduce(x)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", int(x)); dist.destroy_process_group()
X
$L2 python3 group.py""", {"relation": BETTER, "gives": ("rank 1 of 2 sum 2",), "needs": ("torchrun",), "seconds": 60}),
    ("torchrun_real_standalone", "PyTorch 1.13", "torchrun --standalone of PyTorch on each of two nodes.",
     """cat > group.py <<'X'
import torch, torch.distributed as dist
dist.init_process_group("gloo"); x = torch.ones(1); dist.all_reduce(x)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", int(x)); dist.destroy_process_group()
X
$W2 torchrun --standalone --nproc_per_node=2 group.py 2> /dev/null""", {"needs": ("torchrun",), "is_slow": True, "seconds": 90}),
)  # fmt: skip

CASES = FRAMEWORKS + GAINS

"""Kind B of the reports: torchrun, accelerate and their like, which read PET_* below the options that a user gives them."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import BETTER, EQUAL, KNOWN, rows

STUBS = "PATH=$P/bin:$PATH\n"
PROGRAM = "$P/readers.py torch_env"


def stub(name, source, what, script, relation=EQUAL, **more):
    return (name, source, what, STUBS + script, {"relation": relation, **more})


CASES = rows(
    "torchrun and accelerate",
    stub("standalone", "public reports, B", "Two worlds: torchrun --standalone on each node.",
         f"$W2 torchrun --standalone --nproc_per_node=2 {PROGRAM}"),
    stub("standalone_dashes", "framework trial, 7", "The same with the other spelling.", f"$W2 torchrun --standalone --nproc-per-node 2 {PROGRAM}"),
    stub("rdzv_localhost", "public reports, B", "A rendezvous of each node's own at localhost:0.",
         f"$W2 torchrun --nproc_per_node=2 --rdzv_backend c10d --rdzv_endpoint=localhost:0 {PROGRAM}"),
    stub("nnodes_1", "public reports, B", "--nnodes=1 said explicitly.", f"$W2 torchrun --nnodes=1 --nproc_per_node=2 {PROGRAM}"),
    stub("nnodes_abbreviated", "rules", "The option as argparse allows to abbreviate it.", f"$W2 torchrun --nno 1 --nproc_per_n 2 {PROGRAM}"),
    stub("nnodes_by_variable", "rules", "The user's own PET_NNODES.", f"PET_NNODES=1 PET_NPROC_PER_NODE=2 $W2 torchrun {PROGRAM}"),
    stub("master_port_own", "framework trial, 7", "A master of the user's own on each node.",
         f"$W2 torchrun --master_port 29511 --nproc_per_node=2 {PROGRAM}"),
    stub("accelerate_one_machine", "public reports, B", "accelerate launch --num_machines 1 on each of two nodes.",
         f"$W2 accelerate launch --num_machines 1 --num_processes 2 {PROGRAM}"),
    stub("accelerate_one_machine_shell", "framework trial, 2", "A sweep of accelerate launch --num_processes 1 in shells.",
         f"$L2 bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID accelerate launch --num_processes 1 {PROGRAM}'"),
    stub("accelerate_machine_rank", "fine already", "accelerate launch with --machine_rank in a shell on each node.",
         f"""head=$(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)" | head -n 1); export head
$W2 bash -c 'accelerate launch --num_machines 2 --num_processes 4 --machine_rank $SLURM_NODEID --main_process_ip $head {PROGRAM}'"""),
    stub("pty_shell", "public reports, B", "A terminal on two nodes, then torchrun in it.",
         f"""terminal "$W2 --pty bash -c 'torchrun --nproc_per_node=2 {PROGRAM}'" """),
    stub("torchrun_in_shell", "rules", "torchrun in a shell of each node.", f"$W2 bash -c 'torchrun --nproc_per_node=2 {PROGRAM}'"),
    stub("two_in_one_task", "framework trial, 7", "Two torchruns in one task.",
         f"$L1 bash -c 'torchrun --nproc_per_node=1 {PROGRAM} & torchrun --nproc_per_node=1 --master_port 29501 {PROGRAM}; wait'"),
    stub("one_node", "rules", "torchrun on one node.", f"$L1 torchrun --nproc_per_node=2 {PROGRAM}"),
    stub("several_tasks_a_node", "rules", "torchrun in every task of a node: worlds of their own.",
         f"$L2 torchrun --nproc_per_node=1 {PROGRAM}"),
    stub("arbitrary_c10d", "pytorch 137402", "c10d with arbitrary distribution: GROUP_RANK of workers is torchrun's.",
         """nodes=($(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)")); printf '%s\\n' ${nodes[1]} ${nodes[0]} > hosts
SLURM_HOSTFILE=hosts srun -N2 -n2 --gres=gpu:2 -m arbitrary \
  torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint ${nodes[1]}:29400 $P/show_env.py \
  | grep -E ': (GROUP_RANK|NODE_RANK|RANK|WORLD_SIZE|PET_[A-Z_]*)='"""),
    stub("torchtitan_multinode", "fine already", "torchtitan's form: nodes, c10d and its endpoint are all said.",
         f"""head=$(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)" | head -n 1)
$W2 torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint $head:29500 {PROGRAM}"""),
    stub("exported_by_the_user", "public reports, L", "WORLD_SIZE and MASTER_ADDR exported in the batch script for torchrun's line (open-r1).",
         f"""job -N2 --ntasks-per-node=1 --gres=gpu:2 <<'X'
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=6000 WORLD_SIZE=4
export LAUNCHER="torchrun --nproc_per_node 2 --nnodes 2 --node_rank \\$SLURM_PROCID --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
srun bash -c "$LAUNCHER {PROGRAM}"
X"""),
    stub("elastic", "pytorch 147064", "An elastic torchrun whose second agent dies: the first one goes on.",
         """printf '#!/bin/sh\\n[ "$SLURM_PROCID" = 0 ] || exit 1\\nsleep 1; echo finished\\n' > agent; chmod +x agent
$W2 bash -c 'torchrun --nnodes=1:2 --max_restarts=3 --no_python ./agent'"""),
    stub("elastic_direct", "pytorch 91943", "The same, torchrun as the program of the step.",
         """printf '#!/bin/sh\\n[ "$SLURM_PROCID" = 0 ] || exit 1\\nsleep 1; echo finished\\n' > agent; chmod +x agent
$W2 torchrun --nnodes=1:2 --max_restarts=3 --no_python ./agent"""),
    stub("torchrun_env", "rules", "The environment of torchrun's workers where the user says everything about nodes.",
         "$W2 torchrun --standalone --nproc_per_node=1 $P/show_env.py"),
    # What the plugin is for.
    stub("world_of_all_nodes", "framework trial", "Plain torchrun on each node: stock has two worlds, silently.",
         f"$W2 torchrun --nproc_per_node=2 {PROGRAM}", BETTER, gives=("0: agent 0 of 2", "1: agent 1 of 2")),
    stub("nnodes_completed", "framework trial", "--nnodes 2 without a rendezvous: stock hangs.",
         f"$W2 torchrun --nnodes 2 --nproc-per-node 2 {PROGRAM}", BETTER, gives=("0: agent 0 of 2", "1: agent 1 of 2")),
    stub("module_form", "rules", "python -m torch.distributed.run, as stock has it.",
         """mkdir -p torch/distributed; touch torch/__init__.py torch/distributed/__init__.py; cp $P/bin/torchrun torch/distributed/run.py
PYTHONPATH=$OUT $W2 python3 -m torch.distributed.run --nproc_per_node=2 $P/readers.py torch_env""", BETTER,
         gives=("0: agent 0 of 2", "1: agent 1 of 2")),
    # Known to be worse, and what helps.
    stub("plain_but_separate", "rules", "Several plain torchruns that were meant to be separate.",
         f"$W2 torchrun --nproc_per_node=2 {PROGRAM}", KNOWN, remedy="plain_but_separate_off"),
    stub("plain_but_separate_off", "rules", "Remedy: --bootstrap=off.", f"$W2 {{off}} torchrun --nproc_per_node=2 {PROGRAM}"),
    stub("plain_but_separate_said", "rules", "Remedy: --standalone.", f"$W2 torchrun --standalone --nproc_per_node=2 {PROGRAM}"),
    stub("torchrun_in_worker", "framework trial, 7", "A torchrun inside a torchrun worker.",
         f"$W2 torchrun --nproc_per_node=1 --no_python sh -c 'torchrun --nproc_per_node=1 {PROGRAM}' | grep -v '^[01]: agent [01] of 2'", KNOWN,
         remedy="torchrun_in_worker_env"),
    stub("torchrun_in_worker_env", "framework trial, 7", "Remedy: env -u PET_NNODES -u PET_NODE_RANK -u PET_MASTER_PORT before the inner one.",
         f"""$W2 torchrun --nproc_per_node=1 --no_python sh -c \
  'env -u PET_NNODES -u PET_NODE_RANK -u PET_MASTER_PORT torchrun --nproc_per_node=1 {PROGRAM} | sed "s/^/inner /"' | grep 'inner .*agent' | sed 's/ at .*//'"""),
)  # fmt: skip

"""Kind B of the reports: torchrun, accelerate and similar launchers, whose own options win over PET_*."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import BETTER, EQUAL, KNOWN, rows

# torchrun of PyTorch 1.13 does not start on Python 3.11 without the first two, and warns without the third.
TORCH_1_13 = {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1", "OMP_NUM_THREADS": "1"}
WORKER = "$P/readers.py torch_env"  # prints the variables of a worker
ACCELERATE = "accelerate launch --mixed_precision no --dynamo_backend no"
HEAD = 'head=$(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)" | head -n 1); export head\n'
SAID_AGAIN = "2> >(grep -E 'bootstrap|srun' >&2)"  # torchrun's own messages have times and process ids
LAST_OF_FOUR = ("1: member 3 of 4",)


def debian(name, source, what, script, relation=EQUAL, **more):
    """With Debian's PyTorch 1.13."""
    return (name, source, what, script, {"relation": relation, "needs": ("torchrun",), "variables": TORCH_1_13, "seconds": 120} | more)


def newest(name, source, what, script, relation=EQUAL, **more):
    return (name, source, what, script, {"relation": relation, "environment": "pytorch", "is_slow": True, "seconds": 90,
                                         "variables": {"OMP_NUM_THREADS": "1"}} | more)  # fmt: skip


STAND_IN = "printf '#!/usr/bin/python3\\nimport sys; print(sys.argv)\\n' > torchrun; chmod +x torchrun; mkdir bin; mv torchrun bin; "\
           "cp bin/torchrun bin/accelerate; cd bin\n"  # fmt: skip
CANNOT_BE = "cannot be right on several nodes: the step would wait for ever; "  # the warning


CASES = rows(
    "torchrun and accelerate",
    debian("standalone", "public reports, B", "Two worlds: torchrun --standalone on each node.",
           f"$W2 torchrun --standalone --nproc_per_node=2 {WORKER}"),
    newest("standalone_dashes", "framework trial, 7", "The same with the other spelling.",
           f"$W2 torchrun --standalone --nproc-per-node 2 {WORKER} {SAID_AGAIN}"),
    debian("rdzv_localhost", "public reports, B", "A rendezvous of each node's own at localhost:0.",
           f"$W2 torchrun --nproc_per_node=2 --rdzv_backend c10d --rdzv_endpoint=localhost:0 {WORKER}"),
    debian("nnodes_1", "public reports, B", "--nnodes=1 said explicitly.", f"$W2 torchrun --nnodes=1 --nproc_per_node=2 {WORKER}"),
    debian("nnodes_abbreviated", "rules", "The option as argparse allows to abbreviate it.",
           f"$W2 torchrun --nno 1 --nproc_per_n 2 {WORKER}"),
    debian("nnodes_by_variable", "rules", "The user's own PET_NNODES.", f"PET_NNODES=1 PET_NPROC_PER_NODE=2 $W2 torchrun {WORKER}"),
    debian("master_port_own", "framework trial, 7", "A master of the user's own on each node.",
           f"$W2 torchrun --master_port 29511 --nproc_per_node=2 {WORKER}"),
    debian("accelerate_one_machine", "public reports, B", "accelerate launch --num_machines 1 on each of two nodes.",
           f"$W2 {ACCELERATE} --multi_gpu --num_machines 1 --num_processes 2 {WORKER}", environment="pytorch-debian"),
    debian("accelerate_one_machine_shell", "framework trial, 2", "A sweep of accelerate launch --num_processes 1 in shells.",
           f"train $L2 bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID {ACCELERATE} --num_machines 1 --num_processes 1 $T/accelerate_train.py'",
           environment="pytorch-debian"),
    debian("accelerate_machine_rank", "fine already", "accelerate launch with --machine_rank in a shell on each node.",
           HEAD + f"$W2 bash -c '{ACCELERATE} --multi_gpu --num_machines 2 --num_processes 4 --machine_rank $SLURM_NODEID "
           f"--main_process_ip $head --main_process_port 29502 {WORKER}'", environment="pytorch-debian"),
    debian("pty_shell", "public reports, B", "A terminal on two nodes, then torchrun in it.",
           f"""terminal "$W2 --pty bash -c 'torchrun --nproc_per_node=2 {WORKER}'" """),
    debian("torchrun_in_shell", "rules", "torchrun in a shell of each node.", f"$W2 bash -c 'torchrun --nproc_per_node=2 {WORKER}'"),
    debian("two_in_one_task", "framework trial, 7", "Two torchruns in one task.",
           f"$L1 bash -c 'torchrun --nproc_per_node=1 {WORKER} & torchrun --nproc_per_node=1 --master_port 29501 {WORKER}; wait'"),
    debian("one_node", "rules", "torchrun on one node.", f"$L1 torchrun --nproc_per_node=2 {WORKER}"),
    newest("several_tasks_a_node", "rules", "torchrun in every task of a node: worlds of their own.",
           f"$L2 torchrun --nproc-per-node=1 {WORKER} {SAID_AGAIN}"),
    debian("arbitrary_c10d", "pytorch 137402", "c10d with arbitrary distribution: GROUP_RANK of workers is torchrun's.",
           """nodes=($(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)")); printf '%s\\n' ${nodes[1]} ${nodes[0]} > hosts
SLURM_HOSTFILE=hosts srun -N2 -n2 --gres=gpu:2 -m arbitrary \
  torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint ${nodes[1]}:29400 $P/show_env.py """ + SAID_AGAIN + """ \
  | grep -E ': (GROUP_RANK|NODE_RANK|RANK|WORLD_SIZE|PET_[A-Z_]*)='"""),
    debian("torchtitan_multinode", "fine already", "torchtitan's form: nodes, c10d and its endpoint are all said.",
           HEAD + f"$W2 torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint $head:29500 {WORKER} "
                  f"{SAID_AGAIN}"),
    debian("exported_by_the_user", "public reports, L",
           "WORLD_SIZE and MASTER_ADDR exported in the batch script for torchrun's line (open-r1).",
           f"""job -N2 --ntasks-per-node=1 --gres=gpu:2 <<'X'
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=6000 WORLD_SIZE=4
export LAUNCHER="torchrun --nproc_per_node 2 --nnodes 2 --node_rank \\$SLURM_PROCID --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
srun bash -c "$LAUNCHER {WORKER}"
X"""),
    debian("one_agent_fails", "pytorch 91943", "A torchrun on each node, and one of them fails: the other one goes on.",
           f"""printf '#!/bin/sh\\n[ "$SLURM_PROCID" = 0 ] || exit 1\\nsleep 2; echo finished\\n' > agent; chmod +x agent
$W2 torchrun --standalone --no_python ./agent {SAID_AGAIN}"""),
    debian("one_agent_fails_shell", "pytorch 147064", "The same in a shell on each node.",
           f"""printf '#!/bin/sh\\n[ "$SLURM_PROCID" = 0 ] || exit 1\\nsleep 2; echo finished\\n' > agent; chmod +x agent
$W2 bash -c 'torchrun --standalone --no_python ./agent' {SAID_AGAIN}"""),
    debian("torchrun_env", "rules", "The environment of torchrun's workers where the user says everything about nodes.",
           "$W2 torchrun --standalone --nproc_per_node=1 $P/show_env.py | grep -vE 'MASTER_PORT=|TORCHELASTIC_(RUN_ID|ERROR_FILE)='"),
    # Options that cannot be right on several nodes. How PyTorch handles them does not matter, so a stand-in runs.
    debian("node_rank_for_all", "trixie 52", "--node_rank 0 on each of two nodes.",
           STAND_IN + "$W2 ./torchrun --nnodes 2 --node_rank 0 --master_addr node001 --master_port 29512 t.py", ignores=CANNOT_BE),
    debian("rdzv_localhost_for_all", "hpcfund 47", "A rendezvous at localhost of each of two nodes, for one world.",
           STAND_IN + "$W2 ./torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint localhost:29400 t.py", ignores=CANNOT_BE),
    debian("machine_rank_for_all", "pith-train 91", "accelerate launch --machine_rank 0 on each of two nodes.",
           STAND_IN + "$W2 ./accelerate launch --num_machines 2 --machine_rank 0 t.py", ignores=CANNOT_BE),
    # Better with the plugin.
    debian("world_of_all_nodes", "framework trial", "Plain torchrun on each node: stock has two worlds, silently.",
           f"$W2 torchrun --nproc_per_node=2 {WORKER}", BETTER, gives=LAST_OF_FOUR),
    debian("nnodes_completed", "framework trial", "--nnodes 2 without a rendezvous: stock hangs.",
           f"$W2 torchrun --nnodes 2 --nproc_per_node 2 {WORKER} {SAID_AGAIN}", BETTER, gives=LAST_OF_FOUR, is_slow=True),
    debian("module_form", "rules", "python -m torch.distributed.run, as stock has it.",
           f"$W2 python3 -m torch.distributed.run --nproc_per_node=2 {WORKER}", BETTER, gives=LAST_OF_FOUR),
    debian("launch_form", "framework trial", "python -m torch.distributed.launch: stock has two worlds, silently.",
           f"$W2 python3 -m torch.distributed.launch --use_env --nproc_per_node=2 {WORKER}", BETTER, gives=LAST_OF_FOUR),
    # Known to be worse, with remedies.
    debian("plain_but_separate", "rules", "Several plain torchruns that were meant to be separate.",
           f"$W2 torchrun --nproc_per_node=2 {WORKER}", KNOWN, remedy="plain_but_separate_off"),
    debian("plain_but_separate_off", "rules", "Remedy: --bootstrap=off.", f"$W2 {{off}} torchrun --nproc_per_node=2 {WORKER}"),
    debian("torchrun_in_worker", "framework trial, 7", "A torchrun --standalone inside a torchrun worker.",
           f"$W2 torchrun --nproc_per_node=1 --no_python sh -c 'torchrun --standalone --nproc_per_node=1 {WORKER}' {SAID_AGAIN}", KNOWN,
           remedy="torchrun_in_worker_env", is_slow=True),
    debian("torchrun_in_worker_env", "framework trial, 7",
           "Remedy: env -u PET_NNODES -u PET_NODE_RANK -u PET_MASTER_PORT before the inner one.",
           f"""$W2 torchrun --nproc_per_node=1 --no_python sh -c \
  'env -u PET_NNODES -u PET_NODE_RANK -u PET_MASTER_PORT torchrun --standalone --nproc_per_node=1 {WORKER}'"""),
)  # fmt: skip

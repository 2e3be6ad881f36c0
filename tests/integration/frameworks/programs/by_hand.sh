# As users write it today: sets PyTorch's variables from Slurm's, then runs the program.
# shellcheck shell=bash
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
export LOCAL_WORLD_SIZE=$((SLURM_NTASKS / SLURM_NNODES)) NODE_RANK=$SLURM_NODEID
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
exec "$@"

# Ray as in its page on Slurm, for a batch script: the head on the first node, workers on the others, then the program.
# shellcheck shell=bash
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun -N1 -n1 -w "$head" ray start --head --node-ip-address="$head" --port=6379 --num-cpus 2 --block &
until ray status --address "$head:6379" >/dev/null 2>&1; do sleep 1; done
srun -N1 -n1 -x "$head" ray start --address "$head:6379" --num-cpus 2 --block &
exec python3 ray_train.py 4

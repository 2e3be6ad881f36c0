# As users of TensorFlow write it today: lists all workers of the step, two on each node, then runs the program.
# shellcheck shell=bash
workers=$(for host in $(scontrol show hostnames "$SLURM_STEP_NODELIST"); do
  for ((i = 0; i < SLURM_NTASKS / SLURM_NNODES; i++)); do printf '"%s:%d",' "$host" $((29530 + i)); done
done)
export TF_CONFIG="{\"cluster\": {\"worker\": [${workers%,}]}, \"task\": {\"type\": \"worker\", \"index\": $SLURM_PROCID}}"
exec "$@"

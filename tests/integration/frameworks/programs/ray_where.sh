# Ray by names of steps, for a batch script: its workers find the head on any node, and the script names no port.
# shellcheck shell=bash disable=SC2016
# The option for the port also sets the ranks of the step. Ray's daemons would pass these on, so they are removed.
srun -J head -N1 -n1 --bootstrap-ports=1 env -u RANK -u WORLD_SIZE -u LOCAL_RANK -u GROUP_RANK -u MASTER_ADDR -u MASTER_PORT bash -c \
  'exec ray start --head --node-ip-address="$SLURMD_NODENAME" --port="$BOOTSTRAP_PORTS" --num-cpus 2 --block' &
place=$(slurm-bootstrap where head --port 1 --wait 60) || exit
until ray status --address "$place" >/dev/null 2>&1; do sleep 1; done
srun -J workers -N1 -n1 -x "${place%:*}" ray start --address "$place" --num-cpus 2 --block &
export RAY_ADDRESS=$place
exec python3 ray_train.py 4

"""Options of srun that change its program, and the user's own values that only the user can judge."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import BETTER, KNOWN, WEEK, Site, rows

# A server in a step of its own on the last node, and ranks that find it at MASTER_ADDR.
SERVER = """cat > serve.py <<'X'
import os, socket
server = socket.create_server(("", int(os.environ["MASTER_PORT"]))); open("up", "w").write("x")
for _ in range(4): server.accept()[0].send(b"hello")
X
cat > train.py <<'X'
import os, socket
print(os.environ["SLURM_PROCID"], socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5).recv(9))
X
job -N2 --ntasks-per-node=3 --gres=gpu:2 <<'X'
export MASTER_ADDR=$(scontrol show hostnames | tail -n 1) MASTER_PORT=29512
srun --overlap -N1 -n1 -w $MASTER_ADDR --gres=none python3 serve.py & until [[ -s up ]]; do sleep 0.05; done
srun --overlap -N2 -n4 --ntasks-per-node=2 --gres=gpu:2 python3 train.py; ended=$?; wait; exit $ended
X"""
PICKS = """cat > train.py <<'X'
import os
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["SLURM_LOCALID"]
print("device", os.environ.get("LOCAL_RANK", "0"), "of", os.environ["CUDA_VISIBLE_DEVICES"])
X
"""
HOST_FILE = """scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)" | tac | sed p > hosts
export SLURM_HOSTFILE=hosts MASTER_PORT=29513 MASTER_ADDR=$(tail -n 1 hosts)
srun -n4 -m arbitrary --gres=gpu:2 python3 -c 'import os; print(os.environ["SLURM_PROCID"], os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])'"""
GIVEN = """import os, sys; print(*map(os.environ.get, sys.argv[1:]))"""
OTHER_NODE = f"""job -N2 --ntasks-per-node=2 --gres=gpu:2 <<'X'
export MASTER_ADDR=$(scontrol show hostnames | head -n 1) MASTER_PORT=29515
srun -N1 -n2 -w $(scontrol show hostnames | tail -n 1) --gres=gpu:2 python3 -c '{GIVEN}' MASTER_ADDR MASTER_PORT
X"""
INTERFACES = f"""for own in GLOO_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=^lo,docker GLOO_SOCKET_IFNAME=lo NCCL_SOCKET_IFNAME==ib; do
  env $own $W4 python3 -c '{GIVEN}' ${{own%%=*}}
done"""
# A port of the system, and one on which another step of the user already listens.
PORTS = f"""cat > listen.py <<'X'
import os, socket, time
server = socket.create_server(("", 29514)); open("up", "w").write("x")
while not os.path.exists("end"): time.sleep(0.05)
X
job -N2 --ntasks-per-node=3 --gres=gpu:2 <<'X'
srun --overlap -N1 -n1 -w $(scontrol show hostnames | head -n 1) --gres=none python3 listen.py & until [[ -s up ]]; do sleep 0.05; done
for port in 80 29514; do
  MASTER_PORT=$port srun --overlap -N2 -n4 --ntasks-per-node=2 --gres=gpu:2 python3 -c '{GIVEN}' MASTER_PORT
done; touch end; wait
X"""
# slurmd of the tests may lock 8 MiB, which is the default of Linux.
LOCKED = Site("locked memory", settings=("LaunchParameters=use_interactive_step,slurmstepd_memlock_all",))
STAYS = {"ignores": "stays as you set it"}

CASES = rows(
    "options of srun, and values of the user's",
    ("multi_prog_folder", WEEK, "--multi-prog, whose file is beside the script, and --chdir.",
     """mkdir run; printf '0-1 hostname\\n2-3 bash -c "pwd"\\n' > conf; $W4 --chdir=$OUT/run --multi-prog conf"""),
    ("multi_prog_name", WEEK, "--multi-prog with a file whose name ends in .py.",
     "printf '0-3 printenv SLURM_PROCID RANK MASTER_ADDR\\n' > steps.py; $W4 --multi-prog steps.py"),
    ("bcast_program", WEEK, "--bcast of a compiled program.", "cp /bin/hostname prog; $W4 --bcast=/tmp/prog.$CASE ./prog"),
    ("bcast_script", WEEK, "--bcast of a shell script.",
     """printf '#!/bin/bash\\neval "$SHOW"\\n' > script.sh; chmod +x script.sh; $W4 --bcast=/tmp/script.$CASE ./script.sh"""),
    ("bcast_python", WEEK, "--bcast of Python itself.", "$W4 --bcast=/tmp/python.$CASE /usr/bin/python3 -c 'print(3)'"),
    ("tool_on_nodes", WEEK, "nvidia-smi, which the login host lacks.", "$W4 nvidia-smi -L"),
    ("program_of_mode_111", WEEK, "A program that its user may start and not read, as licensed ones are.",
     "cp /bin/hostname prog; chmod 111 prog; $W4 ./prog"),
    ("shell_of_a_version", WEEK, "A shell whose name has its version.",
     "cp /bin/bash bash-5.2; $W4 ./bash-5.2 -c 'echo ${RANK:-none} ${MASTER_ADDR:-none}'"),
    ("wrapped_shell", WEEK, "Shells behind compiled programs that start another one.",
     """for wrapper in "flock lock" "prlimit --core=0" "setarch -R" "setpriv --no-new-privs" "choom -n 0 --" /lib64/ld-linux-x86-64.so.2; do
  $L2 $wrapper /bin/bash -c 'echo ${RANK:-none} ${MASTER_ADDR:-none}'
done"""),
    ("memory_locked", WEEK, "LaunchParameters=slurmstepd_memlock_all, and a world.", "$W4 python3 -c 'print(3)'", {"site": LOCKED}),
    ("memory_locked_shell", WEEK, "The same, and the environment of shells.", '$W4 bash -c "$SHOW"', {"site": LOCKED}),
    ("server_elsewhere", WEEK, "A server of the user's at MASTER_ADDR, on a node that rank 0 is not on.", SERVER, STAYS),
    ("hosts_reversed", WEEK, "A host file in another order, and the MASTER_ADDR of its last host.", HOST_FILE, STAYS),
    ("master_of_other_node", "open-r1 533", "MASTER_ADDR of a node of the job that the step has not.", OTHER_NODE, STAYS),
    ("interfaces_of_the_user", WEEK, "Interfaces for Gloo and NCCL that no node has.", INTERFACES, STAYS),
    ("interface_of_nccl", WEEK, "NCCL_SOCKET_IFNAME of the nodes, as recipes export it.", "NCCL_SOCKET_IFNAME=eth0 $W4 $READ torch_env",
     {"relation": BETTER, "gives": ("3: member 3 of 4",)}),
    ("ports_of_the_user", "gpt-neox 768", "A MASTER_PORT of the system, and one that is taken.", PORTS,
     {"ignores": "MASTER_PORT [0-9]+ on NODE1 (is already|cannot be reserved)"}),
    ("gpu_by_program", WEEK, "A program that hides the other GPUs itself, and then takes device LOCAL_RANK or 0.",
     PICKS + "$W4 python3 train.py", {"relation": KNOWN, "remedy": "gpu_by_program_off"}),
    ("gpu_by_program_off", WEEK, "The same with SLURM_BOOTSTRAP=off.", PICKS + "export SLURM_BOOTSTRAP=off; $W4 python3 train.py"),
)  # fmt: skip

"""The advice of the plugin and of `slurm-bootstrap check`: for each, the step that prints it and the lines that follow it."""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import dataclass

from built_files import LIBRARY, double, inside
from harness import TESTS

TRAIN = ["python3", "-u", f"{TESTS}/harm/programs/readers.py", "torch_env"]
WORDS = " ".join(TRAIN)
TWO = "-N2 --ntasks-per-node=2 --gres=gpu:2"
HALF = "-N2 --ntasks-per-node=2 --gres=gpu:1"
EACH = "-N2 --ntasks-per-node=1 --gres=gpu:2"
ON = "--bootstrap=on"


@dataclass(frozen=True)
class Advice:
    reason: str  # how the step's line begins
    advice: str  # how it ends
    step: str  # srun's words that print it
    obeyed: dict  # srun's words that follow it, and how many ranks meet then; 0: each task is alone
    site: str = ""  # arguments in plugstack.conf
    before: str = "optional"  # the word before our plugin there
    env: tuple = ()
    is_told: bool = False  # printed unasked, too: the step would wait for ever


SHELL = f"bash -c 'exec {WORDS}'"
ASK = f"use {ON} to set it up"
START = "start your program with srun itself: srun"
PER_NODE = f"use --gpus-per-node=N instead, for a GPU for each task, or {ON}"
# torchrun of PyTorch 1.13 does not start on Python 3.11 without the first two.
TORCHRUN = (("PET_REDIRECTS", "9:1"), ("PET_TEE", "9:1"), ("OMP_NUM_THREADS", "1"))
WORKERS = f"--nproc_per_node 2 {WORDS.split('-u ')[1]}"
STUCK = "cannot be right on several nodes: the step would wait for ever"
RENDEZVOUS = f"torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint localhost:29400 --help"
ROWS = {
    "one rank for all nodes": Advice(f'"--node_rank 0" {STUCK}', f"remove --node_rank 0 --master_addr node001 --master_port 29512, and use {ON}",
                                     f"{EACH} torchrun --nnodes 2 --node_rank 0 --master_addr node001 --master_port 29512 --help",
                                     {f"{ON} {EACH} torchrun --nnodes 2 {WORKERS}": 4}, env=TORCHRUN, is_told=True),
    "each node looks for the others on itself": Advice(f'"--rdzv_endpoint localhost:29400" {STUCK}',
                                                       f"remove --rdzv_backend c10d --rdzv_endpoint localhost:29400, and use {ON}",
                                                       f"{EACH} {RENDEZVOUS}", {f"{ON} {EACH} torchrun --nnodes 2 {WORKERS}": 4},
                                                       env=TORCHRUN, is_told=True),
    "one rank for all nodes, of accelerate": Advice(f'"--machine_rank 0" {STUCK}', f"{START} --ntasks-per-node=N {WORDS} ...".replace(" torch_env", ""),
                                                    f"{EACH} ./bin/accelerate launch --num_machines 2 --machine_rank 0 {WORDS}",
                                                    {f"{TWO} {WORDS}": 4}, is_told=True),
    "a torchrun for itself": Advice('the user set "--standalone" for torchrun', f"remove --standalone, and use {ON}",
                                    f"{EACH} torchrun --standalone --help", {f"{ON} {EACH} torchrun {WORKERS}": 4}, env=TORCHRUN),
    "a torchrun for each GPU": Advice("the step starts torchrun 4 times on 2 nodes, and each torchrun starts its own ranks",
                                      "use --ntasks-per-node=1", f"{TWO} torchrun --help", {f"{EACH} torchrun {WORKERS}": 4}, env=TORCHRUN),
    "a job with GPUs": Advice("the job has GPUs, and this step requests none", f"use --gpus-per-node=2, or {ON} for CPUs alone",
                              f"-N2 --ntasks-per-node=2 {WORDS}", {f"--gpus-per-node=2 -N2 --ntasks-per-node=2 {WORDS}": 4,
                                                                   f"{ON} -N2 --ntasks-per-node=2 {WORDS}": 4},
                              env=(("SLURM_GPUS_ON_NODE", "2"),)),
    "submitit in a job that asks": Advice("submitit sets its own ranks, although SLURM_BOOTSTRAP=on asks for it",
                                          f"use {ON} on the line of srun to set it up anyway", f"{TWO} {WORDS}", {f"{ON} {TWO} {WORDS}": 4},
                                          env=(("SLURM_BOOTSTRAP", "on"), ("SUBMITIT_EXECUTOR", "slurm"))),
    "a launcher": Advice("accelerate starts its own ranks", f"{START} --ntasks-per-node=N {WORDS}".replace(" torch_env", " ..."),
                         f"{EACH} ./bin/accelerate launch {WORDS}", {f"{TWO} {WORDS}": 4}),
    "a launcher for each GPU": Advice("deepspeed starts its own ranks", f"{START} {WORDS}".replace(" torch_env", " ..."),
                                      f"{TWO} ./bin/deepspeed {WORDS}", {f"{TWO} {WORDS}": 4}),
    "an agent": Advice("wandb starts its own workers", "start your program with srun itself", f"{TWO} ./bin/wandb agent x",
                       {f"{TWO} {WORDS}": 4}),
    "a launcher of the site": Advice("farmctl is in launchers= of plugstack.conf", f"{START} {WORDS}".replace(" torch_env", " ..."),
                                     f"{TWO} ./bin/farmctl {WORDS}", {f"{TWO} {WORDS}": 4}, "launchers=farmctl"),
    "a launcher with when=asked": Advice("no option or variable asks for it, and the site sets when=asked",
                                                          f"{START} {WORDS}".replace(" torch_env", " ..."), f"{TWO} ./bin/accelerate {WORDS}",
                                                          {f"{ON} {TWO} {WORDS}": 4}, "when=asked"),
    "a launcher in a job that asks": Advice("mpirun starts its own ranks, although SLURM_BOOTSTRAP=on asks for it",
                                            f"{START} {WORDS}".replace(" torch_env", " ..."), f"{TWO} ./bin/mpirun {WORDS}",
                                            {f"{TWO} {WORDS}": 4}, env=(("SLURM_BOOTSTRAP", "on"),)),
    "one task": Advice("the step has one task", f"use --ntasks-per-node=N to start a task for each of N GPUs, or {ON} to set up one task",
                       f"-N1 -n1 --gres=gpu:2 {WORDS}", {f"-N1 --ntasks-per-node=2 --gres=gpu:2 {WORDS}": 2,
                                                         f"{ON} -N1 -n1 --gres=gpu:2 {WORDS}": 1}),
    "fewer tasks than GPUs": Advice("each node has 1 task and 2 GPUs",
                                    f"use --ntasks-per-node=2 for a task for each GPU, or {ON} for tasks with several GPUs",
                                    f"{EACH} {WORDS}", {f"{TWO} {WORDS}": 4, f"{ON} {EACH} {WORDS}": 2}),
    "more tasks than GPUs": Advice("each node has 2 tasks and 1 GPU",
                                   "use --gpus-per-node=2 for a GPU for each task, or --bootstrap-gpu-share to share GPUs",
                                   f"-N2 --ntasks-per-node=2 --gres=gpu:1 {WORDS}",
                                   {f"-N2 --ntasks-per-node=2 --gpus-per-node=2 {WORDS}": 4,
                                    f"--bootstrap-gpu-share -N2 --ntasks-per-node=2 --gres=gpu:1 {WORDS}": 4}),
    "uneven": Advice("3 tasks on 2 nodes cannot be the same number on each node",
                     f"use --ntasks-per-node=N, or {ON} if each task has a GPU", f"-N2 -n3 --gres=gpu:2 {WORDS}",
                     {f"{TWO} {WORDS}": 4, f"{ON} -N2 -n3 --gres=gpu:2 {WORDS}": 3}),
    "a spread that leaves no GPU for some": Advice("Slurm spreads the 4 tasks unevenly (1 to 3 on a node)",
                                                   "use --ntasks-per-node=2 for an even spread", f"-N2 -n4 -m plane=3 --gres=gpu:2 {WORDS}",
                                                   {f"{TWO} {WORDS}": 4}),
    "a spread": Advice("Slurm spreads the 4 tasks unevenly (1 to 3 on a node)",
                       f"use --ntasks-per-node=2 for an even spread, or {ON} to set it up", f"-N2 -n4 -m plane=3 --gres=gpu:3 {WORDS}",
                       {f"{TWO} {WORDS}": 4, f"{ON} -N2 -n4 -m plane=3 --gres=gpu:3 {WORDS}": 4}),
    "GPUs per task": Advice("the step has GPUs per task (--gpus-per-task)", PER_NODE, f"-N1 -n2 --gpus-per-task=1 {WORDS}",
                            {f"-N1 -n2 --gpus-per-node=2 {WORDS}": 2, f"{ON} -N1 -n2 --gpus-per-task=1 {WORDS}": 2}),
    "a binding": Advice("Slurm binds each task to its own GPUs (--gpu-bind, --ntasks-per-gpu)", PER_NODE,
                        f"-N1 -n2 --gres=gpu:2 --gpu-bind=single:1 {WORDS}",
                        {f"-N1 -n2 --gpus-per-node=2 {WORDS}": 2, f"{ON} -N1 -n2 --gres=gpu:2 --gpu-bind=single:1 {WORDS}": 2}),
    "GPUs of the step": Advice("Slurm gave the nodes different numbers of the GPUs of --gpus=N", PER_NODE, f"-N2 -n4 --gpus=4 {WORDS}",
                               {f"-N2 -n4 --ntasks-per-node=2 --gpus-per-node=2 {WORDS}": 4}),
    "fewer GPUs in a job that asks": Advice("2 tasks of a node share 1 GPU, although SLURM_BOOTSTRAP=on asks for it",
                                            "use --bootstrap-gpu-share if the tasks are to share GPUs", f"{HALF} {WORDS}",
                                            {f"--bootstrap-gpu-share {HALF} {WORDS}": 4}, env=(("SLURM_BOOTSTRAP", "on"),)),
    "shares": Advice("the step has shares of GPUs (shard, MPS)", ASK, f"-N2 --ntasks-per-node=2 --gres=shard:2 {WORDS}",
                     {f"{ON} -N2 --ntasks-per-node=2 --gres=shard:2 {WORDS}": 4}),
    "MIG instances": Advice("Slurm allocated MIG instances", ASK, f"{TWO} {WORDS}",
                            {f"{ON} {TWO} {WORDS}": 4, f"{ON} --bootstrap-gpu=narrow {TWO} {WORDS}": 4},
                            before=f"optional {double('site_spank')} uuids=MIG-0,MIG-1\noptional", is_told=True),
    "no GPUs": Advice("the step has no GPUs", ASK, f"-N2 -n2 {WORDS}", {f"{ON} -N2 -n2 {WORDS}": 2}),
    "a shell": Advice("bash is a shell: the plugin does not set up what a shell starts",
                      f"{ASK}, or #SBATCH --bootstrap=on for all steps of a job", f"{TWO} {SHELL}", {f"{ON} {TWO} {SHELL}": 4}),
    "a program that srun cannot see": Advice("srun cannot see the program that apptainer starts", f"{ASK}, or --bootstrap=off",
                                   f"{TWO} apptainer exec image.sif unseen",
                                   {f"{ON} {TWO} apptainer exec image.sif unseen": 4,
                                    f"--bootstrap=off {TWO} apptainer exec image.sif unseen": 0}),
    "a program with a launcher's name among its words": Advice('own may start "mpirun"', f"use {ON} if it does not",
                                                               f"{TWO} ./bin/own -v mpirun", {f"{ON} {TWO} ./bin/own -v mpirun": 4}),
    "when=asked": Advice("no option or variable asks for it, and the site sets when=asked", ASK, f"{TWO} {WORDS}",
                                         {f"{ON} {TWO} {WORDS}": 4}, "when=asked"),
    "another partition": Advice("its partition is not in partitions= of plugstack.conf", ASK, f"{TWO} {WORDS}",
                                {f"{ON} {TWO} {WORDS}": 4}, "partitions=debug"),
    "several programs": Advice("the step has several programs (--multi-prog)", f"{ASK}, or #SBATCH --bootstrap=on for all steps of a job",
                               f"{TWO} --multi-prog steps.conf",
                               {f"{ON} {TWO} --multi-prog steps.conf": 4}),
    "components": Advice("the step has several components (:)", ASK, f"-N1 -n1 --gres=gpu:1 {WORDS} : -N1 -n1 --gres=gpu:1 {WORDS}",
                         {f"{ON} -N1 -n1 --gres=gpu:1 {WORDS} : -N1 -n1 --gres=gpu:1 {WORDS}": 2}),
}  # fmt: skip

# The row, its advice, the line that prints it, and the line that follows it. A line may begin with "without", if no plugin is
# loaded, or "loopback", if node001 finds its own name at 127.0.1.1.
ANY = "-N2 --ntasks-per-node=2"
NOT_SET = "use srun --bootstrap=on, or LD_PRELOAD=libbootstrap.so without the plugin; programs that call the library need neither"
MOVED = "in plugstack.conf move the line of spank_bootstrap.so behind that plugin; take these variables out of prologs and scripts"
NO_LINE = "add the line: optional spank_bootstrap.so; spank_bootstrap(8) has its arguments. Where this host is not meant to load the plugin, "\
          "use: slurm-bootstrap check --local --no-plugin"
CHECKS = {
    "a port of the system": ("port", "choose another port: srun --bootstrap-port=N", f"MASTER_PORT=80 srun {TWO} CHECK",
                             f"MASTER_PORT=80 srun --bootstrap-port=29777 {TWO} CHECK"),
    "threads": ("CPUs", "set OMP_NUM_THREADS to at most the CPUs of a rank", f"OMP_NUM_THREADS=64 srun {TWO} CHECK",
                f"OMP_NUM_THREADS=1 srun {TWO} CHECK"),
    "one CPU for each task": ("CPUs", "use srun --cpus-per-task=N (since Slurm 22.05 srun does not take it from sbatch), or --cpu-bind=none",
                              f"srun {TWO} -c2 --cpu-bind=map_cpu:0,1 CHECK", f"srun {TWO} -c2 --cpu-bind=none CHECK"),
    "no variables": ("plan", NOT_SET, f"srun {ANY} CHECK", f"srun {ON} {ANY} CHECK"),
    "no variables and no plugin": ("plan", NOT_SET, f"without srun {TWO} CHECK",
                                   f"without srun {TWO} env LD_PRELOAD={inside(LIBRARY)} CHECK"),
    "a port for each task": ("plan", "give all ranks the same MASTER_ADDR, MASTER_PORT and SLURM_*",
                             f"without srun {TWO} bash -c 'export MASTER_PORT=2950$SLURM_PROCID; exec CHECK'",
                             f"without srun {TWO} env MASTER_PORT=29500 LD_PRELOAD={inside(LIBRARY)} CHECK"),
    "a script changes a variable": ("plan", MOVED, f"srun {ON} {TWO} bash -c 'export MASTER_PORT=2950$SLURM_PROCID; exec CHECK'",
                                     f"srun {ON} {TWO} bash -c 'exec CHECK'"),
    "a name without an address": ("network", "or use srun --bootstrap-addr=NAME, or =%a for Slurm's own address",
                                 f"without MASTER_ADDR=no-such.invalid srun {TWO} CHECK",
                                 f"MASTER_ADDR=no-such.invalid srun --bootstrap-addr=%a {TWO} CHECK"),
    "a host that is not of the step": ("network", "set MASTER_ADDR to an address of the host of rank 0",
                                       f"without MASTER_ADDR=head MASTER_PORT=29788 srun {TWO} CHECK",
                                       f"without MASTER_ADDR=node001 MASTER_PORT=29788 srun {TWO} CHECK"),
    "a name at the loopback": ("network", "remove the name from that line of /etc/hosts, or set GLOO_SOCKET_IFNAME",
                               f"loopback without srun {TWO} CHECK", f"loopback without GLOO_SOCKET_IFNAME=eth0 srun {TWO} CHECK"),
    "fewer GPUs than tasks": ("GPUs", "use a GPU for each rank: srun --gres=gpu:N with N tasks per node", f"without srun {HALF} CHECK",
                              f"without srun {TWO} CHECK"),
    "no PMIx in one rank": ("exchange", "keep PMIX_NAMESPACE and PMIX_RANK in the environment of these ranks",
                            f"srun --mpi=pmix {ANY} bash -c '((SLURM_PROCID)) || unset PMIX_NAMESPACE PMIX_RANK; exec CHECK'",
                            f"srun --mpi=pmix {ANY} bash -c 'exec CHECK'"),
    "no line in plugstack.conf": ("plugstack.conf", NO_LINE, "without CHECK --local", "CHECK --local"),
    "a host without the plugin": ("plugstack.conf", NO_LINE, "without CHECK --local", "without CHECK --local --no-plugin"),
}  # fmt: skip

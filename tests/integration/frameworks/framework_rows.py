"""The starts of real frameworks: rows of the table in etc/doc/frameworks-run.md, as data.

A line is a command that a user types in the folder of the programs. In it
  FOUR stands for  -N2 --ntasks-per-node 2 --gres gpu:2   a task for each GPU
  TWO  stands for  -N2 --ntasks-per-node 1 --gres gpu:2   a task for each node
Most lines with the plugin are run on two nodes and, with -N1, on one.
"""

# SPDX-License-Identifier: Apache-2.0

from dataclasses import dataclass

SHAPES = {"FOUR": "-N2 --ntasks-per-node 2 --gres gpu:2", "TWO": "-N2 --ntasks-per-node 1 --gres gpu:2"}
NODES = 2
PER_NODE = 2

PYTORCH, PYTORCH_2_7, PYTORCH_DEBIAN = "pytorch", "pytorch-2.7", "pytorch-debian"
QUICK = ("jax", PYTORCH_DEBIAN)  # environments that each run of the tests makes
# Rows of these that each run also starts without the plugin.
QUICK_WITHOUT = ("PyTorch 1.13, DDP, env://", "PyTorch 1.13, torchrun", "JAX 0.10")

# PyTorch 1.13 on Python 3.11 takes no default here; see core/plan/frameworks.cc.
TORCHRUN_1_13 = "PET_REDIRECTS=9:1 PET_TEE=9:1"
BY_HAND = "bash by_hand.sh"  # RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as users write them
MASTER = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)"


@dataclass(frozen=True)
class Row:
    name: str  # the framework and the part of it
    environment: str
    plugin: str  # the line
    off: str = ""  # the line without plugin and preload; '': the same line
    instead: str = "the same line"  # a short form of it
    preload: bool = True  # whether the line runs with the preload alone, too
    no_preload: str = ""  # why not
    ranks: int = NODES * PER_NODE
    worlds: int = 1  # of that many ranks each
    repeats: bool = False  # True if it prints some lines twice
    shown: int = 0  # the number of shown ranks, if the launcher hides the output of others
    one_node: bool = True
    trains: bool = True  # the program prints its loss
    around: str = "LINE"  # what the line stands in
    seconds: int = 120

    def is_quick(self, how):
        return self.environment in QUICK and (how == "plugin" or self.name in QUICK_WITHOUT)

    def command(self, line, nodes=NODES):
        """The line for bash."""
        line = self.around.replace("LINE", line)
        for word, options in SHAPES.items():
            line = line.replace(word, options)
        return line.replace("-N2", f"-N{nodes}").replace("NODES", str(nodes))


# Lines in a batch script, and two at once in a job.
SCRIPT = "bash batch.sh SHAPE -- 'LINE'"
TWICE = "salloc -Q -N2 --exclusive --gres gpu:4 bash -c 'for i in 1 2; do LINE & done; wait'"
WRAPPER = "a wrapper script"  # that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT


FABRIC_RUN = "fabric run --accelerator cpu --devices 2 --main-port 2952"
SLOTS = "scontrol show hostnames node[001-002] | sed 's/$/ slots=2/' > hostfile; "  # of DeepSpeed's launcher
UNEVEN = "salloc -Q -N2 -n4 --gres gpu:2 srun -n 4 -m plane=3"  # three tasks on one node and one on the other
ACCELERATE_LAUNCH = ("accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no "
                     "--main_process_port 2951")
COMPILES = {"seconds": 400}  # DeepSpeed's first start with its CPU accelerator compiles an extension, half a minute on a core of its own
TWO_STEPS = {"around": TWICE, "worlds": 2, "one_node": False}
IN_SHELL = {"one_node": False, "preload": False, "no_preload": "loading it asks for a world"}


def in_script(shape, sets_ranks=""):
    """The fields of a line in a batch script. A line without a step has nothing to preload."""
    more = {"preload": False, "no_preload": f"{sets_ranks} sets the ranks"} if sets_ranks else {}
    return {"around": SCRIPT.replace("SHAPE", shape), "one_node": False} | more


def direct(name, environment, program, **more):
    """A task for each GPU, and PyTorch's variables."""
    return Row(name, environment, f"srun FOUR python3 {program}", f"srun FOUR {BY_HAND} python3 {program}", WRAPPER, **more)


def pytorch_rows(version, environment):
    agents = "srun TWO torchrun"
    off_agents = (f"srun TWO bash -c 'torchrun --nnodes NODES --nproc_per_node 2 --node_rank $SLURM_NODEID "
                  f"--master_addr {MASTER} --master_port 29511 torch_train.py env'")
    launch = "python3 -m torch.distributed.launch" + (" --use_env" if environment == PYTORCH_DEBIAN else "")
    if environment == PYTORCH_DEBIAN:
        off_agents = off_agents.replace("bash -c '", f"bash -c '{TORCHRUN_1_13} ")
    return [
        direct(f"PyTorch {version}, DDP, env://", environment, "torch_train.py env"),
        direct(f"PyTorch {version}, DDP, tcp://", environment, "torch_train.py tcp"),
        direct(f"PyTorch {version}, DDP with DataLoader workers", environment, "torch_train.py loader"),
        direct(f"PyTorch {version}, process groups", environment, "torch_train.py groups"),
        Row(f"PyTorch {version}, torchrun", environment, f"{agents} torch_train.py env", off_agents,
            "`--nnodes --nproc-per-node --node-rank --master-addr --master-port`", one_node=False),
        Row(f"PyTorch {version}, torch.distributed.launch", environment, f"srun TWO {launch} torch_train.py env",
            off_agents.replace("torchrun", launch), "the same options", one_node=False),
        Row(f"PyTorch {version}, one process a node that spawns", environment, "srun --bootstrap=on TWO python3 train_spawn.py",
            f"srun TWO {BY_HAND} python3 train_spawn.py", WRAPPER, preload=False, no_preload="needs `--bootstrap=on`"),
    ]


def own_worlds(version, environment):
    return Row(f"PyTorch {version}, `mp.spawn` on each node, a world of its own", environment, "srun TWO python3 spawn_train.py", ranks=2,
               worlds=2, one_node=False, preload=False, no_preload="loading it asks for a world")


C10D = f"--nnodes NODES --nproc-per-node 2 --rdzv-backend c10d --rdzv-id $SLURM_JOB_ID --rdzv-endpoint {MASTER}:29512"

ROWS = [
    *pytorch_rows("1.13", PYTORCH_DEBIAN),
    *pytorch_rows("2.7", PYTORCH_2_7),
    *pytorch_rows("2.15", PYTORCH),
    own_worlds("1.13", PYTORCH_DEBIAN),
    own_worlds("2.15", PYTORCH),
    Row("PyTorch 1.13, three ranks on a node and one on the other", PYTORCH_DEBIAN, f"{UNEVEN} {BY_HAND} python3 torch_train.py env",
        one_node=False),
    Row("PyTorch 2.15, DDP, file://", PYTORCH, "srun FOUR --bootstrap-shared-dir=$HOME python3 torch_train.py file",
        f"BOOTSTRAP_INIT_FILE=$HOME/init.$RANDOM srun FOUR {BY_HAND} python3 torch_train.py file", "the wrapper, and a new file name",
        preload=False, no_preload="needs the plugin's option"),
    direct("PyTorch 2.15, FSDP2, DeviceMesh, checkpoint", PYTORCH, "torch_train.py fsdp"),
    direct("PyTorch 2.15 and JAX in one program", PYTORCH, "torch_and_jax.py"),
    Row("PyTorch 2.15, `torchrun --nnodes`", PYTORCH, "srun TWO torchrun --nnodes NODES --nproc-per-node 2 torch_train.py env",
        f"srun TWO bash -c 'torchrun --nnodes NODES --nproc_per_node 2 --node_rank $SLURM_NODEID --master-addr {MASTER} "
        "--master-port 29513 torch_train.py env'", "`--node-rank --master-addr --master-port`", one_node=False),
    Row("PyTorch 2.15, torchrun, c10d rendezvous of the user's", PYTORCH, f"srun TWO bash -c 'torchrun {C10D} torch_train.py env'"),
    Row("PyTorch 2.15, `torchrun --standalone` on each node", PYTORCH,
        "srun TWO torchrun --standalone --nproc-per-node 2 torch_train.py env",
        ranks=2, worlds=2, one_node=False),
    Row("PyTorch 2.15, `torchrun --standalone` in a batch script", PYTORCH,
        "torchrun --standalone --nproc-per-node 2 torch_train.py env", ranks=2, **in_script("-N1 --gres gpu:2")),
    Row("Lightning 2.6", PYTORCH, "srun FOUR python3 lightning_train.py trainer 2 NODES"),
    Row("Lightning 2.6 after `srun -n`", PYTORCH, "srun -N2 -n4 --gres gpu:2 --exclusive python3 lightning_train.py trainer 2 NODES",
        "srun FOUR python3 lightning_train.py trainer 2 NODES", "`--ntasks-per-node` in place of `-n`", one_node=False),
    Row("Lightning 2.6, two devices in one task: a world of one", PYTORCH,
        "srun -N1 -n1 --gres gpu:2 python3 lightning_train.py trainer 2 1", ranks=1,
        one_node=False),
    Row("Fabric 2.6", PYTORCH, "srun FOUR python3 lightning_train.py fabric 2 NODES"),
    Row("Fabric 2.2 on PyTorch 1.13", PYTORCH_DEBIAN, "srun FOUR python3 lightning_train.py fabric 2 NODES"),
    Row("Fabric 2.6, `fabric run` as the step's program", PYTORCH, f"srun -N1 -n1 --gres gpu:2 {FABRIC_RUN}4 lightning_train.py cli",
        ranks=2, one_node=False),
    Row("Fabric 2.6, `fabric run` in a batch script", PYTORCH, f"{FABRIC_RUN}5 lightning_train.py cli", ranks=2,
        **in_script("-N1 --gres gpu:2")),
    Row("Fabric 2.6, `fabric run` on each node", PYTORCH, f"srun TWO {FABRIC_RUN}6 lightning_train.py cli", ranks=2, worlds=2,
        one_node=False),
    Row("Fabric 2.6, `fabric run --num-nodes` in a shell on each node", PYTORCH,
        f"srun TWO bash -c '{FABRIC_RUN}7 --num-nodes NODES --node-rank $SLURM_NODEID --main-address {MASTER} lightning_train.py cli'",
        one_node=False),
    direct("Accelerate 1.15", PYTORCH, "accelerate_train.py"),
    direct("Accelerate 0.29 on PyTorch 1.13", PYTORCH_DEBIAN, "accelerate_train.py"),
    Row("Accelerate 1.15, `accelerate launch` in a batch script", PYTORCH,
        f"{ACCELERATE_LAUNCH}4 accelerate_train.py", ranks=2, **in_script("-N1 --gres gpu:2")),
    Row("Accelerate 1.15, `accelerate launch` as the step's program", PYTORCH,
        f"srun -N1 -n1 --gres gpu:2 {ACCELERATE_LAUNCH}4 accelerate_train.py", ranks=2, one_node=False),
    direct("transformers 5.24, Trainer", PYTORCH, "trainer_train.py"),
    direct("DeepSpeed 0.19", PYTORCH, "deepspeed_train.py", **COMPILES),
    Row("DeepSpeed 0.19, its launcher as the step's program", PYTORCH,
        "srun -N1 -n1 --gres gpu:2 deepspeed --num_gpus 2 deepspeed_train.py", ranks=2,
        one_node=False, **COMPILES),
    Row("DeepSpeed 0.19, its launcher in a batch script", PYTORCH, "deepspeed --num_gpus 2 deepspeed_train.py", ranks=2,
        **in_script("-N1 --gres gpu:2"), **COMPILES),
    Row("DeepSpeed 0.19, its launcher in a shell on each node", PYTORCH,
        f"srun TWO bash -c 'deepspeed --hostfile hostfile --no_ssh --node_rank $SLURM_NODEID --master_addr {MASTER} deepspeed_train.py'",
        around=f"{SLOTS}LINE", one_node=False, **COMPILES),
    Row("DeepSpeed 0.19, `deepspeed --launcher slurm` in a batch script", PYTORCH,
        "deepspeed --launcher slurm --hostfile hostfile --no_ssh_check --master_addr node001 deepspeed_train.py", "", "needs mpi4py",
        around=SLOTS + SCRIPT.replace("SHAPE", "FOUR"), one_node=False, **COMPILES),
    direct("composer 0.32", PYTORCH_2_7, "composer_train.py"),
    Row("composer 0.32, its launcher as the step's program", PYTORCH_2_7, "srun -N1 -n1 --gres gpu:2 composer -n 2 composer_train.py",
        ranks=2, shown=1, one_node=False),
    Row("Ignite 0.5", PYTORCH, "srun FOUR python3 ignite_train.py"),
    Row("Ignite 0.4 on PyTorch 1.13", PYTORCH_DEBIAN, "srun FOUR python3 ignite_train.py"),
    Row("submitit 1.5", PYTORCH, "python3 submitit_train.py NODES 2"),
    Row("submitit 1.5 on PyTorch 1.13", PYTORCH_DEBIAN, "python3 submitit_train.py NODES 2"),
    Row("Ray 2.60, `ray symmetric-run` on one node", PYTORCH,
        "RAY_DEDUP_LOGS=0 srun -N1 -n1 --gres gpu:2 ray symmetric-run --address node001:6379 --min-nodes 1 --num-cpus 2 -- python3 "
        "ray_train.py 2", ranks=2, one_node=False, repeats=True),
    Row("Ray 2.60, the script of its page on Slurm", PYTORCH, "RAY_DEDUP_LOGS=0 bash ray_nodes.sh", repeats=True, **in_script("TWO")),
    Row("Ray 2.60, its head found by the name of its step", PYTORCH, "RAY_DEDUP_LOGS=0 bash ray_where.sh",
        "RAY_DEDUP_LOGS=0 bash ray_nodes.sh", "a fixed port", repeats=True,
        **in_script("TWO") | {"preload": False, "no_preload": "it reserves no port", "seconds": 240}),
    Row("Lightning 2.6, two devices in the shell of one task", PYTORCH,
        "srun -N1 -n1 --gres gpu:2 bash -c 'python3 lightning_train.py trainer 2 1'",
        ranks=2, repeats=True, **IN_SHELL),
    # Worlds that users start in a shell stay as they are.
    Row("transformers 5.24, a sweep in a shell", PYTORCH,
        "srun -N1 --ntasks-per-node 2 --gres gpu:2 bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python3 trainer_train.py'", ranks=1,
        worlds=2, **IN_SHELL),
    Row("Accelerate 1.15, `accelerate launch` in the shell of each task", PYTORCH,
        f"srun -N1 --ntasks-per-node 2 --gres gpu:2 bash -c '{ACCELERATE_LAUNCH}$SLURM_LOCALID accelerate_train.py'", ranks=2, worlds=2,
        **IN_SHELL),
    Row("composer 0.32, its launcher in a shell on each node", PYTORCH_2_7, "srun TWO bash -c 'composer -n 2 composer_train.py'", ranks=2,
        worlds=2, shown=1, **IN_SHELL),
    Row("PyTorch 2.15, two torchruns in the shell of one task", PYTORCH,
        "srun -N1 -n1 --gres gpu:2 bash -c 'for i in 1 2; do torchrun --standalone --nproc-per-node 2 torch_train.py env & done; wait'",
        ranks=2, worlds=2, **IN_SHELL),
    direct("nccl4py 0.6, up to where it needs a GPU", PYTORCH, "nccl4py_ids.py", trains=False),
    Row("JAX 0.10", "jax", "srun FOUR python3 train_jax.py"),
    Row("JAX 0.10, one process a node (asked)", "jax", "srun --bootstrap=on TWO python3 train_jax.py",
        "srun TWO python3 train_jax.py", ranks=2, one_node=False, preload=False, no_preload="needs `--bootstrap=on`"),
    Row("JAX 0.10, ranks placed by a host file", "jax", "SLURM_HOSTFILE=hosts srun -m arbitrary -n 4 --gres gpu:2 python3 train_jax.py",
        "JAX_COORDINATOR_ADDRESS=$(head -n 1 hosts):29516 SLURM_HOSTFILE=hosts srun -m arbitrary -n 4 --gres gpu:2 python3 train_jax.py",
        "JAX_COORDINATOR_ADDRESS", around="scontrol show hostnames node[001-002] | sort -r | sed p > hosts; LINE", one_node=False,
        preload=False, no_preload="the host of rank 0 is not known"),
    Row("JAX 0.10, three ranks on a node and one on the other", "jax", f"{UNEVEN} python3 train_jax.py", one_node=False),
    Row("JAX 0.10, two steps of a job at once", "jax", "srun --exact -n 4 FOUR python3 train_jax.py",
        "JAX_COORDINATOR_PORT=2952$i srun --exact -n 4 FOUR python3 train_jax.py", "JAX_COORDINATOR_PORT, a different one in each step",
        **TWO_STEPS),
    Row("TensorFlow 2.21, TF_CONFIG", "tensorflow", "srun --bootstrap-frameworks=tensorflow FOUR python3 train_tf.py",
        "srun FOUR bash tf_config.sh python3 train_tf.py", "a wrapper script that writes TF_CONFIG", preload=False,
        no_preload="needs the plugin's option"),
    Row("TensorFlow 2.21, its SlurmClusterResolver", "tensorflow", "srun FOUR python3 tensorflow_slurm.py 8888", trains=False),
    Row("TensorFlow 2.21, TF_CONFIG, two steps of a job at once", "tensorflow",
        "srun --exact -n 4 --bootstrap-frameworks=tensorflow FOUR python3 train_tf.py", "", "", preload=False,
        no_preload="needs the plugin's option", **TWO_STEPS),
    Row("Horovod 0.28, Gloo", "horovod", "srun FOUR slurm-bootstrap run --horovod python3 horovod_train.py train"),
    Row("Horovod 0.28, Gloo, process sets", "horovod", "srun FOUR slurm-bootstrap run --horovod python3 horovod_train.py sets",
        one_node=False),
    Row("Horovod 0.28, Gloo, dynamic process sets", "horovod",
        "HOROVOD_DYNAMIC_PROCESS_SETS=1 srun FOUR slurm-bootstrap run --horovod python3 horovod_train.py dynamic", one_node=False),
    Row("Horovod 0.28, Gloo, synthetic benchmark", "horovod", "srun FOUR slurm-bootstrap run --horovod python3 horovod_train.py benchmark"),
    Row("Horovod 0.28, Gloo, MNIST-like images", "horovod", "srun FOUR slurm-bootstrap run --horovod python3 horovod_train.py mnist"),
    Row("Horovod 0.28, Gloo, three ranks on two nodes, no GPUs", "horovod",
        "srun -N2 -n3 slurm-bootstrap run --horovod python3 horovod_train.py train",
        ranks=3, one_node=False),
    Row("Horovod 0.28, Gloo, two steps of a job at once", "horovod",
        "srun --exact -n 4 FOUR slurm-bootstrap run --horovod python3 horovod_train.py train",
        **TWO_STEPS),
    Row("Horovod 0.28, MPI", "horovod", "srun --mpi=pmix FOUR python3 horovod_train.py train"),
    Row("Horovod 0.28, MPI, MNIST-like images", "horovod", "srun --mpi=pmix FOUR python3 horovod_train.py mnist"),
    Row("Horovod 0.28, MPI, process sets", "horovod", "srun --mpi=pmix FOUR python3 horovod_train.py sets", one_node=False),
    Row("Horovod 0.28, MPI, dynamic process sets", "horovod",
        "HOROVOD_DYNAMIC_PROCESS_SETS=1 srun --mpi=pmix FOUR python3 horovod_train.py dynamic",
        one_node=False),
    Row("Horovod 0.28, MPI, a second `hvd.init()`", "horovod", "srun --mpi=pmix FOUR python3 horovod_train.py again"),
    Row("Horovod 0.28, `mpirun` in a batch script", "horovod", "mpirun -np 4 -npernode 2 python3 horovod_train.py train",
        **in_script("FOUR", "mpirun")),
    Row("Horovod 0.28, `horovodrun` in a batch script", "horovod", "horovodrun --gloo -np 2 python3 horovod_train.py train", ranks=2,
        **in_script("-N1 -n2 --gres gpu:2", "horovodrun")),
    Row("Horovod 0.28, `horovodrun -H` in a batch script, without ssh", "horovod",
        "PATH=$HOME/ssh-by-srun:$PATH horovodrun --gloo -np 4 -H node001:2,node002:2 python3 horovod_train.py train",
        **in_script("FOUR", "horovodrun")),
    Row("Horovod 0.28, `horovodrun` as the step's program", "horovod",
        "srun -N1 -n1 --gres gpu:2 horovodrun --gloo -np 2 python3 horovod_train.py train",
        ranks=2, one_node=False),
    Row("Horovod 0.28, `horovod.run()` in one task", "horovod", "srun -N1 -n1 --gres gpu:2 python3 horovod_run.py 2", ranks=2,
        one_node=False),
    Row("ChainerMN 7.8", "chainermn", "srun --mpi=pmix FOUR python3 chainermn_train.py"),
    Row("ChainerMN 7.8, `mpirun` in a batch script", "chainermn", "mpirun -np 4 -npernode 2 python3 chainermn_train.py",
        **in_script("FOUR", "mpirun")),
    Row("mpi4py 4.1", "chainermn", "srun --mpi=pmix FOUR python3 train_mpi4py.py"),
]

# Frameworks that are not run, and the reasons.
NOT_RUN = {
    "torchrun's restarts": "PyTorch 2.15 with gloo: a new worker may get the address of an old one, with the plugin and without",
    "`ray symmetric-run` on several nodes": "Ray 2.60 trains, but does not end on the second node, with the plugin and without",
    "torchtitan": "needs a GPU when it starts",
    "Horovod with TensorFlow": "Horovod 0.28.1, the last release, does not build with TensorFlow 2.21",
    "Horovod over Gloo, a second `hvd.init()`": "Horovod 0.28.1's server may give it addresses of the first; fails under `horovodrun` "
                                                "alone, too",
    "Horovod, NCCL operations": "need a GPU",
    "PyTorch, NCCL": "needs a GPU: [gpu-check.md](gpu-check.md) has a run",
}

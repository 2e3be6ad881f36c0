#!/usr/bin/env python3
"""What each framework would make of the environment of a task: its readers, written again from their documented rules.

Debian has none of these frameworks but PyTorch, so each function here follows the source that is named in its text and
answers with what that framework would do: rank, size, local rank, and the GPU as a place in the list of visible ones.
As a program it prints one JSON object for the task that it is: {"task": ..., "frameworks": {...}}. `listen` as argument:
the servers of TensorFlow and JAX are started, too, and every one of them is reached by every task.
"""

import json
import os
import re
import socket
import sys
import time

ENV = os.environ


def number(name):
    return int(ENV[name])


def visible():
    return [entry for entry in ENV.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry]


def pytorch():
    """torch/distributed/rendezvous.py, _env_rendezvous_handler: an empty value counts as missing."""
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not ENV.get(name)]
    if missing:
        return {"error": f"environment variable {missing[0]} expected, but not set"}
    return {"rank": number("RANK"), "size": number("WORLD_SIZE"), "local_rank": number("LOCAL_RANK"),
            "local_size": number("LOCAL_WORLD_SIZE"), "device": number("LOCAL_RANK"),
            "where": f"{ENV['MASTER_ADDR']}:{number('MASTER_PORT')}"}


def torchrun():
    """torch/distributed/run.py and argparse_util.py: PET_<OPTION> is the default of --option."""
    if "PET_NNODES" not in ENV:
        return None
    if ENV.get("PET_RDZV_BACKEND", "static") != "static" or ENV.get("PET_RDZV_ENDPOINT"):
        return {"error": "a rendezvous that guesses who is the host"}
    return {"rank": number("PET_NODE_RANK"), "size": number("PET_NNODES"), "children": number("PET_NPROC_PER_NODE"),
            "where": f"{ENV['PET_MASTER_ADDR']}:{number('PET_MASTER_PORT')}", "id": ENV["PET_RDZV_ID"]}


def tensorflow():
    """tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py."""
    if "TF_CONFIG" not in ENV:
        return None
    config = json.loads(ENV["TF_CONFIG"])
    workers = config["cluster"]["worker"]
    return {"rank": config["task"]["index"], "size": len(workers), "where": workers[config["task"]["index"]], "cluster": workers}


def first_host():
    """Of SLURM_STEP_NODELIST: "node[001-002]" or "node003"."""
    prefix, _, rest = ENV["SLURM_STEP_NODELIST"].split("],")[0].partition("[")
    return prefix.split(",")[0] if not rest else prefix + re.match(r"\d+", rest)[0]


def jax():
    """jax/_src/distributed.py, initialize, and jax/_src/clusters/slurm_cluster.py: all five or no Slurm, whose first host
    is that of the coordinator."""
    if "JAX_COORDINATOR_ADDRESS" not in ENV and "JAX_COORDINATOR_PORT" not in ENV:
        return None
    if any(name not in ENV for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")):
        return {"error": "not detected as Slurm"}
    ids = [int(word) for word in ENV.get("JAX_LOCAL_DEVICE_IDS", ENV["SLURM_LOCALID"]).split(",")]
    return {"rank": number("SLURM_PROCID"), "size": number("SLURM_NTASKS"), "device": ids[0], "devices": ids,
            "where": ENV.get("JAX_COORDINATOR_ADDRESS") or f"{first_host()}:{number('JAX_COORDINATOR_PORT')}"}


def lightning():
    """lightning/fabric/plugins/environments/slurm.py (detect, _validate_srun_variables) and lightning.py."""
    if "SLURM_NTASKS" in ENV and ENV.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        if number("SLURM_NTASKS") > 1 and "SLURM_NTASKS_PER_NODE" not in ENV:
            return {"error": "You set --ntasks, but this variable is not supported"}
        result = {"rank": number("SLURM_PROCID"), "size": number("SLURM_NTASKS"), "local_rank": number("SLURM_LOCALID")}
        if "SLURM_NTASKS_PER_NODE" in ENV:
            result["local_size"] = number("SLURM_NTASKS_PER_NODE")  # compared with the number of devices
    else:
        if "LOCAL_RANK" not in ENV:
            return {"error": "starts processes of its own"}
        result = {"local_rank": number("LOCAL_RANK")}
    return {**result, "where": f"{ENV['MASTER_ADDR']}:{number('MASTER_PORT')}"}


def deepspeed():
    """deepspeed/comm/comm.py, init_distributed: all five, or discovery over mpi4py."""
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK") if name not in ENV]
    if missing:
        return {"error": f"would ask mpi4py, since {missing[0]} is not set"}
    result = {"rank": number("RANK"), "size": number("WORLD_SIZE"), "device": number("LOCAL_RANK")}
    if "LOCAL_SIZE" in ENV:
        result["local_size"] = number("LOCAL_SIZE")
    return result


def accelerate():
    """accelerate/state.py: LOCAL_RANK other than -1, then env://; the device is LOCAL_RANK modulo their number."""
    if int(ENV.get("LOCAL_RANK", "-1")) == -1:
        return {"error": "takes itself for the only process"}
    return {"rank": number("RANK"), "size": number("WORLD_SIZE"), "device": number("LOCAL_RANK") % max(1, len(visible()))}


def nccl_tests():
    """nccl-tests src/common.cu: NCCL_TESTS_DEVICE, else the number of the MPI rank among those of its host."""
    if "NCCL_TESTS_DEVICE" in ENV:
        return {"device": number("NCCL_TESTS_DEVICE")}
    return {"device": number("SLURM_LOCALID") * max(1, len(ENV.get("BOOTSTRAP_GPUS", "0").split(",")))} \
        if "BOOTSTRAP_GPUS" not in ENV else {}


def nvshmem():
    """NVSHMEM's bootstrap_loader: NVSHMEM_BOOTSTRAP is PMI by default, NVSHMEM_BOOTSTRAP_PMI selects one."""
    return {"pmi": ENV.get("NVSHMEM_BOOTSTRAP_PMI", "PMI")}


READERS = (pytorch, torchrun, tensorflow, jax, lightning, deepspeed, accelerate, nccl_tests, nvshmem)


def server(port):
    """A server as gRPC makes it: SO_REUSEADDR and SO_REUSEPORT, both families on one socket."""
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("::", port))
    listener.listen(128)
    return listener


def reach(place):
    host, port = place.rsplit(":", 1)
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def meet(found):
    """TensorFlow's workers, if there are any, all listen, each at its place in TF_CONFIG; JAX's coordinator is rank 0. All reach all."""
    workers = found["tensorflow"] or {"cluster": []}
    places = workers["cluster"] + [found["jax"]["where"]]
    listeners = [server(int(workers["where"].rsplit(":", 1)[1]))] if "where" in workers else []
    if found["jax"]["rank"] == 0:
        listeners.append(server(int(found["jax"]["where"].rsplit(":", 1)[1])))
    for place in places:
        reach(place)
    time.sleep(2)  # until the others have been here, too
    return len(listeners)


def main():
    found = {reader.__name__: reader() for reader in READERS}
    own = {"host": ENV["SLURMD_NODENAME"], "rank": number("SLURM_PROCID"), "visible": visible(),
           "gpu": int(ENV.get("BOOTSTRAP_GPU", "-1")), "threads": int(ENV.get("OMP_NUM_THREADS", "0")),
           "cores": len(os.sched_getaffinity(0)), "interface": ENV.get("GLOO_SOCKET_IFNAME", "")}
    if sys.argv[1:] == ["listen"]:
        own["servers"] = meet(found)
    print(json.dumps({"task": own, "frameworks": found}), flush=True)


if __name__ == "__main__":
    main()

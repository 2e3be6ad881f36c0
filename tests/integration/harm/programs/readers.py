#!/usr/bin/env python3
"""What frameworks decide from the environment of a process: `readers.py NAME ARGUMENTS...` prints it in one line.

Each function has only the deciding lines of the source that it names; nothing is trained here. No function reads variables
that only we define: a user's program knows none of them.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import sys

ENV = os.environ


def number(name, default):
    return int(ENV.get(name, default))


def visible():
    """CUDA's own view: the entries of the list, none if it is empty, and all devices without a list."""
    if "CUDA_VISIBLE_DEVICES" in ENV:
        return [entry for entry in ENV["CUDA_VISIBLE_DEVICES"].split(",") if entry]
    return [name[len("nvidia"):] for name in sorted(os.listdir("/dev")) if name.startswith("nvidia") and name[-1].isdigit()]


def device(index):
    """cudaSetDevice."""
    return f"GPU {visible()[index]}" if index < len(visible()) else "invalid device ordinal"


def accelerate(mode=""):
    """accelerate/state.py, PartialState; utils/modeling.py, verify_device_map."""
    if number("LOCAL_RANK", -1) == -1:
        return f"alone, {device(0)}" if mode != "device_map" else f"alone, layers on {len(visible())} GPUs"
    if mode == "device_map" and len(visible()) > 1:
        return "ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode"
    return f"member {ENV['RANK']} of {ENV['WORLD_SIZE']}, {device(number('LOCAL_RANK', 0) % max(1, len(visible())))}"


def trainer(rate="0"):
    """transformers/training_args.py, _setup_devices: accelerate decides; a farm's member trains with its own rate."""
    return f"learning rate {rate}: {accelerate()}"


def deepspeed():
    """deepspeed/comm/comm.py, init_distributed: all five variables, or MPI's values."""
    if all(name in ENV for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")):
        return f"member {ENV['RANK']} of {ENV['WORLD_SIZE']}"
    if "OMPI_COMM_WORLD_RANK" in ENV:
        return f"MPI discovery: member {ENV['OMPI_COMM_WORLD_RANK']} of {ENV['OMPI_COMM_WORLD_SIZE']}"
    return "needs mpi4py"


def mpi_accelerate():
    """accelerate's utils/environment.py, get_int_from_env: the first of these variables that is set."""
    names = (("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))
    rank, size = next((pair for pair in names if pair[0] in ENV), ("", ""))
    return f"member {ENV.get(rank, 0)} of {ENV.get(size, 1)}"


def ultralytics(devices="0"):
    """ultralytics/engine/trainer.py: `device` has commas and no launcher has started the program: it starts DDP itself."""
    count, rank = len(devices.split(",")), number("RANK", -1)
    if count > 1 and "LOCAL_RANK" not in ENV:
        return f"starts {count} processes"
    if count > 1:
        return f"waits for a group of {count} as member {rank}"
    return "trains" if rank == -1 else f"RuntimeError: group not initialised in member {rank}"


def torch_env():
    """torch/distributed/rendezvous.py, _env_rendezvous_handler."""
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not ENV.get(name)]
    if missing:
        return f"ValueError: environment variable {missing[0]} expected, but not set"
    return f"member {ENV['RANK']} of {ENV['WORLD_SIZE']} at {ENV['MASTER_ADDR']}, {device(number('LOCAL_RANK', 0))}"


def kubeflow():
    """Programs that conclude from JAX_COORDINATOR_ADDRESS that Kubeflow started them."""
    if "JAX_COORDINATOR_ADDRESS" in ENV:
        return f"member {ENV.get('JAX_PROCESS_ID', 'KeyError')} of {ENV.get('JAX_NUM_PROCESSES', 'KeyError')}"
    return "asks jax.distributed for its cluster"


def horovod():
    """horovod/common/gloo/gloo_context.cc and utils/env_parser.cc."""
    if ENV.get("HOROVOD_CONTROLLER") == "gloo" or "HOROVOD_RANK" in ENV:
        return f"gloo: member {ENV.get('HOROVOD_RANK')} of {ENV.get('HOROVOD_SIZE')}"
    return "asks MPI"


def torch_mpi():
    """Programs that take the device from LOCAL_RANK, by default 0, and their ranks from elsewhere."""
    return device(number("LOCAL_RANK", 0))


def first_device():
    """Most CUDA programs: device 0."""
    return device(0)


def all_devices():
    """vLLM with -tp, llama.cpp, ..: every GPU that is visible."""
    return f"GPUs {','.join(visible())}"


def threads():
    """vLLM, Ray and LAMMPS conclude from OMP_NUM_THREADS that the user has set it."""
    return f"OMP_NUM_THREADS {ENV.get('OMP_NUM_THREADS', 'not set')}, {len(os.sched_getaffinity(0))} cores"


def fastest_first():
    """CUDA counts the fastest GPU first, unless CUDA_DEVICE_ORDER is PCI_BUS_ID; here the last GPU of the bus is the fastest."""
    count = len(visible())
    order = list(range(count)) if ENV.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" else list(reversed(range(count)))
    return "the fast GPU" if order[0] == count - 1 else "a slow GPU"


def main():
    reader, *arguments = sys.argv[1:]
    # One write: torchrun's workers are unbuffered and share a pipe.
    os.write(1, f"{ENV.get('SLURM_PROCID', 'none')}: {globals()[reader](*arguments)}\n".encode())


if __name__ == "__main__":
    main()

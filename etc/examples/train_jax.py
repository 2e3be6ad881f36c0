#!/usr/bin/env python3
"""Start it with: srun -N2 --ntasks-per-node 2 --gres gpu:2 python3 train_jax.py

Trains a small network with JAX, with the data shared out among the devices of all processes.

jax.distributed.initialize() needs no argument: it finds the ranks, their host and the process's own GPU in Slurm's
variables, and in JAX_COORDINATOR_PORT a port that no other step of the job has, which slurm-bootstrap sets. One
process with all GPUs of a node needs `srun --bootstrap=on -N2 --ntasks-per-node 1 --gres gpu:2`, which sets
JAX_LOCAL_DEVICE_IDS, too. Exits with 1 when the loss did not fall or when the processes do not hold the same parameters
in the end.
"""
# SPDX-License-Identifier: Apache-2.0

import os
import sys

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
except ImportError as error:
    sys.exit(f"train_jax.py needs JAX: {error}")

STEPS = 400
POINTS = 4096
LEARNING_RATE = 0.1


def predict(parameters, inputs):
    return jnp.tanh(inputs @ parameters["w1"] + parameters["b1"]) @ parameters["w2"]


def loss_of(parameters, inputs, targets):
    return jnp.mean((predict(parameters, inputs) - targets) ** 2)


def train_step(parameters, inputs, targets):
    """The mean is over the data of all devices, so that JAX itself sums losses and gradients over all of them."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, targets)
    return loss, jax.tree_util.tree_map(lambda value, slope: value - LEARNING_RATE * slope, parameters, gradients)


def share_out(mesh, mine):
    """One array over all devices, of which each process holds the part that it brings."""
    return jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), mine)


def processes_agree(parameters):
    """True when all processes hold the same parameters, up to rounding."""
    mine = np.array([np.abs(value.addressable_data(0)).sum() for value in jax.tree_util.tree_leaves(parameters)])
    of_all = multihost_utils.process_allgather(mine)
    return bool(np.all(np.isfinite(of_all))) and np.allclose(of_all, mine, rtol=1e-5)


def main():
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # where there is no GPU
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    print(f"rank {rank} of {size} on {os.uname().nodename}: {jax.local_devices()} of {jax.device_count()}", flush=True)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    part = POINTS // jax.device_count() * jax.local_device_count()
    mine = np.random.default_rng(rank).uniform(-2, 2, (part, 1)).astype(np.float32)
    inputs, targets = share_out(mesh, mine), share_out(mesh, np.sin(2 * mine))

    generator = np.random.default_rng(1)  # the same parameters in every process
    parameters = {"w1": generator.normal(size=(1, 32)), "b1": generator.normal(size=32), "w2": np.zeros((32, 1))}
    parameters = {name: value.astype(np.float32) for name, value in parameters.items()}
    in_all = NamedSharding(mesh, PartitionSpec())  # loss and parameters: the whole of them on every device
    compiled_step = jax.jit(train_step, out_shardings=in_all)
    losses = []
    for step in range(STEPS + 1):
        loss, parameters = compiled_step(parameters, inputs, targets)
        if step % (STEPS // 4) == 0:
            losses.append(float(loss))
            if rank == 0:
                print(f"step {step:5d}  loss {losses[-1]:.4f}", flush=True)

    agree = processes_agree(parameters)
    if rank == 0:
        print(f"final loss {losses[-1]:.4f} (it was {losses[0]:.4f}) on {size} ranks", flush=True)
    if not agree:
        sys.exit("the processes do not hold the same parameters")
    if not losses[-1] < losses[0] / 2:
        sys.exit(f"the loss did not fall: {losses[0]:.4f} before, {losses[-1]:.4f} after")


if __name__ == "__main__":
    main()

"""A process of JAX: the third one is late."""

import os
import time

import jax

if os.environ["SLURM_PROCID"] == "2":
    time.sleep(600)
jax.distributed.initialize()

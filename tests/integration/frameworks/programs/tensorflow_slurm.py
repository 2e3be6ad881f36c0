#!/usr/bin/env python3
"""TensorFlow's own SlurmClusterResolver: an all-reduce over MultiWorkerMirroredStrategy, without TF_CONFIG.

The argument is the first port of the workers.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf  # noqa: E402

from training import show_rank  # noqa: E402


def main():
    # It would ask nvidia-smi how many GPUs a node has.
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(port_base=int(sys.argv[1]), gpus_per_node=2, gpus_per_task=1)
    options = tf.distribute.experimental.CommunicationOptions(implementation=tf.distribute.experimental.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver, communication_options=options)
    size = strategy.num_replicas_in_sync
    show_rank(resolver.task_id, size, os.environ["SLURM_LOCALID"])

    @tf.function
    def total():
        return strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)

    found = float(total())
    if found != size:
        sys.exit(f"the sum over all workers is {found}, not {size}")
    print(f"sum {found:.0f}", flush=True)


if __name__ == "__main__":
    main()

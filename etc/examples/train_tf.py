#!/usr/bin/env python3
"""Start it with: srun --bootstrap-frameworks=tensorflow -N2 --ntasks-per-node 2 --gres gpu:2 python3 train_tf.py

Trains a small Keras model with TensorFlow's MultiWorkerMirroredStrategy: one worker for each task.

TF_CONFIG names all workers, and slurm-bootstrap sets it with this option of srun. Keras 3, which TensorFlow has brought
along since 2.16, cannot train under this strategy (keras-team/keras, issue 20585): there this program uses Keras 2,
from the package tf_keras. Exits with 1 when the loss did not fall or when the workers do not hold the same model in the
end.
"""
# SPDX-License-Identifier: Apache-2.0

import os
import sys

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # before the import, which reads it
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
try:
    import numpy as np
    import tensorflow as tf

    keras = tf.keras
    keras.Sequential  # tf.keras is loaded when it is first used
except ImportError as error:
    sys.exit(f"train_tf.py needs TensorFlow, from 2.16 on with tf_keras: {error}")

EPOCHS = 8
POINTS = 4096
BATCH = 256  # of all workers together


def take_own_gpu():
    """Each task sees all GPUs of its node, and TensorFlow would take all that it sees."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[int(os.environ["LOCAL_RANK"])], "GPU")


def make_data():
    inputs = np.linspace(-3, 3, POINTS, dtype=np.float32)[:, np.newaxis]
    data = tf.data.Dataset.from_tensor_slices((inputs, np.sin(2 * inputs))).shuffle(POINTS, seed=1).batch(BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def replicas_agree(strategy, model):
    """True when all workers hold the same parameters, up to rounding."""

    @tf.function
    def checksums():
        def checksum():
            return tf.reshape(tf.add_n([tf.reduce_sum(tf.abs(each)) for each in model.trainable_variables]), [1])

        return strategy.gather(strategy.run(checksum), axis=0)

    found = checksums().numpy()
    return len(found) == strategy.num_replicas_in_sync and np.allclose(found, found[0], rtol=1e-5)


def main():
    if "TF_CONFIG" not in os.environ:
        sys.exit("TF_CONFIG is not set: start the program with srun --bootstrap-frameworks=tensorflow")
    take_own_gpu()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # waits for all workers
    rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    print(f"rank {rank} of {size} on {os.uname().nodename}", flush=True)

    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(32, activation="tanh", input_shape=(1,)), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile(optimizer=keras.optimizers.Adam(0.02), loss="mse")
    losses = model.fit(make_data(), epochs=EPOCHS, verbose=0).history["loss"]

    agree = replicas_agree(strategy, model)
    if rank == 0:
        for epoch, loss in enumerate(losses, 1):
            print(f"epoch {epoch:3d}  loss {loss:.4f}")
        print(f"final loss {losses[-1]:.4f} (it was {losses[0]:.4f}) on {size} ranks", flush=True)
    if not agree:
        sys.exit("the workers do not hold the same model")
    if not losses[-1] < losses[0]:
        sys.exit(f"the loss did not fall: {losses[0]:.4f} in the first epoch, {losses[-1]:.4f} in the last")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""ChainerMN as in its tutorial: create_communicator("naive") and create_multi_node_optimizer."""

# SPDX-License-Identifier: Apache-2.0

import warnings

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import numpy as np

from training import POINTS, SEED, STEPS, WIDTH, finish, show_rank

warnings.filterwarnings("ignore")


class Network(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.first, self.last = L.Linear(1, WIDTH), L.Linear(WIDTH, 1)

    def forward(self, inputs):
        return self.last(F.tanh(self.first(inputs)))


def main():
    comm = chainermn.create_communicator("naive")
    show_rank(comm.rank, comm.size, comm.intra_rank)
    np.random.seed(SEED)
    inputs = np.linspace(-3, 3, POINTS, dtype=np.float32)[:, None]
    targets = np.sin(2 * inputs)
    network = Network()
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(alpha=0.02), comm)
    optimizer.setup(network)
    comm.bcast_data(network)

    def loss(part):
        return F.mean_squared_error(network(inputs[part]), targets[part])

    first = float(loss(slice(None)).array)
    for _ in range(STEPS):
        network.cleargrads()
        optimizer.update(loss, slice(comm.rank, None, comm.size))
    mine = float(sum(np.abs(parameter.array).sum() for parameter in network.params()))
    finish(comm.rank, comm.size, first, float(loss(slice(None)).array), comm.mpi_comm.allgather(mine))


if __name__ == "__main__":
    main()

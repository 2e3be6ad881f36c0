"""What NCCL's root serves, in ranks for each second, by the real libnccl: needs no GPU."""

# SPDX-License-Identifier: Apache-2.0

from bench.table import Group


def measure(rounds):
    return Group("Root service of libnccl", skipped="root_rate is not there yet")

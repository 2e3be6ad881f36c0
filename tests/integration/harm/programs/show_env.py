#!/usr/bin/env python3
"""Prints the whole environment, one line for each variable with the task's number before it."""

# SPDX-License-Identifier: Apache-2.0

import os

rank = os.environ.get("SLURM_PROCID", "none")
for name, value in os.environ.items():  # each line in one write, since torchrun's workers are not buffered
    os.write(1, f"{rank}: {name}={value.encode('unicode_escape').decode()}\n".encode())

#!/usr/bin/env python3
"""A rank that needs no package: status_rank.py FOLDER [undumpable]; ends with 7 when FOLDER/end is there."""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import os
import sys
import time

PR_SET_DUMPABLE = 4
if "undumpable" in sys.argv and os.environ["SLURM_PROCID"] == "2":
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
while not os.path.exists(f"{sys.argv[1]}/end"):
    time.sleep(0.2)
sys.exit(7)

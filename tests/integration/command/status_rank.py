#!/usr/bin/env python3
"""A rank that needs no package: status_rank.py FOLDER [undumpable | LIBNCCL]; ends with 7 when FOLDER/end exists.

With LIBNCCL it maps this library, and rank 0 answers like NCCL's RAS.
"""

# SPDX-License-Identifier: Apache-2.0

import ctypes
import os
import socket
import sys
import threading
import time


def answer(server):
    while True:
        client, _ = server.accept()
        question = client.recv(100)
        client.sendall(b"NCCL version 2.30.3\n\x1b[31mJob summary\n" if question == b"verbose status\n" else b"ERROR\n")
        client.close()


with open(f"{sys.argv[1]}/{os.environ['SLURM_JOB_ID']}-{os.environ['SLURM_PROCID']}.started", "w", encoding="utf-8"):
    pass
PR_SET_DUMPABLE = 4
if "undumpable" in sys.argv and os.environ["SLURM_PROCID"] == "2":
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
if sys.argv[2:] and sys.argv[2].startswith("/"):
    library = ctypes.CDLL(sys.argv[2].replace("RANK", os.environ["SLURM_PROCID"]))
    if os.environ["SLURM_PROCID"] == "0":
        threading.Thread(target=answer, args=[socket.create_server(("127.0.0.1", 28028))], daemon=True).start()
while not os.path.exists(f"{sys.argv[1]}/end"):
    time.sleep(0.2)
sys.exit(7)

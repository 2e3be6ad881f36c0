"""Horovod's own rendezvous server, for the ranks of one step: in this process, or as a program that ends with rank 0.

Input of the program: the number of the process to end with, then a line for each rank: its host, its place on it, the
ranks of the host, its place among the hosts that have such a rank, and their number. Output: the port, or why there is none.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import sys
import time

_servers = []  # kept until the process ends


def start(lines: "list[str]") -> int:
    """The port of a server that knows these ranks."""
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousServer

    slots = []
    for rank, line in enumerate(lines):
        host, local_rank, local_size, cross_rank, cross_size = line.split()
        slots.append(SlotInfo(hostname=host, rank=rank, local_rank=int(local_rank), cross_rank=int(cross_rank),
                              size=len(lines), local_size=int(local_size), cross_size=int(cross_size)))
    server = RendezvousServer()
    port: int = server.start()
    server.init(slots)
    _servers.append(server)
    return port


def main() -> None:
    process, *lines = sys.stdin.read().splitlines()
    try:
        print(start(lines), flush=True)
    except Exception as error:
        sys.exit(print(error))
    os.close(1)
    while True:  # a process that is not our parent cannot be waited for
        time.sleep(1)
        try:
            os.kill(int(process), 0)
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    main()

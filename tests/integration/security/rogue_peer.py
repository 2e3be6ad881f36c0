"""A rogue peer: finds the servers of a user on this node and sends them what no rank sends: rogue_peer.py WAY UID [SECONDS].

WAY is `close`: connects and disconnects; `bytes`: sends meaningless bytes; `silent`: stays and sends nothing. SECONDS after
its first connection it stops. Prints `ready`, and at SIGTERM the number of its connections.
"""

# SPDX-License-Identifier: Apache-2.0

import os
import signal
import socket
import struct
import sys
import time

LISTEN = "0A"  # as the kernel numbers the states


def servers(uid):
    """Addresses at which this user listens, without the loopback, which has PMIx but not NCCL."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file.readlines()[1:]:
            _, local, _, state, _, _, _, owner = line.split()[:8]
            host, port = local.split(":")
            address = socket.inet_ntoa(struct.pack("<I", int(host, 16)))
            if state == LISTEN and int(owner) == uid and not address.startswith("127."):
                yield address, int(port, 16)


def main():
    way, uid, seconds = sys.argv[1], int(sys.argv[2]), float(*sys.argv[3:] or ["inf"])
    end = float("inf")
    stopping, kept, count = [], {}, 0
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    os.write(1, b"ready\n")
    while not stopping:
        for server in servers(uid) if time.monotonic() < end else ():
            if server in kept:
                continue
            try:
                peer = socket.create_connection(server, timeout=1)
                count += 1
                end = min(end, time.monotonic() + seconds)
                if way == "bytes":
                    peer.sendall(os.urandom(64))
                if way == "silent":
                    kept[server] = peer
                else:
                    peer.close()
            except OSError:
                pass  # it has gone
        time.sleep(0.005)
    os.write(1, f"{count}\n".encode())


main()

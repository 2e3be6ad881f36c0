"""A peer that nobody asked for: finds each port on which a user's program listens on this node, and misbehaves there."""

# SPDX-License-Identifier: Apache-2.0

import os
import socket
import sys
import time

LISTENING = "0A"  # the state, as /proc/net/tcp has it


def listeners(user):
    """Ports on which processes of the user listen."""
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(name) as table:
            for fields in map(str.split, list(table)[1:]):
                if fields[3] == LISTENING and fields[7] == user:
                    yield int(fields[1].rpartition(":")[2], 16)


def misbehave(kind, port, held):
    peer = socket.create_connection((os.uname().nodename, port), timeout=1)
    if kind == "bytes":
        peer.sendall(os.urandom(256))
    if kind == "silent":
        held.append(peer)
    else:
        peer.close()


def main(kind, user):
    """Until SIGTERM; a line for each port that it has reached."""
    held, reached = [], set()
    os.write(1, b"ready\n")
    while True:
        for port in set(listeners(user)):
            try:
                misbehave(kind, port, held)
            except OSError:
                continue  # it is gone again
            if port not in reached:
                reached.add(port)
                os.write(1, f"reached {port}\n".encode())
        time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])

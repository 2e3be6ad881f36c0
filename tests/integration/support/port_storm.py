"""What makes ports scarce in the port tests: programs that take whatever the system gives, or that hold one port."""

import collections
import errno
import os
import random
import signal
import socket
import struct
import sys
import time

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: no TIME_WAIT stays behind


def ephemeral_range():
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        return tuple(map(int, file.read().split()))


def storm_of_binds(open_at_once):
    """Listens on ports of the system's choice, as many as `open_at_once` at any time, each for a moment."""
    sockets = collections.deque()
    count = 0
    while True:
        for _ in range(8):
            server = socket.socket(socket.AF_INET6 if count % 2 else socket.AF_INET)
            try:
                server.bind(("", 0))
                server.listen(1)
                count += 1
            except OSError:
                pass  # all ports are taken
            sockets.append(server)
            if len(sockets) > open_at_once:
                sockets.popleft().close()
        yield count
        time.sleep(0.002)


def storm_of_connects(address):
    """Connects to any port of the ephemeral range, so that the system chooses source ports in it."""
    first, last = ephemeral_range()
    count = 0
    while True:
        for _ in range(32):
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.setblocking(False)
                result = client.connect_ex((address, random.randint(first, last)))
                count += result in (0, errno.EINPROGRESS, errno.ECONNREFUSED)
        yield count
        time.sleep(0.002)


def run(storm):
    """Until SIGTERM; then prints how much it did."""
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    for count in storm:
        if stopping:
            os.write(1, f"{count}\n".encode())
            return


def hold(port, address, listens, reuses):
    """Holds one port until SIGTERM."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if reuses:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, port))
        if listens:
            server.listen(5)
        os.write(1, b"ready\n")
        signal.pause()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "binds":
        run(storm_of_binds(int(words[0])))
    elif what == "connects":
        run(storm_of_connects(words[0]))
    elif what == "hold":
        hold(int(words[0]), words[1], "listen" in words[2:], "reuse" in words[2:])
    else:
        sys.exit(f"{what} is not binds, connects or hold")

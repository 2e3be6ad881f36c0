#!/usr/bin/env python3
"""A rank as Horovod's Gloo controller sees it, without Horovod: it reads HOROVOD_*, meets the others, and sums.

Written from the protocol of Horovod 0.28: horovod/common/gloo/http_store.cc (requests, retries, waiting) and gloo_context.cc (contexts,
scopes, barrier, DELETE), gloo's rendezvous (keys rank_N and N; 136 bytes of address for each pair), and elnormous/HTTPRequest, Horovod's
HTTP client (one connection a request, IPv4, how Content-Length is spelt).

Started as a rank it prints one line: rank R of N local L/LN cross C/CN sum OK.
"""

import fcntl
import os
import socket
import struct
import sys
import time

ATTEMPTS, RETRY_PAUSE, POLL_PAUSE = 3, 0.5, 0.01
ADDRESS_SLOT = 136  # sockaddr_storage and a sequence number
CARD = struct.Struct("!II64s")  # what ranks exchange when connected: rank, local rank, host


class HttpFailed(Exception):
    """Three attempts, none with 200 or 404: what makes Horovod end."""


class HttpStore:
    """One scope of the server, as Horovod's HTTPStore."""

    def __init__(self, address, port, scope, timeout):
        self.address, self.port, self.scope, self.timeout = address, port, scope, timeout

    def send(self, method, key, body):
        """One request on a connection of its own; (status, body), where status 0 is an end without an answer."""
        place = socket.getaddrinfo(self.address, self.port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        with socket.create_connection(place, timeout=60) as connection:
            head = f"{method} /{self.scope}/{key} HTTP/1.1\r\nHost: {self.address}\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return read_response(connection)

    def perform(self, method, key, body=b""):
        """The body of the answer; None where the server has no such key."""
        for _ in range(ATTEMPTS):
            try:
                status, answer = self.send(method, key, body)
                if status in (200, 404):
                    return answer if status == 200 else None
                last = f"{status} {answer.decode(errors='replace').strip()}"
            except OSError as error:
                last = str(error)
            time.sleep(RETRY_PAUSE)
        raise HttpFailed(f"{method} /{self.scope}/{key}: {last}")

    def wait(self, key):
        end = time.monotonic() + self.timeout
        while (value := self.perform("GET", key)) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"no rank has put /{self.scope}/{key} within {self.timeout} s")
            time.sleep(POLL_PAUSE)
        return value


def read_response(connection):
    """As HTTPRequest does: a length counts in one spelling alone; without it the body is the rest of the first packet."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(4096)
        if not more:
            return 0, b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next((int(line.partition(":")[2]) for line in lines[1:] if line.startswith("Content-Length:")), 0)
    while len(body) < length and (more := connection.recv(4096)):
        body += more
    return int(lines[0].split(" ")[1]), body


def own_address(interface, server, port):
    """The address of HOROVOD_GLOO_IFACE, or else the one from which the server is reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if interface:
            answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", interface[:15].encode()))  # SIOCGIFADDR
            return socket.inet_ntoa(answer[20:24])
        probe.connect((server, port))
        return probe.getsockname()[0]


def receive(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("a peer has closed its connection")
        data += more
    return data


class Context:
    """All ranks of a scope, connected with each other over TCP: connectFullMesh, then a barrier, then DELETE."""

    def __init__(self, store, rank, size, host, address):
        self.rank, self.size, self.peers = rank, size, {}
        with socket.create_server((address, 0), backlog=size + 1) as listener:
            slot = struct.pack("!4sH", socket.inet_aton(address), listener.getsockname()[1]).ljust(ADDRESS_SLOT, b"\0")
            store.perform("PUT", f"rank_{rank}", host.encode())
            others = [other for other in range(size) if other != rank]
            for other in others:
                store.wait(f"rank_{other}")
            store.perform("PUT", str(rank), slot * size)
            for other in others:
                blob = store.wait(str(other))
                if len(blob) != ADDRESS_SLOT * size:
                    raise ValueError(f"/{store.scope}/{other} has {len(blob)} bytes of {ADDRESS_SLOT * size}")
                if other < rank:
                    address, port = struct.unpack_from("!4sH", blob, ADDRESS_SLOT * rank)
                    self.peers[other] = socket.create_connection((socket.inet_ntoa(address), port), timeout=60)
                    self.peers[other].sendall(struct.pack("!I", rank))
            listener.settimeout(store.timeout)
            while len(self.peers) < size - 1:
                connection, _ = listener.accept()
                connection.settimeout(store.timeout)
                self.peers[struct.unpack("!I", receive(connection, 4))[0]] = connection
        self.sum(0)
        store.perform("DELETE", str(rank))

    def exchange(self, value):
        """Sends the same bytes to all, and returns what each of the others sent."""
        for connection in self.peers.values():
            connection.sendall(value)
        return [receive(connection, len(value)) for connection in self.peers.values()]

    def sum(self, value):
        return value + sum(struct.unpack("!q", other)[0] for other in self.exchange(struct.pack("!q", value)))


def check(context, card, belongs):
    """A sum over the context, and that the right ranks are in it, and none twice."""
    cards = [CARD.unpack(other) for other in [CARD.pack(*card), *context.exchange(CARD.pack(*card))]]
    total = context.sum(card[0] + 1)
    if len({rank for rank, _, _ in cards}) != context.size or total != sum(rank + 1 for rank, _, _ in cards):
        raise ValueError(f"{context.size} ranks have the sum {total}: {cards}")
    for rank, local_rank, host in cards:
        if not belongs(local_rank, host.rstrip(b"\0")):
            raise ValueError(f"rank {rank} (local rank {local_rank} of {host}) is in a context of rank {card[0]}")


def main(environment):
    """hvd.init(), three sums, hvd.shutdown()."""
    rank, size, local_rank, local_size, cross_rank, cross_size, port = (
        int(environment[f"HOROVOD_{name}"])
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "GLOO_RENDEZVOUS_PORT"))
    for name in ("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"):
        if environment.get(name) != "gloo":
            raise ValueError(f"{name} is {environment.get(name)}, not gloo")
    host, server = environment["HOROVOD_HOSTNAME"], socket.gethostbyname(environment["HOROVOD_GLOO_RENDEZVOUS_ADDR"])
    address = own_address(environment.get("HOROVOD_GLOO_IFACE"), server, port)
    timeout = float(environment.get("HOROVOD_GLOO_TIMEOUT_SECONDS", "30"))

    def meet(scope, own, count):
        return Context(HttpStore(server, port, scope, timeout), own, count, host, address)

    everyone, local = meet("global", rank, size), meet(f"local_{host}", local_rank, local_size)
    cross, card = meet(f"cross_{local_rank}", cross_rank, cross_size), (rank, local_rank, host.encode())
    check(everyone, card, lambda *_: True)
    check(local, card, lambda _, other: other == host.encode())
    check(cross, card, lambda other, _: other == local_rank)
    if everyone.sum(rank) != size * (size - 1) // 2:
        raise ValueError("the sum of all ranks is wrong")
    # One write, so that lines of several ranks never mix.
    os.write(1, f"rank {rank} of {size} local {local_rank}/{local_size} cross {cross_rank}/{cross_size} sum OK\n".encode())


if __name__ == "__main__":
    try:
        main(os.environ)
    except (HttpFailed, OSError, ValueError, KeyError) as problem:
        sys.exit(f"rank {os.environ.get('HOROVOD_RANK')}: {type(problem).__name__}: {problem}")

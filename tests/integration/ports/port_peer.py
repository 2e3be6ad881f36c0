"""A task of a step in the port tests: meets the others on MASTER_PORT as PyTorch does, or serves and closes first."""

import os
import random
import socket
import struct
import sys
import time

LIMIT = 20.0  # seconds until whoever waits gives up
PAUSE = 0.002  # between two attempts: eager clients are what a port has to fear

STEP = f"{os.environ.get('SLURM_JOB_ID')}.{os.environ.get('SLURM_STEP_ID')}"
RANK = int(os.environ.get("RANK", "0"))
PORT = int(os.environ.get("MASTER_PORT", "0"))


def report(word, detail=""):
    """One line, written at once, so that lines of several tasks never mix."""
    os.write(1, f"peer {STEP} {PORT} {RANK} {word} {detail}\n".encode())


def end(word, detail=""):
    report(word, detail)
    sys.exit(0 if word in ("served", "joined") else 3)


def reset_at_close(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def listen(port):
    """Binds and listens as PyTorch's TCPStore does; OSError as it comes."""
    server = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("::", port))
    server.listen(2048)
    return server


def serve(size):
    """Rank 0: answers every client with the name of the step, until all have come; one with another name belongs elsewhere."""
    try:
        server = listen(PORT)
    except OSError as error:
        end("in-use", error.strerror)
    end_of_wait = time.monotonic() + LIMIT
    seen, others = set(), set()
    while len(seen) < size - 1:
        server.settimeout(max(0.001, end_of_wait - time.monotonic()))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            break
        with connection:
            connection.settimeout(1)
            try:
                name, rank = connection.recv(100).decode().split()
                connection.sendall(STEP.encode())
            except (OSError, ValueError):
                continue  # the storm: connects, sends nothing, goes
            if name == STEP:
                seen.add(int(rank))
            else:
                others.add(name)
    if len(seen) < size - 1:
        end("alone", f"{len(seen)} of {size - 1} came")
    if others:
        end("cross-talk", ",".join(sorted(others)))
    end("served", len(seen))


def join(address):
    """Every other rank: tries until rank 0 of its own step answers."""
    deadline = time.monotonic() + LIMIT
    address = socket.gethostbyname(address)
    while time.monotonic() < deadline:
        with socket.socket() as client:
            client.settimeout(2)
            try:
                client.connect((address, PORT))
                if client.getsockname() == client.getpeername():
                    reset_at_close(client)
                    end("self-connect", address)
                client.sendall(f"{STEP} {RANK}".encode())
                answer = client.recv(100).decode()
            except OSError:
                answer = ""
        if answer == STEP:
            end("joined")
        if answer:
            end("cross-talk", answer)
        time.sleep(PAUSE)
    end("lost", address)


def meet(shortest, longest):
    """Rank 0 lets the others wait for a time between the two, in seconds."""
    if RANK == 0:
        time.sleep(random.uniform(shortest, longest))
        serve(int(os.environ["WORLD_SIZE"]))
    join(os.environ["MASTER_ADDR"])


def close_first():
    """As `meet`, but the server closes each connection before its client does, which leaves TIME_WAIT on its port."""
    if RANK == 0:
        server = listen(PORT)
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            server.accept()[0].close()
        end("served")
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        with socket.socket() as client:
            if client.connect_ex((os.environ["MASTER_ADDR"], PORT)) == 0:
                client.settimeout(LIMIT)
                client.recv(1)  # until the server has closed
                end("joined")
        time.sleep(PAUSE)
    end("lost")


def torch_store():
    """PyTorch's own server and clients, found as env:// finds them."""
    from datetime import timedelta

    from torch.distributed import TCPStore

    size = int(os.environ["WORLD_SIZE"])
    # As env:// reads it; PyTorch 1.13 has no such argument.
    more = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
    store = TCPStore(os.environ["MASTER_ADDR"], PORT, size, RANK == 0, timedelta(seconds=60), **more)
    store.set(f"step of {RANK}", STEP)
    steps = {store.get(f"step of {rank}").decode() for rank in range(size)}
    store.add("done", 1)
    while RANK == 0 and store.add("done", 0) < size:
        time.sleep(0.01)  # the server ends with its process
    end("served" if RANK == 0 else "joined") if steps == {STEP} else end("cross-talk", steps)


if __name__ == "__main__":
    if sys.argv[1] == "meet":
        meet(*map(float, sys.argv[2:]))
    {"close-first": close_first, "torch": torch_store}[sys.argv[1]]()

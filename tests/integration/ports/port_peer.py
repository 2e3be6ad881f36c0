"""A program that uses a port in the port tests: port_peer.py meet | torch | hold PORT ADDRESS [listen] [reuse].

A task of a step meets the others on MASTER_PORT, like PyTorch or with PyTorch itself. With `hold` it is another program, which
keeps one port until SIGTERM."""

import contextlib
import os
import signal
import socket
import sys
import time

LIMIT = 20.0  # seconds until a task gives up
STEP = f"{os.environ.get('SLURM_JOB_ID')}.{os.environ.get('SLURM_STEP_ID')}"
RANK = int(os.environ.get("RANK", "0"))
PORT = int(os.environ.get("MASTER_PORT", "0"))


def end(word, detail=""):
    """One line, written at once, so that lines of several tasks never mix."""
    os.write(1, f"peer {STEP} {PORT} {RANK} {word} {detail}\n".encode())
    sys.exit(0 if word in ("served", "joined") else 3)


def meet():
    if RANK != 0:
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket() as client:
                client.settimeout(2)
                if client.connect_ex((os.environ["MASTER_ADDR"], PORT)) == 0:
                    client.sendall(STEP.encode())
                    if client.recv(100).decode() == STEP:
                        end("joined")
            time.sleep(0.01)
        end("lost")
    try:
        server = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True)  # sets SO_REUSEADDR
    except OSError as error:
        end("in-use", error.strerror)
    server.settimeout(LIMIT)
    others = int(os.environ["WORLD_SIZE"]) - 1
    while others:
        try:
            client = server.accept()[0]
        except TimeoutError:
            end("alone")
        with contextlib.suppress(OSError), client:
            client.settimeout(2)
            if client.recv(100).decode() == STEP:
                client.sendall(STEP.encode())
                others -= 1
    end("served")


def torch_store():
    """PyTorch's own server and clients, with the address that env:// reads."""
    from datetime import timedelta

    from torch.distributed import TCPStore

    size = int(os.environ["WORLD_SIZE"])
    # Read like env://; PyTorch 1.13 has no such argument.
    more = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}
    store = TCPStore(os.environ["MASTER_ADDR"], PORT, size, RANK == 0, timedelta(seconds=60), **more)
    store.set(f"step of {RANK}", STEP)
    steps = {store.get(f"step of {rank}").decode() for rank in range(size)}
    store.add("done", 1)
    while RANK == 0 and store.add("done", 0) < size:
        time.sleep(0.01)  # the server ends with its process
    end("served" if RANK == 0 else "joined") if steps == {STEP} else end("cross-talk", steps)


def hold(port, address, *how):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if "reuse" in how:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, int(port)))
        if "listen" in how:
            server.listen(5)
        os.write(1, b"ready\n")
        signal.pause()


{"meet": meet, "torch": torch_store, "hold": hold}[sys.argv[1]](*sys.argv[2:])

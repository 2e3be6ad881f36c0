#!/usr/bin/python3 -IS
"""A task in the tests of layouts and GPUs, without code under test: probe.py FOLDER [naive | alone | gpus].

It meets the other ranks as PyTorch's TCPStore does (`naive`: at the address by the rules of launch scripts), and writes its
environment into the folder. Its findings have an '@' before the name, unlike any variable:
  @host             its host
  @verdict          "ok", or what went wrong in the meeting; `alone` and `gpus` do not meet
  @open, @hidden    with `gpus`: the numbers N of /dev/nvidiaN that it can open, or not
  @cpus             with `gpus`: the CPUs where it may run
"""

import errno
import os
import socket
import sys
import time

ENV, HOST = os.environ, socket.gethostname()
DEADLINE = time.monotonic() + 15


def time_left():
    return max(0.01, DEADLINE - time.monotonic())


def check_greeting(line, size, seen):
    """Compares the line of a rank: "RANK WORLD_SIZE STEP HOST"."""
    rank, world, step, _ = line.split()
    if world != ENV["WORLD_SIZE"]:
        return f"another WORLD_SIZE came: {line}"
    if step != ENV["SLURM_BOOTSTRAP_STEP"]:
        return f"a rank of another step came: {line}"
    if not 1 <= int(rank) < size or rank in seen:
        return f"a rank outside the step came, or one twice: {line}"
    seen.add(rank)
    return "ok"


def serve(size):
    """Only rank 0 knows if the others can find it: the address must be one of its own, and not a loopback address."""
    family, *_, (address, *_) = socket.getaddrinfo(ENV["MASTER_ADDR"], None)[0]
    if address.startswith("127.") or address == "::1":
        return f"{ENV['MASTER_ADDR']} is a loopback address to rank 0"
    try:
        socket.socket(family).bind((address, 0))
    except OSError:
        return f"{ENV['MASTER_ADDR']} is {address}, which is not an address of {HOST}"
    place = ("::", int(ENV["MASTER_PORT"]))
    verdict, peers, seen = "ok", [], set()
    with socket.create_server(place, family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096) as listener:
        while verdict == "ok" and len(peers) < size - 1:
            listener.settimeout(time_left())
            try:
                peers.append(listener.accept()[0])
                peers[-1].settimeout(time_left())
                verdict = check_greeting(peers[-1].makefile().readline(), size, seen)
            except TimeoutError:
                verdict = f"only {len(seen)} of {size - 1} ranks came"
    for peer in peers:
        peer.sendall(f"{verdict}\n".encode())
    return verdict


def join():
    while True:
        try:
            with socket.create_connection((ENV["MASTER_ADDR"], int(ENV["MASTER_PORT"])), time_left()) as rank_0:
                rank_0.sendall(f"{ENV['RANK']} {ENV['WORLD_SIZE']} {ENV['SLURM_BOOTSTRAP_STEP']} {HOST}\n".encode())
                return rank_0.makefile().readline().strip() or "rank 0 did not answer"
        except ConnectionRefusedError as error:
            if time.monotonic() > DEADLINE:
                return str(error)
            time.sleep(0.02)


def meet():
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_BOOTSTRAP_STEP"):
        if not ENV.get(name):
            return f"{name} is not set"
    try:
        return serve(int(ENV["WORLD_SIZE"])) if ENV["RANK"] == "0" else join()
    except OSError as error:
        return f"{ENV['MASTER_ADDR']}:{ENV['MASTER_PORT']}: {error}"


def be_naive():
    """The rules of launch scripts: the first host of the list, and a port computed only from the job id."""
    first = ENV["SLURM_STEP_NODELIST"].replace(",", "]").replace("-", "]").partition("]")[0]
    ENV["MASTER_ADDR"], ENV["MASTER_PORT"] = first.replace("[", ""), str(10000 + int(ENV["SLURM_JOB_ID"]) % 20000)


def look_at_gpus():
    """Device nodes without a driver return ENXIO where a real one would open, and a device cgroup returns EPERM before that.
    Any other result means that the test setup is broken, and must not count as either."""
    found = {"open": [], "hidden": []}
    for number in sorted(int(name[6:]) for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()):
        try:
            os.close(os.open(f"/dev/nvidia{number}", os.O_RDWR | os.O_NONBLOCK))
            code = errno.ENXIO
        except OSError as error:
            code = error.errno
        found[{errno.ENXIO: "open", errno.EPERM: "hidden"}[code]].append(number)
    found["cpus"] = sorted(os.sched_getaffinity(0))
    return {name: ",".join(map(str, numbers)) for name, numbers in found.items()}


def main(folder, how=""):
    if how == "naive":
        be_naive()
    findings = look_at_gpus() if how == "gpus" else {"verdict": "ok" if how == "alone" else meet()}
    entries = [f"@{name}={value}".encode() for name, value in {"host": HOST, **findings}.items()]
    entries += [b"%s=%s" % entry for entry in os.environb.items()]
    # Written under another name first, so that no test reads half of it.
    name = f"{folder}/{HOST}.{os.getpid()}.{time.time_ns()}"
    with open(f"{name}.new", "xb") as file:
        file.write(b"".join(entry + b"\0" for entry in entries))
    os.rename(f"{name}.new", f"{name}.task")
    if findings.get("verdict", "ok") != "ok":
        sys.exit(f"probe: rank {ENV.get('RANK')}: {findings['verdict']}")


main(*sys.argv[1:])

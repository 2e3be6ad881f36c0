"""The server of Horovod's rendezvous as a program: ranks that meet there, and clients that are wrong, slow or dead.

No cluster is needed; the ranks are processes of this machine, and the client is written from Horovod's protocol.
"""

import collections
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from built_files import SERVER, built
from harness import wait_for
from horovod_client import HttpFailed, HttpStore

LARGEST = 60000  # about what a value may have, as bytes
OWN_DESCRIPTORS = 5  # /dev/null three times, the listener, the process that it watches
CLIENT = Path(__file__).with_name("horovod_client.py")


class Server:
    """The program, with a listening socket of ours as descriptor 3, for as long as a process of ours lives."""

    def __init__(self, ranks):
        self.life = subprocess.Popen(["sleep", "600"])
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
            self.port = listener.getsockname()[1]
            arguments = ["--step", "12.0", "--size", str(ranks), "--while-process", str(self.life.pid)]
            # A shell puts the socket in its place, since subprocess may have something of its own there.
            place = f'exec 3<&{listener.fileno()} {listener.fileno()}<&-; exec "$@"'
            line = ["bash", "-c", place, "-", built(SERVER), *arguments]
            self.process = subprocess.Popen(line, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self.store("global").get("0") is None
        self.wait_until_alone()

    def store(self, scope):
        return HttpStore("127.0.0.1", self.port, scope)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def ask(self, text):
        """What the server says to these bytes; b"" when it says nothing."""
        with self.connect() as connection:
            try:
                connection.sendall(text)
                connection.shutdown(socket.SHUT_WR)
                return connection.makefile("rb").read()
            except ConnectionError:
                return b""

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def peak_memory(self):
        """KiB that it ever had in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])

    def is_well(self):
        """It answers at once, and holds no connection longer than its deadlines allow."""
        began = time.monotonic()
        self.store("global").put("9", b"x")
        assert time.monotonic() - began < 1
        self.wait_until_alone()

    def wait_until_alone(self):
        wait_for(lambda: self.descriptors() == OWN_DESCRIPTORS, 8, "descriptors of clients that are gone")

    def end(self):
        self.life.kill()
        self.life.wait()
        output, _ = self.process.communicate(timeout=5)
        return self.process.returncode, output


@pytest.fixture
def start_server():
    servers = []

    def start(ranks):
        servers.append(Server(ranks))
        return servers[-1]

    yield start
    for server in servers:
        try:
            server.life.kill()
            server.life.wait()
            output, _ = server.process.communicate(timeout=5)
        finally:
            server.process.kill()
        assert (server.process.returncode, output) == (0, b"")


def environments(port, tasks_of_hosts):
    """HOROVOD_* of each rank, with as many on each host as listed."""
    places = [(node, local) for node, tasks in enumerate(tasks_of_hosts) for local in range(tasks)]
    for rank, (node, local) in enumerate(places):
        cross = [other for other, tasks in enumerate(tasks_of_hosts) if tasks > local]
        values = {"RANK": rank, "SIZE": len(places), "LOCAL_RANK": local, "LOCAL_SIZE": tasks_of_hosts[node],
                  "CROSS_RANK": cross.index(node), "CROSS_SIZE": len(cross), "HOSTNAME": f"node{node:03}",
                  "GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "GLOO_RENDEZVOUS_PORT": port, "CONTROLLER": "gloo",
                  "CPU_OPERATIONS": "gloo", "GLOO_IFACE": "lo", "GLOO_TIMEOUT_SECONDS": 120}
        yield {f"HOROVOD_{name}": str(value) for name, value in values.items()}


def start_ranks(server, tasks_of_hosts, rounds=1, first=0):
    return [subprocess.Popen([sys.executable, "-S", CLIENT, str(rounds)], env={**os.environ, **environment}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for environment in list(environments(server.port, tasks_of_hosts))[first:]]


def expect_sums(ranks, tasks_of_hosts):
    lines = [process.communicate(timeout=240)[0] for process in ranks]
    size = sum(tasks_of_hosts)
    for line in lines:
        assert line.endswith("sum OK\n"), "".join(lines)
    assert [line.split(" local")[0] for line in lines] == [f"rank {rank} of {size}" for rank in range(size)]


@pytest.mark.parametrize("tasks_of_hosts", [[1], [4, 4, 4, 4], [20, 20, 16, 8]], ids=["1", "16", "64"])
def test_all_ranks_meet(start_server, tasks_of_hosts):
    server = start_server(sum(tasks_of_hosts))
    expect_sums(start_ranks(server, tasks_of_hosts), tasks_of_hosts)
    assert server.store("global").get("0") is None
    server.is_well()


def test_they_meet_again_in_the_same_step(start_server):
    """hvd.shutdown() and hvd.init(): what is left of the first time would lead to closed sockets."""
    server = start_server(6)
    expect_sums(start_ranks(server, [3, 3], rounds=4), [3, 3])


def test_what_is_left_of_a_meeting_misleads_the_next(start_server):
    """The control: addresses of ranks that are gone are why scopes are cleared."""
    server = start_server(2)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        slot = struct.pack("!4sH", socket.inet_aton("127.0.0.1"), gone.getsockname()[1]).ljust(136, b"\0")
    server.store("global").put("rank_0", b"node000")
    server.store("global").put("0", slot * 2)
    [rank] = start_ranks(server, [2], first=1)
    assert "Connection refused" in rank.communicate(timeout=60)[0]


def test_garbage_is_refused(start_server):
    server = start_server(16)
    random.seed(12)
    answers = collections.Counter()
    for size in (0, 1, 100, 5000, 100000):
        line = b"PUT /a/b HTTP/1.1\r\n"
        for text in (random.randbytes(size), b"A" * size, b"GET /" + b"a" * size, b"\r\n" * size, line * size):
            answers[server.ask(text)[:12]] += 1
    assert set(answers) <= {b"", b"HTTP/1.1 400", b"HTTP/1.1 431"} and answers[b"HTTP/1.1 400"] > 8, answers
    with pytest.raises(HttpFailed, match="elastic Horovod needs horovodrun"):
        server.store("rank_and_size").get("node000:0")
    server.is_well()
    expect_sums(start_ranks(server, [4]), [4])


def test_slow_clients_hold_up_nobody(start_server):
    server = start_server(16)
    outcomes = []

    def be_slow(text):
        with server.connect() as connection:
            try:
                for byte in text:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.1)
                outcomes.append(connection.recv(100)[:12])
            except ConnectionError:
                outcomes.append(connection.recv(100)[:12] if text else b"")

    texts = [b"", b"PUT /global/0 HTTP/1.1\r\nContent-Length: 10\r\n\r\n" + b"x" * 5, b"PUT /global/0 HTTP/1.1\r\n"]
    slow = [threading.Thread(target=be_slow, args=[texts[number % 3]]) for number in range(60)]
    for thread in slow:
        thread.start()
    began = time.monotonic()
    expect_sums(start_ranks(server, [4, 4]), [4, 4])
    assert time.monotonic() - began < 30
    for thread in slow:
        thread.join(timeout=30)
    assert collections.Counter(outcomes)[b"HTTP/1.1 408"] >= 40, outcomes
    server.is_well()


def test_early_deaths_leave_nothing(start_server):
    server = start_server(16)
    server.store("global_process_set_hash_1").put("0", b"x" * LARGEST)
    texts = [b"PUT /global/0 HTTP/1.1\r\nContent-Le", b"GET /global_process_set_hash_1/0 HTTP/1.1\r\n\r\n", b""]
    for number in range(300):
        with server.connect() as connection:
            connection.sendall(texts[number % 3])
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ranks = start_ranks(server, [4, 4])[:7]
    time.sleep(0.7)
    for process in ranks:
        process.kill()
        process.communicate()
    server.is_well()


def test_memory_is_bounded(start_server):
    server = start_server(16)
    statuses = collections.Counter()
    value = os.urandom(LARGEST)
    for number in range(150):
        statuses[server.store("other").send("PUT", f"key{number}", value)[0]] += 1
    assert statuses[200] in range(30, 37) and statuses[507] == 150 - statuses[200], statuses
    halves = [server.connect() for _ in range(200)]
    for connection in halves:
        try:
            connection.sendall(b"PUT /other/x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % LARGEST + value[:-1])
        except ConnectionError:
            pass  # it was refused before it had sent all
    # The store with the requests in the making, 2 MiB, what malloc may add, and the program; 20 MiB were sent.
    assert server.peak_memory() < 12 * 1024
    for connection in halves:
        connection.close()
    server.is_well()


def test_it_does_without_descriptors_for_a_while(start_server):
    server = start_server(16)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (OWN_DESCRIPTORS + 3,) * 2)
    idle = [server.connect() for _ in range(6)]
    began = time.monotonic()
    cpu = lambda: sum(map(int, Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")")[1].split()[11:13]))
    before = cpu()
    server.store("global").put("0", b"x")
    assert time.monotonic() - began > 2, "the control: it had to wait until an idle one was sent away"
    assert (cpu() - before) / os.sysconf("SC_CLK_TCK") < 1, "it waits, and does not spin"
    for connection in idle:
        connection.close()
    server.is_well()


def test_it_ends_with_the_process_that_it_watches(start_server):
    server = start_server(16)
    with server.connect():
        time.sleep(0.5)
        assert server.process.poll() is None
        began = time.monotonic()
        assert server.end() == (0, b"")
        assert time.monotonic() - began < 1


def test_it_holds_nothing_of_the_step(start_server):
    server = start_server(16)
    folder = Path(f"/proc/{server.process.pid}")
    kept = sorted(os.readlink(folder / "fd" / name) for name in os.listdir(folder / "fd"))
    assert len(kept) == OWN_DESCRIPTORS and kept[:3] == ["/dev/null"] * 3, kept
    assert os.readlink(folder / "cwd") == "/"
    assert "NoNewPrivs:\t1" in (folder / "status").read_text()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--step", "1.0", "--size", "0", "--while-process", "1"]])
def test_by_hand_it_says_what_it_is_for(arguments):
    done = subprocess.run([built(SERVER), *arguments], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Horovod" in done.stderr


def test_it_is_silent_where_its_program_has_ended_already():
    """9 of 20 short steps with the preload had a line of it on their standard error."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = ["bash", "-c", f'exec 3<&{listener.fileno()}; exec "$@"', "-", built(SERVER), "--step", "12.0", "--size", "2",
                "--while-process", str(ended.pid)]
        done = subprocess.run(line, pass_fds=[listener.fileno()], capture_output=True, timeout=10, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("name, expected", [("Content-Length", b"whole"), ("content-length", b"")])
def test_the_client_reads_lengths_as_horovod_does(name, expected):
    """In another spelling the body is what came with the head: a server that writes it so fails with this client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(f"HTTP/1.1 200 OK\r\n{name}: 5\r\n\r\n".encode())
                time.sleep(0.1)
                connection.sendall(b"whole")

        thread = threading.Thread(target=answer)
        thread.start()
        assert HttpStore("127.0.0.1", listener.getsockname()[1], "global").get("0") == expected
        thread.join()

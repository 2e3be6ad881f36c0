#!/usr/bin/env python3
"""Replaces ssh for mpirun between the hosts of a test cluster: `serve` runs on each host, `HOST COMMAND...` calls it.

It runs commands for any process that can reach the port: in a test cluster only its hosts can.
"""

import os
import socket
import subprocess
import sys

PORT = 7222


def serve():
    listener = socket.create_server(("", PORT))
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            if os.fork() == 0:  # so that no process has to wait for it
                command = connection.makefile("rb").readline().decode()
                subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=connection.fileno(),
                               stderr=connection.fileno(), check=False)
            os._exit(0)
        os.wait()
        connection.close()


def ask(host, words):
    with socket.create_connection((host, PORT)) as connection:
        connection.sendall((" ".join(words) + "\n").encode())
        while text := connection.recv(4096):
            os.write(1, text)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else ask(sys.argv[1], sys.argv[2:])

"""A process outside of a step, on its node, tries to read the step's environment and its PMIx server's files, to connect
to that server with a rank's variables, and to join the meeting of the ranks. It runs as the step's user or as another.

other_user.py ATTEMPTS DOOR...: prints for each of these doors, as JSON, how many attempts succeeded. It reads facts about
the step from standard input as JSON.
"""

# SPDX-License-Identifier: Apache-2.0

import json
import os
import socket
import subprocess
import sys
import tempfile
import types


def environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return b"PMIX_" in file.read()


def files(paths):
    for path in paths:
        with open(path, "rb"):
            return True


def server(told, **changed):
    """Tries with the variables of a rank, except those that the other user changes; LD_PRELOAD is the visitor's own."""
    with open(told.environment, "rb") as file:
        text = file.read()
    own = {name: value for name, value in changed.items() if not name.startswith("PMIX_")}
    pmix = "".join(f"{name}={value}\0" for name, value in changed.items() if name not in own)
    with tempfile.NamedTemporaryFile() as file:
        file.write(text + pmix.encode())
        file.flush()
        done = subprocess.run([told.visitor, file.name], capture_output=True, text=True, env={**os.environ, **own}, timeout=60)
    if done.returncode < 0:
        raise RuntimeError(f"the server does not answer: {done}")
    return done.stdout.startswith("in")


def meeting(name):
    with socket.socket(socket.AF_UNIX) as guest:
        guest.settimeout(10)
        guest.connect(b"\0" + bytes.fromhex(name))
        return guest.recv(1) == b"\0"


DOORS = {
    "environment": lambda told: environment(told.pid),
    "files": lambda told: files(told.files),
    "server": lambda told: server(told),
    "server, by its own word": lambda told: server(told, PMIX_SECURITY_MODE="native"),
    "server, lying": lambda told: server(told, PMIX_SECURITY_MODE="native", LD_PRELOAD=told.fake_uid),
    "meeting": lambda told: meeting(told.meeting),
}


def main():
    told = types.SimpleNamespace(**json.load(sys.stdin))
    let_in = dict.fromkeys(sys.argv[2:], 0)
    for _ in range(int(sys.argv[1])):
        for door in let_in:
            try:
                let_in[door] += DOORS[door](told)
            except PermissionError:
                pass
    print(json.dumps(let_in))


main()

"""Nodes of one cluster as lanes side by side: each has a plugstack.conf, a slurmd and a submit host of its own."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from built_files import BUILT_INSIDE
from harness import wait_for

DOUBLES = f"{BUILT_INSIDE}/tests/doubles"
# /tmp is every host's own, so that this is another file on each of them.
PLUGSTACK = "/tmp/plugstack.conf"
UP = ("--no-plugin", "--set", f"PlugStackConfig={PLUGSTACK}")

# Seconds after which an administrator would no longer wait for slurmctld to ask a node again whether its job has ended.
PATIENCE_WITH_EPILOG = 15

FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
WATCH = """while :; do
  squeue -h -t all -o 'job %j %T %r'; sinfo -h -N -p main -o 'node %N %T'; echo end; sleep 0.3
done"""


class Watcher:
    """slurmctld's states of jobs and nodes, asked once for all lanes."""

    def __init__(self, cluster):
        self.jobs, self.nodes, self.taken = {}, {}, 0.0
        self.process = cluster.start(["bash", "-c", WATCH], user="root")
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        jobs, nodes = {}, {}
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "job":
                jobs[words[1]] = words[2]
            elif words[0] == "node":
                state = words[2].rstrip("*~#!%$@^-")
                nodes[words[1]] = "busy" if state in ("allocated", "mixed") else state
            else:
                self.jobs, self.nodes, self.taken = jobs, nodes, time.monotonic()
                jobs, nodes = {}, {}

    def after(self, moment, seconds=40):
        """Waits for answers to questions that were asked after `moment`."""
        deadline = time.monotonic() + seconds
        while self.taken < moment + 0.5:  # one round may have begun before it
            is_late = time.monotonic() > deadline or not self.reader.is_alive()
            assert not is_late, "slurmctld does not say how jobs and nodes are"
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()  # which is passed on to the loop; its end ends the reader
        self.process.wait(10)
        self.reader.join(10)


class Lane:
    """One node, with what runs on it besides its daemons, and how to bring it back."""

    def __init__(self, cluster, watcher, node):
        self.cluster, self.watcher, self.node = cluster, watcher, node
        self.pid = (cluster.state / "pids" / node).read_text().strip()
        self.namespace = os.readlink(f"/proc/{self.pid}/ns/mnt")
        self.tmp = Path(f"/proc/{self.pid}/root/tmp")
        self.daemons, self.slurmd = set(self.processes()), None
        self.write("plugstack.conf", "")
        self.stop_first_slurmd()
        self.start_slurmd()

    def processes(self):
        """{process id: name} of all processes on the node."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/mnt") == self.namespace:
                    found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                pass
        return found

    def write(self, name, text):
        """Replaces a file in /tmp of the node at once, since Slurm may read it at any moment."""
        fresh = self.tmp / f"{name}.new"
        fresh.write_text(text)
        fresh.rename(self.tmp / name)

    def take(self, name):
        """What is in a file in /tmp of the node, which is removed; "" where there is none."""
        try:
            text = (self.tmp / name).read_text()
            (self.tmp / name).unlink()
            return text
        except FileNotFoundError:
            return ""

    def stop_first_slurmd(self):
        for pid, name in self.processes().items():
            if name == "slurmd":
                os.kill(int(pid), signal.SIGTERM)
                self.daemons.discard(pid)
                wait_for(lambda: not os.path.exists(f"/proc/{pid}"), 20, "slurmd does not end")

    def start_slurmd(self):
        """In the foreground, so that its end can be asked for, and with the witness before slurmstepd."""
        before = set(self.processes())
        line = ["slurmd", "-D", "-f", f"{self.cluster.state}/etc/slurm.conf", "-d", f"{DOUBLES}/exit_recorder"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.slurmd = self.cluster.start(line, user="root", node=self.node, **quiet)
        wait_for(lambda: self.slurmd.poll() is not None or "slurmd" in self.new_names(before), 10, "no slurmd")
        self.daemons |= set(self.processes()) - before

    def new_names(self, before):
        return {name for pid, name in self.processes().items() if pid not in before}

    def has_slurmstepd(self):
        return not {"exit_recorder", "slurmstepd"}.isdisjoint(self.processes().values())

    def kill_leftovers(self):
        """Whatever a cell has left on the node, which is this cluster's alone. SIGKILL, since the rest is blocked."""
        left = set(self.processes()) - self.daemons
        for pid in left:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left

    def deaths(self):
        """How slurmstepds ended that a signal ended, since the last time."""
        return re.findall(r"^\w+ \d+ (signal \d+)$", self.take("witness.log"), re.MULTILINE)

    def ended_slurmd(self):
        """How slurmd ended that was not asked to; "" while it runs."""
        status = self.slurmd.poll()
        return "" if status is None else f"signal {status - 128}" if status > 128 else f"exit {status}"

    def state(self, job):
        """(state of the job, state of the node), by the last answer."""
        return self.watcher.jobs.get(job, "none"), self.watcher.nodes.get(self.node, "unknown")

    def settle(self, job, expects_job, seconds):
        """Waits until job and node change no more, or for so long; what they are then."""
        began = time.monotonic()
        self.watcher.after(began)
        seen, since = self.state(job), began
        while time.monotonic() - began < seconds:
            now = self.state(job)
            if now != seen:
                seen, since = now, time.monotonic()
            is_rest = now[1] in ("idle", "drained", "down") and not self.has_slurmstepd()
            if is_rest and now[0] in FINAL:
                break
            # Slurm may hold or start again what waits, and a job of a command that failed may be on its way.
            if is_rest and time.monotonic() - since > (4 if now[0] != "none" or expects_job else 0.5):
                break
            time.sleep(0.1)
        return seen

    def wait_for_the_end_of(self, job, seconds=40):
        """srun ends before the epilog of its job, and slurmd reads plugstack.conf again for that."""
        self.watcher.after(time.monotonic())
        message = f"{self.node} does not get over {job}"
        wait_for(lambda: self.state(job)[0] in FINAL and self.state(job)[1] == "idle", seconds, message)

    def bring_back(self, job, seconds=60):
        """Makes the node usable again, as an administrator would; how long it took. Fails when it cannot be."""
        began = time.monotonic()
        self.write("plugstack.conf", "")
        done = ""
        while time.monotonic() - began < seconds:
            if self.slurmd.poll() is not None:
                self.start_slurmd()
            left = self.kill_leftovers()
            asked = time.monotonic()
            state, node = self.state(job)
            if state not in FINAL | {"none"}:
                self.cluster.run(["scancel", "-n", job], user="root")
            if node == "completing" and time.monotonic() - began > PATIENCE_WITH_EPILOG:
                down = ["state=down", "reason=does_not_end"]
                self.cluster.run(["scontrol", "update", f"nodename={self.node}", *down], user="root")
            elif node not in ("idle", "completing", "busy"):
                self.cluster.run(["scontrol", "update", f"nodename={self.node}", "state=resume"], user="root")
            if not left and node == "idle" and state in FINAL | {"none"}:
                step = ["timeout", "10", "srun", "-t1", "-J", f"{job}-after", "-w", self.node, "-n1", "true"]
                done = self.cluster.run(step, node=self.node)
                if done.returncode == 0:
                    self.wait_for_the_end_of(f"{job}-after")
                    self.take("witness.log")
                    return time.monotonic() - began
            self.watcher.after(asked)
        raise AssertionError(f"{self.node} is not usable {seconds} s after {job}: {self.state(job)}, {left}, {done}")


def in_lanes(lanes, items, work):
    """Gives every item to the next free lane, as work(lane, item); {item: result}. The first failure ends it."""
    queue, results, failures, lock = iter(items), {}, [], threading.Lock()

    def serve(lane):
        while True:
            with lock:
                item = None if failures else next(queue, None)
            if item is None:
                return
            try:
                result = work(lane, item)
            except Exception as error:  # noqa: BLE001 - raised below, in the thread of the test
                with lock:
                    failures.append(f"{item} on {lane.node}: {error!r}")
                return
            with lock:
                results[item] = result

    threads = [threading.Thread(target=serve, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        failures.append("stopped")  # Ctrl-C, or the time limit of the test
        raise
    assert not failures, "\n".join(failures)
    return results

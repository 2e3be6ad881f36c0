"""Jobs of a cluster while they end: Slurm's state of each, and which of their processes are still there."""

# SPDX-License-Identifier: Apache-2.0

import re
import threading
import time

from harness import command_line

# While a job is in one of these its nodes, or some of them, are not free.
BUSY = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "STOPPED", "SUSPENDED"}
PAUSE = 0.25  # seconds between two looks


class Watch:
    """Looks at all jobs at once, again and again, for the time of a `with` block."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.jobs = {}  # name -> (id, state)
        self.ended_at = {}  # name -> when it was first seen in a state after RUNNING
        self.command_lines = []
        self.looks = 0
        self.trouble = None
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def watch(self):
        try:
            while not self.is_over.wait(PAUSE):
                self.look()
        except Exception as error:  # raised in the waiting thread: this one can fail no test
            self.trouble = error

    def look(self):
        listed = self.cluster.run(["squeue", "-h", "-t", "all", "-o", "%j %i %T"], timeout=30)
        jobs = {name: (job, state) for name, job, state in map(str.split, listed.stdout.splitlines())}
        for name, (_, state) in jobs.items():
            if state not in ("PENDING", "CONFIGURING", "RUNNING"):
                self.ended_at.setdefault(name, time.monotonic())
        # slurmctld forgets jobs: what was said of one last stays.
        self.jobs = {**self.jobs, **jobs} if listed.returncode == 0 else self.jobs
        self.command_lines = [command_line(pid) for pid in self.cluster.processes()]
        self.looks += 1

    def wait_for_look(self):
        """Until everything was looked at that is there now."""
        wanted, deadline = self.looks + 2, time.monotonic() + 60
        while self.looks < wanted:
            assert self.trouble is None and time.monotonic() < deadline, self.trouble
            time.sleep(PAUSE / 5)

    def job_id(self, name):
        return self.jobs.get(name, ("", ""))[0]

    def state(self, name):
        return self.jobs.get(name, ("", ""))[1]

    def remains(self, name, marker):
        """What there still is of a job, as words; `marker` is in the command lines of its tasks alone."""
        job, state = self.jobs.get(name, ("", "never seen"))
        found = [f"job {job} is {state}"] if state in BUSY else []
        lines = self.command_lines
        stepd = re.compile(rb"slurmstepd: \[%s\." % job.encode())
        if job and any(stepd.match(line) for line in lines):
            found.append("slurmstepd")
        of_tasks = [line for line in lines if marker.encode() in line and b"slurmstepd" not in line and b"srun" not in line]
        # The shells by which the test itself runs srun have the marker, too, and srun's name.
        if of_tasks:
            found.append(f"{len(of_tasks)} processes such as {of_tasks[0][:80]!r}")
        return found

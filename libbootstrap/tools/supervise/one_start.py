"""One start of srun: its line, the process, what its plugin sends, and the step that watches the host of the script."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import signal
import socket
import subprocess
import time
from collections import namedtuple
from contextlib import suppress

from children import Child
from step_choice import OWN_NAMES, Refusal, ask_slurm, environment_for_slurm, find_program

END_OF_SRUN = 1  # seconds
# A job with --no-kill would stay RUNNING after it has lost the host of its script. So a step on another node requeues the
# job.
GUARD = """trap "" USR1 USR2
while sleep 30; do
  case $("$0" -o show node "$2") in *" State=DOWN"*) "$0" requeue "$3" || "$1" "$3" ;; esac
done"""
# Options with which a second start would differ from the first, or be wrong, and what to do instead.
REFUSED = (
    ("", "--pty", "a terminal serves one start only; leave --pty out"),
    ("", ":", "the parts of a heterogeneous step are not started again; use one component"),
    ("", "--het-group", "the parts of a heterogeneous job are not started again; use a job of one component"),
    ("", "--async", "srun does not wait for the step; leave --async out"),
    ("-r", "--relative", "the numbers of nodes change when one is lost; leave --relative out"),
    ("-w", "--nodelist", "a lost node could not be replaced; leave the list out: the nodes of the first start are kept"),
    ("-F", "--nodefile", "a lost node could not be replaced; leave the file out: the nodes of the first start are kept"),
    ("", "SLURM_HOSTFILE", "a lost node could not be replaced; unset it"))

# `key` is the same for failures of the same kind.
Failure = namedtuple("Failure", "key text code since")


class SrunLine:
    """`own_count`: how many words are srun's name and its options."""

    def __init__(self, words, own_count):
        self.own, self.program = words[:own_count], words[own_count:]

    def values(self, short, name):
        """The values of an option on the line, in every form of getopt(3)."""
        found = []
        for word, after in zip(self.own[1:], self.own[2:] + [""]):
            if word == name or short and word == short:
                found.append(after)
            elif word.startswith(name + "="):
                found.append(word.partition("=")[2])
            elif short and word.startswith(short):
                found.append(word[2:])
        return found

    def refuse(self):
        """Raises why this line is not supervised, before anything is started."""
        if not self.own or os.path.basename(self.own[0]) != "srun":
            raise Refusal("supervise starts srun; put the line of srun behind --: slurm-bootstrap supervise -- srun ...", 2)
        job = os.environ.get("SLURM_JOB_ID", "")
        if not job or any(value != job for value in self.values("", "--jobid")):
            raise Refusal("supervise restarts a step of its own job; start it in the script of sbatch, or in the shell of salloc", 2)
        for short, name, why in REFUSED:
            if self.values(short, name) or os.environ.get(name):
                raise Refusal(f"cannot repeat a line of srun with {name}: {why}", 2)
        if not self.values("-N", "--nodes"):
            raise Refusal("srun would take all nodes of the job, and none would be spare; add -N with the nodes of the training", 2)
        if not self.values("-n", "--ntasks") and not self.values("", "--ntasks-per-node"):
            raise Refusal("srun would take the number of tasks from the job; add -n or --ntasks-per-node", 2)
        if any("/" in value for value in self.values("-x", "--exclude")):
            raise Refusal("cannot add a lost node to the file of srun's --exclude; name the nodes there", 2)

    def excluded(self):
        """The nodes that the user leaves out, as lists of Slurm's."""
        return self.values("-x", "--exclude")[-1:]

    def environment_option(self):
        """Exports BOOTSTRAP_RESTART_COUNT, too, if the line does not export all variables."""
        said = (self.values("", "--export") or [os.environ.get("SLURM_EXPORT_ENV", "ALL")])[-1]
        if "ALL" in said.split(","):
            return []
        names = [] if said in ("NONE", "NIL") else [said]
        return ["--export=" + ",".join([*names, "BOOTSTRAP_RESTART_COUNT"])]

    def first(self):
        return self.own + self.environment_option() + self.program

    def again(self, nodes, lost, overlaps):
        """The line for these nodes. srun takes the last one of an option that is given twice."""
        added = ["--open-mode=append", "--nodelist=" + ",".join(nodes)]
        if lost:
            added.append("--exclude=" + ",".join([*self.excluded(), *lost]))
        return self.own + self.environment_option() + added + (["--overlap"] if overlaps else []) + self.program


class Start:
    """One start of srun, which runs one step."""

    def __init__(self, words, environment, is_first, mask):
        self.verdicts, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.verdicts.setblocking(False)
        # SIGIO, for which watch() waits with all other signals.
        fcntl.fcntl(self.verdicts, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(self.verdicts, fcntl.F_SETFL, fcntl.fcntl(self.verdicts, fcntl.F_GETFL) | os.O_ASYNC)
        theirs.set_inheritable(True)
        address = f"{theirs.fileno()}:{os.fstat(theirs.fileno()).st_ino}"
        self.started = time.monotonic()
        try:
            self.process = subprocess.Popen(words, env={**environment, "SLURM_BOOTSTRAP_SUPERVISOR": address}, close_fds=False,
                                            stdin=None if is_first else subprocess.DEVNULL,
                                            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
        except OSError as error:
            raise Refusal(f"cannot start {words[0]}: {error.strerror}", 127)
        theirs.close()
        self.status = self.failure = self.step = self.guard = None
        self.has_plugin = self.is_ended_by_user = False

    def read_verdict(self):
        """What the plugin in srun sends: an empty message when the step begins, and the first failure."""
        with suppress(BlockingIOError):
            while True:
                text = self.verdicts.recv(4096).decode("utf-8", "replace")
                self.has_plugin = True
                if text and self.failure is None:
                    key, age, sentence = text.split("\t", 2)
                    status = int(key.rpartition(":")[2])
                    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                    self.failure = Failure(key, sentence, code, time.monotonic() - int(age) / 1000)

    def has_ended(self):
        if self.status is None and self.process.poll() is not None:
            code = self.process.returncode
            self.status = code if code >= 0 else 128 - code  # as a shell's
            self.read_verdict()
        return self.status is not None

    def start_guard(self, job, nodes):
        host = os.environ.get("SLURMD_NODENAME", "")  # of the script, in a batch job
        node = next((node for node in nodes if node != host), None)
        if host and node:
            self.guard = Child(
                ["srun", "--quiet", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mem=0",
                 "--gres=none", "--mpi=none", "--cpu-bind=none", "--input=none", f"--job-name={OWN_NAMES}guard",
                 "sh", "-c", GUARD, *map(find_program, ("scontrol", "scancel")), host, job], environment=environment_for_slurm())

    def end_guard(self):
        if self.guard and self.guard.pid:
            os.kill(self.guard.pid, signal.SIGTERM)
            self.guard.end(END_OF_SRUN)
        self.guard = None

    def end(self):
        """srun waits for nodes that do not answer. scancel needs no node."""
        if self.step:
            with suppress(Refusal):
                ask_slurm("scancel", self.step)
        deadline = time.monotonic() + END_OF_SRUN
        while not self.has_ended():
            if time.monotonic() >= deadline:
                self.process.kill()
            time.sleep(0.02)
        self.verdicts.close()

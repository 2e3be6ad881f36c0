"""`slurm-bootstrap supervise`: runs srun unchanged, and after a failure starts it again without the lost nodes."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import signal
import sys
import time
from contextlib import suppress

from job_nodes import CLOSED_PORT, MISSING, UNUSABLE, Hosts, look_at_job, places_of, steps_of, without_slurmd
from one_start import Failure, SrunLine, Start
from step_choice import Refusal, ask_slurm, fields_of_nodes, hosts_of, say, use_commands

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)
TERMINAL = 0x80  # SI_KERNEL: Ctrl-C, which the terminal sends to srun, too
LOOK_AT_HOSTS = 2  # seconds; a hundred hosts each time
LOOK_AT_JOB = 30  # seconds: with a step manager srun does not learn that a node is DOWN
LOOK_FOR_STEP = 1
AGAIN = 10
PATIENCE = 30  # seconds without a step
END_OF_STEP = 2
SHORTEST = 10  # seconds: a program that fails earlier is wrong, and fails again
PROGRESS = 60  # seconds that count as progress where no file shows it


class Supervisor:
    def __init__(self, own_path, options, line, environment):
        use_commands(own_path)
        self.job = os.environ["SLURM_JOB_ID"]
        self.restarts, self.grace = int(options["max-restarts"]), int(options["grace"])
        self.progress, self.requeues = options["progress"], options["requeue"] == "true"
        self.line, self.environment, self.count, self.last_key = line, environment, 0, None
        self.waits = {signal.SIGCHLD, signal.SIGIO}
        self.waits |= {number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self.waits)

    def progress_seen(self):
        with suppress(OSError):
            seen = os.stat(self.progress)
            return seen.st_ino, seen.st_mtime_ns, seen.st_size

    def start(self, words, nodes):
        environment = {**self.environment, "BOOTSTRAP_RESTART_COUNT": str(self.count)}
        self.run = Start(words, environment, self.count == 0, self.mask)
        self.before = self.progress_seen()
        self.nodes, self.lost, self.hosts, self.not_before = nodes, {}, Hosts({}), 0.0
        self.next_look = self.run.started + LOOK_FOR_STEP
        self.next_job = self.run.started + LOOK_AT_JOB
        self.is_left_to_slurm = self.has_told = False

    def pass_on(self, found):
        if found.si_signo in ENDING and not self.run.is_ended_by_user:
            self.run.is_ended_by_user = True
            say(f"got {signal.Signals(found.si_signo).name}, as srun does; there is no restart from now on")
        if found.si_code != TERMINAL:
            self.run.process.send_signal(found.si_signo)

    def watch(self):
        """Waits until srun has ended, or has to be ended."""
        while not self.run.has_ended():
            due = min(self.next_look, self.ends_at())
            found = signal.sigtimedwait(self.waits, max(0.0, due - time.monotonic()))
            if found and found.si_signo in PASSED_ON:
                self.pass_on(found)
            self.run.read_verdict()
            if self.run.is_ended_by_user:
                self.next_look = self.not_before = time.monotonic() + LOOK_AT_JOB
            elif time.monotonic() >= self.next_look:
                self.look()
            if time.monotonic() >= self.ends_at() and not self.run.has_ended() and self.is_to_end():
                return

    def ends_at(self):
        """When the grace of the first failure is over."""
        since = list(self.hosts.silent.values()) if not self.is_left_to_slurm else []
        if self.run.failure:
            since.append(self.run.failure.since)
        if self.lost:
            since.append(0.0)
        return max(min(since, default=float("inf")) + self.grace, self.not_before)

    def look(self):
        """Looks at what no signal reports: the step of srun, its hosts, the nodes that have left the job."""
        now = time.monotonic()
        self.next_look = now + LOOK_FOR_STEP
        if self.run.step is None:
            own = re.compile(rf"{re.escape(os.uname()[1].partition('.')[0])}(\..*)?:{self.run.process.pid}")
            step = next((one for one in steps_of(self.job) if own.fullmatch(one.srun)), None)
            if step:
                self.run.step = step.id
                with suppress(Refusal):
                    self.nodes = hosts_of(step.nodes)
                    self.hosts = Hosts(places_of(fields_of_nodes(self.nodes), CLOSED_PORT))
                self.run.start_guard(self.job, self.nodes)
            elif now >= self.run.started + PATIENCE and not self.has_told:
                self.has_told = True
                say(f"srun has no step after {PATIENCE} s: Slurm has not given it its nodes yet, or slurmctld does not answer")
            return
        if now >= self.run.started + SHORTEST and not self.run.has_plugin and not self.has_told:
            self.has_told = True
            say("the plugin does not watch this step, so a failed task is noticed only when srun ends; make srun end: srun "
                "--kill-on-bad-exit, or set the step up: srun --bootstrap=on")
        self.hosts.look()
        self.next_look = now + LOOK_AT_HOSTS
        if now >= self.next_job:
            self.next_job = now + LOOK_AT_JOB
            with suppress(Refusal):
                state, nodes = look_at_job(self.job)
                if state == "RUNNING":
                    self.lost.update({node: "has left the job" for node in self.nodes if node not in nodes})

    def is_to_end(self):
        """False if a node is silent and no spare node can take its place: then Slurm decides, as without us."""
        try:
            self.find_lost(True)
        except Refusal:  # it is asked again; meanwhile srun may end
            self.not_before = time.monotonic() + AGAIN
            return False
        if self.run.failure or self.state != "RUNNING":
            return True
        if self.lost and set(self.lost) <= set(self.job_nodes) and not self.choose_nodes():
            self.is_left_to_slurm = True
            say(f"{self.describe_lost()}, and the job has no spare node; it is left to Slurm, which ends the step when the node is DOWN")
            self.lost = {}
        return bool(self.lost)

    def find_lost(self, has_failed):
        """Fills `unusable` with the nodes on which no step starts, and `lost` with what is wrong with those of this step. If
        srun ends with 0, only a DOWN node is lost: the 0 comes from the other nodes then."""
        self.state, self.job_nodes = look_at_job(self.job)
        if self.state != "RUNNING":
            return
        self.lost.update({node: "has left the job" for node in self.nodes if node not in self.job_nodes})
        self.lost.update({node: "does not answer" for node in self.hosts.silent if has_failed})
        fields = fields_of_nodes(self.job_nodes)
        # "ALLOCATED+DRAIN*" is ALLOCATED, DRAIN and NOT_RESPONDING.
        states = {node: UNUSABLE.intersection(re.split(r"\W+", one["State"].replace("*", "+NOT_RESPONDING")))
                  for node, one in fields.items()}
        self.unusable = {node for node, state in states.items() if state}
        self.lost.update({node: "is " + " and ".join(sorted(states[node])) for node in self.nodes
                          if states.get(node, set()) & (MISSING if has_failed else {"DOWN"})})
        if has_failed:
            deaf = without_slurmd({node: one for node, one in fields.items() if node not in {*self.unusable, *self.hosts.silent}})
            self.unusable.update(deaf)
            self.lost = {**{node: why for node, why in deaf.items() if node in self.nodes}, **self.lost}

    def choose_nodes(self):
        """The nodes of the last start that are left, and spare nodes; empty: there are too few."""
        excluded = [node for one in self.line.excluded() for node in hosts_of(one)]
        usable = [node for node in self.job_nodes if node not in self.unusable and node not in self.lost and node not in excluded]
        kept = [node for node in self.nodes if node in usable]
        self.busy = {node for one in steps_of(self.job) if one.id != self.run.step for node in hosts_of(one.nodes)}
        spare = sorted((node for node in usable if node not in kept), key=lambda node: node in self.busy)
        chosen = kept + spare[:max(0, len(self.nodes) - len(kept))]
        return chosen if len(chosen) == len(self.nodes) else []

    def describe_lost(self):
        return ", ".join(f"{node} {why}" for node, why in sorted(self.lost.items()))

    def failure_of_end(self):
        """What failed; None: the step has done its work, or somebody has ended it."""
        run = self.run
        if self.lost:
            since = min([*self.hosts.silent.values(), run.failure.since if run.failure else time.monotonic()])
            return Failure(None, self.describe_lost(), run.failure.code if run.failure else 0, since)
        if run.failure:
            return run.failure
        text = f"srun was killed by signal {-run.process.returncode}"
        if run.process.returncode >= 0:
            if run.status == 0 or run.has_plugin or run.status == 137:  # as after scancel
                return None
            text = f"srun ended with exit code {run.status}"
        return Failure(text, text, run.status, time.monotonic())

    def reason_to_stop(self, failure):
        """Why there is no further start; empty: there is one."""
        seen = self.progress_seen()
        has_progress = seen != self.before if self.progress else failure.since - self.run.started >= PROGRESS
        is_same, self.last_key = failure.key is not None and failure.key == self.last_key, failure.key
        if self.count >= self.restarts:
            return f"it has been restarted {self.count} times (--max-restarts)"
        if not self.lost and failure.since - self.run.started < SHORTEST and not (self.progress and has_progress):
            return f"it failed in its first {SHORTEST} s, and would again"
        if not self.nodes:
            return "it failed before it had its nodes"
        if is_same and not has_progress:
            return "the same failure came twice without progress" + ("" if self.progress else " (--progress names a file that shows it)")
        return ""

    def wait_for_end_of_step(self):
        """Whether the step still exists. Slurm keeps it, and its resources, until a lost node is DOWN."""
        deadline = time.monotonic() + (0 if self.lost else END_OF_STEP)
        while self.run.step in [one.id for one in steps_of(self.job)]:
            if time.monotonic() >= deadline:
                return True
            time.sleep(0.1)
        return False

    def requeue(self):
        try:
            return ask_slurm("scontrol", "requeue", self.job) or "; the job is requeued"
        except Refusal as refusal:
            return f"; {refusal}"

    def judge(self):
        """Called after watch(). Returns an exit status, or None if srun was started again."""
        run = self.run
        run.end_guard()
        while run.status is not None and not run.is_ended_by_user:
            try:
                self.find_lost(run.status != 0)
                break
            except Refusal as refusal:
                if run.status == 0:
                    return 0
                say(f"srun ended with {run.status}; {refusal}; asks again in {AGAIN} s")
            found = signal.sigtimedwait(self.waits, AGAIN)
            run.is_ended_by_user = found is not None and found.si_signo in ENDING
        if run.is_ended_by_user or self.state != "RUNNING":
            run.end()
            return run.status
        failure = self.failure_of_end()
        if failure is None:
            if run.status:
                say(f"srun ended with {run.status}, and no task failed by itself: somebody has ended the step, so it is not restarted"
                    if run.has_plugin else f"srun ended with {run.status}, as after scancel; not restarted")
            return run.status
        chosen, why = self.choose_nodes(), self.reason_to_stop(failure)
        run.end()
        if not why and not chosen:
            why = f"the job has no {len(self.nodes)} nodes left"
            why += self.requeue() if self.requeues else "; submit the job again, or let --requeue do it"
        if why:
            say(f"{failure.text}; not restarted: {why}")
            return failure.code or run.status or 1
        is_left = self.wait_for_end_of_step()
        overlaps = is_left and bool(self.lost) and not self.busy.intersection(chosen)
        self.count += 1
        left_out = sorted({*self.lost, *self.unusable})
        has_input = self.count == 1 and os.path.realpath("/proc/self/fd/0") != "/dev/null"
        say(f"restart {self.count} of {self.restarts}: {failure.text}; "
            f"{'without ' + ', '.join(left_out) if left_out else 'on the same nodes'}; "
            f"{time.monotonic() - failure.since:.1f} s lost"
            + ("; standard input is empty from now on" if has_input else ""))
        self.start(self.line.again(chosen, left_out, overlaps), chosen)
        return None

    def supervise(self):
        self.start(self.line.first(), [])
        status = None
        while status is None:
            self.watch()
            try:
                status = self.judge()
            except Refusal as refusal:
                say(f"{refusal}; not restarted")
                self.run.end()
                status = self.run.status or 1
        return status


def main(command, own_path, *words):
    """`words`: NAME=VALUE of each option, "--", LD_PRELOAD, and the line of srun behind the number of srun's own words."""
    try:
        end = words.index("--")
        options = dict(word.partition("=")[::2] for word in words[:end])
        preload, own_count, *words = words[end + 1:]
        line = SrunLine(words, int(own_count))
        line.refuse()
        environment = {**os.environ, **({"LD_PRELOAD": preload} if preload else {})}
        sys.exit(Supervisor(own_path, options, line, environment).supervise())
    except Refusal as refusal:
        say(refusal)
        sys.exit(refusal.status)

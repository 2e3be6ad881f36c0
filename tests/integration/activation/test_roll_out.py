"""The plugin is switched on and off host by host, in the order of etc/doc/install.md, while steps start: no step is half a
world. And the effect of `when=never` on steps."""

# SPDX-License-Identifier: Apache-2.0

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from activation_steps import ONE, PYTHON, TWO, all_lines, is_untouched, told, variables
from harness import wait_for
from roll_out_site import HOSTS, NO_LINE, NODES, Site, count, kind_of

WAY = ("never", "observe", "world", "never", NO_LINE)
AT_ONCE = 3
NEVER = "NOT SET UP: the site sets when=never, as at the start and the end of a roll-out"
ASKS = "although {} asks for it; ask your administrator when that ends, and start the step again then"


@pytest.fixture(scope="module")
def site(cluster_factory):
    return Site(cluster_factory("roll-out", asks=False).up("--nodes", "4", "--gpus", "2", "--cpus", "64", "--no-plugin"))


class Steps:
    """Keeps starting steps, several at once."""

    def __init__(self, site, seed, most):
        self.site, self.most, self.outcomes, self.rng = site, most, [], random.Random(seed)
        self.begun, self.lock, self.is_over = 0, threading.Lock(), False

    def work(self):
        while True:
            with self.lock:
                if self.is_over:
                    return
                self.begun += 1
                rng = random.Random(self.rng.random())
            self.outcomes.append(kind_of(self.site.step(rng)))

    def wait_for_more(self, number, workers):
        """Waits until this many more steps have ended."""
        goal = len(self.outcomes) + number
        wait_for(lambda: len(self.outcomes) >= goal or any(worker.done() for worker in workers), what="steps do not end")


def switch(site, state, hosts, after_each):
    for host in hosts:
        site.set(host, state)
        after_each()


def pending(site, pool, rng):
    """A step whose srun has started and waits for its nodes."""
    nodes = ",".join(rng.sample(NODES, 2))
    name = f"pending{next(site.numbers)}"
    step = pool.submit(site.srun, "head", "-Q", "-H", "-J", name, "-w", nodes, "-N2", "--ntasks-per-node=2", "--gres=gpu:2", site.world,
                       env={"SLURM_BOOTSTRAP": "on"})
    wait_for(lambda: step.done() or f" {name}\n" in site.cluster.run(["squeue", "-h", "-o", "%i %j"]).stdout, what="srun does not wait")
    return name, step


def end_of_pending(site, name, step):
    job = next(line.split()[0] for line in site.cluster.run(["squeue", "-h", "-o", "%i %j"]).stdout.splitlines() if line.endswith(f" {name}"))
    site.cluster.succeed(["scontrol", "release", job])
    return kind_of(step.result(timeout=300))


def roll_out(site, seed, rounds, steps_between):
    """The outcomes of all steps. During each change an srun waits for its nodes; in a single round only before the removal."""
    before_removal = len(WAY) - 2
    rng, steps = random.Random(seed), Steps(site, seed, AT_ONCE)
    with ThreadPoolExecutor(AT_ONCE + 1) as pool:
        workers = [pool.submit(steps.work) for _ in range(AT_ONCE)]
        try:
            for place, state in enumerate(WAY * rounds):
                hosts = rng.sample(HOSTS, len(HOSTS))
                if state == NO_LINE:  # as the page says: wait for earlier sruns
                    for host in hosts:
                        wait_for(lambda host=host: not site.sruns_before(host), what="an srun from before runs on")
                    switch(site, state, hosts, lambda: steps.wait_for_more(steps_between, workers))
                    continue
                waits = pending(site, pool, rng) if place == before_removal or rounds > 1 else None
                switch(site, state, hosts, lambda: steps.wait_for_more(steps_between, workers))
                if waits:
                    steps.outcomes.append(end_of_pending(site, *waits))
        finally:
            steps.is_over = True
        for worker in workers:
            worker.result(timeout=300)
    return steps.outcomes


def test_no_step_is_half_set_up_while_hosts_change_one_by_one(site, seed, campaign, figure):
    rounds, between = campaign.size(7, 1), campaign.size(3, 1)
    outcomes = roll_out(site, seed, rounds, between)
    found = count(outcomes)
    bad = [outcome for outcome in outcomes if outcome.startswith(("half", "refused", "failed"))]
    figure("B5", got=f"{len(outcomes)} steps, {found['half']} half worlds, {found['whole']} whole ones", met=not bad, seed=seed,
           control="in the order of 1.0.0, nodes first, a step that asks is half set up")
    assert not bad, f"seed {seed}: {bad[0]}"
    assert found["whole"] and found["nothing set"], found


def test_control_nodes_first_gives_half_worlds(site):
    """The srun of an sbatch script runs on a compute node, which is a submit host in that case."""
    for state in (NO_LINE, "world"):
        switch(site, state, NODES[:2], lambda: None)
    script = f"#!/bin/sh\nexport SLURM_BOOTSTRAP=on\nsrun {site.world}"
    assert kind_of(site.sbatch(script, "-w", "node002,node003", "-N2", "--ntasks-per-node=2", "--gres=gpu:2")).startswith("half")
    switch(site, NO_LINE, HOSTS, lambda: None)


@pytest.fixture
def never(site):
    switch(site, "never", HOSTS, lambda: None)
    yield site
    switch(site, NO_LINE, HOSTS, lambda: None)


def run(site, options, *program, **more):
    return site.cluster.succeed(["srun", *options.split(), *(program or PYTHON)], **more)


@pytest.mark.parametrize("others", ["never", "world", NO_LINE])
@pytest.mark.parametrize("options, env, asks", [
    ("", {}, ""), ("--bootstrap=on", {}, "--bootstrap=on"), ("--bootstrap-gpu=first", {}, "--bootstrap-gpu"),
    ("", {"SLURM_BOOTSTRAP": "on"}, "SLURM_BOOTSTRAP=on"), ("", {"SLURM_BOOTSTRAP": "off"}, ""), ("--bootstrap=off", {}, ""),
], ids=lambda value: str(value) or "unasked")  # fmt: skip
def test_when_never_sets_up_no_step_and_warns_once_if_a_step_asks(never, others, options, env, asks):
    never.set("node002", others)
    done = run(never, f"-w node001,node002 {TWO} {options}", env=env)
    # On a node without the plugin, the placeholder of a step that asks stays in its tasks.
    tasks = [{name for name in task if name != "SLURM_BOOTSTRAP" and (others != NO_LINE or name != "SLURM_BOOTSTRAP_DECISION")}
             for task in variables(done)]
    assert tasks == [set()] * 4, done.stdout
    line = f"bootstrap: warning: StepId=ID: {NEVER}, {ASKS.format(asks)}"
    assert all_lines(done) == ([line] if asks else []), done.stderr


def test_when_never_leaves_the_gpus_of_each_task_to_slurm(never):
    """Otherwise srun's plugin sets defaults for srun's own options in a step that asks."""
    show = ("sh", "-c", "echo $SLURM_PROCID $SLURM_GPU_BIND $SLURM_GRES_FLAGS $SRUN_EXPORT_ENV $CUDA_VISIBLE_DEVICES")
    asked = run(never, "-N1 -n2 --gpus-per-task=1 --bootstrap=on", *show)
    switch(never, NO_LINE, HOSTS, lambda: None)
    without = run(never, "-N1 -n2 --gpus-per-task=1", *show)
    switch(never, "world", HOSTS, lambda: None)
    control = run(never, "-N1 -n2 --gpus-per-task=1 --bootstrap=on", *show)
    assert sorted(asked.stdout.splitlines()) == sorted(without.stdout.splitlines()) != sorted(control.stdout.splitlines())


def test_explain_and_a_job_that_asks_print_that_when_is_never(never):
    status, text = never.sbatch(f"#!/bin/sh\n#SBATCH --bootstrap=on\nsrun {never.world}", "-w", "node001,node002", *TWO.split())
    assert status == 0 and text.count("bootstrap:") == 1, text
    assert f"{NEVER}, {ASKS.format('the job' + chr(39) + 's --bootstrap=on')}" in text, text
    for env, end in (({}, ""), ({"SLURM_BOOTSTRAP": "on"}, f", {ASKS.format('SLURM_BOOTSTRAP=on')}")):
        done = run(never, f"{ONE} --bootstrap=explain", env=env)
        assert is_untouched(done, 2) or env, done
        assert [line for line in all_lines(done) if NEVER in line] == [f"bootstrap: StepId=ID: {NEVER}{end}"], done.stderr


def test_nodes_with_when_never_obey_an_srun_with_when_world(never):
    never.set("head", "world")
    tasks = variables(run(never, TWO))
    assert sorted(task["RANK"] for task in tasks) == list("0123") and told(run(never, f"{TWO} --bootstrap=on")) == []


def test_when_never_wins_over_a_wrong_argument(never):
    """So an administrator can switch the plugin off in an emergency with one more word."""
    never.set("head", "world port=x when=never")
    done = run(never, f"{TWO} --bootstrap=on")
    assert [line.partition(", although")[0] for line in all_lines(done)] == [f"bootstrap: warning: StepId=ID: {NEVER}"], done.stderr

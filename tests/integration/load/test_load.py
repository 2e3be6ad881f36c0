"""Thousands of steps, several at once: every task gets the right values, and the cluster has no more processes, files or memory
than before."""

# SPDX-License-Identifier: Apache-2.0

import random
import re
import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

from built_files import built, program
from exchange_steps import DONE
from harness import HAS_PMIX, module_cluster, since
from load_watch import growth, look, settled
from port_steps import REFUSAL, allocation, step_line
from rank_values import ECHO, SHOW, wrong_values

NODES, TASKS = 4, 8
SHAPE = (f"-N{NODES}", f"-n{TASKS}", f"--ntasks-per-node={TASKS // NODES}")
AT_ONCE = 10  # a larger number starts no more steps in a second on two cores
BATCH = 250  # steps of one allocation
WARM_UP = 60
LARGEST_GROWTH = 2048  # KiB, of slurmd and of slurmctld
OF_SLURM = 0.3  # KiB a step: half more than slurmd grows by without the plugin
CAN_BE_DONE = not since("512 ranks of bare PMIx do not end")
# Shares of a batch: steps of the allocation, separate jobs, and steps whose ranks exchange values over PMIx.
KINDS = {"step": 7, "job": 2, "exchange": 1}

Ended = namedtuple("Ended", "kind refusals trouble")

# slurmctld forgets a job 2 s after its end: with the default of 300 s it would grow with every job.
SIZE = ("--nodes", str(NODES), "--cpus", "64", "--set", "MinJobAge=2")

load_cluster = module_cluster("load", *SIZE, "--plugin-args", "when=always")


def line_of(kind, job):
    if kind == "job":
        return ["srun", *SHAPE, *SHOW]
    options = step_line(job, NODES, TASKS)
    if kind == "step" or not HAS_PMIX:
        return [*options, *SHOW]
    exchange = f"{ECHO}; exec {program('exchange_probe')} --timeout 20000"
    return [*options, "--mpi=pmix", "/bin/sh", "-c", exchange]


def is_refused_its_port(done):
    """True if there is one sentence and no task of that node ran. Tasks of other nodes may have run until srun ended them."""
    refusals = list(REFUSAL.finditer(done.stderr))
    return len(refusals) == 1 and not re.search(rf"^task \d+ {refusals[0]['host']} ", done.stdout, re.MULTILINE)


def run_one(cluster, kind, job):
    """Runs one step to its end. Steps of the allocation and jobs beside it may compute the same port: the second one is
    refused, as documented, and runs again."""
    refusals = 0
    while True:
        done = cluster.run(line_of(kind, job), timeout=120)
        if done.returncode == 0 or refusals == 3 or not is_refused_its_port(done):
            break
        refusals += 1
    trouble = wrong_values(done.stdout, TASKS, TASKS // NODES)
    if done.returncode != 0:
        trouble = f"exit {done.returncode}: {done.stderr[:500]}"
    elif kind == "exchange" and HAS_PMIX and len(DONE.findall(done.stdout)) != TASKS:
        trouble = f"not all ranks exchanged: {done.stdout}"
    return Ended(kind, refusals, trouble)


def run_batch(cluster, count, generator):
    kinds = generator.choices(list(KINDS), weights=KINDS.values(), k=count)
    with allocation(cluster, f"-N{NODES}") as job, ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda kind: run_one(cluster, kind, job), kinds))


def run_many(cluster, count, campaign, tell):
    """Runs batches until there are enough steps, or the time is over."""
    generator, ended, began = random.Random(campaign.seed), [], time.monotonic()
    while len(ended) < count and not campaign.is_over():
        ended += run_batch(cluster, min(BATCH, count - len(ended)), generator)
        tell(f"{len(ended)} of {count} steps, {sum(bool(step.trouble) for step in ended)} in trouble, "
             f"{len(ended) / (time.monotonic() - began):.1f} a second")
    return ended


def test_many_steps_are_right_and_leave_nothing(load_cluster, campaign, capsys, figure):
    count = campaign.size(10000, 40)

    def tell(text):
        with capsys.disabled():
            print(f"\nload: {text} (seed {campaign.seed})", end="", flush=True)

    untouched = look(load_cluster)
    run_batch(load_cluster, WARM_UP, random.Random(campaign.seed))
    more, before = settled(load_cluster, untouched)
    assert not more, f"already after the warm-up: {more}"
    ended = run_many(load_cluster, count, campaign, tell)
    campaign.planned, campaign.done = count, len(ended)
    more, after = settled(load_cluster, before)
    bad = [step for step in ended if step.trouble]
    growths = {daemon: growth(before, after, daemon) for daemon in ("slurmd", "slurmctld")}
    allowed = max(LARGEST_GROWTH, OF_SLURM * len(ended))
    status = load_cluster.script("status")
    refusals = sum(step.refusals for step in ended)
    is_met = not bad and not more and status.returncode == 0 and max(growths.values()) < LARGEST_GROWTH
    told = "" if max(growths.values()) < LARGEST_GROWTH else f"Slurm grows by itself: up to {allowed:.0f} KiB are allowed"
    figure(
        "B1", got=f"{len(bad)} of {len(ended):,} steps of {TASKS} tasks failed; slurmd {growths['slurmd']:+} KiB, slurmctld "
                  f"{growths['slurmctld']:+} KiB; {len(more)} descriptors, sockets, processes or files more; "
                  f"{refusals} steps refused for a taken port and run again",
        met=is_met, seed=campaign.seed, why=told,
        control="a plugin that loses descriptors, sockets, memory, files and processes is noticed by each",
    )
    assert not bad, bad[:5]
    assert not more
    assert status.returncode == 0, status.stdout
    assert max(growths.values()) < allowed, (growths, allowed)
    assert refusals <= max(2, len(ended) * 0.002)


def test_control_a_plugin_that_leaks_is_noticed(cluster_factory):
    cluster = cluster_factory("leaky").up("--nodes", "2", "--plugin", built("tests/doubles/misbehaving_spank.so"),
                                            "--plugin-args", "lose=slurmd leave=task_exit")
    before = look(cluster)
    for _ in range(4):
        assert cluster.run(["srun", "-N2", "-n2", "true"]).returncode == 0
    more, after = settled(cluster, before, seconds=2)
    for node in cluster.nodes:
        for what in ("descriptors of slurmd", "sockets, sockets used", "processes slurmstepd"):
            assert any(line.startswith(f"{node}: {what}") for line in more), (node, what, more)
        assert any(re.match(f"file {node}:/tmp/stray_double", line) for line in more), more
    assert growth(before, after, "slurmd") > LARGEST_GROWTH


def test_512_tasks_exchange_or_fail_in_time(load_cluster, campaign, figure):
    """128 tasks on each node, and two cores for all of them."""
    deadline, ends, seconds = 60, Counter(), []
    with allocation(load_cluster, f"-N{NODES}") as job:
        line = [*step_line(job, NODES, 512, "--mpi=pmix"), program("exchange_probe"), "--timeout", str(deadline * 1000)]

        def run_step():
            """A step that lost a message of Slurm's PMIx does not run again here: a clean failure also counts."""
            began = time.monotonic()
            done = load_cluster.run(line, timeout=deadline + 60)
            seconds.append(time.monotonic() - began)
            is_done = done.returncode == 0 and len(DONE.findall(done.stdout)) == 512
            is_clean = done.returncode != 0 and "bootstrap:" in done.stderr and "WRONG" not in done.stderr
            ends["done" if is_done else "clean" if is_clean else f"exit {done.returncode}: {done.stderr[:500]}"] += 1

        for _ in campaign.each(range(campaign.size(20, 1))):
            run_step()
        for _ in range(2):  # one has to succeed, and on a busy machine the first may not
            if not ends["done"] and CAN_BE_DONE:
                run_step()
    count, slowest = len(seconds), max(seconds)
    bad = [end for end in ends if end not in ("done", "clean")]
    figure("B3", got=f"{ends['done']} of {count} steps of 512 tasks done, {ends['clean']} failed with a sentence, {len(bad)} "
                     f"otherwise; slowest {slowest:.0f} s", met=not bad)
    assert not bad, bad[0]
    assert ends["done"] or not CAN_BE_DONE
    assert load_cluster.script("status").returncode == 0

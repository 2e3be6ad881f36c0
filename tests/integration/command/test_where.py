"""`slurm-bootstrap where`: the steps of one job find each other by name."""

# SPDX-License-Identifier: Apache-2.0

import itertools
import json
import random
import re
import time
from contextlib import contextmanager

import pytest

from built_files import COMMAND
from harness import INSIDE, stop, wait_for

NUMBERS = itertools.count()
# Each task prints in a line the values that others must find.
SHOW = """
import os, time
own = os.environ
os.write(1, "{SLURM_STEP_ID} {SLURM_PROCID} {MASTER_ADDR}:{MASTER_PORT} {SLURMD_NODENAME} {ports}\\n".format(
    ports=own.get("BOOTSTRAP_PORTS", "-"), **own).encode())
time.sleep(600)
"""
TRAIN = ("--bootstrap=on", "-N2", "-n4", "--ntasks-per-node=2", "--gres=gpu:2", "python3", "show.py")
SERVE = ("-N2", "-n2", "--ntasks-per-node=1", "--bootstrap-ports=2", "python3", "show.py")


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("where", asks=False).up("--nodes", "3", "--cpus", "64", "--gpus", "2")
    cluster.write_home("show.py", SHOW)
    return cluster


@pytest.fixture(scope="module")
def job(site):
    return start_job(site, 3)


def start_job(site, nodes):
    said = site.run(["sbatch", "--parsable", f"-N{nodes}", "--ntasks-per-node=2", "--gres=gpu:2", "--wrap", "sleep 3600"]).stdout
    wait_for(lambda: site.run(["squeue", "-h", "-t", "R", "-j", said.strip()]).stdout)
    return said.strip()


class Step:
    def __init__(self, path):
        self.path = path

    def lines(self):
        """By rank: the number of the step, the address of its rendezvous, the host, and the ports of the task."""
        found = (line.split() for line in self.path.read_text().splitlines() if re.match(r"\d+ \d+ \S+ \S+ \S+$", line))
        return {int(rank): (step, place, host, ports.split(",")) for step, rank, place, host, ports in found}


@contextmanager
def step(site, job, name, *words, ranks=0):
    """A step of the job; with `ranks`, once this many tasks have started."""
    path = site.home / f"step.{next(NUMBERS)}"
    with open(path, "w") as output:
        process = site.start(["sh", "-c", 'cd; exec "$@"', "sh", "srun", f"--jobid={job}", "--overlap", "-J", name, *words],
                             stdout=output, stderr=output)
        try:
            wait_for(lambda: len(Step(path).lines()) >= ranks, what=path.read_text())
            yield Step(path)
        finally:
            stop(process)


def where(site, job, *words, **more):
    return site.run([COMMAND, "where", *words], env={"SLURM_JOB_ID": job}, **more)


def told(done):
    assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr.removeprefix("slurm-bootstrap: ").strip()


def test_a_step_is_found_by_its_name_and_by_its_number(site, job):
    with step(site, job, "my trainer", *TRAIN, ranks=4) as trainer, step(site, job, "server", *SERVE, ranks=2) as server:
        number, place, _, _ = trainer.lines()[0]
        for name in ("my trainer", number, f"{job}.my trainer", f"{job}.{number}"):
            found = where(site, job, name)
            assert (found.returncode, found.stdout) == (0, f"{place}\n"), found
        for rank, (number, _, host, ports) in server.lines().items():
            for place, port in enumerate(ports, 1):
                found = where(site, job, "server", "--rank", str(rank), "--port", str(place), "--json")
                assert json.loads(found.stdout) == {"step": f"{job}.{number}", "rank": rank, "host": host, "port": int(port)}, found
        assert where(site, job, "server", "--port", "2").stdout == f"{server.lines()[0][2]}:{server.lines()[0][3][1]}\n"
        python = f"import slurm_bootstrap; print(*slurm_bootstrap.where('server', rank=1))"
        found = site.run(["sh", "-c", f"PYTHONPATH={INSIDE}/libbootstrap/python python3 -c \"{python}\""], env={"SLURM_JOB_ID": job})
        assert found.stdout == f"{server.lines()[1][2]} {server.lines()[1][3][0]}\n", found


@pytest.mark.parametrize("words, asked, sentence", [
    (("--bootstrap=off", "-n2", "sleep", "600"), (), r"step \d+\.\d+ is not set up by the plugin; start it with srun --bootstrap=on"),
    (("--bootstrap=on", "-n2", "env", "-i", "sleep", "600"), (), r"the program of rank 0 of step \d+\.\d+ cannot be read: it has "
     r"cleared its environment \(env -i\), or protects it"),
    (("--bootstrap=on", "-n2", "sleep", "600"), ("--port", "1"), r"rank 0 of step \d+\.\d+ has no ports in BOOTSTRAP_PORTS; start the "
     "step with --bootstrap-ports=1"),
    (("--bootstrap=on", "-n2", "sleep", "600"), ("--rank", "2"), r"step \d+\.\d+ has no rank 2; its ranks are 0 to 1"),
], ids=["not set up", "cleared", "no ports", "no rank"])  # fmt: skip
def test_a_step_that_cannot_be_found_is_one_sentence(site, job, words, asked, sentence):
    with step(site, job, "other", *words):
        wait_for(lambda: re.fullmatch(sentence, told(where(site, job, "other", *asked))), what=where(site, job, "other", *asked).stderr)


def test_a_name_or_job_without_exactly_one_step_is_refused(site, job):
    with step(site, job, "twin", "sleep", "600"), step(site, job, "twin", "sleep", "600"):
        twins = rf"job {job} has 2 running steps with the name twin; use the number of one: {job}\.\d+, {job}\.\d+"
        wait_for(lambda: re.fullmatch(twins, told(where(site, job, "twin"))))
    assert told(where(site, job, "absent")).startswith(f"job {job} has no running step absent: it has not started, or has ended; running: ")
    assert told(where(site, job, "x", user="bob")) == f"job {job} belongs to alice(10001); only this user can look at it"
    assert told(where(site, "999999", "x")).startswith("Slurm knows no job 999999; it has ended, or the number is wrong")
    elsewhere = site.run([COMMAND, "where", "x"], env={"SLURM_JOB_ID": job, "SLURM_CLUSTER_NAME": "other"})
    assert told(elsewhere).startswith("this process is of a job of cluster other, and the Slurm here is cluster ")
    assert told(where(site, "", "x")) == "SLURM_JOB_ID is not set, so this is no process of a job; name the job, too: JOBID.STEP"
    without = site.run(["env", "PATH=/usr/games", COMMAND, "where", "x"], env={"SLURM_JOB_ID": job})
    assert told(without).startswith("looked for srun in PATH, which has none")  # as in a container


def test_a_look_waits_for_the_step(site, job):
    process = site.start([COMMAND, "where", "late", "--wait", "60"], env={"SLURM_JOB_ID": job}, stdout=-1)
    with step(site, job, "late", *TRAIN, ranks=4) as late:
        assert process.communicate(timeout=90)[0] == f"{late.lines()[0][1]}\n"


def test_a_look_leaves_no_process_file_or_socket(site, job):
    def remains():
        return [site.run(["sh", "-c", line], user="root", node=node).stdout for node in ("head", "node001", "node002") for line in (
            "ps -eo args= | grep '[l]ook-at-node\\|[s]lurm-bootstrap-status'", "find /tmp /home -xdev | sort", "ss -Hltunx | grep -i boot")]

    with step(site, job, "trainer", *TRAIN, ranks=4):
        before = remains()
        assert where(site, job, "trainer").returncode == 0
        assert where(site, job, "trainer", "--rank", "3", "--port", "1").returncode == 1
        wait_for(lambda: remains() == before, what=f"{remains()} {before}")


def look_while_steps_change(site, job, count, seed):
    """Steps with one name start and end; each look must print the address of the step that it names."""
    chance, places, found, sentences = random.Random(seed), {}, 0, 0
    while found + sentences < count:
        with step(site, job, "trainer", *TRAIN, ranks=chance.choice((0, 1, 4))) as trainer:
            for _ in range(chance.randint(1, 3)):
                done = where(site, job, "trainer", "--json")
                places.update({f"{job}.{line[0]}": line[1] for line in trainer.lines().values()})
                if done.returncode:
                    assert re.search("has no running step|has not started|has ended|did not answer", told(done)), done
                    sentences += 1
                    continue
                seen = json.loads(done.stdout)
                wait_for(lambda: trainer.lines(), what="the step does not start")
                places.update({f"{job}.{line[0]}": line[1] for line in trainer.lines().values()})
                assert places[seen["step"]] == f"{seen['host']}:{seen['port']}", (seen, places)
                found += 1
    return found, sentences


def test_looks_are_right_while_steps_start_and_end(site, job, seed):
    assert sum(look_while_steps_change(site, job, 4, seed)) >= 4


@pytest.mark.full
@pytest.mark.parametrize("nodes", [2, 64])
def test_100_looks_are_right_while_steps_start_and_end(cluster_factory, seed, nodes, capsys):
    cluster = cluster_factory(f"where-{nodes}", asks=False).up("--nodes", str(nodes), "--cpus", "8", "--gpus", "2")
    cluster.write_home("show.py", SHOW)
    job = start_job(cluster, nodes)
    found, sentences = look_while_steps_change(cluster, job, 100, seed)
    with step(cluster, job, "server", f"-N{nodes}", f"-n{nodes}", "--bootstrap-ports=1", "python3", "show.py", ranks=nodes) as server:
        times = []
        for words in [("server",), ("server", "--rank", str(nodes - 1))] * 5:
            begin = time.monotonic()
            done = where(cluster, job, *words)
            times.append(time.monotonic() - begin)
            host, ports = server.lines()[nodes - 1][2:]
            assert done.stdout.strip() in (server.lines()[0][1], f"{host}:{ports[0]}"), done
    with capsys.disabled():
        print(f"\nwhere, {nodes} nodes: {found} places, {sentences} sentences, 0 wrong; s of a look at one node, at all: "
              f"{sorted(times[::2])[2]:.2f}, {sorted(times[1::2])[2]:.2f}")

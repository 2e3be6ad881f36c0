#!/usr/bin/python3
"""Measures the constants of scripts/simulate, on a cluster of this machine or, without root, on the one that srun reaches.

The work of ranks and slurmstepds is CPU time, which other load on the machine hardly changes. Their waits are the median of several times,
so that it holds for this machine with its load, or with --elsewhere the shortest. Steps of different shapes take turns, and straight lines
through them give the cost of one more rank, node or value.
"""

# SPDX-License-Identifier: Apache-2.0

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, median

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.steps import BUILD, json_lines
from local_cluster import INSIDE, REPOSITORY, running

BENCH = f"{BUILD}/tests/bench"
SHAPES = ((1, 1), (1, 6), (1, 16), (2, 2), (3, 3), (3, 12), (4, 40))  # nodes, ranks
DIRECT = (8, 8)  # where all nodes ask that of the last rank for its value
PMI1, PMI1_ROUNDS = (4, 16), (2, 12)  # the difference of two lengths has no start and end in it
BUSY = ((1, 16), (3, 12), (4, 40))  # of these: enough ranks to keep all cores of one machine busy
ROUNDS = 10
KEYS = 3  # a rank's values that every fence of these rounds carries
UNITS = {"ms": 1e-3, "us": 1e-6, "": 1, "/s": 1}


class Host:
    """Runs commands in a LocalCluster, or without one on the cluster that srun reaches, whose nodes see the repository at the same path."""

    def __init__(self, cluster=None):
        self.is_one_machine, self.cluster = bool(cluster), cluster
        self.folder = f"{INSIDE if cluster else REPOSITORY}/{BENCH}"

    def run(self, arguments, timeout):
        if self.cluster:
            return self.cluster.run(arguments, timeout=timeout)
        return subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


def srun(host, nodes, ranks, program):
    tasks = [f"-N{nodes}", f"-n{ranks}", "--distribution=block", "--overcommit", "--kill-on-bad-exit=1"]
    if ranks % nodes == 0:
        tasks.append(f"--ntasks-per-node={ranks // nodes}")
    return " ".join(["srun", "--mpi=pmix", *tasks, f"{host.folder}/exchange_clock", f"{host.folder}/{program}"])


def run_step(host, nodes, ranks, program):
    """The line that each rank of a step printed, as a dictionary; none where it failed, with a message. Slurm loses a message of PMIx now
    and then, and the step with it."""
    step = srun(host, nodes, ranks, program)
    # The meeting of the nodes on old releases of Slurm (comm/pmix/allgather.cc) is not simulated, and this switches it off.
    # A fence without data waits for the other nodes in a ring; in a tree it does not, where TreeWidth is above their number.
    line = f"SRUN_STARTED=$BENCH_STARTED SLURM_JOB_START_TIME=0 SLURM_PMIX_FENCE=ring exec {step}"
    done = host.run(["timeout", "60", f"{host.folder}/exchange_clock", "bash", "-c", line], timeout=90)
    lines = json_lines(done, ranks)
    if lines is None:
        print(f"calibrate: failed: {step}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return lines or []


def probe(host, nodes, ranks):
    return run_step(host, nodes, ranks, f"start_costs {ROUNDS}")


def cpu_of_srun(host, rounds):
    """Seconds that srun computes in a step of so many rounds over PMI-1; None where the step failed, with a message."""
    step = srun(host, *PMI1, f"exchange_bench wire pmi1 {rounds}")
    done = host.run(["timeout", "60", "bash", "-c", f"{step} && times"], timeout=90)
    times = re.findall(r"(\d+)m([\d.]+)s", done.stdout)
    if done.returncode == 0 and len(times) == 4:  # user and system, of the shell and then of srun
        return sum(int(minutes) * 60 + float(seconds) for minutes, seconds in times[2:])
    print(f"calibrate: failed: {step}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return None


def least_squares(rows, wanted):
    """Coefficients, none below zero, with which the columns of `rows` are nearest to `wanted`, relative to it."""
    scaled = numpy.array(rows) / numpy.array(wanted)[:, None]
    used = list(range(scaled.shape[1]))
    while True:
        found = numpy.zeros(scaled.shape[1])
        found[used] = numpy.linalg.lstsq(scaled[:, used], numpy.ones(len(wanted)), rcond=None)[0]
        if found.min() >= 0:
            return found.tolist()
        used.remove(int(found.argmin()))


class Calibration:
    """Samples of several turns, and the constants that follow from them."""

    def __init__(self, host, elsewhere=False):
        self.host = host
        self.choose = min if elsewhere else median  # of times; CPU times are always medians
        self.samples = {shape: [] for shape in SHAPES}  # of each step: what its ranks printed
        self.direct = []  # the same of DIRECT
        self.pmi1 = []  # of a round over PMI-1: what srun computes for a rank
        self.failures = 0

    def take_turn(self):
        for shape in SHAPES:
            if lines := probe(self.host, *shape):
                self.samples[shape].append(lines)
            else:
                self.failures += 1
        if lines := probe(self.host, *DIRECT):
            self.direct.append({line["node"]: line for line in lines})
        few, many = (cpu_of_srun(self.host, rounds) for rounds in PMI1_ROUNDS)
        if few and many:
            self.pmi1.append((many - few) / (PMI1_ROUNDS[1] - PMI1_ROUNDS[0]) / PMI1[1])

    def of_shape(self, shape, value, choose=median):
        """`value` of each step, and of these one; in seconds."""
        return choose([value(lines) for lines in self.samples[shape]]) / 1e9

    def per_rank(self, name, column, choose=median):
        return median(self.of_shape(shape, lambda lines: mean(line[name][column] for line in lines), choose) for shape in SHAPES)

    def per_node(self, shape, value):
        """Of the slurmstepds: each node's first rank has it."""
        return self.of_shape(shape, lambda lines: mean(value(line) for line in lines if line["local_rank"] == 0))

    def fit_servers(self, value, columns):
        rows = [columns(nodes, ranks) for nodes, ranks in SHAPES]
        return least_squares(rows, [max(self.per_node(shape, value), 1e-9) for shape in SHAPES])

    def fence_time(self, shape):
        """Of put and fence; where the nodes have one clock, from the first rank that begins to the last that ends."""
        def of_step(lines):
            columns = [[line[f"fence{number}"] for line in lines] for number in range(3)]
            if self.host.is_one_machine:
                return median(max(row[1] for row in rows) - min(row[0] for row in rows) for rows in columns)
            return median(row[1] - row[0] for rows in columns for row in rows)

        return self.of_shape(shape, of_step, self.choose)

    def find_waits(self, work, of_value, hop_server):
        """The wait for a message between rank and server, and between nodes: what is left of the shortest fences without the work of a rank
        and its server, which on one machine takes turns with that of another node."""
        cores = self.machine_cores() if self.host.is_one_machine else 2
        alone = (work + of_value) / min(1, cores)
        both = (work + 2 * of_value + hop_server) * max(1, 2 / cores)
        local_message = max(5e-6, (self.fence_time((1, 1)) - alone) / 2)
        return local_message, max(5e-6, self.fence_time((2, 2)) - both - 2 * local_message)

    def other_ways(self):
        """The CPU time of servers for Gets that ask another node, each after a barrier: of the servers that ask, and of the one that
        answers. It is in the ring beside the first node and the last but one, so that these are connected."""
        if not self.direct or not self.pmi1:
            raise RuntimeError("all steps of direct gets, or over PMI-1, failed; the lines above say why")
        last = DIRECT[0] - 1

        def median_of(nodes, value):
            return max(0, median(value(of_node[node]) for of_node in self.direct for node in nodes)) / 1e9

        def again(line):
            return (line["direct"][3] - line["barriers"][3] * (ROUNDS + 1) / ROUNDS) / ROUNDS

        def first(line):
            return line["direct_first"][3] - line["barriers"][3] * 2 / ROUNDS - again(line)

        cpu = f"measured: CPU time, {len(self.direct)} steps of {DIRECT[1]} ranks on {DIRECT[0]} nodes"
        return {
            "direct_ask": (median_of(range(last), again), "us", cpu),
            "direct_answer": (median_of([last], again) / last, "us", cpu),
            "direct_connect": (median_of(range(1, last - 1), first), "us", cpu),
            "direct_accept": (median_of([last], first) / (last - 2), "us", cpu),
            "pmi_srun": (median(self.pmi1), "us", f"measured: CPU time, {len(self.pmi1)} pairs of steps of {PMI1[1]} ranks"),
        }

    def machine_cores(self):
        """How many cores' time the ranks and servers of one machine got, while they had enough to do."""
        found = []
        for nodes, ranks in BUSY:
            for lines in self.samples[nodes, ranks]:
                used = sum(line["fences"][2] + line["fences"][3] for line in lines)
                took = max(line["fences"][1] for line in lines) - min(line["fences"][0] for line in lines)
                found.append(used / took)
        return min(os.cpu_count(), median(found))

    def constants(self):
        """By name: value in units of the unit, unit, and how it was found."""
        least = min(map(len, self.samples.values()))
        if not least:
            raise RuntimeError("all steps of a shape failed; the lines above say why")
        steps = f"{least} steps each of {len(SHAPES)} shapes" + (f", {self.failures} more failed" if self.failures else "")
        start, fork = self.fit_servers(lambda line: line["launching"], lambda n, r: (1, r / n))
        settle, init_server = self.fit_servers(lambda line: line["init"][3], lambda n, r: (1, r / n))
        fence_node, fence_server, hop_server, store_value = self.fit_servers(
            lambda line: line["fences"][3] / ROUNDS, lambda n, r: (1, r / n, n - 1, r * KEYS))
        gets = [(line["reads0"][2] / len(lines), line["reads0"][3] / len(lines))
                for shape in SHAPES for lines in self.samples[shape] for line in lines]
        loading = median(self.of_shape(s, lambda lines: mean(line["loading"] for line in lines)) for s in SHAPES)
        server_of_get = median(server for _, server in gets) / 1e9
        put_client = self.per_rank("fences", 2) / ROUNDS
        local_message, hop = self.find_waits(put_client + fence_node + fence_server, store_value, hop_server)
        init_wait = self.of_shape((1, 1), lambda lines: lines[0]["init"][1] - lines[0]["init"][0] - lines[0]["init"][2], self.choose)
        cpu = f"measured: CPU time, {steps}"
        wall = f"measured: {'shortest' if self.choose is min else 'median'} of {steps}"
        found = {
            "stepd_start": (start, "ms", f"{cpu}, of slurmstepd until its first task runs"),
            "stepd_settle": (settle, "ms", f"{cpu}, of slurmstepd while its ranks are in PMIx_Init, beside init_server"),
            "task_fork": (fork, "us", f"{cpu}, of slurmstepd for each task of the node"),
            "task_exec": (loading, "ms", f"{cpu}, of a C program with libpmix at main()"),
            "init_client": (self.per_rank("init", 2), "us", cpu),
            "init_server": (init_server, "us", cpu),
            "init_wait": (max(init_wait, 0), "ms", f"{wall}: PMIx_Init of one rank, without its CPU time"),
            "local_message": (local_message, "us", f"{wall}: half of what one rank waits in a fence, 5 us at least"),
            "put_client": (put_client, "us", cpu),
            "fence_node": (fence_node, "us", cpu),
            "fence_server": (fence_server, "us", cpu),
            "hop": (hop, "us", f"{wall}: what a rank waits more with a second node"),
            "hop_server": (hop_server, "us", cpu),
            "store_value": (store_value, "us", cpu),
            "get_client": (median(client for client, _ in gets) / 1e9, "us", cpu),
            "get_server": (server_of_get if server_of_get > 2e-6 else 0, "us",
                           f"{cpu}; 0: values come from shared memory, without a message"),
        }
        found |= self.other_ways()
        if self.host.is_one_machine:
            found |= self.machine(start + fork + loading)
        return found

    def machine(self, of_first_task):
        """Constants of this machine alone, where all nodes share the cores, and all clocks are one."""
        cores = self.machine_cores()
        launched = self.of_shape((1, 1), lambda lines: lines[0]["started"] - lines[0]["srun"])
        waited = launched - of_first_task / min(1, cores)
        first = self.of_shape((2, 2), lambda lines: max(line["first"][1] for line in lines) - max(line["first"][0] for line in lines),
                              self.choose)
        usual = self.fence_time((2, 2))
        return {
            "step_create": (max(waited, 1e-3), "ms", "measured: the start of one task, without the work for it"),
            "first_hop": (max(first - usual, 0), "us", "measured: the first fence of two nodes over another one"),
            "machine_cores": (cores, "", "measured: CPU time of ranks and servers in a second of fences"),
        }


# Of a cluster whose nodes do not share cores, and have a network between them.
ELSEWHERE = {
    "step_create": (0.1, "ms", "assumed: srun, slurmctld and a credential, without load"),
    "first_hop": (500e-6, "us", "assumed: a TCP connection and its credential; on one machine it was 1.8 ms"),
    "machine_cores": (0, "", "assumed: the nodes do not share cores"),
    "hop": (50e-6, "us", "assumed: TCP between two hosts of a cluster; one machine has no network to measure"),
}


def measure(host, full, elsewhere):
    """The constants, and of which machine they are."""
    calibration = Calibration(host, elsewhere)
    for _ in range(20 if full else 5):
        calibration.take_turn()
    slurm = host.run(["sinfo", "--version"], timeout=30).stdout.strip()
    where = f"cluster of namespaces on one machine with {os.cpu_count()} CPUs" if host.is_one_machine else "a cluster"
    return calibration.constants(), f"{where}, Slurm {slurm.split()[-1]}, Linux {platform.release().split('-')[0]}"


def constants_text(constants, machine):
    """A file for scripts/simulate --constants; other constants are as in constants.txt."""
    lines = [f"date = {datetime.date.today()}", f"machine = {machine}"]
    for name, (value, unit, how) in constants.items():
        lines.append(f"{name} = {float(f'{value / UNITS[unit]:.4g}'):.10g} {unit}".rstrip() + f"  # {how}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", metavar="FILE", default="/dev/stdout", help="write the constants to this file (standard output)")
    parser.add_argument("--full", action="store_true", help="20 steps of each shape (5)")
    parser.add_argument("--elsewhere", action="store_true",
                        help="for forecasts for real clusters: leave out what one machine's cores and network do")
    options = parser.parse_args()
    if os.geteuid() != 0:
        constants, machine = measure(Host(), options.full, options.elsewhere)
    else:
        with running("calibrate", "--nodes", str(DIRECT[0]), "--cpus", "16", "--no-plugin") as cluster:
            constants, machine = measure(Host(cluster), options.full, options.elsewhere)
    Path(options.out).write_text(constants_text(constants | ELSEWHERE if options.elsewhere else constants, machine))


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"calibrate: {error}")

#!/usr/bin/python3
"""Measures constants of scripts/simulate on a cluster of this machine, and writes them into constants.txt.

The work of ranks and slurmstepds is CPU time, which other load on the machine hardly changes. Their waits are the shortest of several
times. Steps of different shapes take turns, and straight lines through them give the cost of one more rank, node or value.
"""

# SPDX-License-Identifier: Apache-2.0

import datetime
import os
import platform
import re
import sys
from pathlib import Path
from statistics import mean, median

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.steps import inside, json_lines
from local_cluster import running, slurm_version
from simulation.model import CONSTANTS, UNITS

SHAPES = ((1, 1), (1, 6), (1, 16), (2, 2), (3, 3), (3, 12), (4, 40))  # nodes, ranks
CLUSTER = ("--nodes", "4", "--cpus", "16", "--no-plugin")
PMI1, PMI1_ROUNDS = (4, 16), (2, 12)  # the difference of two lengths has no start and end in it
BUSY = ((1, 16), (3, 12), (4, 40))  # of these: enough ranks to keep all cores of one machine busy
TURNS = 20
ROUNDS = 10
KEYS = 3  # a rank's values that every fence of these rounds carries
# Of this machine alone, whose nodes share its cores and have no network: constants.txt has assumptions in their place.
OF_ONE_MACHINE = ("step_create", "first_hop", "machine_cores", "hop")


def srun(nodes, ranks, program):
    tasks = [f"-N{nodes}", f"-n{ranks}", "--distribution=block", "--overcommit", "--kill-on-bad-exit=1"]
    if ranks % nodes == 0:
        tasks.append(f"--ntasks-per-node={ranks // nodes}")
    name, *words = program.split()
    return " ".join(["srun", "--mpi=pmix", *tasks, inside("tests/bench/exchange_clock"), inside(f"tests/bench/{name}"), *words])


def run_step(cluster, nodes, ranks, program):
    """The line that each rank of a step printed, as a dictionary; none where it failed, with a message. Slurm loses a message of PMIx now
    and then, and the step with it."""
    step = srun(nodes, ranks, program)
    # The meeting of the nodes on old releases of Slurm (comm/pmix/allgather.cc) is not simulated, and this switches it off.
    # A fence without data waits for the other nodes in a ring; in a tree it does not, where TreeWidth is above their number.
    line = f"SRUN_STARTED=$BENCH_STARTED SLURM_JOB_START_TIME=0 SLURM_PMIX_FENCE=ring exec {step}"
    done = cluster.run(["timeout", "60", inside("tests/bench/exchange_clock"), "bash", "-c", line], timeout=90)
    lines = json_lines(done, ranks)
    if lines is None:
        print(f"calibrate: failed: {step}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    return lines or []


def probe(cluster, nodes, ranks):
    return run_step(cluster, nodes, ranks, f"start_costs {ROUNDS}")


def cpu_of_srun(cluster, rounds):
    """Seconds that srun computes in a step of so many rounds over PMI-1; None where the step failed, with a message."""
    step = srun(*PMI1, f"exchange_bench wire pmi1 {rounds}")
    done = cluster.run(["timeout", "60", "bash", "-c", f"{step} && times"], timeout=90)
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

    def __init__(self, cluster, choose=median):
        self.cluster, self.choose = cluster, choose  # of times; CPU times are always medians
        self.samples = {shape: [] for shape in SHAPES}  # of each step: what its ranks printed
        self.pmi1 = []  # of a round over PMI-1: what srun computes for a rank
        self.failures = 0

    def take_turn(self):
        for shape in SHAPES:
            if lines := probe(self.cluster, *shape):
                self.samples[shape].append(lines)
            else:
                self.failures += 1
        few, many = (cpu_of_srun(self.cluster, rounds) for rounds in PMI1_ROUNDS)
        if few and many:
            self.pmi1.append((many - few) / (PMI1_ROUNDS[1] - PMI1_ROUNDS[0]) / PMI1[1])

    def of_shape(self, shape, value, choose=median):
        """`value` of each step, and of these one; in seconds."""
        return choose([value(lines) for lines in self.samples[shape]]) / 1e9

    def per_rank(self, name, column):
        return median(self.of_shape(shape, lambda lines: mean(line[name][column] for line in lines)) for shape in SHAPES)

    def per_node(self, shape, value):
        """Of the slurmstepds: each node's first rank has it."""
        return self.of_shape(shape, lambda lines: mean(value(line) for line in lines if line["local_rank"] == 0))

    def fit_servers(self, value, columns):
        rows = [columns(nodes, ranks) for nodes, ranks in SHAPES]
        return least_squares(rows, [max(self.per_node(shape, value), 1e-9) for shape in SHAPES])

    def fence_time(self, shape):
        """Of put and fence, from the first rank that begins to the last that ends."""
        def of_step(lines):
            columns = [[line[f"fence{number}"] for line in lines] for number in range(3)]
            return median(max(row[1] for row in rows) - min(row[0] for row in rows) for rows in columns)

        return self.of_shape(shape, of_step, self.choose)

    def find_waits(self, work, of_value, hop_server):
        """The wait for a message between rank and server, and between nodes: what is left of the shortest fences without the work of a rank
        and its server, which on one machine takes turns with that of another node."""
        cores = self.machine_cores()
        alone = (work + of_value) / min(1, cores)
        both = (work + 2 * of_value + hop_server) * max(1, 2 / cores)
        local_message = max(5e-6, (self.fence_time((1, 1)) - alone) / 2)
        return local_message, max(5e-6, self.fence_time((2, 2)) - both - 2 * local_message)

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
        if not least or not self.pmi1:
            raise RuntimeError("all steps of a shape, or over PMI-1, failed; the lines above say why")
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
            "pmi_srun": (median(self.pmi1), "us", f"measured: CPU time, {len(self.pmi1)} pairs of steps of {PMI1[1]} ranks"),
        }
        return found | self.of_machine(start + fork + loading)

    def of_machine(self, of_first_task):
        """Constants of this machine alone."""
        cores = self.machine_cores()
        launched = self.of_shape((1, 1), lambda lines: lines[0]["started"] - lines[0]["srun"])
        first = self.of_shape((2, 2), lambda lines: max(line["first"][1] for line in lines) - min(line["first"][0] for line in lines),
                              self.choose)
        return {
            "step_create": (max(launched - of_first_task / min(1, cores), 1e-3), "ms", "measured: the start of one task, without the work"),
            "first_hop": (max(first - self.fence_time((2, 2)), 0), "us", "measured: the first fence of two nodes over another one"),
            "machine_cores": (cores, "", "measured: CPU time of ranks and servers in a second of fences"),
        }


def renewed(text, constants):
    """The lines of constants.txt with other values; the meaning of each stays."""
    for name, (value, unit, how) in constants.items():
        line = f"{name} = {float(f'{value / UNITS[unit]:.4g}'):.10g} {unit}".rstrip()
        text = re.sub(rf"^{name} = .*?  # (.*?); measured.*", lambda old: f"{line}  # {old[1]}; {how}", text, flags=re.M)
    return text


def main():
    with running("calibrate", *CLUSTER) as cluster:
        calibration = Calibration(cluster, min)
        for _ in range(TURNS):
            calibration.take_turn()
    constants = {name: found for name, found in calibration.constants().items() if name not in OF_ONE_MACHINE}
    machine = (f"cluster of namespaces on one machine with {os.cpu_count()} CPUs, Slurm {slurm_version()}, "
               f"Linux {platform.release().split('-')[0]}")
    text = re.sub(r"^date = .*\nmachine = .*", f"date = {datetime.date.today()}\nmachine = {machine}", CONSTANTS.read_text(), flags=re.M)
    CONSTANTS.write_text(renewed(text, constants))


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"calibrate: {error}")

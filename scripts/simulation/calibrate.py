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

from benchmarks.steps import StepFailed, inside, run_step
from local_cluster import running, slurm_version
from simulation.model import CONSTANTS, UNITS

SHAPES = ((1, 1), (1, 6), (1, 16), (2, 2), (3, 3), (3, 12), (4, 40))  # nodes, ranks
PMI1, PMI1_ROUNDS = (4, 16), (2, 12)  # the difference of two lengths has no start and end in it
TURNS = 20
ROUNDS = 10
KEYS = 3  # a rank's values that every fence of these rounds carries


def cpu_of_srun(cluster, rounds):
    """Seconds that srun computes in a step of so many rounds over PMI-1."""
    nodes, ranks = PMI1
    step = f"srun --mpi=pmix -N{nodes} -n{ranks} --overcommit {inside('tests/bench/exchange_bench')} wire pmi1 {rounds}"
    done = cluster.run(["timeout", "60", "bash", "-c", f"{step} && times"], timeout=90)
    times = re.findall(r"(\d+)m([\d.]+)s", done.stdout)
    if done.returncode != 0 or len(times) != 4:  # user and system, of the shell and then of srun
        raise StepFailed(f"{step}: {done.stderr.strip()[-300:]}")
    return sum(int(minutes) * 60 + float(seconds) for minutes, seconds in times[2:])


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

    def __init__(self, cluster):
        self.cluster = cluster
        self.samples = {shape: [] for shape in SHAPES}  # of each step: what its ranks printed
        self.pmi1 = []  # of a round over PMI-1: what srun computes for a rank

    def take_turn(self):
        """Slurm loses a message of PMIx now and then, and the step with it."""
        try:
            for nodes, ranks in SHAPES:
                # The meeting of the nodes on old releases of Slurm (comm/pmix/allgather.cc) is not simulated: a job that is old has none.
                # A fence without data waits for the other nodes in a ring; in a tree it does not, where TreeWidth is above their number.
                lines = run_step(self.cluster, ranks, inside("tests/bench/start_costs"), str(ROUNDS), nodes=nodes,
                                 env={"SLURM_JOB_START_TIME": "0", "SLURM_PMIX_FENCE": "ring"})
                self.samples[nodes, ranks].append(lines)
            few, many = (cpu_of_srun(self.cluster, rounds) for rounds in PMI1_ROUNDS)
            self.pmi1.append((many - few) / (PMI1_ROUNDS[1] - PMI1_ROUNDS[0]) / PMI1[1])
        except StepFailed as error:
            print(f"calibrate: failed: {error}", file=sys.stderr)

    def of_shape(self, shape, value, choose=median):
        """`value` of each step, and of these one; in seconds."""
        return choose([value(lines) for lines in self.samples[shape]]) / 1e9

    def per_rank(self, name, column):
        return median(self.of_shape(shape, lambda lines: mean(line[name][column] for line in lines)) for shape in SHAPES)

    def fit_servers(self, value, columns):
        """Of the slurmstepds: each node's first rank has it."""
        work = [self.of_shape(shape, lambda lines: mean(value(line) for line in lines if line["local_rank"] == 0)) for shape in SHAPES]
        return least_squares([columns(nodes, ranks) for nodes, ranks in SHAPES], [max(seconds, 1e-9) for seconds in work])

    def constants(self):
        """By name: seconds, unit, and how it was found."""
        least = min(map(len, self.samples.values()))
        if not least or not self.pmi1:
            sys.exit("calibrate: all steps of a shape, or over PMI-1, failed; the lines above say why")
        start, fork = self.fit_servers(lambda line: line["launching"], lambda n, r: (1, r / n))
        _, init_server = self.fit_servers(lambda line: line["init"][3], lambda n, r: (1, r / n))
        fence_node, fence_server, hop_server, store_value = self.fit_servers(
            lambda line: line["fences"][3] / ROUNDS, lambda n, r: (1, r / n, n - 1, r * KEYS))
        gets = [(line["reads"][2] / len(lines), line["reads"][3] / len(lines))
                for shape in SHAPES for lines in self.samples[shape] for line in lines]
        loading = median(self.of_shape(s, lambda lines: mean(line["loading"] for line in lines)) for s in SHAPES)
        server_of_get = median(server for _, server in gets) / 1e9
        put_client = self.per_rank("fences", 2) / ROUNDS
        alone = (1, 1)
        fence = self.of_shape(alone, lambda lines: lines[0]["fence"][1] - lines[0]["fence"][0], min)
        init_wait = self.of_shape(alone, lambda lines: lines[0]["init"][1] - lines[0]["init"][0] - lines[0]["init"][2], min)
        steps = f"{least} steps each of {len(SHAPES)} shapes"
        cpu, wall = f"measured: CPU time, {steps}", f"measured: shortest of {steps}"
        return {
            "stepd_start": (start, "ms", f"{cpu}, of slurmstepd until its first task runs"),
            "task_fork": (fork, "us", f"{cpu}, of slurmstepd for each task of the node"),
            "task_exec": (loading, "ms", f"{cpu}, of a C program with libpmix at main()"),
            "init_client": (self.per_rank("init", 2), "us", cpu),
            "init_server": (init_server, "us", cpu),
            "init_wait": (max(init_wait, 0), "ms", f"{wall}: PMIx_Init of one rank, without its CPU time"),
            "local_message": (max(5e-6, (fence - put_client - fence_node - fence_server - store_value) / 2), "us",
                              f"{wall}: half of what one rank waits in a fence, 5 us at least"),
            "put_client": (put_client, "us", cpu),
            "fence_node": (fence_node, "us", cpu),
            "fence_server": (fence_server, "us", cpu),
            "hop_server": (hop_server, "us", cpu),
            "store_value": (store_value, "us", cpu),
            "get_client": (median(client for client, _ in gets) / 1e9, "us", cpu),
            "get_server": (server_of_get if server_of_get > 2e-6 else 0, "us",
                           f"{cpu}; 0: values come from shared memory, without a message"),
            "pmi_srun": (median(self.pmi1), "us", f"measured: CPU time, {len(self.pmi1)} pairs of steps of {PMI1[1]} ranks"),
        }


def renewed(text, constants):
    """The lines of constants.txt with other values; the meaning of each stays."""
    for name, (seconds, unit, how) in constants.items():
        line = f"{name} = {float(f'{seconds / UNITS[unit]:.4g}'):.10g} {unit}"
        text = re.sub(rf"^{name} = .*?  # (.*?); measured.*", lambda old: f"{line}  # {old[1]}; {how}", text, flags=re.M)
    return text


def main():
    with running("calibrate", "--nodes", "4", "--cpus", "16", "--no-plugin") as cluster:
        calibration = Calibration(cluster)
        for _ in range(TURNS):
            calibration.take_turn()
    machine = (f"cluster of namespaces on one machine with {os.cpu_count()} CPUs, Slurm {slurm_version()}, "
               f"Linux {platform.release().split('-')[0]}")
    text = re.sub(r"^date = .*\nmachine = .*", f"date = {datetime.date.today()}\nmachine = {machine}", CONSTANTS.read_text(), flags=re.M)
    CONSTANTS.write_text(renewed(text, calibration.constants()))


if __name__ == "__main__":
    main()

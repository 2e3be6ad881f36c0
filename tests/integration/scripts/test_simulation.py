"""scripts/simulate beside real runs of 2 to 64 ranks: constants from steps of other sizes, in turn with those predicted.

The cluster's nodes share the cores of this machine, with each other and with whatever else runs. The model knows
so: `machine_cores` is how much of them the calibrating steps got, in the same minutes. What is predicted is measured by
programs of its own: the exchange by bare PMIx, and the start of a process to the values of all ranks by libbootstrap,
of which no constant knows anything.
"""

import os
from collections import defaultdict
from statistics import median, quantiles
from types import SimpleNamespace

import pytest

from built_files import built

from benchmarks.table import aligned
from simulation.calibrate import CLUSTER, SHAPES, Calibration, probe, run_step
from simulation.model import Scenario, Step, read_constants

pytestmark = pytest.mark.full

PREDICTED = ((1, 2), (2, 4), (2, 8), (4, 16), (4, 32), (4, 64))  # nodes, ranks
BAND = 2.5  # simulated over measured, or the reverse; wider by what the measurements themselves vary, see Band
FEW = 8  # ranks, with which an exchange waits for messages more than it computes
MOST_BAND = 5  # with a wider one a constant that is ten times too large may pass


def simulate(measured, nodes, ranks):
    """The model's times of such a step, in milliseconds."""
    constants = SimpleNamespace(**read_constants() | {name: value for name, (value, *_) in measured.items()})
    scenario = Scenario(ranks, ranks // nodes, gets="all")
    phases = Step(constants, scenario, is_first=True).run("rank", is_launched=True)
    exchange = Step(constants, scenario).run("exchange")["gets"][1]
    times = {"exchange": exchange, "start": phases["gets"][1] - phases["tasks"][1], "launch": phases["tasks"][1]}
    return {quantity: 1e3 * time for quantity, time in times.items()}


def exchanges(lines):
    """Milliseconds from the first rank that puts to the last that has read the values of all, for each round."""
    for number in range(3):
        begin = min(line[f"fence{number}"][0] for line in lines)
        yield (max(line[f"reads{number}"][1] for line in lines) - begin) / 1e6


def launch(lines):
    return (max(line["started"] for line in lines) - lines[0]["srun"]) / 1e6


def start(lines):
    return (max(line["ended"] for line in lines) - max(line["started"] for line in lines)) / 1e6


class Measurements:
    """Samples in milliseconds, by quantity and shape."""

    def __init__(self, cluster):
        self.cluster, self.samples = cluster, defaultdict(list)

    def take_turn(self):
        for shape in PREDICTED:
            if lines := probe(self.cluster, *shape):
                self.samples["exchange", *shape] += exchanges(lines)
                self.samples["launch", *shape].append(launch(lines))
            if lines := run_step(self.cluster, *shape, "exchange_start"):
                self.samples["start", *shape].append(start(lines))


def tenths(values):
    found = quantiles(values, n=10, method="inclusive")
    return found[0], found[-1]


def variation(values):
    low, high = tenths(values)
    return max(high / median(values), median(values) / low)


# What of a step of one rank the constants for a quantity hang on most.
CALIBRATED = {
    "exchange": lambda line: [line[f"fence{number}"][1] - line[f"fence{number}"][0] for number in range(3)],
    "launch": lambda line: [line["started"] - line["srun"]],
    "start": lambda line: [line["init"][1] - line["init"][0]],
}


class Band:
    """The factor between simulated and measured that passes. Where the same step, or the same calibrating one, takes 3
    times as long now and then, as on a machine that others use, no prediction can be better than that."""

    def __init__(self, calibration):
        lines = [line for step in calibration.samples[1, 1] for line in step]
        self.of_constants = {quantity: variation([time for line in lines for time in times(line)])
                             for quantity, times in CALIBRATED.items()}

    def allowed(self, quantity, ranks, values):
        depends = quantity != "exchange" or ranks <= FEW
        return max(BAND, variation(values), self.of_constants[quantity] if depends else 1)


@pytest.fixture(scope="module")
def measured(cluster_factory, request):
    """Measurements, and the constants that were measured in turn with them."""
    for name in ("start_costs", "exchange_bench", "exchange_clock", "exchange_start"):
        built(f"tests/bench/{name}")
    cluster = cluster_factory("simulation").up(*CLUSTER)
    calibration, measurements = Calibration(cluster), Measurements(cluster)
    for _ in range(10 if request.config.getoption("--full") else 4):
        calibration.take_turn()
        measurements.take_turn()
    measurements.band = Band(calibration)
    return measurements, calibration.constants()


def compare(measurements, constants):
    """Rows of: quantity, nodes, ranks, measured values, simulated, ratio, the factor that is allowed."""
    for (quantity, nodes, ranks), values in measurements.samples.items():
        simulated = simulate(constants, nodes, ranks)[quantity]
        ratio = simulated / median(values)
        yield quantity, nodes, ranks, values, simulated, ratio, measurements.band.allowed(quantity, ranks, values)


def is_near(ratio, allowed):
    return max(ratio, 1 / ratio) <= allowed


def show(rows, capsys):
    table = [["", "nodes", "ranks", "measured", "p10-p90", "simulated", "ratio", "allowed", ""]]
    for quantity, nodes, ranks, values, simulated, ratio, allowed in rows:
        low, high = tenths(values)
        numbers = [f"{median(values):.1f} ms", f"{low:.1f}-{high:.1f}", f"{simulated:.1f} ms", f"{ratio:.2f}"]
        verdict = "" if is_near(ratio, allowed) else "OUTSIDE"
        table.append([quantity, str(nodes), str(ranks), *numbers, f"{allowed:.1f}", verdict])
    with capsys.disabled():
        print(f"\nsimulated beside measured, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs:")
        print("\n".join(aligned(table)))


def test_calibrates_at_other_sizes():
    assert not set(SHAPES) & set(PREDICTED)


def test_agrees_with_real_runs(measured, capsys):
    rows = list(compare(*measured))
    show(rows, capsys)
    assert len(rows) == 3 * len(PREDICTED)
    assert all(is_near(ratio, allowed) for *_, ratio, allowed in rows)


# What a constant that is wrong by this factor must change, and of which shape.
CONTROLS = {
    "get_client": ("exchange", 4, 64),
    "init_client": ("start", 4, 64),
    "stepd_start": ("launch", 4, 16),
    "machine_cores": ("exchange", 4, 32),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_wrong_constant(measured, name):
    """A constant ten times too large (cores: ten times too few) is noticed."""
    measurements, constants = measured
    value, unit, how = constants[name]
    wrong = value / 10 if name == "machine_cores" else value * 10
    for *shape, values, simulated, ratio, allowed in compare(measurements, constants | {name: (wrong, unit, how)}):
        if tuple(shape) != CONTROLS[name]:
            continue
        if allowed > MOST_BAND:
            pytest.skip(f"the same steps vary by a factor of {allowed:.1f}: the machine is too busy for this control")
        assert not is_near(ratio, allowed), f"{name} is wrong ten times, and {simulated:.1f} ms still fits {values}"

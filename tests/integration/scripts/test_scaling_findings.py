"""The scaling report's verdict and findings, on numbers made up for the purpose; no cluster."""

# SPDX-License-Identifier: Apache-2.0

import pytest

from scaling.cells import FAILED, NOT_RUN, Cell
from scaling.report import findings
from scaling.runner import Result
from scaling_results import made, rows_of


def sentences(results):
    return findings.all_findings(rows_of(results), results)


def verdict(results, hosts=2, machines=2):
    return findings.verdict(rows_of(results), hosts, machines)


def test_the_verdict_is_that_of_the_largest_sound_layout():
    base = made("gloo", 1, 1, 0.010, 0.0)
    assert verdict([base, made("gloo", 2, 1, 0.010, 0.005)]) == (
        "gloo trains mlp 1.33 times as fast with 2 processes (2 servers x 1) as one process would: 67 % of the ideal.")
    larger = [base, made("gloo", 2, 1, 0.010, 0.005), made("gloo", 2, 2, 0.010, 0.010)]
    assert verdict(larger).startswith("gloo trains mlp 2.00 times as fast with 4 processes (2 servers x 2)")
    mixed = [base, made("gloo", 1, 2, 0.010, 0.005), made("gloo", 1, 4, 0.010, 0.0, cores=2)]
    assert verdict(mixed).endswith("(1 server x 2) as one process would: 67 % of the ideal. "
                                   "The other layouts say nothing about scaling: 4 processes share 2 cores.")


@pytest.mark.parametrize("results, machines, why", [
    ([("gloo", 1, 1, {}), ("gloo", 1, 4, {"cores": 2})], 2, "4 processes share 2 cores"),
    ([("gloo", 1, 1, {}), ("gloo", 2, 1, {"machines": 1})], 1, "the 2 servers are 1 machine, with no network between them"),
    ([("gloo", 1, 1, {}), ("gloo", 1, 2, {"busy": 0.5})], 2, "other programs used the same cores"),
    ([("gloo", 1, 1, {"busy": 0.5}), ("gloo", 1, 2, {})], 2, "other programs used the same cores"),
    ([("gloo", 1, 1, {})], 2, "no cell has more than one process"),
])
def test_the_verdict_says_why_a_run_says_nothing(results, machines, why):
    cells = [made(backend, nodes, tasks, 0.010, 0.0, **more) for backend, nodes, tasks, more in results]
    assert verdict(cells, machines=machines) == f"This run says nothing about scaling: {why}."
    assert verdict([]) == "This run has no result: no cell gave numbers."


def test_findings_name_the_fastest_and_by_how_much():
    alike = [made("gloo", 1, 1, 0.010, 0.0), made("mpi", 1, 1, 0.0101, 0.0)]
    said = sentences([*alike, made("gloo", 2, 1, 0.010, 0.010), made("mpi", 2, 1, 0.010, 0.0)])
    assert any(line.startswith("Fastest: mpi in 1 of 1 comparison. The largest difference: mpi with mlp at 2 servers x 1 is 2.00 +- ")
               for line in said)
    assert any("and 50 % for gloo with mlp at 2 servers x 1, the most" in line for line in said)


def test_no_back_end_is_fastest_within_the_noise_between_runs():
    """With one process the two differ by 20 %, though there is nothing to exchange: 10 % prove nothing then."""
    noisy = [made("gloo", 1, 1, 0.010, 0.0), made("mpi", 1, 1, 0.012, 0.0)]
    pair = [made("gloo", 2, 1, 0.010, 0.001), made("mpi", 2, 1, 0.010, 0.0)]
    assert any(line.startswith("Fastest: none.") for line in sentences([*noisy, *pair]))
    quiet = [made("gloo", 1, 1, 0.010, 0.0), made("mpi", 1, 1, 0.010, 0.0)]
    assert not any(line.startswith("Fastest: none.") for line in sentences([*quiet, *pair]))


def test_no_back_end_is_fastest_within_the_spread():
    quiet = [made("gloo", 1, 1, 0.010, 0.0), made("mpi", 1, 1, 0.010, 0.0)]
    pair = [made("gloo", 2, 1, 0.010, 0.001, jitter=0.9, steps=9), made("mpi", 2, 1, 0.010, 0.0, jitter=0.9, steps=9)]
    assert any(line.startswith("Fastest: none.") for line in sentences([*quiet, *pair]))


def test_findings_say_where_efficiency_falls_under_one_half():
    base = made("gloo", 1, 1, 0.010, 0.0)
    low = sentences([base, made("gloo", 2, 1, 0.010, 0.005), made("gloo", 4, 1, 0.010, 0.030)])
    assert any("under 50 % in 1 of 2 cells, first for gloo with mlp at 4 servers x 1: 25 % +- 0" in line for line in low)
    high = sentences([base, made("gloo", 2, 1, 0.010, 0.005)])
    assert any("stays at or over 50 %. The least is 67 %, gloo with mlp at 2 servers x 1" in line for line in high)


def test_findings_say_what_crowded_cores_mean():
    crowded = sentences([made("gloo", 4, 1, 0.01, 0.0, cores=2, machines=1)])
    assert crowded[0].startswith("Oversubscribed: more processes than cores in 1 of 1 layout, from 4 processes on 2 cores on.")
    assert not any("Oversubscribed" in line for line in sentences([made("gloo", 4, 1, 0.01, 0.0)]))


def test_findings_say_that_others_used_the_cores():
    cells = [made("gloo", 1, 1, 0.01, 0.0), made("gloo", 2, 1, 0.01, 0.0, busy=0.6)]
    assert any(line.startswith("Disturbed: in 1 of 2 cells") and "60 % for gloo with mlp at 2 servers x 1" in line for line in sentences(cells))
    quiet = [made("gloo", 1, 1, 0.01, 0.0), made("gloo", 2, 1, 0.01, 0.0, busy=0.97)]
    assert not any("isturbed" in line for line in sentences(quiet))
    crowded = [made("gloo", 4, 1, 0.01, 0.0, cores=2, machines=1, busy=0.5)]  # these disturb each other, which is said already
    assert not any("isturbed" in line for line in sentences(crowded))


def test_an_efficiency_says_what_disturbed_it():
    base = [made("gloo", 1, 1, 0.010, 0.0), made("mpi", 1, 1, 0.010, 0.0)]
    said = sentences([*base, made("gloo", 2, 1, 0.010, 0.015, busy=0.5), made("mpi", 2, 1, 0.010, 0.0)])
    assert said[-1].endswith("gloo with mlp at 2 servers x 1: 40 % +- 0; other programs disturbed it.")
    said = sentences([made("gloo", 1, 1, 0.010, 0.0, busy=0.5), made("gloo", 2, 1, 0.010, 0.015)])
    assert said[-1].endswith("40 % +- 0; other programs disturbed the run with one process.")


def test_findings_name_what_failed_and_what_was_not_run():
    said = sentences([Result(Cell("mpi", "cnn", 2, 2), FAILED, "rank 3 died"), Result(Cell("nccl", "cnn", 1, 1), NOT_RUN, "no GPU"),
                      Result(Cell("nccl", "mlp", 1, 1), NOT_RUN, "no GPU")])
    assert said == ["Failed: 1 cell. mpi, cnn, 2 servers x 2: rank 3 died.", "Not run: 2 cells (nccl): no GPU."]
    many = sentences([Result(Cell("mpi", "cnn", nodes, 2), FAILED, "rank 3 died") for nodes in range(1, 6)])
    assert many[0].startswith("Failed: 5 cells. ") and many[0].endswith("; and 2 more.") and many[0].count("rank 3 died") == 3


def test_there_are_at_most_seven_findings():
    everything = [Result(Cell("mpi", "cnn", 2, 2), FAILED, "rank 3 died"), Result(Cell("nccl", "cnn", 1, 1), NOT_RUN, "no GPU")]
    everything += [made(backend, nodes, tasks, 0.010, 0.001 * tasks, cores=2, busy=0.5) for backend in ("gloo", "mpi")
                   for nodes, tasks in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 4))]
    assert len(sentences(everything)) == 7

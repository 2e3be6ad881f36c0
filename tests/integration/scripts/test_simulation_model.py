"""The model of scripts/simulate where the answer can be computed by hand, and the output and the refusals of the script."""

import itertools
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts" / "simulation"))

from model import Cores, Scenario, Step
from other_ways import Direct, Pmi1
from SimPy.Simulation import Process, Simulation

SIMULATE = REPOSITORY / "scripts/simulate"
CONSTANTS = REPOSITORY / "scripts/simulation/constants.txt"
# Nothing takes any time but what a test sets.
NAMES = [line.split(" = ")[0] for line in CONSTANTS.read_text().splitlines() if " = " in line and line[0] != "#"]
NOTHING = dict.fromkeys(NAMES, 0) | {
    "tree_width": 16, "link": 1e18, "called_ranks": 1e9, "root_backlog": 1e9, "store_backlog": 1e9, "connect_retry": 1,
    "store_retry": 1, "stagger_threshold": 256, "stagger_rate": 7000}


def ends(steps, scenario, is_launched=False, is_listening=False, is_first=False, kind=Step, **constants):
    step = kind(SimpleNamespace(**NOTHING | constants), scenario, is_first, is_listening)
    return {phase: end for phase, (_, end) in step.run(steps, is_launched).items()}


def fence(nodes, kind="ring", **constants):
    return ends("exchange", Scenario(nodes, 1, 1, kind), **constants)["fence"]


def run(*options):
    return subprocess.run([SIMULATE, *map(str, options)], capture_output=True, text=True)


@pytest.mark.parametrize(("count", "jobs", "wanted"), [
    (0, [(0, 1), (0, 2), (0, 3)], [1, 2, 3]),
    (1, [(0, 1), (0, 2), (0, 3)], [3, 5, 6]),
    (1, [(0, 3), (0, 2), (0, 1)], [6, 5, 3]),
    (2, [(0, 4)], [4]),
    (2, [(0, 1), (0, 1), (0, 2)], [1.5, 1.5, 2.5]),
    (0.5, [(0, 1)], [2]),
    (1, [(0, 2), (1, 2)], [3, 4]),  # alone for 1, then half as fast
    (1, [(0, 2), (1, 0.25)], [2.25, 1.5]),
])
def test_cores_are_shared_equally(count, jobs, wanted):
    simulation, found = Simulation(), {}
    cores = Cores(simulation, count)

    def steps(me, number, work):
        yield from cores.run(me, work)
        found[number] = simulation.now()

    for number, (begin, work) in enumerate(jobs):
        process = Process(sim=simulation)
        simulation.activate(process, steps(process, number, work), at=begin)
    simulation.simulate(until=1000)
    assert [found[number] for number in range(len(jobs))] == pytest.approx(wanted)


@pytest.mark.parametrize("nodes", [1, 2, 3, 10, 100, 256, 257, 500])  # by messages up to 256, by hops above
def test_ring_takes_a_hop_for_each_other_node(nodes):
    assert fence(nodes, hop=1) == pytest.approx(nodes - 1)
    assert fence(nodes, hop=1, hop_server=0.5) == pytest.approx(1.5 * (nodes - 1))
    assert fence(nodes, link=250, value_bytes=250) == pytest.approx(nodes - 1)


@pytest.mark.parametrize(("nodes", "kind", "hop", "wanted"),
                         [(20, "ring", 1, (26, 27)), (300, "ring", 1, (306, 307)), (20, "tree", 0, (8, 8))])
def test_no_rank_is_released_before_the_last_has_come(nodes, kind, hop, wanted):
    """The last node has one rank instead of eight, and is ready at 1 instead of 8; the one before it has all values one hop sooner."""
    step = Step(SimpleNamespace(**NOTHING | {"fence_server": 1, "hop": hop}), Scenario(8 * nodes - 7, 8, 1, kind))
    assert step.run("exchange")["gets"] == pytest.approx(wanted)


@pytest.mark.parametrize(("nodes", "levels"), [(1, 0), (2, 1), (5, 1), (6, 2), (21, 2), (22, 3), (85, 3)])
def test_tree_takes_two_hops_for_each_level(nodes, levels):
    assert fence(nodes, "tree", hop=1, tree_width=4) == pytest.approx(2 * levels)


def test_tree_carries_all_bytes_to_each_child():
    """The root receives one byte of each of 4 children, one after the other, and sends all 5 to each of them."""
    assert fence(5, "tree", link=1, value_bytes=1) == pytest.approx(4 + 4 * 5)


def test_roots_serve_their_ranks_one_after_the_other():
    assert ends("check_in", Scenario(200, 8, 1), root_rank=1)["roots"] == pytest.approx(200)
    # Each run of 50 ranks, and the first of the next run that checks in here, too.
    assert ends("check_in", Scenario(200, 8, 4), root_rank=1)["roots"] == pytest.approx(50.5)


def test_nccl_delays_ranks_of_a_root_above_its_threshold():
    assert ends("check_in", Scenario(256, 8, 1))["roots"] == 0
    assert ends("check_in", Scenario(10_000, 8, 1))["roots"] == pytest.approx(9_999 / 7000)
    assert ends("check_in", Scenario(10_000, 8))["roots"] == 0


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 40])
def test_roots_answer_each_rank_once(ranks):
    for roots in range(1, ranks + 1):
        step = Step(SimpleNamespace(**NOTHING | {"root_rank": 1}), Scenario(ranks, 4, roots))
        assert "nccl_ring" in step.run("check_in") and step.met == ranks


def test_roots_turn_away_what_is_beyond_the_backlog():
    """100 are accepted each time: after 0, 1, 3, 7, 15, 31, 63 and 127 seconds; then the program begins anew, after 128 and 130."""
    slow = {"stagger_threshold": 1e9, "root_rank": 1e-4}
    assert ends("check_in", Scenario(1000, 8, 1), **slow)["roots"] == pytest.approx(0.1)
    assert ends("check_in", Scenario(1000, 8, 1), root_backlog=100, **slow)["roots"] == pytest.approx(130, abs=0.1)


def test_values_that_are_read():
    """4 roots, and the claims of the 8 ranks of the node; or all."""
    assert ends("exchange", Scenario(1024), get_client=1)["gets"] == pytest.approx(4 + 8)
    assert ends("exchange", Scenario(1024, gets="all"), get_client=1)["gets"] == pytest.approx(1024)
    assert ends("exchange", Scenario(1024), get_server=1)["gets"] == pytest.approx(8 * (4 + 8))


def test_direct_gets():
    """16 nodes, with roots on nodes 0, 4, 8 and 12: a fence without data by the tree, and then questions and answers."""
    def direct(is_first=False, **constants):
        return ends("exchange", Scenario(64, 4, 4, "tree"), kind=Direct, is_first=is_first, **constants)

    assert direct(hop=1)["fence"] == pytest.approx(2 + 2)
    assert direct(store_value=1, value_bytes=1)["gets"] == pytest.approx(0)
    assert direct(direct_ask=1)["gets"] == pytest.approx(4)
    assert direct(direct_answer=1)["gets"] == pytest.approx(15)
    assert direct(direct_ask=1, direct_answer=1)["gets"] == pytest.approx(4 + 15)  # who answers has asked first
    assert direct(direct_connect=1, direct_accept=1)["gets"] == 0
    assert direct(True, direct_connect=1, direct_accept=1)["gets"] == pytest.approx(4 + 15)
    two_roots_a_node = ends("exchange", Scenario(64, 32, 4, "tree"), kind=Direct, direct_answer=1)
    assert two_roots_a_node["gets"] == pytest.approx(2)
    assert ends("exchange", Scenario(8), kind=Direct, direct_answer=1)["gets"] == 0  # no other node to ask


def test_pmi1_lets_ranks_send_in_turns():
    """The last rank puts at the end of the first turn and asks at the end of the second one; rank 0 does not wait."""
    def pmi1(ranks, **constants):
        return ends("exchange", Scenario(ranks), kind=Pmi1, **constants)["gets"]

    assert pmi1(100, pmi_slot=1, hop=1e-6) == pytest.approx(99 + 100, abs=1e-3)
    assert pmi1(100, pmi_srun=1, pmi_slot=1e-6) == pytest.approx(100, abs=1e-3)
    # All values go to each node over the link of srun's.
    assert pmi1(80, value_bytes=1, link=1, pmi_slot=1e-6) == pytest.approx(10 * 80, abs=81)


def test_launch_goes_down_a_tree():
    """4 nodes are reached after one hop, 4 + 16 after two, 4 + 16 + 64 after three."""
    for nodes, hops in ((1, 1), (4, 1), (5, 2), (20, 2), (84, 3)):
        assert ends("rank", Scenario(nodes, 1), True, launch_hop=1, tree_width=4)["launch"] == pytest.approx(hops)


def test_store_serves_all_ranks_with_one_thread():
    listening = ends("store", Scenario(101), True, is_listening=True, store_rank=1)
    assert listening["store"] - listening["tasks"] == pytest.approx(100)
    late = ends("store", Scenario(101), True, store_rank=1, store_listen=0.5)
    assert late["store"] - late["tasks"] == pytest.approx(101)  # all try again after 1 s


def test_constants_have_origins_and_take_the_place_of_the_usual_ones(tmp_path):
    assert len(NAMES) == 52  # with date and machine
    path = tmp_path / "mine.txt"
    path.write_text("machine = another\nring_step = 2 s  # assumed\n")
    report = json.loads(run("--ranks", 10, "--constants", path, "--json").stdout)
    assert report["machine"] == "another" and report["sizes"][0]["nccl_ring_ms"] == 3 * 5 * 2000


@pytest.mark.parametrize("line", [
    "hpo = 1 ms  # assumed", "hop = 1 ms", "hop = 1 ms  # so it is", "hop = 1 B  # assumed", "hop = -1 ms  # assumed", "hop",
    "hop = nan s  # assumed", "connect_retry = 0 s  # assumed", "tree_width = 1  # assumed", "link = 0 Gb/s  # assumed",
    "pmi_slot = 0 us  # assumed"])
def test_refuses_constants(tmp_path, line):
    path = tmp_path / "mine.txt"
    path.write_text(f"# mine\n{line}\n")
    done = run("--ranks", 10, "--constants", path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith(f"simulate: {path}, line 2: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [("--ranks", 0), ("--ranks", 1_000_001), ("--ranks", 4, "--roots", 5), ("--ranks-per-node", 0),
                                     ("--constants", "/nowhere")])
def test_refuses_what_it_cannot_do(options):
    done = run(*options)
    assert done.returncode == 1 and done.stderr.startswith("simulate: ") and done.stderr.count("\n") == 1


def test_names_what_is_missing():
    """With a Python that does not see Debian's packages."""
    done = subprocess.run([sys.executable, "-S", SIMULATE], capture_output=True, text=True)
    assert done.returncode == 1 and "python3-simpy" in done.stderr and "scripts/setup" in done.stderr


def test_table():
    lines = run("--ranks", 1000).stdout.splitlines()
    assert lines[0].startswith("simulated with constants of 20")
    rows = [line.split() for line in lines if line[:5].strip().isdigit()]
    assert [row[:3] for row in rows] == 2 * [["100", "13", "1"], ["1000", "125", "4"]]


def test_phases_follow_each_other_and_grow_with_ranks():
    reports = json.loads(run("--ranks", 1000, "--json").stdout), json.loads(run("--ranks", 2000, "--json").stdout)
    for report in reports:
        phases = report["time_line"]["phases"]
        assert len(phases) == 7
        for before, after in itertools.pairwise(phases):
            assert before["begins_ms"] <= after["begins_ms"] and before["ends_ms"] <= after["ends_ms"]
    for few, many in zip(*(report["time_line"]["phases"] for report in reports)):
        assert few["ends_ms"] < many["ends_ms"]


def test_seed():
    def forecast(seed):
        return run("--ranks", 520, "--ranks-per-node", 2, "--seed", seed, "--json").stdout

    assert forecast(5) == forecast(5)
    ends_of = [json.loads(forecast(seed))["time_line"]["phases"][-1]["ends_ms"] for seed in (0, 5, 6)]
    assert len(set(ends_of)) == 3 and max(ends_of) < 2 * min(ends_of)

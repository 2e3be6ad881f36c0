"""The model of scripts/simulate where the answer can be computed by hand, and the output and the refusals of the script."""

import itertools
import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness import REPOSITORY

from simulation.model import CONSTANTS, Scenario, Step, read_constants

SIMULATE = REPOSITORY / "scripts/simulate"
# Nothing takes any time but what a test sets.
NOTHING = dict.fromkeys(read_constants(), 0) | {
    "tree_width": 16, "link": 1e18, "called_ranks": 1e9, "stagger_threshold": 256, "stagger_rate": 7000}


def ends(steps, scenario, is_launched=False, is_first=False, **constants):
    step = Step(SimpleNamespace(**NOTHING | constants), scenario, is_first)
    return {phase: end for phase, (_, end) in step.run(steps, is_launched).items()}


def fence(nodes, kind="ring", **constants):
    return ends("exchange", Scenario(nodes, 1, 1, kind), **constants)["fence"]


def run(*options):
    return subprocess.run([SIMULATE, *map(str, options)], capture_output=True, text=True)


@pytest.mark.parametrize("nodes", [1, 2, 3, 10, 100])
def test_ring_takes_a_hop_for_each_other_node(nodes):
    assert fence(nodes, hop=1) == pytest.approx(nodes - 1)
    assert fence(nodes, hop=1, hop_server=0.5) == pytest.approx(1.5 * (nodes - 1))
    assert fence(nodes, link=250, value_bytes=250) == pytest.approx(nodes - 1)


@pytest.mark.parametrize(("nodes", "kind", "hop", "wanted"),
                         [(20, "ring", 1, (26, 27)), (20, "tree", 0, (8, 8))])
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
    assert ends("check_in", Scenario(200, 8, 4), root_rank=1)["roots"] == pytest.approx(50)


def test_nccl_delays_ranks_of_a_root_above_its_threshold():
    assert ends("check_in", Scenario(256, 8, 1))["roots"] == 0
    assert ends("check_in", Scenario(10_000, 8, 1))["roots"] == pytest.approx(9_999 / 7000)
    assert ends("check_in", Scenario(10_000, 8))["roots"] == 0


def test_values_that_are_read():
    """4 roots, and the claims of the 8 ranks of the node."""
    assert ends("exchange", Scenario(1024), get_client=1)["gets"] == pytest.approx(4 + 8)
    assert ends("exchange", Scenario(1024), get_server=1)["gets"] == pytest.approx(8 * (4 + 8))


def test_pmi1_lets_ranks_send_in_turns():
    """The last rank puts at the end of the first turn and asks at the end of the second one; rank 0 does not wait."""
    def pmi1(ranks, **constants):
        return ends("exchange", Scenario(ranks, fence="pmi1"), **constants)["gets"]

    assert pmi1(100, pmi_slot=1, hop=1e-6) == pytest.approx(99 + 100, abs=1e-3)
    assert pmi1(100, pmi_srun=1, pmi_slot=1e-6) == pytest.approx(100, abs=1e-3)
    # All values go to each node over the link of srun's.
    assert pmi1(80, value_bytes=1, link=1, pmi_slot=1e-6) == pytest.approx(10 * 80, abs=81)


def test_launch_goes_down_a_tree():
    """4 nodes are reached after one hop, 4 + 16 after two, 4 + 16 + 64 after three."""
    for nodes, hops in ((1, 1), (4, 1), (5, 2), (20, 2), (84, 3)):
        assert ends("rank", Scenario(nodes, 1), True, launch_hop=1, tree_width=4)["launch"] == pytest.approx(hops)


def test_the_first_message_between_two_nodes_takes_longer():
    assert ends("exchange", Scenario(80), is_first=True, hop=1, first_hop=5)["fence"] == pytest.approx(9 + 5)


def test_constants_have_origins():
    lines = [line for line in CONSTANTS.read_text().splitlines() if " = " in line and not line.startswith(("#", "date", "machine"))]
    assert [line for line in lines if not any(origin in line for origin in ("measured", "computed", "read in", "assumed"))] == []
    assert len(lines) + 2 == len(read_constants())
    assert (read_constants()["link"], read_constants()["hop"]) == pytest.approx((1.25e9, 50e-6))


@pytest.mark.parametrize("options", [("--ranks", 0), ("--ranks", 1_000_001), ("--ranks-per-node", 0)])
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
    assert [row[:3] for row in rows] == [["100", "13", "1"], ["1000", "125", "4"]]
    # Of a table with ten columns, whose times have a unit.
    assert [len(row) for row in rows] == [3 + 2 * 7, 3 + 2 * 7]


def test_phases_follow_each_other_and_grow_with_ranks():
    few, many = (Step(SimpleNamespace(**read_constants()), Scenario(ranks), is_first=True).run("rank", is_launched=True)
                 for ranks in (1000, 2000))
    assert len(few) == 7 and list(few) == list(many)
    for before, after in itertools.pairwise(few.values()):
        assert before[0] <= after[0] and before[1] <= after[1]
    assert all(few[phase][1] < many[phase][1] for phase in few)

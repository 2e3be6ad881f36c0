"""scripts/simulate: cases whose result can be computed by hand, and refusals."""


import pytest

from harness import REPOSITORY, load_script, run_here

SCRIPT = REPOSITORY / "scripts/simulate"


@pytest.fixture
def simulate(monkeypatch):
    """A child, a hop and a slot have no cost unless a test sets one."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = load_script("simulate")
    module.LAUNCH_CHILD, module.TREE_WIDTH = 0, 4
    return module


@pytest.mark.parametrize(("nodes", "hops"), [(1, 1), (4, 1), (5, 2), (20, 2), (84, 3)])
def test_launch_goes_down_a_tree(simulate, nodes, hops):
    """One hop reaches 4 nodes, two hops 4 + 16, three hops 4 + 16 + 64."""
    assert simulate.reach(nodes) == pytest.approx(hops * simulate.LAUNCH_HOP)


def test_nccl_delays_ranks_of_a_root_above_its_threshold(simulate):
    few, many = (simulate.check_in(ranks) - simulate.ROOT_CONNECT - 2 * simulate.HOP for ranks in (256, 10_000))
    assert few == pytest.approx(256 * simulate.ROOT_RANK) and many == pytest.approx(10_000 / 7000, rel=1e-3)


@pytest.mark.parametrize(("way", "nodes", "hops"), [("RING", 2, 1), ("RING", 10, 9), ("TREE", 2, 2), ("TREE", 5, 2), ("TREE", 6, 4),
                                                    ("TREE", 21, 4), ("TREE", 22, 6)])  # fmt: skip
def test_a_fence_takes_a_hop_for_each_other_node_or_two_for_each_level(simulate, way, nodes, hops):
    before = simulate.forecast(nodes, 1)[f"exchange, {way}"]
    simulate.HOP += 1
    assert simulate.forecast(nodes, 1)[f"exchange, {way}"] - before == pytest.approx(hops)


def test_pmi1_lets_ranks_send_twice_in_turns(simulate):
    simulate.VALUE_BYTES = 0
    assert simulate.forecast(100, 8)["exchange, PMI-1"] == pytest.approx(2 * 100 * simulate.PMI_SLOT)


def test_the_table_has_its_rows():
    done = run_here([SCRIPT, "--ranks", "1000"])
    rows = [line.rsplit(maxsplit=2) for line in done.stdout.splitlines()[2:5]]
    assert rows == [["ranks", "100", "1000"], ["nodes", "13", "125"], ["NCCL's roots", "1", "4"]], done


@pytest.mark.parametrize("options", [("--ranks", "0"), ("--ranks", "1000001"), ("--ranks-per-node", "0")])
def test_simulate_refuses_what_it_cannot_do(options):
    done = run_here([SCRIPT, *options])
    assert done.returncode == 1 and done.stderr.startswith("simulate: ") and done.stderr.count("\n") == 1

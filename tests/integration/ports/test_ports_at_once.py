"""Fifty steps at once on the same nodes: none shares its port with another, and a step whose port is taken reports it."""

# SPDX-License-Identifier: Apache-2.0

import time
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import TESTS
from port_steps import REFUSAL, allocation, peers, step_line

STEPS, IN_FEW_PORTS = 50, 16
PATIENCE = 60  # seconds until those that are there go on without the others
# Eight ports, which no other program takes.
FEW_PORTS = ("--bootstrap-port-range=28000-28007", "--bootstrap-frameworks=none")
# Each rank is there, waits for the word to go on, and then meets the others of its step at its port. Rank 0 stays for
# two seconds: steps that share a port have it at the same time.
MEET = (f": > $1.$SLURM_STEP_ID.$SLURM_PROCID; until [ -e $1.go ]; do sleep 0.3; done; "
        f"exec python3 -I -S {TESTS}/ports/port_peer.py meet 0 0 2")  # fmt: skip

Round = namedtuple("Round", "shared words refused slowest late")


@pytest.fixture(scope="module", params=["computed", "reserved"])
def ports(request, cluster_factory):
    """A cluster where ports are computed, and one where Slurm reserves them, with a job on two nodes."""
    reserved = ("--set", "MpiParams=ports=12000-12999") if request.param == "reserved" else ()
    cluster = cluster_factory(f"at-once-{request.param}").up("--cpus", "64", "--plugin-args", "when=always", *reserved)
    with allocation(cluster, "-N2") as job:
        yield request.param, cluster, job


def run_round(cluster, job, count, label, *options):
    """Steps of two ranks on two nodes, none of which meets before all have started or were refused."""
    home, began = cluster.home, time.monotonic()
    line = [*step_line(job, 2, 2, *options), "/bin/sh", "-c", MEET, "meet", f"/home/alice/{label}"]

    def run(_):
        done = cluster.run(line, timeout=PATIENCE + 60)
        return done, time.monotonic() - began

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(run, number) for number in range(count)]
        while time.monotonic() - began < PATIENCE:
            there = {path.name.split(".")[1] for path in home.glob(f"{label}.*.0")}
            if len(there) + sum(step.done() for step in running) >= count:
                break
            time.sleep(0.1)
        all_started = time.monotonic() - began
        (home / f"{label}.go").touch()
        ended = [step.result() for step in running]
    refused = [(done, seconds) for done, seconds in ended if done.returncode != 0 and REFUSAL.search(done.stderr)]
    for done, _ in refused:
        assert len(REFUSAL.findall(done.stderr)) == 1 and not peers(done.stdout), done.stderr
    met = [peer for done, _ in ended for peer in peers(done.stdout)]
    steps_of_port = Counter(port for _, port in {(peer.step, peer.port) for peer in met})
    slowest = max((seconds for _, seconds in refused), default=0)
    return Round(sum(steps > 1 for steps in steps_of_port.values()), Counter(peer.word for peer in met), len(refused),
                 slowest, slowest > all_started + 5)  # fmt: skip


def test_fifty_steps_at_once_share_no_port(ports, campaign, capsys, figure):
    kind, cluster, job = ports
    found = [run_round(cluster, job, STEPS, f"round-{number}") for number in campaign.each(range(campaign.size(20, 1)))]
    rounds = len(found)
    words = sum((each.words for each in found), Counter())
    shared, refused = sum(each.shared for each in found), sum(each.refused for each in found)
    got = f"{rounds} rounds of {STEPS} steps: {shared} shared ports, {refused} refused, {words['cross-talk']} met another step"
    with capsys.disabled():
        print(f"\nports at once, {kind}: {got}; {dict(words)}")
    right = {"served": rounds * STEPS - refused, "joined": rounds * STEPS - refused}
    figure("Q2", part=kind, got=got, met=not shared and words == right and not (kind == "reserved" and refused),
           control="eight ports for sixteen steps: eight at least are refused; without the claim they share ports")  # fmt: skip
    assert words == right
    assert not shared and not any(each.late for each in found)
    assert kind == "computed" or not refused


def test_control_where_ports_are_too_few_each_collision_is_reported(ports):
    kind, cluster, job = ports
    if kind == "reserved":
        pytest.skip("Slurm's reservation is used before the range is")
    held = run_round(cluster, job, IN_FEW_PORTS, "few", *FEW_PORTS)
    # The port of a step cannot be known before, so that some of the eight may stay free.
    assert IN_FEW_PORTS - 8 <= held.refused < IN_FEW_PORTS and not held.shared and not held.late, held
    assert held.words == {word: IN_FEW_PORTS - held.refused for word in ("served", "joined")}, held
    unheld = run_round(cluster, job, IN_FEW_PORTS, "unheld", *FEW_PORTS, "--bootstrap-claim=off")
    assert unheld.refused == 0 and unheld.shared, unheld
    assert unheld.words["in-use"] + unheld.words["cross-talk"], unheld

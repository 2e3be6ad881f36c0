"""One rank dies, stops or ends at a bad moment: the call ends in time on all other ranks, and names the missing ranks."""

import random
import re
from collections import namedtuple

import pytest

from built_files import program
from exchange_steps import HINT, STAY, are_in_time, are_told_of, failures, missing_ranks, run_step, sentences, successes
from harness import module_cluster

DEADLINE = 2.0  # seconds, of each call
NODES, PER_NODE, ROUNDS = 2, 3, 2
RANKS = NODES * PER_NODE
AT_ONCE = 4
LIMIT = 30  # seconds of a step
PLACES = {"rank 0": 0, "its node": 1, "other node": RANKS - 1}
FAULTS = ("kill", "stop", "exit", "exec", "abort", "sleep")
# The round of the fault, and the milliseconds after the begin of its call. The number of all rounds means after the last one.
POINTS = ((0, 0), (0, 1), (0, 3), (0, 6), (0, 12), (0, 20), (1, 0), (ROUNDS, 0))

Case = namedtuple("Case", "fault place before delay")

# The timeout is long, so that no node is drained because of a slurmstepd that does not end: see is_held().
faults_cluster = module_cluster("faults", "--nodes", "4", "--cpus", "64", "--no-plugin", "--set", "UnkillableStepTimeout=3600")


def run_case(cluster, case, name):
    # srun would wait for a rank that only sleeps: -W ends the step a second after the first rank has ended.
    lasting = case.fault in ("stop", "sleep", "exec")
    options = ("--mpi=pmix", "--unbuffered", "-J", name, *(["-W", "1"] if lasting else []))
    command = [program("exchange_probe"), "--timeout", str(int(DEADLINE * 1000)), "--rounds", str(ROUNDS)]
    command += ["--victim", str(PLACES[case.place]), "--fault", case.fault]
    command += ["--before", str(case.before), "--delay", str(case.delay)]
    # On a busy machine a rank may start more than DEADLINE after the others, so the first rounds have the default timeout.
    command += ["--timed-from", str(min(case.before, ROUNDS - 1))]
    step = run_step(cluster, NODES, PER_NODE, *command, options=options, limit=LIMIT)
    if is_held(step):
        release(cluster, name)
    return step


def release(cluster, name):
    """Ends the rest of a job, which would keep CPUs of its nodes from later jobs."""
    for job in cluster.run(["squeue", "-h", "--name", name, "-o", "%A"]).stdout.split():
        cluster.run(["scancel", job])
        for node in cluster.nodes:
            cluster.run(["pkill", "-KILL", "-f", f"^slurmstepd: .{job}[.]"], user="root", node=node)


def is_held(step):
    """True if the step did not end. If all its ranks did, slurmstepd hangs: with PMIx 4.2.2 a rank that ends while it
    connects ("UNREACHABLE" in the server's connection handler, 25 of 105 steps when tried on purpose) blocks its
    slurmstepd for ever, with the last messages of its ranks. No rank can prevent this."""
    return step.returncode in (124, 137) and step.seconds > LIMIT - 1


def faults_of(case, step):
    """What is wrong with the outcome, as sentences; [] if nothing is."""
    victim, wrong = PLACES[case.place], []
    survivors = set(range(RANKS)) - {victim}
    if "WRONG" in step.stderr:
        wrong.append("a wrong value")
    told = {failure.rank for failure in failures(step)} | successes(step)
    elsewhere = {rank for rank in survivors if rank // PER_NODE != victim // PER_NODE}
    if is_held(step) and not told >= elsewhere:
        wrong.append("a rank hung")
    took = [failure.milliseconds for failure in failures(step)]
    if not are_in_time(step.seconds - STAY, took, DEADLINE * 1000):
        wrong.append("a call came back too late")
    if step.returncode == 0 and not successes(step) >= survivors:
        wrong.append("exit 0 of a failed step")
    if case.delay == 0 and case.before < ROUNDS:
        if successes(step):
            wrong.append("success without the victim")
        if not all(f"rank {victim} (" in text or "all of node" in text for rank, text in sentences(step)):
            wrong.append("the victim is not named")
    if case.before == ROUNDS and not successes(step) >= survivors:
        wrong.append("a fault after the last call was felt in it")
    return wrong


def test_control_bare_pmix_reports_a_false_success_or_hangs(faults_cluster):
    """A rank ends before its fence: with PMIx alone another rank reports a success, or the step does not end."""
    step = run_step(faults_cluster, NODES, 2, program("exchange_bare"), "1", "3", options=("--mpi=pmix", "-W", "20"), limit=8)
    assert "success" in step.stdout or step.returncode in (124, 137), step


def test_all_missing_ranks_of_a_node_are_one_item(faults_cluster):
    """All ranks of a node never call: they are one item of the list."""
    script = f"if ((SLURM_NODEID == 1)); then exec sleep 20; fi; exec {program('exchange_probe')} --timeout 2000"
    step = run_step(faults_cluster, 3, 4, "bash", "-c", script, options=("--mpi=pmix", "-W", "5"))
    told = dict(sentences(step))
    assert set(told) == {0, 1, 2, 3, 8, 9, 10, 11} and len(sentences(step)) == 8, step
    assert are_told_of(told, "ranks 4-7 (all of node002)"), told


@pytest.mark.parametrize("before", [0, 1, 2, 3, 6])
def test_a_rank_that_does_not_call_again_is_named_by_all(faults_cluster, before):
    """From the third round on the servers have values of earlier rounds, which must not hide that the rank is missing."""
    fault = ("--fault", "sleep", "--seconds", "8", "--victim", "4", "--before", str(before), "--timed-from", str(before))
    step = run_step(faults_cluster, 2, 3, program("exchange_probe"), "--rounds", "7", "--timeout", "3000", *fault, keeps_hint=True)
    named = re.findall(r"missing: .*", step.stdout + step.stderr)
    assert len(named) == 5 and set(named) == {f"missing: rank 4 (node002, local rank 1){HINT}"}, step


def leave_with_a_node(cluster, nodes, per_node, gone):
    """The message of each rank after all ranks of one node have ended with success, while the others are in their call. Slurm's
    PMIx tries for 31 s to reach such a node, and does not answer meanwhile: the state of other nodes may be unknown."""
    # Only after a second: while nodes still connect to each other, Slurm would kill the step.
    script = f"if ((SLURM_NODEID == {gone})); then exec sleep 1; fi; exec {program('exchange_probe')} --timeout 2000"
    # All ranks must report: without the option srun ends the step when the first one fails.
    step = run_step(cluster, nodes, per_node, "bash", "-c", script, options=("--mpi=pmix", "--kill-on-bad-exit=0"))
    told = dict(sentences(step))
    assert set(told) == {rank for rank in range(nodes * per_node) if rank // per_node != gone}, step
    assert are_in_time(step.seconds - STAY, [failure.milliseconds for failure in failures(step)], 2000), step
    return told, set(range(gone * per_node, (gone + 1) * per_node))


@pytest.mark.parametrize("nodes, per_node, gone, name", [
    (4, 1, 2, "rank 2 (node003, local rank 0)"),
    (4, 3, 2, "ranks 6-8 (all of node003)"),
    (2, 2, 1, "ranks 2-3 (all of node002)"),
])  # fmt: skip
def test_a_node_where_all_ranks_have_ended_is_named_and_no_other(faults_cluster, nodes, per_node, gone, name):
    told, named = leave_with_a_node(faults_cluster, nodes, per_node, gone)
    assert all(named <= missing_ranks(text) for text in told.values()), told
    # A server that queries the ended node does not answer for 31 s. Its own rank knows the node that it queried. To other ranks
    # this server's node may look ended, too: they name both nodes, with the remark that the state is unknown.
    exact = f"missing: {name}, and perhaps others; slurmstepd on this node stopped answering after it queried node{gone + 1:03}"
    # A server that already queried the node before its end, when the nodes connected (Slurm before 23.02), does answer.
    knows = f"missing or state unknown: {name}"
    knowing = {rank: text for rank, text in told.items() if exact in text or text.endswith(knows)}
    assert knowing, "\n".join(f"{rank}: {told[rank]}" for rank in told)
    of_others = [text for rank, text in told.items() if rank not in knowing]
    assert all("missing or state unknown: " in text and not missing_ranks(text, surely=True) for text in of_others), told


def test_a_rank_that_waits_for_its_neighbour_is_not_called_missing(faults_cluster):
    """If MPI is loaded, ranks of a node meet before the fence. A rank that waits there for a rank that never comes, with a
    later deadline than the others, is not called missing, also in a round for which the servers have old values."""
    script = f"""case $SLURM_PROCID in
      0) fault="--victim 0 --fault sleep --before 2 --timeout 2000" ;;
      1) fault="--victim 1 --fault sleep --before 2 --seconds 1 --timeout 20000" ;;
      *) fault="--timeout 4000" ;;
    esac
    LD_PRELOAD=libmpi.so.40 exec {program("exchange_probe")} --rounds 3 --timed-from 2 $fault"""
    loads_mpi = faults_cluster.run(["sh", "-c", "LD_PRELOAD=libmpi.so.40 exec true"])
    if loads_mpi.stderr:
        pytest.skip("Open MPI is not installed")
    step = run_step(faults_cluster, 2, 2, "bash", "-c", script, options=("--mpi=pmix", "-W", "1"))
    told = {rank: text for rank, text in sentences(step) if rank >= 2}
    assert set(told) == {2, 3}, step
    assert all(text.endswith("missing: rank 0 (node001, local rank 0)") for text in told.values()), told


def test_a_rank_that_continues_does_not_revive_a_failed_call(faults_cluster):
    """SIGCONT arrives after the other ranks have given up: the stopped rank fails, too, in time."""
    probe = f"{program('exchange_probe')} --timeout 2000 --rounds 2 --timed-from 1"
    stopped = f"{probe} --victim 3 --fault stop --before 1 & sleep 7; kill -CONT $!; wait $!"
    script = f"if ((SLURM_PROCID == 3)); then {stopped}; else exec {probe}; fi"
    step = run_step(faults_cluster, 2, 2, "bash", "-c", script)
    assert step.returncode != 0 and not successes(step), step
    assert {failure.rank for failure in failures(step)} == {0, 1, 2, 3}, step
    assert re.search(r"missing: .*rank 3 \(node002, local rank 1\)", step.stderr), step


def test_every_call_ends_in_time_with_the_right_ranks(faults_cluster, campaign, figure):
    generator = random.Random(campaign.seed)
    everything = [Case(fault, place, *point) for fault in FAULTS for place in PLACES for point in POINTS]
    # More cases of the two faults that a rank cannot handle.
    often = [case for case in everything if case.fault in ("kill", "stop")]
    cases = campaign.size(everything * 3 + often * 17, generator.sample(everything, 12))
    generator.shuffle(cases)
    labelled = [(case, f"fault-{number}") for number, case in enumerate(cases)]
    outcomes = [(case, step) for (case, _), step in campaign.run(lambda each: run_case(faults_cluster, *each), labelled, AT_ONCE)]
    bad = [(case, faults_of(case, step), step) for case, step in outcomes if faults_of(case, step)]
    for identity, fault in (("M2", "kill"), ("M3", "stop")):
        of_fault = [step for case, step in outcomes if case.fault == fault]
        wrong = sum(case.fault == fault for case, *_ in bad)
        longest = max((failure.milliseconds for step in of_fault for failure in failures(step)), default=0)
        figure(identity, got=f"{len(of_fault)} steps, {wrong} wrong; slowest failed call {longest} ms (deadline "
                             f"{DEADLINE * 1000:.0f}); {sum(map(is_held, of_fault))} held by slurmstepd after all ranks had "
                             "ended", met=not wrong, seed=campaign.seed,
               control="bare PMIx reports a false success or hangs")  # fmt: skip
    assert not bad, bad[0]

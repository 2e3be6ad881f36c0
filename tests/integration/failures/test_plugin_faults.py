"""Each call of the release plugin fails in turn: right values or one sentence, and no node or daemon is lost."""

import random
import re
from collections import Counter
from queue import SimpleQueue

from built_files import PLUGIN, built
from harness import run_here, wait_for
from plugin_fault_steps import DOUBLES, FAILING, LAST_HOOKS, PROCESSES, UP, Call, Pair, Run, count_calls, verdict, wrong_values

# Calls of the plugin without a fault, each with the reason.
CANNOT_FAIL = {
    "read a variable of Slurm's, write a line to its log, or name an error": {
        "spank_context", "slurm_error", "slurm_info", "slurm_verbose", "spank_strerror"},  # fmt: skip
    "compute from their arguments alone": {
        "inet_pton", "memchr", "memcmp", "memcpy", "memmove", "memset", "strchr", "strcmp", "strlen", "strncmp", "strerror",
        "strerror_r", "strnlen", "sigemptyset", "sigfillset", "sprintf", "gettext"},  # fmt: skip
    "ask for what every process has": {"dladdr", "getenv", "secure_getenv", "getpid", "getppid", "geteuid", "getuid", "getrlimit"},
    "give back, with an answer that nobody could make use of": {"close", "closedir", "free", "freeaddrinfo"},
    "have no other answer for what they are given": {
        "clock_gettime", "pthread_attr_destroy", "pthread_attr_getstacksize", "pthread_attr_init", "pthread_attr_setstacksize",
        "pthread_cond_destroy", "pthread_cond_init", "pthread_condattr_destroy", "pthread_condattr_init", "pthread_condattr_setclock",
        "pthread_detach", "pthread_join", "pthread_sigmask"},  # fmt: skip
    "belong to C and C++ themselves": {
        "abort", "_exit", "fputc", "fputs", "fwrite", "pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_wait",
        "pthread_cond_broadcast"},  # fmt: skip
}
SECONDS = 25  # a step takes less than one
# The long form makes every call fail alone, and this many calls together with all later ones.
LASTING = 200


def symbols(file, *options):
    listed = run_here(["nm", "-D", *options, file], check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines()}


def test_every_call_of_the_plugin_has_a_fault_or_cannot_fail():
    plugin = symbols(built(PLUGIN), "--undefined-only")
    faults = symbols(built("tests/doubles/fault_calls.so"), "--defined-only")
    harmless = set().union(*CANNOT_FAIL.values())
    # Names of data, of the C runtime, and weak ones.
    runtime = {name for name in plugin if re.match(r"_|pthread_once$|(environ|stderr|in6addr_any)$", name)} - {"_exit"}
    assert plugin - faults - harmless - runtime == set()
    assert not faults & harmless


def test_control_the_verdict_notices_misbehaving_plugins(cluster_factory):
    """Plugins that end the tasks with success, drain the node, or end slurmstepd."""
    cluster = cluster_factory("verdict").up("--nodes", "2", "--gpus", "2", *UP)
    pair = Pair(cluster, *cluster.nodes)
    double = f"required {DOUBLES}/misbehaving_spank.so"

    def words(process, line):
        is_right, what = verdict(Call(process, "none", "none", 0), pair.run(process, "none", "optional", 10, line))
        return what if not is_right else f"not noticed: {what}"

    assert words("srun", "") == "not noticed: right values"
    assert words("srun", f"{double} end=task_init\n") == "exit status 0, but not every task ran"
    assert words("srun", f"{double} fail=task_init\n") == "refused with 0 sentences"
    assert "drained" in words("batch node", f"{double} fail=user_init\n")
    cluster.run(["scancel", "-u", "alice"])
    cluster.run(["scontrol", "update", f"nodename={cluster.nodes[0]}", "state=resume"], user="root")
    wait_for(lambda: cluster.script("status").returncode == 0, what="the node stays drained")
    assert words("batch node", f"{double} crash=user_init\n").startswith("died: slurmstepd signal 11")
    cluster.close()


def test_control_wrong_values_are_noticed():
    right = [f"task {rank} node{rank // 2} {rank} 4 {rank % 2} node0 25001 {rank % 2}" for rank in range(4)]
    assert wrong_values("\n".join(right)) == ""
    for place, wrong in {3: "9", 4: "3", 5: "1", 6: "node1", 7: "22000", 8: "1"}.items():
        words = right[0].split()
        words[place] = wrong
        assert wrong_values("\n".join([" ".join(words), *right[1:]])), f"{wrong} at {place} is not noticed"
    assert wrong_values("\n".join(right[1:]))
    unset = Run(0, "task 0 node0\ntask 1 node0\ntask 2 node1\ntask 3 node1\n", "", "", [], ["idle", "idle"])
    assert not verdict(Call("srun", "init", "malloc", 1), unset)[0]


def every_call(counts):
    return [
        Call(process, hook, function, number)
        for process, of_process in counts.items()
        for (hook, function), last in of_process.items()
        if process in PROCESSES or hook in LAST_HOOKS
        for number in range(1, last + 1)
    ]


def calls_to_fail(every, is_full, choice):
    """Each call once; in the short form a sample with every function of every hook."""
    # Without lasting faults from the loading of the plugin on: C++ then has no memory to throw an exception and ends the
    # process, as Slurm's own xmalloc() would at its next call.
    lasting = [
        Call(call.process, call.hook, call.function, call.number, True) for call in every if call.hook != "load"
    ]
    if is_full:
        return every + choice.sample(lasting, LASTING)
    groups = {}
    for call in every:
        groups.setdefault((call.process, call.hook, call.function), []).append(call)
    return [choice.choice(group) for group in groups.values()] + choice.sample(lasting, 10)


def table_of(ended):
    """A table in Markdown: the outcomes of each call, and their numbers."""
    groups = Counter((call.process, call.hook, call.function, words) for call, (words, _) in ended.items())
    rows = [("process", "hook", "function", "outcome", "calls"), ("---",) * 5]
    rows += [(*group, str(count)) for group, count in sorted(groups.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_a_step_ends_well_whichever_call_fails(campaign, cluster_factory, figure):
    choice = random.Random(campaign.seed)
    cluster = cluster_factory("calls").up("--nodes", campaign.size("8", "6"), "--gpus", "2", *UP)
    pairs = [Pair(cluster, *names) for names in zip(cluster.nodes[::2], cluster.nodes[1::2])]
    counts = {}
    for process in (*PROCESSES, *FAILING):
        run, counts[process] = count_calls(pairs[0], process)
        assert verdict(Call(process, "none", "none", 0), run)[0], f"without a fault: {run}"
    every = every_call(counts)
    calls = calls_to_fail(every, campaign.is_full, choice)
    choice.shuffle(calls)
    plugins = {call: choice.choice(["optional", "required"]) for call in calls}
    free, wrong = SimpleQueue(), {}
    for pair in pairs:
        free.put(pair)

    def fail(call):
        """Runs one fault; None after the first bad outcome, since its nodes may be unusable."""
        if wrong:
            return None
        pair = free.get()
        run = pair.run(call.process, call.order, plugins[call], SECONDS)
        free.put(pair)
        is_right, words = verdict(call, run)
        if not is_right:
            wrong[call] = f"{words}: {run}"
        return words, run

    ended = {call: end for call, end in campaign.run(fail, calls, len(pairs)) if end}
    cluster.close()
    missed = [call for call, (_, run) in ended.items() if not re.search("^failed ", run.notes, re.MULTILINE)]
    deaths = sum(bool(run.deaths) for _, run in ended.values())
    refused = sum(words.startswith("refused") for words, _ in ended.values())
    figure(
        "C2",
        got=f"{len(ended)} steps, in each of which one of the plugin's {len(every)} calls failed: "
        f"{deaths} dead daemons, {refused} steps refused, {len(wrong)} not as promised",
        met=not wrong,
        control="the same verdict notices a plugin with exit(0) in task_init, with -1 and with a crash in user_init",
        seed=campaign.seed,
        why="" if campaign.is_full else "a sample of each function in each hook; all with --full",
        table=table_of(ended) if campaign.is_full else "",
    )
    assert not wrong, f"seed {campaign.seed}: {wrong}"
    # The number of calls varies by a few from step to step (a folder is read in one piece or in two).
    assert len(missed) <= len(calls) // 50 + 1, f"no fault happened: {missed}"
    assert refused, "no step was refused, so none of these faults mattered"

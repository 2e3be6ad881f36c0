"""Every kind of refusal: one sentence, the step ends, and the cluster works afterwards."""

import re
import shutil
import subprocess

import pytest

from built_files import COMMAND
from harness import REPOSITORY, module_cluster, since, slurm_prefix, slurm_release
from port_steps import allocation, step_line

# A release other than the clusters' one, as Slurm writes it.
FOREIGN_VERSION, FOREIGN_NUMBER = ("23.02.8", "0x170208") if slurm_release() != (23, 2) else ("22.05.8", "0x160508")
SHOW = ["sh", "-c", "echo $RANK $SLURM_PROCID $SLURMD_NODENAME $WORLD_SIZE $MASTER_ADDR $MASTER_PORT"]
COMMANDS = {
    "srun": ["srun", "-N2", "-n4", *SHOW],
    "sbatch": ["sbatch", "-W", "-N2", "-n4", "-o", "/dev/stderr", "--wrap", "echo started; srun true"],
    "salloc": ["salloc", "-N2", "-n4", "srun", *SHOW],
}


def run(cluster, command, *options, **more):
    first, *rest = COMMANDS[command]
    return cluster.run([first, *options, *rest], timeout=30, **more)

cluster = module_cluster("refuse", "--nodes", "3", "--plugin-args", "when=always", asks=False)  # each test sets it


@pytest.fixture(params=["optional", "required"])
def how(request, cluster):
    """The word before the plugin in plugstack.conf. Afterwards all nodes can run jobs, and a step runs as before."""
    cluster.configure("when=always", request.param)
    yield request.param
    cluster.configure("when=always", request.param)
    assert cluster.script("status").returncode == 0
    assert_right(run(cluster, "srun"))
    for node in cluster.nodes:
        assert not re.search("segfault|signal 11|stepd.*(abort|terminated)", cluster.log(f"slurmd.{node}"), re.I)


def sentences(done):
    return [line for line in (done.stderr + done.stdout).splitlines() if "bootstrap:" in line]


def assert_right(done, size=4):
    """Every task was started, with values that agree with Slurm's own."""
    assert done.returncode == 0, done.stderr
    tasks = [line.split() for line in done.stdout.splitlines()]
    assert sorted(int(rank) for rank, *_ in tasks) == list(range(size)), done.stdout
    host_of_0 = next(task[2] for task in tasks if task[1] == "0")
    assert all(rank == procid and total == str(size) and address == host_of_0
               for rank, procid, _, total, address, _ in tasks), done.stdout
    assert len({task[5] for task in tasks}) == 1


def test_missing_rank_variable_is_named(cluster):
    explain = [COMMAND, "explain"]
    outside = cluster.run(explain)
    assert outside.returncode == 1 and outside.stderr.count("\n") == 1 and "SLURM_JOB_ID" in outside.stderr
    inside = cluster.run(["srun", "env", "-u", "SLURM_PROCID", *explain])
    assert inside.returncode == 1 and "SLURM_PROCID is not set" in inside.stderr
    assert inside.stderr.count("bootstrap:") == 1
    assert cluster.run(["srun", *explain]).returncode == 0


@pytest.fixture(scope="module")
def foreign(cluster):
    """The plugin for another Slurm release: its own source, built with another version in the header."""
    folder = cluster.state / "etc"
    shutil.copytree(slurm_prefix() / "include/slurm", folder / "slurm")
    header = folder / "slurm" / "slurm_version.h"
    header.write_text(re.sub(r"(define SLURM_VERSION_NUMBER).*", rf"\1 {FOREIGN_NUMBER}", header.read_text()))
    build = REPOSITORY / "build" / "release"
    archives = [*build.glob("spank_plugin/*.a"), *build.glob("libbootstrap/*.a")]
    source = REPOSITORY / "spank_plugin"
    subprocess.run(
        ["g++", "-std=c++20", "-fPIC", "-shared", "-isystem", folder, "-I", source, "-I", REPOSITORY / "libbootstrap",
         '-DBOOTSTRAP_PLUGIN_MARK=""', source / "spank_hooks.cc",
         f"-Wl,--version-script={source / 'exports.map'}", *archives, *archives,
         "-static-libstdc++", "-o", folder / "foreign.so"], check=True)  # fmt: skip
    return folder / "foreign.so"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["missing", "foreign"])
def test_a_plugin_that_cannot_be_loaded_ends_steps_only_if_required(cluster, foreign, how, kind, command, tally):
    path, words = foreign, f"Incompatible Slurm plugin .* version \\({FOREIGN_VERSION}\\)"
    if kind == "missing":
        path, words = "/nonexistent/spank_bootstrap.so", "cannot open shared object file"
    cluster.write_plugstack(f"{how} {path} when=always\n")
    done = run(cluster, command)
    is_told = how == "required" or kind != "missing" or not since("a missing plugin that is optional is not told")
    assert bool(re.search(words, done.stderr)) == is_told, done.stderr
    assert (done.returncode == 0) == (how == "optional"), done.stderr
    assert ("Failed to load plugin" in done.stderr) == (how == "required")
    if command == "srun" and how == "optional":
        assert len(done.stdout.splitlines()) == 4
    tally("C4", "commands with a plugin that cannot be loaded", part="plugins that cannot be loaded")


def test_a_step_runs_although_its_nodes_cannot_load_the_plugin(cluster, foreign, tally):
    """Optional, as in the README: the step runs as without a plugin."""
    cluster.write_plugstack(f"optional {foreign} when=always\n")
    with cluster.without_plugin():
        done = run(cluster, "srun")
        assert done.returncode == 0 and len(done.stdout.splitlines()) == 4 and "bootstrap:" not in done.stderr
        tally("C4", "step whose nodes cannot load it", part="plugins that cannot be loaded")
    cluster.configure("when=always")
    assert cluster.script("status").returncode == 0


def test_plugin_listed_twice_works_once(cluster, how, tally):
    cluster.write_plugstack(f"{how} {cluster.plugin} when=always\n" * 2)
    done = run(cluster, "srun", "--bootstrap=explain")
    table = [line for line in done.stderr.splitlines() if "MASTER_PORT" in line]
    assert len(table) == 1, done.stderr
    assert_right(run(cluster, "srun"))
    tally("C4", "steps with the plugin listed twice", part="plugins that cannot be loaded")


def decision(job, step, asked=2):
    """srun's decision, set by hand while srun has no plugin: so the nodes must find what is wrong with the rest."""
    return {"SLURM_BOOTSTRAP_DECISION": f"5\t{job}.{step}\t3\t{asked}\t0\t31\t\t0\t\ta test asks for it\t"}


def test_an_arbitrary_order_of_ranks_needs_the_plugin_in_srun(cluster, how):
    hosts = {"SLURM_HOSTFILE": cluster.write_home("hosts", "node002\nnode001\n")}
    with cluster.without_plugin(), allocation(cluster, "-N3") as job:
        line = ["srun", f"--jobid={job}", "--overlap", "--overcommit"]
        arbitrary = [*line, "-n2", "--distribution=arbitrary"]
        done = cluster.run([*arbitrary, "sleep", "600"], env=hosts | decision(job, 0), timeout=60)
        assert done.returncode != 0 and len(sentences(done)) == 1, done.stderr
        assert "order of ranks is arbitrary" in done.stderr and "load the plugin where srun runs" in done.stderr
        done = cluster.run([*arbitrary, *SHOW], env=hosts | decision(job, 1, 1))
        assert done.returncode == 0 and len(done.stdout.split()) == 4, "as without the plugin: no variable of ours"
        assert len(sentences(done)) == 1 and "start as without the plugin" in done.stderr, done.stderr
        # An order that the nodes know by themselves is right without srun's plugin.
        for step, order in enumerate(("block", "cyclic"), start=2):
            assert_right(cluster.run([*line, "-N2", "-n4", f"--distribution={order}", *SHOW], env=decision(job, step)))
        # Without a decision from srun no node sets anything up, in any order.
        done = cluster.run([*arbitrary, *SHOW], env=hosts)
        assert done.returncode == 0 and len(done.stdout.split()) == 4 and sentences(done) == [], done
    # Control: with the plugin where srun runs, the same step runs.
    assert_right(cluster.run(["srun", "-n2", "--distribution=arbitrary", *SHOW], env=hosts), 2)


FORGED = {
    "swapped": ("map:0,2,1", "layout of the step places it on"),
    "another rank 0": ("map:1,0,2", "layout of the step places it on"),
    "too many": ("map:0,1,2,2", "cannot read SLURM_BOOTSTRAP_LAYOUT="),
    "no map": ("map:", "cannot read SLURM_BOOTSTRAP_LAYOUT="),
    "overflow": ("plane:4294967296", "cannot read SLURM_BOOTSTRAP_LAYOUT="),
    "huge run": ("map:0x99999999999", "cannot read SLURM_BOOTSTRAP_LAYOUT="),
    "garbage": ("garbage", "cannot read SLURM_BOOTSTRAP_LAYOUT="),
    "another job's component": ("43;node[001-003];1x3;block", "none of the components"),
    "long": ("map:" + "0," * 30000, "SLURM_BOOTSTRAP_LAYOUT"),
}


def forge(cluster, job):
    """Runs one step for each forged text, which is made for this step. Returns the finished steps."""
    for number, (text, words) in enumerate(FORGED.values()):
        env = {"SLURM_BOOTSTRAP_LAYOUT": f"{job}.{number}/{text}", **decision(job, number)}
        yield words, cluster.run([*step_line(job, 3, 3, asks=False), *SHOW], env=env, timeout=60)


def test_forged_layout_is_refused_where_srun_cannot_replace_it(cluster, how):
    with cluster.without_plugin(), allocation(cluster, "-N3") as job:
        for words, done in forge(cluster, job):
            assert done.returncode != 0 and words in done.stderr, done.stderr
            # One sentence, or one from each host whose tasks are not where the layout places them.
            hosts = [re.search("(?:runs on|the tasks of) (node00.)", line) for line in sentences(done)]
            assert len({host and host[1] for host in hosts}) == len(sentences(done)) <= 3, done.stderr
            assert max(map(len, sentences(done))) < 400
        # A text left over from another step is not a forgery.
        env = {"SLURM_BOOTSTRAP_LAYOUT": f"{job}.9999/map:1,0,2", **decision(job, len(FORGED))}
        assert_right(cluster.run([*step_line(job, 3, 3, asks=False), *SHOW], env=env), 3)
    with allocation(cluster, "-N3") as job:
        for _, done in forge(cluster, job):
            assert_right(done, 3)


def test_every_node_can_still_run_jobs(cluster):
    assert cluster.script("status").returncode == 0
    assert "drain" not in cluster.run(["sinfo", "-h", "-N", "-o", "%T %E"]).stdout

"""mpirun of Open MPI in place of srun, without Slurm and within sbatch: the same variables, and exchanges on one node."""

import json
import re
import subprocess

import pytest

from built_files import LIBRARY, PLUGIN, built, inside, program
from communicator_steps import libraries
from exchange_steps import leftovers
from harness import INSIDE, TESTS, Cluster, needs_mpirun, stop
from preload_steps import sentences

AGENT = f"{TESTS}/mpirun/mpirun_agent.py"
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE",
             "MASTER_ADDR", "MASTER_PORT", "BOOTSTRAP_GPU", "CUDA_VISIBLE_DEVICES", "SLURM_BOOTSTRAP_STEP")
# A message of Open MPI 5's mpirun, with any program, if its agent has its own session.
NOT_OURS = re.compile(r"^\[\w+:\d+\] plm:[rs]sh: Warning: setpgid\(\d+,\d+\) failed in parent with errno=.*\n", re.MULTILINE)
# Prints the host and the variables of a process as one line of JSON.
REPORT = """
import json, os, socket
try:
    parent = open(f"/proc/{os.getppid()}/environ").read()
except PermissionError:  # slurmstepd
    parent = ""
print(json.dumps({"host": socket.gethostname(), "mpi": int(os.environ["OMPI_COMM_WORLD_RANK"]),
                  "threads": len(os.listdir("/proc/self/task")), "pmix": "libpmix" in open("/proc/self/maps").read(),
                  "procid": os.environ.get("SLURM_PROCID"),
                  "parent": open(f"/proc/{os.getppid()}/comm").read().strip(),
                  "parent_rank": "\\0RANK=" in parent,
                  **{name: os.environ.get(name) for name in %r}}), flush=True)
""" % (VARIABLES,)
AGREES = """
from mpi4py import MPI
import os
world = MPI.COMM_WORLD
print([int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] ==
      [world.rank, world.size, world.rank, world.size], flush=True)
"""
# On several nodes a rank of mpirun knows neither the ranks on its node nor the host of rank 0.
OF_HOSTS = ("NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MEET = {"MASTER_ADDR": "node001", "MASTER_PORT": "24711"}
ONE_NODE = ("-np", "4", "-npernode", "4")


@pytest.fixture(scope="module")
def hosts(cluster_factory):
    """Two nodes with four GPUs each, where processes can start without Slurm."""
    cluster = cluster_factory("mpirun").up("--nodes", "2", "--cpus", "16", "--gpus", "4", "--no-plugin", "--plugin",
                                           built(PLUGIN))
    cluster.write_plugstack("\n")
    agents = [cluster.start([AGENT, "serve"], node=node) for node in cluster.nodes]
    try:
        for agent in agents:
            assert agent.stdout.readline() == "ready\n"
        yield cluster
    finally:
        for agent in agents:
            stop(agent)


def mpirun(cluster: Cluster, *words, mapping=("-np", "4", "-npernode", "2"), preload=True, env=None, limit=60):
    """Runs mpirun on node001 over both nodes; after `limit` seconds it is killed, with exit status 124."""
    line = ["timeout", "--kill-after=5", str(limit), "mpirun", "--mca", "plm_rsh_agent", AGENT, "--oversubscribe"]
    line += [*([] if "--host" in mapping else ["--host", "node001:8,node002:8"]), *mapping]
    variables = {**({"LD_PRELOAD": inside(LIBRARY)} if preload else {}), **(env or {})}
    for name, value in variables.items():
        line += ["-x", f"{name}={value}"]
    done = cluster.run([*line, *words], node="node001", timeout=limit + 30)
    done.stderr = NOT_OURS.sub("", done.stderr)
    return done


def open_mpi(cluster: Cluster) -> int:
    """The major release of this mpirun: 4, or 5, which is based on PRRTE."""
    said = cluster.run(["mpirun", "--version"], node="node001").stdout
    return int(re.search(r"\(Open MPI\) (\d+)\.", said)[1])


def reports(done: subprocess.CompletedProcess) -> list[dict]:
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda report: report["mpi"])


def expected(seen: list[dict]) -> list[dict]:
    """The right values by the rules of README.md, from the hosts where the ranks really ran."""
    answers = []
    for rank, report in enumerate(seen):
        node = [other["mpi"] for other in seen if other["host"] == report["host"]]
        numbers = {"RANK": rank, "WORLD_SIZE": len(seen), "LOCAL_RANK": node.index(rank), "LOCAL_WORLD_SIZE": len(node),
                   "BOOTSTRAP_GPU": node.index(rank)}
        answers.append({name: str(value) for name, value in numbers.items()})
    return answers


def assert_right(seen: list[dict]) -> None:
    for report, answer in zip(seen, expected(seen), strict=True):
        assert {name: report[name] for name in answer} == answer
    assert len({report["SLURM_BOOTSTRAP_STEP"] for report in seen}) == 1
    assert re.fullmatch(r"mpirun-\d+\.\d+\.0", seen[0]["SLURM_BOOTSTRAP_STEP"])


def of_hosts(seen: list[dict]) -> set[tuple]:
    return {tuple(report[name] for name in OF_HOSTS) for report in seen}


@pytest.mark.parametrize("mapping", ["-np 1", "-np 3 -npernode 3", "-np 2 --host node002:2"])
def test_ranks_on_one_node_have_the_variables_of_srun(hosts, mapping):
    word = {"SLURM_BOOTSTRAP": "on"} if mapping == "-np 1" else {}
    done = mpirun(hosts, "python3", "-c", REPORT, mapping=mapping.split(), env=word)
    seen = reports(done)
    assert done.returncode == 0 and done.stderr == "", done
    assert_right(seen)
    found = of_hosts(seen)
    assert len(found) == 1 and found.pop()[:4] == ("0", "0", "1", seen[0]["host"]), seen
    assert {report["CUDA_VISIBLE_DEVICES"] for report in seen} == {None}, "without a list of GPUs none is set"
    assert {(report["threads"], report["pmix"]) for report in seen} == {(1, False)}, "nothing of PMIx stays behind"


@pytest.mark.parametrize("mapping", ["-np 4 -npernode 2", "-np 3 --map-by node", "-np 4 -npernode 3"])
def test_the_address_on_several_nodes_is_the_users(hosts, mapping):
    done = mpirun(hosts, "python3", "-c", REPORT, mapping=mapping.split(), env=MEET)
    seen = reports(done)
    assert done.returncode == 0 and done.stderr == "", done
    assert_right(seen)
    assert of_hosts(seen) == {(None, None, None, *MEET.values())}


def test_one_sentence_names_the_two_variables_of_the_address(hosts):
    """Rank 0 reports it once, also if its program starts others. A program that is linked with MPI needs no address."""
    program = ["sh", "-c", "python3 -c pass; exec python3 -c \"$REPORT\""]
    done = mpirun(hosts, *program, env={"REPORT": REPORT})
    assert_right(reports(done))
    assert of_hosts(reports(done)) == {(None,) * 5}, done
    assert len(found := sentences(done.stderr)) == 1 and "-x MASTER_ADDR=HOST -x MASTER_PORT=PORT" in found[0], done.stderr


def test_one_rank_alone_is_not_set_up(hosts):
    done = mpirun(hosts, "python3", "-c", REPORT, mapping=["-np", "1"])
    assert done.stderr == "" and {report[name] for report in reports(done) for name in VARIABLES} == {None}, done


def test_without_the_preload_nothing_is_set(hosts):
    """The control: these variables come from us, and no Open MPI sets them."""
    seen = reports(mpirun(hosts, "python3", "-c", REPORT, preload=False))
    assert len(seen) == 4 and all(report[name] is None for report in seen for name in VARIABLES)


def test_a_list_of_gpus_is_kept(hosts):
    seen = reports(mpirun(hosts, "python3", "-c", REPORT, env={"CUDA_VISIBLE_DEVICES": "3,1", **MEET}))
    assert [report["CUDA_VISIBLE_DEVICES"] for report in seen] == ["3,1"] * 4
    assert [report["BOOTSTRAP_GPU"] for report in seen] == ["0", "1", "0", "1"]


def test_more_ranks_than_gpus_are_reported(hosts):
    done = mpirun(hosts, "python3", "-c", REPORT, mapping=["-np", "10", "-npernode", "5"], env=MEET)
    assert done.returncode == 0 and {report["BOOTSTRAP_GPU"] for report in reports(done)} == {None}
    assert len(found := sentences(done.stderr)) == 2, done.stderr
    assert all("5 tasks on node00" in text and "share 4 GPUs" in text and "-npernode 4" in text for text in found)


def test_a_shell_around_the_program_is_the_rank_and_its_children_inherit(hosts):
    twice = 'test -n "$RANK" && python3 -c "$REPORT"; python3 -c "$REPORT"'
    done = mpirun(hosts, "bash", "-c", twice, env={"REPORT": REPORT, **MEET})
    seen = reports(done)
    assert done.returncode == 0 and len(seen) == 8 and done.stderr == "", done
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        assert {name: first[name] for name in VARIABLES} == {name: second[name] for name in VARIABLES}
    assert_right(seen[::2])


VIEW = "tests/integration/harm/mpi_ring"  # MPI's own view: the place of each rank among the ranks of its node


def is_view(done: subprocess.CompletedProcess, nodes: int) -> bool:
    lines = [f"rank {rank} of 4, sum 6, local {rank % (4 // nodes)}" for rank in range(4)]
    seen = sorted(line.partition(", GPU")[0] for line in done.stdout.splitlines())
    return (done.returncode, seen, done.stderr) == (0, lines, "")


def in_job(cluster: Cluster, nodes: int, exports: str = "", limit: int = 40) -> subprocess.CompletedProcess:
    """Four ranks of MPI in a salloc, started by daemons that mpirun starts with srun; all of them load the library. Open MPI 5
    does not bind more ranks than the machine has cores."""
    script = f"{exports} timeout --kill-after=5 {limit} mpirun --bind-to none {inside(VIEW)}"
    return cluster.run(["salloc", "-Q", f"-N{nodes}", f"--ntasks-per-node={4 // nodes}", "bash", "-c", script], timeout=90)


@needs_mpirun
@pytest.mark.parametrize("nodes", [1, 2])
def test_mpi_sees_the_nodes_as_it_would_without_us(hosts, nodes):
    """12 runs each: with PMIX_MCA_gds=hash, which the library once set, all on two nodes were wrong and hung."""
    for _ in range(12):
        for exports in ("", f"LD_PRELOAD={inside(LIBRARY)}"):
            assert is_view(done := in_job(hosts, nodes, exports), nodes), (exports, done)


@needs_mpirun
def test_control_mpi_does_not_see_the_nodes_with_another_gds(hosts):
    """The library once set this variable. Set without the library, it makes the test above fail."""
    if open_mpi(hosts) > 4:
        pytest.skip("PMIx 5 takes hash by itself")
    assert any(not is_view(in_job(hosts, 2, "PMIX_MCA_gds=hash", 10), 2) for _ in range(3))


@needs_mpirun
@pytest.mark.parametrize("nodes", [1, 2])
def test_mpi_starts_without_slurm_as_it_would_without_us(hosts, nodes):
    for preload in (False, True):
        done = mpirun(hosts, inside(VIEW), mapping=["-np", "4", "-npernode", str(4 // nodes)], preload=preload, limit=40)
        assert is_view(done, nodes), (preload, done)


@needs_mpirun
def test_nothing_that_mpi_reads_is_set(hosts):
    names = "import os; print(sorted(name for name in os.environ if name.startswith(('PMIX', 'OMPI', 'PRTE'))))"
    seen = [mpirun(hosts, "python3", "-c", names, preload=preload, env=MEET).stdout.splitlines() for preload in (False, True)]
    assert sorted(seen[0]) == sorted(seen[1]) and len(seen[0]) == 4


@needs_mpirun
def test_mpi_has_the_same_ranks_on_one_node(hosts):
    done = mpirun(hosts, "python3", "-c", AGREES, mapping=["-np", "4", "-npernode", "4"])
    assert done.returncode == 0 and done.stdout.split() == ["True"] * 4, done


@pytest.mark.parametrize("preload", [False, True])
def test_exchanges_go_over_the_server_of_mpirun(hosts, preload):
    probe = program("exchange_probe")
    for _ in range(3):
        done = mpirun(hosts, probe, "--rounds", "20", mapping=ONE_NODE, preload=preload)
        assert done.returncode == 0 and done.stdout.count(": 20 rounds in") == 4 and done.stderr == "", done


def test_exchanges_on_several_nodes_are_refused(hosts):
    done = mpirun(hosts, program("exchange_probe"), "--rounds", "1", preload=False)
    assert done.returncode != 0 and "the hosts of the other ranks are not known; start the program with srun" in done.stderr, done


@needs_mpirun
@pytest.mark.parametrize("order", ["IxBxF", "IxFx", "IoxBxF", "IoxFx", "xIBF", "xx"])
@pytest.mark.parametrize("preload", [False, True])
def test_exchanges_before_during_and_after_mpi(hosts, order, preload):
    done = mpirun(hosts, program("exchange_mpi"), order, mapping=ONE_NODE, preload=preload)
    if open_mpi(hosts) > 4 and order == "xIBF":  # MPI comes first there: see its control
        assert done.returncode != 0 and "in MPI_Init" in done.stderr and "bootstrap:" not in done.stderr, done
        return
    assert done.returncode == 0 and done.stderr == "", done


def test_control_open_mpi_5_does_not_start_within_a_session_of_pmix(hosts):
    """With PMIx alone, without us: MPI_Init uses the open session, and does not find its own rank in it."""
    done = mpirun(hosts, program("exchange_mpi"), "pIBFq", mapping=ONE_NODE, preload=False)
    if open_mpi(hosts) > 4:
        assert done.returncode != 0 and "in MPI_Init" in done.stderr, done
    else:
        assert done.returncode == 0, done


def test_a_rank_that_never_comes_is_named(hosts):
    probe = program("exchange_probe")
    fault = ["--victim", "3", "--fault", "sleep", "--before", "1"]
    done = mpirun(hosts, probe, "--rounds", "2", "--timeout", "3000", *fault, mapping=ONE_NODE)
    assert done.returncode != 0 and "missing: rank 3 (node001, local rank 3)" in done.stderr, done


@pytest.mark.parametrize("preload", [False, True])
def test_communicators_are_made(hosts, preload):
    env = {"LD_LIBRARY_PATH": libraries(), "CUDA_DOUBLE_DEVICES": "4"}
    for group, answers in (("world", "0123 4 6"), ("node", "0123 4 6"), ("cross", "0000 1 0123")):
        done = mpirun(hosts, program("comm_probe"), "--group", group, mapping=ONE_NODE, preload=preload, env=env)
        assert done.returncode == 0, done
        found = dict(re.findall(r"^rank (\d): (.*)$", done.stdout, re.MULTILINE))
        places, size, sums = answers.split()
        sums = sums * (4 // len(sums))
        assert found == {str(rank): f"{places[rank]} of {size}, sum {sums[rank]}" for rank in range(4)}


def test_pytorch_trains_over_two_nodes(hosts):
    done = mpirun(hosts, "python3", f"{INSIDE}/etc/examples/train_ddp.py", env=MEET, limit=150)
    assert done.returncode == 0 and "on 4 ranks" in done.stdout, done
    control = mpirun(hosts, "python3", f"{INSIDE}/etc/examples/train_ddp.py", preload=False, limit=150)
    assert "on 4 ranks" not in control.stdout, "the program does not know mpirun by itself"


@needs_mpirun
def test_mpirun_with_us_leaves_no_file(hosts):
    before = {path for path in leftovers(hosts) if "ompi." not in path}
    mpirun(hosts, "python3", "-c", REPORT, env=MEET)
    mpirun(hosts, inside(VIEW))
    assert {path for path in leftovers(hosts) if "ompi." not in path} == before


def batch(cluster: Cluster, script: str, *options: str) -> str:
    """The output of a batch job, in which mpirun starts its daemons by srun."""
    cluster.write_home("report.py", REPORT)
    path = cluster.write_home("mpirun-job", "#!/bin/bash\n" + script)
    log = cluster.home / "mpirun-job.out"
    log.unlink(missing_ok=True)
    line = ["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "--gres=gpu:2", "-o", f"/home/alice/{log.name}"]
    done = cluster.run([*line, *options, path], timeout=120)
    assert done.returncode == 0, (done, log.read_text() if log.exists() else "")
    return log.read_text()


def daemons(cluster: Cluster) -> set[str]:
    """The parents of the ranks: on mpirun's own node, and on the other node."""
    return {"mpirun", "orted"} if open_mpi(cluster) == 4 else {"prterun", "prted"}


LAUNCH = "mpirun --oversubscribe -np 4 -npernode 2 python3 report.py\n"


def ranks_of(text: str) -> list[dict]:
    return reports(subprocess.CompletedProcess([], 0, text, ""))


def test_within_a_batch_job_the_ranks_are_those_of_mpirun(hosts):
    seen = ranks_of(batch(hosts, f"export LD_PRELOAD={inside(LIBRARY)} MASTER_ADDR=node001 MASTER_PORT=24711\n{LAUNCH}"))
    assert [report["host"] for report in seen] == ["node001", "node001", "node002", "node002"]
    assert_right(seen)
    assert {report["procid"] for report in seen} == {"0"}, "the daemon's value, which would be a wrong rank"
    assert {report["parent"] for report in seen} == daemons(hosts)
    assert not any(report["parent_rank"] for report in seen), "the launchers themselves are no ranks"
    assert {report["CUDA_VISIBLE_DEVICES"] for report in seen} == {"0,1"}


def test_the_plugin_leaves_the_daemons_of_mpirun_alone(hosts):
    with hosts.other_plugstack(f"optional {hosts.plugin}\n"):
        seen = ranks_of(batch(hosts, LAUNCH))
        assert {report["parent"] for report in seen} == daemons(hosts)
        assert all(report["RANK"] is None and not report["parent_rank"] for report in seen), seen
        # The same if the job asks. The control: a step with a program is set up.
        asked = ranks_of(batch(hosts, LAUNCH, "--bootstrap=on"))
        assert [report["RANK"] for report in asked] == [None] * 4
        step = ranks_of(batch(hosts, "export OMPI_COMM_WORLD_RANK=7\nsrun -n4 python3 report.py\n"))
        assert sorted(report["RANK"] for report in step) == ["0", "1", "2", "3"]


def test_a_step_of_slurm_stays_slurms_with_leftovers_of_mpirun(hosts):
    stale = {"OMPI_COMM_WORLD_RANK": "7", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "795672577", "PMIX_RANK": "7"}
    for mpi in ("pmix", "none"):
        show = "bash -c 'echo $RANK $WORLD_SIZE $SLURM_PROCID $(bash -c \"echo \\$RANK\")'"
        line = f"srun --mpi={mpi} -N2 -n4 --export=ALL,LD_PRELOAD={inside(LIBRARY)} {show}"
        done = hosts.run(["bash", "-c", line], env=stale)
        assert done.returncode == 0 and sorted(done.stdout.splitlines()) == [f"{r} 4 {r} {r}" for r in range(4)], done

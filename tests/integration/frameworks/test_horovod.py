"""`slurm-bootstrap run --horovod` with Horovod's own rendezvous server, from its package on PyPI.

The ranks are stand-ins for Horovod's extension, which takes minutes to build; framework_rows.py has rows with it.
"""

# SPDX-License-Identifier: Apache-2.0

import shutil
import subprocess
import sys
import tarfile
from contextlib import nullcontext

import pytest

from built_files import BUILT_INSIDE, COMMAND, LIBRARY, built
from harness import REPOSITORY, run_here, wait_for

VERSION = "0.28.1"
CLIENT = ("python3", "/home/alice/meet.py")
RUN = (COMMAND, "run", "--horovod", "--")

# A rank: stores its step and host at the server, as Horovod's Gloo does with its address, and reads those of all ranks.
MEET = """
import contextlib, os, time, urllib.error, urllib.request

names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
rank, size, local_rank, local_size, cross_rank, cross_size = (int(os.environ[f"HOROVOD_{name}"]) for name in names)
assert os.environ["HOROVOD_CONTROLLER"] == os.environ["HOROVOD_CPU_OPERATIONS"] == "gloo"
own = f"{os.environ['SLURM_STEP_ID']} {os.environ['HOROVOD_HOSTNAME']}"

def ask(scope, number, **request):
    place = "{HOROVOD_GLOO_RENDEZVOUS_ADDR}:{HOROVOD_GLOO_RENDEZVOUS_PORT}".format(**os.environ)
    return urllib.request.urlopen(urllib.request.Request(f"http://{place}/{scope}/{number}", **request), timeout=60).read().decode()

def gather(scope):
    ask(scope, rank, data=own.encode(), method="PUT")
    found = []
    while len(found) < size:
        try:
            found.append(ask(scope, len(found)))
        except urllib.error.HTTPError:  # 404: not yet
            time.sleep(0.05)
    return found

found = gather("global")
assert found.count(own) == local_size and found[:rank].count(own) == local_rank, found
assert len({one.split()[0] for one in found}) == 1, found
# The server ends with rank 0, which therefore waits for the others. It may end before it has answered the last one.
if rank == 0:
    gather("end")
else:
    with contextlib.suppress(OSError):
        ask("end", rank, data=own.encode(), method="PUT")
os.write(1, f"rank {rank} of {size} local {local_rank}/{local_size} cross {cross_rank}/{cross_size}\\n".encode())
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder with Horovod's Python package, unpacked and not built."""
    folder = tmp_path_factory.mktemp("horovod")
    subprocess.run([sys.executable, "-m", "venv", folder / "pip"], check=True)
    done = run_here([folder / "pip/bin/pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", f"horovod=={VERSION}"], cwd=folder)
    if done.returncode:
        pytest.skip(f"PyPI gave no horovod {VERSION}: {done.stderr.splitlines()[-1:]}")
    with tarfile.open(folder / f"horovod-{VERSION}.tar.gz") as archive:
        archive.extractall(folder)
    return folder / f"horovod-{VERSION}" / "horovod"


@pytest.fixture(scope="module")
def site(cluster_factory, package):
    cluster = cluster_factory("horovod").up("--nodes", "4", "--gpus", "4", "--cpus", "16")
    shutil.copytree(package, cluster.home / "python/horovod")
    ours = shutil.copytree(REPOSITORY / "libbootstrap/python/slurm_bootstrap", cluster.home / "python/slurm_bootstrap")
    shutil.copy(built(LIBRARY), ours)
    cluster.write_home("meet.py", MEET)
    return cluster


def run(site, *line, env=None):
    return site.run(["srun", *line], env={"PYTHONPATH": "/home/alice/python"} | (env or {}), timeout=180)


def lines_of(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines(), key=lambda line: int(line.split()[1]))


FOUR = ("-N2", "--ntasks-per-node=2", "--gres=gpu:2")
ALL_MEET = [f"rank {r} of 4 local {r % 2}/2 cross {r // 2}/2" for r in range(4)]


@pytest.mark.parametrize("options", [(), ("--bootstrap=off",), ("--mpi=pmix",)], ids=["unasked", "off", "PMIx"])
def test_four_ranks_meet(site, options):
    done = run(site, *FOUR, *options, *RUN, *CLIENT)
    assert lines_of(done) == ALL_MEET


@pytest.mark.parametrize("options, size, has_plugin", [
    (("-N2", "-n4"), 4, True),
    (("-N3", "-n7", "-m", "cyclic"), 7, True),
    (("-n3", "-m", "arbitrary"), 3, True),
    (("-N2", "-n4"), 4, False),
    (("-N2", "-n4", f"--export=ALL,LD_PRELOAD={BUILT_INSIDE}/{LIBRARY}"), 4, False),
], ids=["without GPUs", "uneven", "rank 0 on the last node", "no plugin", "preload"])
def test_any_step_can_be_a_world(site, options, size, has_plugin):
    env = {"SLURM_HOSTFILE": site.write_home("hosts", "node003\nnode001\nnode003\n")} if "arbitrary" in options else None
    with nullcontext() if has_plugin else site.other_plugstack():
        assert len(lines_of(run(site, *options, *RUN, *CLIENT, env=env))) == size


def test_one_task_is_a_world_of_one_without_a_server(site):
    done = run(site, "-n1", *RUN, "bash", "-c", "echo $HOROVOD_RANK $HOROVOD_SIZE [$HOROVOD_GLOO_RENDEZVOUS_PORT] $HOROVOD_CONTROLLER")
    assert done.stdout.strip() == "0 1 [] gloo", done


def test_two_worlds_of_a_job_do_not_meet(site):
    step = ["srun", "-N2", "-n4", "--overlap", *RUN, *CLIENT]
    both = " & ".join(" ".join(step) for _ in range(2))
    env = {"PYTHONPATH": "/home/alice/python"}
    done = site.run(["salloc", "-Q", "-N2", "-n4", "bash", "-c", f"{both} & wait"], env=env, timeout=240)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 8, done
    assert all(" of 4 " in line for line in done.stdout.splitlines())


def test_tasks_that_see_their_own_gpu_alone_are_nodes_of_their_own(site):
    done = run(site, "-N2", "--ntasks-per-node=2", "--gres=gpu:2", "--bootstrap-gpu=narrow", *RUN, *CLIENT)
    assert lines_of(done) == [f"rank {r} of 4 local 0/1 cross {r}/4" for r in range(4)]


def test_the_server_ends_with_rank_0(site):
    def count(command):  # hosts of a cluster see each other's processes
        return site.run(["pgrep", "-fc", command], node="node001").stdout.strip()

    def servers():
        return count("[H]orovod's own rendezvous server")

    wait_for(lambda: servers() == "0", 60, "the end of the servers of earlier steps")
    step = site.start(["srun", "-N2", "-n2", *RUN, "sleep", "600"], env={"PYTHONPATH": "/home/alice/python"})
    try:
        wait_for(lambda: count("^sleep 600") == "2" and servers() == "1", 60, "the server, and then the programs")
        site.run(["pkill", "-f", "^sleep 600"], node="node001")
        wait_for(lambda: servers() == "0", 60, "the end of the server")
    finally:
        site.run(["scancel", "--user", "alice"])
        step.communicate(timeout=60)


@pytest.mark.parametrize("env, sentence", [
    ({"PYTHONPATH": "/nothing"}, "cannot start Horovod's rendezvous server: No module named 'horovod'"),
    ({"PATH": "/nothing"}, "could not make the Horovod world with python3: it does not run here"),
    ({"HOROVOD_CONTROLLER": "mpi"}, "HOROVOD_CONTROLLER=mpi is set, and --horovod makes a world over Gloo"),
], ids=["no Horovod", "no Python", "MPI's controller"])
def test_a_missing_requirement_ends_the_step_with_one_sentence(site, env, sentence):
    ranks = 1 if "HOROVOD_CONTROLLER" in env else 4
    changed = [f"{name}={value}" for name, value in env.items()]
    done = run(site, "-n", str(ranks), "/usr/bin/env", *changed, *RUN, "/usr/bin/true")
    told = [line for line in done.stderr.splitlines() if line.startswith("slurm-bootstrap: ")]
    most = ranks if "PATH" in env else 1  # without Python no rank knows of the others
    assert done.returncode != 0 and 1 <= len(told) <= most and all(sentence in line for line in told), done.stderr


def test_the_option_of_the_plugin_names_what_to_do_instead(site):
    done = run(site, "-n2", "--bootstrap-frameworks=horovod", "true")
    assert done.returncode != 0 and "slurm-bootstrap run --horovod" in done.stderr

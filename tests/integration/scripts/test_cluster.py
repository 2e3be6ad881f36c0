"""scripts/cluster: real steps on real hosts, and nothing stays on the machine, however it ends."""

import os
import signal
import subprocess
import time

import pytest

from built_files import COMMAND
from harness import CGROUP_VERSIONS, SCRIPT, machine_traces, stop, wait_for


@pytest.mark.parametrize("options", [[f"--constrain-devices={version}"] for version in CGROUP_VERSIONS] or [[]],
                         ids=CGROUP_VERSIONS or ["open"])
def test_up_and_down_leave_nothing(cluster_factory, options):
    before = machine_traces()
    cluster = cluster_factory("gone" + "".join(options)[-3:].replace("=", "-")).up("--no-plugin", *options)
    namespaces = cluster.namespaces()
    # They stay open, so that no new namespace gets the number of an old one.
    pids = [path.read_text().strip() for path in (cluster.state / "pids").iterdir() if path.name != "init.new"]
    held = [open(f"/proc/{pid}/ns/{kind}", "rb") for pid in pids for kind in ("mnt", "net", "pid", "uts", "ipc")]
    assert cluster.run(["srun", "-N2", "--gres=gpu:1", "--mpi=pmix", "true"]).returncode == 0
    job = cluster.start(["srun", "-N2", "sleep", "600"])
    wait_for(lambda: "sleep" in cluster.run(["ps", "-eo", "comm"]).stdout)
    # Control: these traces exist while the cluster is up.
    kinds = {trace.split()[0] for trace in cluster.traces(namespaces)}
    assert {"file", "process"} <= kinds and ("cgroup" in kinds) == bool(options)
    assert {kind for kind, _ in namespaces} == {"mnt", "net", "pid", "uts", "ipc"}
    # The machine itself does not change, also while the cluster is up.
    assert machine_traces() - before == set()
    assert cluster.close() == ""
    job.communicate(timeout=60)
    assert cluster.traces(namespaces) == []
    assert machine_traces() - before == set()
    for file in held:
        file.close()


# The progress of `up`: a file of its state folder.
@pytest.mark.parametrize("stage", ["etc", "settings", "pids/head", "listening"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_up_ended_midway_leaves_nothing(cluster_factory, name, stage):
    cluster = cluster_factory(f"cut-{name[3:].lower()}")
    before = machine_traces()
    options = ["--no-plugin", "--constrain-devices"] if CGROUP_VERSIONS else ["--no-plugin"]
    line = [str(SCRIPT), "up", "--name", cluster.name, "--nodes", "8", *options]  # 8, to have time before it is up
    up = subprocess.Popen(line, stderr=subprocess.PIPE, start_new_session=True)
    wait_for((cluster.state / stage).exists)
    up.send_signal(getattr(signal, name))
    up.communicate(timeout=60)
    if name == "SIGKILL":
        assert up.returncode == -signal.SIGKILL
        assert cluster.state.exists()
        # The processes end without a cleanup: init ends with `up`.
        wait_for(lambda: not any(trace.startswith("process") for trace in cluster.traces()))
        assert cluster.script("down").returncode == 0
    else:
        assert up.returncode == 128 + getattr(signal, name)
    assert cluster.traces() == []
    assert machine_traces() - before == set()


def test_up_ended_while_init_begins_waits_for_it(cluster_factory, tmp_path):
    cluster = cluster_factory("cut-early")
    slow = tmp_path / "setsid"
    slow.write_text('#!/bin/sh\nsleep 1\nexec /usr/bin/setsid "$@"\n')
    slow.chmod(0o755)
    up = subprocess.Popen([str(SCRIPT), "up", "--name", cluster.name, "--no-plugin"], stderr=subprocess.DEVNULL,
                          env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    wait_for((cluster.state / "settings").exists)
    time.sleep(0.1)
    up.terminate()
    assert up.wait(60) == 128 + signal.SIGTERM
    assert cluster.traces() == []


def test_users_stay_when_the_machine_replaces_its_files(cluster_factory, tmp_path):
    """useradd replaces them by a rename. The test uses a copy of /etc, which only `up` sees in place of the machine's."""
    cluster = cluster_factory("replaced")
    steps = """cp -a /etc "$1" && mount --bind "$1/etc" /etc && "$2" up --name "$3" --no-plugin && cd /etc
        for file in hosts passwd shadow group; do cp -a $file $file+ && mv $file+ $file || exit; done"""
    subprocess.run(["unshare", "--mount", "sh", "-c", steps, "-", tmp_path, SCRIPT, cluster.name], check=True)
    assert cluster.run(["id", "-un"]).stdout == "alice\n"
    done = cluster.run(["srun", "-N2", "id", "-Gn"])
    assert (done.stdout, done.stderr) == ("alice lab\n" * 2, "")
    assert cluster.run(["getent", "ahosts", "node002"]).stdout
    assert cluster.close() == ""


def test_down_of_nothing_is_no_error(cluster_factory):
    done = cluster_factory("never").script("down")
    assert done.returncode == 0 and "no cluster" in done.stderr


def test_second_up_is_refused_and_changes_nothing(cluster):
    before = cluster.namespaces()
    again = cluster.script("up", "--no-plugin")
    assert again.returncode != 0 and again.stderr.count("\n") == 1
    assert again.stderr.startswith(f"cluster: cannot start cluster {cluster.name}: it is already up;")
    assert cluster.namespaces() == before
    assert cluster.run(["srun", "true"]).returncode == 0


def test_plugin_that_is_not_there_is_named(cluster_factory):
    done = cluster_factory("noplugin").script("up", "--plugin", "/nonexistent/plugin.so")
    assert done.returncode == 1 and "/nonexistent/plugin.so" in done.stderr and "--no-plugin" in done.stderr


def test_two_clusters_do_not_see_each_other(cluster, cluster_factory):
    other = cluster_factory("other").up("--no-plugin", "--nodes", "1")
    # Both have the same controller's address, port and node names: only the namespaces separate them.
    assert cluster.run(["sinfo", "-hN", "-p", "main", "-o", "%N"]).stdout == "node001\nnode002\n"
    assert other.run(["sinfo", "-hN", "-p", "main", "-o", "%N"]).stdout == "node001\n"
    job = cluster.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 60"]).stdout.strip()
    assert cluster.run(["squeue", "-h", "-o", "%i"]).stdout.split() == [job]
    assert other.run(["squeue", "-h"]).stdout == ""
    assert cluster.name in cluster.run(["ls", "/run/slurm-bootstrap"]).stdout
    assert cluster.name not in other.run(["ls", "/run/slurm-bootstrap"]).stdout
    credential = cluster.run(["munge", "-n"]).stdout
    assert cluster.run(["unmunge"], stdin=credential).returncode == 0
    assert other.run(["unmunge"], stdin=credential).returncode != 0
    assert not cluster.namespaces() & other.namespaces()
    cluster.run(["scancel", job])
    assert other.close() == ""
    assert cluster.run(["srun", "true"]).returncode == 0


def test_steps_run_on_their_hosts_as_the_user_without_capabilities(cluster):
    script = "echo $(hostname) $(cat /etc/hostname) $(id -un) $(id -gn) $(awk '/^Cap(Inh|Prm|Eff|Amb)/ { print $2 }' /proc/self/status)"
    done = cluster.run(["srun", "-N2", "--ntasks-per-node=2", "bash", "-c", script])
    expected = [f"{node} {node} alice alice" + " 0000000000000000" * 4 for node in cluster.nodes for _ in range(2)]
    assert sorted(done.stdout.splitlines()) == expected
    # Control: the same commands show a difference for root.
    assert "ffff" in cluster.run(["bash", "-c", script], user="root").stdout


def test_a_fence_without_data_is_a_barrier_between_nodes(cluster):
    """MPI_Init ends with such a fence. With Slurm's default a node may leave it before the others enter, and Open MPI crashes."""
    program = ("import ctypes, os, time; pmix = ctypes.CDLL('libpmix.so.2'); first = os.environ['PMIX_RANK'] == '0'; "
               "pmix.PMIx_Init(ctypes.create_string_buffer(512), None, 0); time.sleep(3 if first else 1); came = time.time(); "
               "failed = pmix.PMIx_Fence(None, 0, None, 0); print(failed, came if first else time.time(), first)")
    done = cluster.run(["srun", "-N2", "-n4", "--mpi=pmix", "python3", "-c", program])
    rows = [row.split() for row in done.stdout.splitlines()]
    assert len(rows) == 4 and all(row[0] == "0" for row in rows), done
    (came,) = (float(time) for _, time, first in rows if first == "True")
    assert all(float(time) >= came for _, time, first in rows if first == "False"), done.stdout


@pytest.mark.parametrize("options, words", [
    (["--gpus", "1,2,4"], "--gpus 1,2,4 has 3 numbers for 2 nodes"),
    (["--gpus", "1,two"], "--gpus two is not a number from 0 to 64"),
    (["--gpus", "1,,2"], "is not a number from 0 to 64"),
    (["--gpu-env", "any"], "--gpu-env 'any' is none of nvidia, amd, intel and all"),
    (["--cpus", "4", "--sockets", "3"], "--cpus 4 cannot be divided over --sockets 3"),
])
def test_impossible_options_are_refused_in_one_sentence(cluster_factory, options, words):
    cluster = cluster_factory("never")
    done = cluster.script("up", *options)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1
    assert not cluster.state.exists()


def test_the_command_and_its_man_pages_are_in_the_path(cluster):
    plain = cluster.run([COMMAND, "--help"])
    assert plain.returncode == 0 and cluster.run(["srun", "slurm-bootstrap", "--help"]).stdout == plain.stdout
    if cluster.run(["which", "manpath"]).returncode == 0:  # from man-db
        for page in "1 slurm-bootstrap", "3 bootstrap", "7 slurm-bootstrap", "8 spank_bootstrap":
            assert cluster.run(["man", *page.split()]).stdout.count("slurm-bootstrap"), page


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_signals_reach_the_command_and_its_status_comes_back(cluster, name):
    trap = f"trap 'echo caught; exit 9' {name[3:]}; echo ready; while :; do sleep 0.05; done"
    for command, status, rest in (["bash", "-c", trap], 9, "caught\n"), (["bash", "-c", "echo ready; exec sleep 60"], -1, ""):
        process = cluster.start(command)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        output, _ = process.communicate(timeout=60)
        assert output == rest
        assert process.returncode == (status if status >= 0 else 128 + getattr(signal, name))


@pytest.mark.parametrize("user", ["alice", "root"])
@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_srun_and_its_step_end_with_their_timeout(cluster, name, user):
    # 4242 s identify the process. With KILL `timeout` kills its process group, including itself.
    line = ["timeout", "-s", name, "3", *cluster.command(["srun", "sleep", "4242"], user)]
    subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, timeout=20)
    wait_for(lambda: "sleep 4242" not in cluster.run(["ps", "-eo", "args"]).stdout, what="srun or its task outlives its timeout")
    wait_for(lambda: cluster.run(["squeue", "-h"]).stdout == "", what="the job outlives its srun")
    # Control: without the timeout it runs longer.
    step = cluster.start(["srun", "sleep", "4242"], user)
    wait_for(lambda: "sleep" in cluster.run(["squeue", "-h"]).stdout)
    stop(step)


def test_status_shows_a_drained_node(cluster):
    assert cluster.script("status").returncode == 0
    change = ["scontrol", "update", "nodename=node002"]
    cluster.run([*change, "state=drain", "reason=test"], user="root")
    try:
        drained = cluster.script("status")
        assert drained.returncode != 0 and "drained" in drained.stdout
    finally:
        cluster.run([*change, "state=resume"], user="root")
    wait_for(lambda: cluster.script("status").returncode == 0)


LOOK_UP = """import socket
for name in "node001", "node002", "head":
    try:
        print(socket.getaddrinfo(name, 0)[0][4][0])
    except socket.gaierror as error:
        print({socket.EAI_NONAME: "none", socket.EAI_AGAIN: "again"}[error.errno])
"""


@pytest.mark.parametrize("names", ["hosts", "none", "again"])
def test_node_names_are_known_to_slurm_alone(cluster_factory, names):
    cluster = cluster_factory(f"names-{names}").up("--no-plugin", "--names", names)
    of_nodes = ["10.20.1.1", "10.20.1.2"] if names == "hosts" else [names] * 2
    for node in ("head", "node002"):
        assert cluster.run(["python3", "-c", LOOK_UP], node=node).stdout.split() == [*of_nodes, "10.20.0.1"], node
    done = cluster.run(["srun", "-N2", "sh", "-c", "echo $SLURMD_NODENAME $(hostname)"])
    host = "node" if names == "hosts" else "host"
    assert sorted(done.stdout.splitlines()) == [f"node00{i} {host}00{i}" for i in (1, 2)], done.stderr

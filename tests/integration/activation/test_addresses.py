"""Addresses, interfaces and ports that users export, as programs of PyTorch see them: without the plugin, unasked, asked, and
with the plugin of 1.0.0. On hosts with IPv6 alone the ranks meet, and reports of the nodes reach srun."""

# SPDX-License-Identifier: Apache-2.0

import contextlib
import re

import pytest

from activation_steps import TWO, srun, told
from other_versions import build_1_0_0
from port_steps import background
from preload_steps import preloading
from training_steps import ONE_EACH, TORCHRUN, training_cluster

LISTEN = "import socket, time; s = socket.create_server(('', PORT)); print('ready', flush=True); time.sleep(600)"
ASK = "--bootstrap=on"
GLOO = "GLOO_SOCKET_IFNAME"
HAS = "node001 has eth0"
# Per row: what the user exports, and the outcome unasked and asked: how many ranks meet (0: the program fails), and a part of
# our line; "" is no line. Without the plugin no rank is known, and all fail.
ROWS = {
    "NCCL's interface alone": ({"NCCL_SOCKET_IFNAME": "eth0"}, (4, ""), (4, "")),
    "an interface that no node has": ({GLOO: "ib0"}, (0, f'{GLOO}="ib0" stays as you set it, but it is no interface to other nodes: {HAS}'),
                                      (4, f'{GLOO}="ib0" is replaced by eth0')),
    "NCCL's way to write interfaces": ({GLOO: "^lo,docker"}, (0, "Gloo takes whole names of interfaces"), (4, "is replaced by eth0")),
    "the loopback": ({GLOO: "lo"}, (0, f"it is no interface to other nodes: {HAS}"), (4, "is replaced by eth0")),
    "NCCL's interface that no node has": ({"NCCL_SOCKET_IFNAME": "=ib"}, (4, 'NCCL_SOCKET_IFNAME="=ib" stays as you set it'),
                                          (4, 'NCCL_SOCKET_IFNAME="=ib" is replaced by =eth0')),
    "a port that is taken, by the name": ({"MASTER_ADDR": "node001", "MASTER_PORT": "29411"}, (0, "MASTER_PORT 29411 on node001 is already"),
                                          (0, "MASTER_PORT 29411 on node001 is already")),
    "a port that is taken, by the number": ({"MASTER_ADDR": "10.20.1.1", "MASTER_PORT": "29412"},
                                            (0, "MASTER_PORT 29412 on node001 is already"), (0, "MASTER_PORT 29412 on node001 is already")),
    "a port of the system": ({"MASTER_PORT": "80"}, (0, "MASTER_PORT 80 on node001 cannot be reserved: Permission denied"),
                             (0, "MASTER_PORT 80 on node001 cannot be reserved: Permission denied")),
}  # fmt: skip

HOW = ("without the plugin", "1.0.0", "1.0.0 asked", "now", "now asked")


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    return training_cluster(cluster_factory, "addresses", "--names", "hosts")


@contextlib.contextmanager
def taken_port(cluster, exported):
    port = int(exported.get("MASTER_PORT", 80))
    if port == 80:
        yield
        return
    with background(cluster, ["python3", "-c", LISTEN.replace("PORT", str(port))], user="bob", node="node001", ready=True):
        yield


def outcome(cluster, exported, options=""):
    """How many ranks met, and our lines. A program whose ranks cannot meet is ended."""
    line = ["timeout", "-k", "5", "40", "srun", "-K", *TWO.split(), *options.split(), "python3", "train.py"]
    done = cluster.run(line, env=exported, timeout=90)
    met = re.findall(r"^sum (\d+) ", done.stdout, re.M)
    return (int(met[0]) if len(met) == 4 and len(set(met)) == 1 else 0), told(done)


@pytest.mark.parametrize("name", ROWS)
def test_each_exported_address_has_its_outcome(cluster, name):
    exported, *expected = ROWS[name]
    with taken_port(cluster, exported):
        for options, (ranks, said) in zip(("", ASK), expected):
            met, lines = outcome(cluster, exported, options)
            lines = [text for text in lines if "ended first" not in text and "failed first" not in text]
            found = [text for text in lines if said and said in text]
            assert met == ranks and (found or (not said and not lines)), (options, met, lines)


@pytest.mark.full
def test_no_row_is_worse_than_with_1_0_0(cluster, capsys):
    """Prints the table of ranks that meet, and our lines. Without the plugin each row fails without a line."""
    plugin = build_1_0_0()
    for name, (exported, *_) in ROWS.items():
        with taken_port(cluster, exported):
            with cluster.other_plugstack():
                off = outcome(cluster, exported)
            with cluster.other_plugstack(f"optional {plugin}\n"):
                before = [outcome(cluster, exported, options) for options in ("", ASK)]
            now = [outcome(cluster, exported, options) for options in ("", ASK)]
        assert off == (0, []), (name, off)
        with capsys.disabled():
            print(f"\n{name}:", *(f"{how}: {met} ranks meet, {len(lines)} lines;" for how, (met, lines) in zip(HOW, (off, *before, *now))))
        assert all(after[0] >= earlier[0] for earlier, after in zip(before, now)), (name, before, now)


# -- IPv6 alone


FAILS = "import os, sys, time; sys.exit(3) if os.environ['RANK'] == '2' else time.sleep(2)"


@pytest.fixture(scope="module")
def ipv6(cluster_factory):
    return training_cluster(cluster_factory, "ipv6", "--ipv6")


def sums(ipv6, options, *program, **run):
    done = srun(ipv6, options, *program, timeout=180, **run)
    assert re.findall(r"^sum (\d)", done.stdout, re.M) == ["4"] * 4 and told(done) == [], done


def test_no_host_has_an_ipv4_address(ipv6):
    done = srun(ipv6, "-N2", "ip", "-4", "-o", "addr", "show", "eth0")
    assert done.stdout == ""


@pytest.mark.parametrize("program", [("python3", "train.py"), ("python3", "train.py", "slurm://")], ids=["env", "slurm"])
def test_a_world_meets_over_ipv6(ipv6, program):
    sums(ipv6, f"{TWO} --mpi=pmix", *program)


def test_torchrun_meets_over_ipv6(ipv6):
    sums(ipv6, ONE_EACH, *TORCHRUN)


def test_the_preloaded_library_meets_over_ipv6(ipv6):
    with ipv6.other_plugstack():
        sums(ipv6, f"{TWO} {preloading()}", "python3", "train.py")


def test_a_failure_and_an_address_of_another_node_are_named(ipv6):
    done = ipv6.run(["srun", *TWO.split(), "--bootstrap=on", "python3", "-c", FAILS])
    assert done.returncode == 3 and "task 2 (node002, local rank 0) failed first" in done.stderr, done.stderr
    other = srun(ipv6, TWO, "python3", "-c", "1", env={"MASTER_ADDR": "fd20::1:2"})
    assert len(told(other)) == 1 and "it is no address of node001, where rank 0 is" in told(other)[0], other.stderr

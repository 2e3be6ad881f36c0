"""A unique id is only in memory. The test searches every environment, command line, log and file of real steps."""

import base64
import os
import stat
from pathlib import Path

import pytest

from built_files import program
from harness import everything_below, module_cluster, wait_for

LIBNCCL = next((path for path in ("/usr/local/cuda/lib/libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                  "/usr/lib/x86_64-linux-gnu/libnccl.so.2") if os.path.exists(path)), None)

secret_cluster = module_cluster("secret", "--nodes", "2", "--cpus", "8", "--no-plugin", "--set", "SlurmdDebug=debug3")


def content(path):
    try:
        if not stat.S_ISREG(path.lstat().st_mode) and "proc" not in path.parts[:2]:
            return b""
        return path.read_bytes()
    except OSError:
        return b""


def is_the_machines_own(folder):
    own = Path("/", *folder.parts[4:])
    return folder.parts[1] == "proc" and folder.exists() and own.exists() and folder.samefile(own)


def places(cluster):
    """Everything that the test searches, by name. PMIx's shared memory is a file below slurmd's spool: see below."""
    roots = {}
    for pid in cluster.processes():
        for name in ("environ", "cmdline"):
            yield f"process {pid} {name}", content(Path(f"/proc/{pid}/{name}"))
        roots.setdefault(os.readlink(f"/proc/{pid}/ns/mnt"), pid)
    folders = [cluster.state / "log", cluster.state / "spool", cluster.state / "home"]
    folders += [Path(f"/proc/{pid}/root/{name}") for pid in roots.values() for name in ("tmp", "dev/shm", "var/tmp")]
    for folder in folders:
        if is_the_machines_own(folder):  # no host of the cluster has it
            continue
        for path in everything_below(folder):
            if "pmix_dstor" not in str(path):
                yield f"file {path}", content(path)


def forms(disguised):
    """The 64 random bits at the front of the id, which are its secret, as bytes and in the usual printed forms."""
    key = bytes(byte ^ 0x5A for byte in bytes.fromhex(disguised))[:8]
    number = int.from_bytes(key, "little")
    # In PMI-1's encoding: the characters with bits of the secret alone, for each place of its begin in a group of three bytes.
    carried = [base64.urlsafe_b64encode(bytes(before) + key)[(8 * before + 5) // 6:][:10] for before in range(3)]
    return [*carried, key, key.hex().encode(), f"{number:x}".encode(), str(number).encode(), f"{number:X}".encode()]


def read_ids(step):
    """The ids that the ranks print, or [] if one has none."""
    lines = [step.stdout.readline().split() for _ in range(4)]
    return [line[1] for line in lines] if all(len(line) == 2 and line[0] == "id" for line in lines) else []


def ids_of_step(cluster, number, leak=(), mpi="pmix"):
    """Starts a step and yields its id's forms while all ranks have it."""
    flag = cluster.home / f"end-{number}"
    line = ["srun", "-N2", "--ntasks-per-node", "2", f"--mpi={mpi}", program("secret_probe"),
            f"/home/alice/{flag.name}", *leak]
    env = {"SLURM_BOOTSTRAP_NCCL": LIBNCCL}
    step = cluster.start(line, env=env)
    try:
        ids = read_ids(step)
        assert ids, step.communicate(timeout=60)[1]
        assert len(set(ids)) == 1
        yield forms(ids[0])
    finally:
        flag.touch()
        assert step.wait(timeout=30) == 0, step.stderr.read()
        flag.unlink()


def search(cluster, wanted):
    looked, hits = 0, []
    for name, text in places(cluster):
        looked += 1
        hits += [name for form in wanted if form in text]
    return looked, hits


@pytest.mark.skipif(not LIBNCCL, reason="needs libnccl.so.2, whose ids have a key")
def test_the_id_is_nowhere_but_in_memory(secret_cluster, campaign, figure):
    looked, keys = 0, []
    for number in campaign.each(range(campaign.size(100, 4))):
        for wanted in ids_of_step(secret_cluster, number, mpi=("pmix", "none")[number % 2]):
            count, hits = search(secret_cluster, wanted)
            assert not hits, hits
            looked += count
            keys.append(wanted)
    steps = campaign.done
    # The logs and files after the steps, for late writes.
    count, hits = search(secret_cluster, [form for wanted in keys for form in wanted])
    assert not hits, hits
    assert len({wanted[0] for wanted in keys}) == steps
    figure("S2", got=f"{steps} steps, {looked + count:,} environments, command lines, logs and files: 0 hits", met=True,
           control="an id in a file is found")  # fmt: skip


@pytest.mark.skipif(not LIBNCCL, reason="needs libnccl.so.2, whose ids have a key")
def test_control_an_id_in_a_file_is_found(secret_cluster):
    for wanted in ids_of_step(secret_cluster, "control", leak=["/tmp/leak"]):
        _, hits = search(secret_cluster, wanted)
        assert any("tmp/leak" in name for name in hits)


@pytest.mark.skipif(not LIBNCCL, reason="needs libnccl.so.2, whose ids have a key")
def test_files_of_pmix_are_the_users_alone_and_end_with_the_step(secret_cluster):
    """libpmix shares exchanged values with the ranks of a node through a file that only their user and root's group may open."""
    stores = []
    for _ in ids_of_step(secret_cluster, "store"):
        for path in everything_below(secret_cluster.state / "spool"):
            if "/pmix_dstor" in str(path.parent) and path.is_file():
                stores.append(path)
                assert not path.stat().st_mode & 0o007 and path.stat().st_gid == 0, path.stat()
    # srun may end before slurmstepd has ended on every node.
    wait_for(lambda: not any(path.exists() for path in stores), 10, "a store outlives its step")
    other = secret_cluster.run(["sh", "-c", "cat /run/slurm-bootstrap/*/spool/*/pmix*/* 2>/dev/null | wc -c"], user="bob")
    assert other.stdout.strip() in ("0", ""), other.stdout

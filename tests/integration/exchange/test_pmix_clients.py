"""A task may have its own PMIx, as in a container: the exchange with a client of another release than slurmstepd's.

The containers are the root folders of other Debians (scripts/debian/root.sh), and tasks in them load the libpmix there."""

# SPDX-License-Identifier: Apache-2.0

import re

import pytest

from built_files import program
from harness import HAS_PMIX, run_here
from debian import root_of, slurm_of_debians
from test_report.report import PACKAGES

TASKS = ("-N2", "--ntasks-per-node", "2", "--mpi=pmix")
# Like a container runtime: binds the files of the host that the task needs into the root folder.
ENTER = """
root=$1; shift
mount --make-rprivate /
for folder in /run /proc /sys /dev /run/slurm-bootstrap-tree; do
  mkdir -p "$root$folder" && mount --rbind "$folder" "$root$folder" || exit
done
mount -t tmpfs none "$root/tmp"
exec chroot "$root" "$@"
"""
INSIDE = ("unshare", "--mount", "sh", "-c", ENTER, "enter")
# The ranks of one node run in a root folder, the others on the host. Within a node PMIx itself cannot mix releases.
MIXED = 'root=$1; shift; [ $SLURM_NODEID = 0 ] && exec "$@"; exec unshare --mount sh -c "$ENTER" enter "$root" "$@"'


def version_in(*folder):
    """The version of the installed libpmix, without Debian's suffix."""
    line = ["dpkg-query", *folder, "-W", "-f", "${db:Status-Abbrev} ${Version}\n", *PACKAGES["PMIx"]]
    found = [words.split()[1] for words in run_here(line).stdout.splitlines()
             if words.startswith("ii")]
    return found[0].split("-")[0] if found else ""


@pytest.fixture(scope="module", params=slurm_of_debians())
def root(request):
    found = root_of(request.param)
    if not found:
        pytest.skip(f"there is no Debian {request.param}; make it with scripts/debian/root.sh {request.param} make")
    return found


@pytest.fixture(scope="module")
def cluster(cluster_factory):
    if not HAS_PMIX:
        pytest.skip("this Slurm was built without PMIx")
    return cluster_factory("clients").up("--nodes", "2", "--cpus", "8")


def step(cluster, *command):
    """A step of root, since only root may enter such a folder. None of its calls reaches its deadline."""
    env = {"ENTER": ENTER, "SLURM_BOOTSTRAP_TIMEOUT": "600"}
    return cluster.run(["srun", *TASKS, *command], user="root", env=env, timeout=300)


def assert_all_exchanged(done):
    ranks = sorted(int(rank) for rank in re.findall(r"^rank (\d) of 4: 5 rounds", done.stdout, re.MULTILINE))
    assert done.returncode == 0 and ranks == [0, 1, 2, 3], done


def test_a_pmix_client_of_another_release_exchanges(cluster, root, figure):
    client, server = version_in(f"--admindir={root}/var/lib/dpkg"), version_in()
    assert client != server
    for who in (INSIDE, ("sh", "-c", MIXED, "mixed")):
        assert_all_exchanged(step(cluster, *who, root, program("exchange_probe"), "--rounds", "5"))
    figure("M9", part=f"PMIx client {client}", got=f"2 of 2 steps of 4 ranks exchanged with slurmstepd's {server}", met=True,
           is_full=True, control="a client without libpmix is told so")  # fmt: skip


def test_control_a_client_without_pmix_gets_an_error(cluster, root):
    """Shows that the exchange above uses the folder's own libpmix: without it there is one sentence, at once."""
    hide = ENTER.replace("exec chroot", 'for file in "$root"/usr/lib/*/libpmix.so*; do mount --bind /dev/null "$file"; done; exec chroot')
    done = step(cluster, "unshare", "--mount", "sh", "-c", hide, "enter", root, program("exchange_probe"))
    assert done.returncode != 0 and "libpmix.so.2" in done.stderr, done

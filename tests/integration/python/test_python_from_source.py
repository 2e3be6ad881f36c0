"""A user without root follows etc/doc/python.md: from a checkout to four ranks on two nodes, and the message about a missing part."""

# SPDX-License-Identifier: Apache-2.0

import shutil
import subprocess
import sys

import pytest

from checks.pages import read_page
from harness import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "integration" / "documents"))

from document_runner import judge  # noqa: E402

pytestmark = pytest.mark.full  # the user has no compiler cache

BLOCKS = [block for block in read_page(REPOSITORY / "etc/doc/python.md").blocks if "test_python_from_source" in block.reason]
[PROGRAM] = [block.text for block in read_page(REPOSITORY / "etc/doc/python.md").blocks if "init_process_group" in block.text]
HEADERS = ["/usr/include/tl", "/usr/include/CLI", "/usr/lib/x86_64-linux-gnu/pmix2/include"]
PACKAGES = [("tl/expected.hpp", "libexpected-dev"), ("CLI/CLI.hpp", "libcli11-dev"), ("pmix.h", "libpmix-dev")]
COMPILERS = [f"/usr/bin/x86_64-linux-gnu-{name}-12" for name in ("gcc", "g++")]
# The network of this machine, the home of the cluster, and some files hidden.
AS_USER = """
for path in $1; do if [[ -d $path ]]; then mount -t tmpfs none "$path"; else mount --bind /dev/null "$path"; fi; done
mount -t tmpfs none /home
mkdir /home/alice
mount --bind "$2" /home/alice
cd /home/alice/checkout
exec setpriv --reuid "$3" --regid "$4" --clear-groups env -i HOME=/home/alice PATH=/usr/bin:/bin bash -e -c "$5"
"""


class User:
    def __init__(self, cluster):
        self.cluster = cluster
        self.owner = cluster.home.stat()

    def run(self, text, without=()):
        """Runs a command on this machine, as alice in her checkout."""
        words = [" ".join(without), str(self.cluster.home), str(self.owner.st_uid), str(self.owner.st_gid), text]
        return subprocess.run(["unshare", "--mount", "bash", "-e", "-c", AS_USER, "_", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def user(cluster_factory):
    cluster = cluster_factory("source", asks=False).up("--no-plugin", "--nodes", "2", "--gpus", "2", "--cpus", "8")
    user = User(cluster)
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    for name in names:
        target = cluster.home / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, target)
    subprocess.run(["chown", "-R", f"{user.owner.st_uid}:{user.owner.st_gid}", cluster.home / "checkout"], check=True)
    return user


def test_from_a_checkout_to_four_ranks(user):
    install, with_headers, *steps = BLOCKS
    first = user.run(install.text, without=HEADERS)
    if "No matching distribution" in first.stdout:
        pytest.skip("PyPI gave no scikit-build-core")
    assert first.returncode != 0 and "tl/expected.hpp is not there: install libexpected-dev" in first.stdout, first.stdout
    done = user.run(". ~/venv/bin/activate\n" + with_headers.text, without=HEADERS)
    if "Temporary failure resolving" in done.stdout:
        done = user.run(install.text)
    assert done.returncode == 0, done.stdout[-3000:]
    user.cluster.write_home("world.py", PROGRAM)
    user.cluster.write_home("train_ddp.py", (REPOSITORY / "etc/examples/train_ddp.py").read_text())
    assert len(steps) == 2
    for block in steps:
        done = user.cluster.run(["bash", "-c", f"cd; . ~/venv/bin/activate; {block.text}"], timeout=120)
        assert not judge(block, done.returncode, done.stdout), done


@pytest.mark.parametrize("without, told", [
    (HEADERS[2:], ["pmix.h is not there: install libpmix-dev"]),
    (HEADERS, [f"{header} is not there: install {package}" for header, package in PACKAGES]),
    (COMPILERS, ["Could not find compiler"]),
], ids=["PMIx", "all headers", "compiler"])
def test_what_is_missing_is_named_at_once(user, without, told):
    done = user.run("python3 -m venv ~/venv\n. ~/venv/bin/activate\npip install .", without)
    if "No matching distribution" in done.stdout:
        pytest.skip("PyPI gave no scikit-build-core")
    said = " ".join(done.stdout.split())
    assert done.returncode != 0 and all(sentence in said for sentence in told), done.stdout
    assert said.count("is not there: install") == sum("is not there: install" in sentence for sentence in told), done.stdout

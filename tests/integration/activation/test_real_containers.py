"""The lines of etc/doc/containers.md with charliecloud and podman, on two nodes, in an image that debootstrap makes."""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from built_files import LIBRARY, built
from harness import REPOSITORY, run_here

IMAGE = Path("/var/cache/slurm-bootstrap/container-image")
PACKAGES = "python3-minimal,python3-torch,libpmix2,libpmi0,libhwloc15"
TOOLS = ("charliecloud-runtime", "podman", "crun", "uidmap", "debootstrap")
ALICE = 10001
PAGE = (REPOSITORY / "etc/doc/containers.md").read_text(encoding="utf-8")
[BLOCK] = re.findall(r"<!-- not run: test_real_containers runs these lines -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
# Joins continued lines.
LINES = [line for line in BLOCK.replace("\\\n", "").splitlines() if line.startswith(("srun", "PMIX")) and "podman info" not in line]


def make_image():
    """Made once on a machine; it belongs to alice, like an image that a user has unpacked."""
    site = run_here(["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian", "Label: Debian"],
                    check=True).stdout.split()[0]
    fresh = IMAGE.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    done = run_here(["unshare", "--mount", "--", "debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", fresh, site])
    if done.returncode != 0:
        pytest.skip(f"debootstrap: {done.stdout[-300:]}")
    fresh.rename(IMAGE)


@pytest.fixture(scope="module")
def site(cluster_factory):
    done = run_here(["apt-get", "install", "-y", "--no-install-recommends", *TOOLS])
    if done.returncode != 0:
        pytest.skip(f"apt-get: {done.stderr[-300:]}")
    if not IMAGE.exists():
        make_image()
    shutil.copy(built("libbootstrap/slurm-bootstrap"), IMAGE / "usr/bin")
    shutil.copy(built(LIBRARY), IMAGE / "usr/lib/x86_64-linux-gnu")
    cluster = cluster_factory("real-containers").up("--nodes", "2", "--cpus", "8", "--gpus", "2", "--constrain-devices")
    home = cluster.home
    (home / "image").symlink_to(IMAGE)
    cluster.write_home("train_ddp.py", (REPOSITORY / "etc/examples/train_ddp.py").read_text(encoding="utf-8"))
    subprocess.run(["chown", "-hR", f"{ALICE}:{ALICE}", IMAGE], check=True)
    # The page's commands for an image.
    cluster.succeed(["bash", "-ec", "\n".join(line for line in BLOCK.splitlines() if line.startswith(("touch", "mkdir")))])
    for node in cluster.nodes:
        script = f"echo alice:{10 * ALICE}:65536 > /tmp/ids; mount --bind /tmp/ids /etc/subuid; mount --bind /tmp/ids /etc/subgid"
        assert cluster.run(["bash", "-ec", script], user="root", node=node).returncode == 0
    [first] = [line for line in BLOCK.splitlines() if "podman info" in line]
    cluster.succeed(["bash", "-c", first])
    return cluster


def name_of(line):
    program = next(word for word in ("train_ddp", "--mpi=pmix", "check") if word in line)
    return f"{'podman' if 'podman' in line else 'charliecloud'} {program.lstrip('-')}{' preload' if 'preload' in line else ''}"


@pytest.mark.full
@pytest.mark.parametrize("line", LINES, ids=map(name_of, LINES))
def test_a_line_of_the_page_works(site, line):
    done = site.succeed(["bash", "-c", line], timeout=180)
    if "train_ddp" in line:
        assert "on 4 ranks" in done.stdout and re.findall(r"^(\d) +node00\d +(\d) +4 ", done.stdout, re.MULTILINE) == [
            ("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")]
    else:
        assert "all 4 ranks answered" in done.stdout and "each rank can open its own" in done.stdout, done.stdout
        assert ("PMIx" if "pmix" in line else "PMI-1") in done.stdout


def test_control_the_page_has_lines_of_charliecloud_and_podman():
    assert {name_of(line) for line in LINES} == {f"{tool} {what}" for tool in ("charliecloud", "podman")
                                                 for what in ("train_ddp", "train_ddp preload", "mpi=pmix", "check")}


@pytest.mark.full
def test_a_step_in_a_container_is_found_from_outside(site):
    """In an image without Slurm's commands `where` reports this in one sentence."""
    script = ("srun -J inside -N2 --ntasks-per-node=1 --bootstrap-ports=1 ch-run image -- sleep 60 & slurm-bootstrap where inside --wait 40; "
              "slurm-bootstrap where inside --rank 1; ch-run image -- slurm-bootstrap where inside; kill %1; wait")
    done = site.run(["salloc", "-Q", "-N2", "--ntasks-per-node=1", "bash", "-c", script], timeout=180)
    assert re.match(r"node001:\d+\nnode002:\d+\n$", done.stdout), done
    assert "slurm-bootstrap: looked for srun in PATH, which has none; run this command on a host with Slurm's commands" in done.stderr, done

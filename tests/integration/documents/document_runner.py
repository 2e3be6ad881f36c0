"""Runs the commands of the pages: on a cluster with the project installed, and on throwaway machines."""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import subprocess
import sys

from harness import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "integration" / "scripts"))

from throwaway_machine import ThrowawayMachine

WORLD = ["-N2", "--ntasks-per-node=2", "--gres=gpu:2"]  # for a batch script without a size
SWITCH = "plugstack.conf.d/zz-bootstrap.conf"
# A reader answers apt's question by hand, and on Debian root may have no sudo.
READER = """echo 'APT::Get::Assume-Yes "true";' > /etc/apt/apt.conf.d/90documents
command -v sudo > /dev/null || { printf '#!/bin/sh\\nexec "$@"\\n' > /usr/local/bin/sudo && chmod 755 /usr/local/bin/sudo; }"""


def new_machine():
    machine = ThrowawayMachine()
    machine.succeed(READER)
    return machine


class DocumentCluster:
    """Two nodes with two GPUs each, on a machine where the project is installed as by its packages and switched on."""

    def __init__(self, make_cluster):
        self.machine = new_machine()
        self.machine.succeed("cmake --install build/release --prefix /usr --strip > /dev/null && ldconfig")
        self.plugstack = REPOSITORY / "build" / "plugstack.documents"
        self.plugstack.write_text("include /etc/slurm/plugstack.conf.d/*.conf\n")
        self.cluster = make_cluster("documents")
        self.cluster.asks = False
        self.cluster.prefix = self.machine.enter
        self.cluster.up("--nodes", "2", "--gpus", "2", "--cpus", "8", "--plugstack", str(self.plugstack))
        # Shows node001's log at Debian's path.
        self.machine.succeed(f"mkdir -p /var/log/slurm && ln -s {self.cluster.state}/log/slurmd.node001.log /var/log/slurm/slurmd.log")
        self.pages = set()

    def close(self):
        self.plugstack.unlink()
        trouble = self.cluster.close()
        self.cluster.prefix = []  # the machine has ended before the cluster is closed again
        self.machine.close()
        assert trouble == ""

    def folder(self, page):
        """A folder for each page, shared by all nodes, with the examples. A new page begins with the plugin switched on."""
        folder = self.cluster.home / page.replace("/", "-")
        if page not in self.pages:
            self.pages.add(page)
            shutil.copytree(REPOSITORY / "etc" / "examples", folder)
            owner = self.cluster.home.stat()
            subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", folder], check=True)
            switches = (self.cluster.state / "etc" / SWITCH).parent
            shutil.rmtree(switches, ignore_errors=True)
            switches.mkdir()
            (switches.parent / SWITCH).symlink_to("/usr/share/slurm-bootstrap/bootstrap.conf")
        return f"/home/alice/{folder.name}"

    def run(self, page, text, words=()):
        """(exit status, what it printed)"""
        folder = self.folder(page)
        user, node = ("root", "node001") if "root" in words else ("alice", "head")
        if "job" in words:
            text = job(text)
        line = ["bash", "-c", 'cd "$1" && exec bash -e -c "$2" 2>&1', "_", folder, text]
        done = self.cluster.run(line, user=user, node=node, timeout=240)
        return done.returncode, done.stdout


def job(text):
    """Commands that submit `text` as a batch script, wait for it and show its output."""
    script = re.sub(r"\A#!.*\n", "", text)
    size = "" if "#SBATCH" in script else " ".join(WORLD)
    return f"""cat > document.sbatch <<'END_OF_DOCUMENT'
#!/bin/bash -e
{script}
END_OF_DOCUMENT
status=0
sbatch --quiet --wait --output=document.out {size} document.sbatch || status=$?
cat document.out
exit $status
"""


class DocumentMachines:
    """A throwaway machine for each page, with a clean clone of the repository in place of this checkout."""

    def __init__(self):
        self.machines = {}

    def run(self, page, text):
        if page not in self.machines:
            for machine in self.machines.values():
                machine.close()
            self.machines = {page: new_machine()}
            # At the path of this checkout, so that the compiler cache finds its files.
            self.machines[page].succeed(f"git clone -q --no-hardlinks {REPOSITORY} /var/clone && mount --bind /var/clone {REPOSITORY}")
        machine = self.machines[page]
        line = ["bash", "-c", 'cd "$1" && exec bash -e -c "$2" 2>&1', "_", REPOSITORY, text]
        done = machine.run(line, timeout=560)
        return done.returncode, done.stdout

    def close(self):
        for machine in self.machines.values():
            machine.close()


# Values that differ from run to run: ids, ports, versions, times.
LOOSE = [(r"StepId=\d+\.\d+(\.\d+)?", "StepId=#"), (r"\b[Jj]ob \d+", "job #"), (r"\b\d+([.,]\d+)+\b", "#"), (r"\b\d{4,}\b", "#"),
         (r"(?:\b\d+|#) ?(ns|us|ms|s|min|[KMG]i?B|GB/s)\b", r"# \1"), (r"\s+", " ")]


def loosen(text):
    for pattern, mark in LOOSE:
        text = re.sub(pattern, mark, text)
    return text.strip()


def missing_line(expected, printed):
    """The first line of `expected` that is not in `printed`, in this order, or None. `...` stands for any text."""
    rest = iter([loosen(line) for line in printed.splitlines()])
    for line in expected.splitlines():
        parts = [re.escape(loosen(part)) for part in line.split("...")]
        pattern = re.compile(r" ?.* ?".join(parts))
        if not pattern.fullmatch("") and not any(pattern.fullmatch(candidate) for candidate in rest):
            return line
    return None


def judge(block, status, printed):
    """What is wrong with the exit status or the output of a block, or ''."""
    if (status != 0) != ("fails" in block.words):
        return f"it ended with status {status}; it printed:\n{printed[-3000:]}"
    line = missing_line(block.output or "", printed)
    return f"it did not print, in this order: {line}\nit printed:\n{printed[-3000:]}" if line is not None else ""

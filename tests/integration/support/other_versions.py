"""Other versions of the plugin, for hosts with different versions."""

# SPDX-License-Identifier: Apache-2.0

import re
import shutil
import subprocess

import pytest

from built_files import PLUGIN
from harness import INSIDE, REPOSITORY, succeed_here

FORMAT = 5  # the format of the messages from srun to the nodes
RELEASE_1_0_0 = "30a1f7cf6aa75ef38c9477c17a0a706b9b2c6f2f"


def build_folder(version):
    folder = REPOSITORY / "build" / f"other-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    return folder


def build(folder):
    for line in (["cmake", "--preset", "release", "-B", folder / "build", "-DBUILD_TESTING=OFF"],
                 ["cmake", "--build", folder / "build", "--target", "spank_bootstrap"]):
        succeed_here(line, cwd=folder / "source")
    return f"{INSIDE}/build/{folder.name}/build/{PLUGIN}"


def build_1_0_0():
    """The plugin of release 1.0.0."""
    if subprocess.run(["git", "cat-file", "-e", RELEASE_1_0_0], cwd=REPOSITORY, capture_output=True, check=False).returncode != 0:
        pytest.skip("this repository does not have the history of 1.0.0")
    folder = build_folder("1.0.0")
    copy = f"git archive {RELEASE_1_0_0} | tar -x -C '{folder}/source'"
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", copy], cwd=REPOSITORY, check=True)
    return build(folder)


def build_other(version, decision_format):
    """The plugin with another version, built from the current files."""
    folder = build_folder(version)
    copy = f"git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C '{folder}/source'"
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", copy], cwd=REPOSITORY, check=True)
    numbers = dict(zip(("MAJOR", "MINOR", "PATCH"), version.split(".")))
    header = "libbootstrap/include/bootstrap/bootstrap.h"
    for path, old, new in (*((header, rf"(BOOTSTRAP_VERSION_{name}) \d+", rf"\1 {number}") for name, number in numbers.items()),
                           ("libbootstrap/core/step/step_facts.cc", f"kFormat = {FORMAT}", f"kFormat = {decision_format}")):
        file = folder / "source" / path
        text, count = re.subn(old, new, file.read_text(encoding="utf-8"))
        assert count == 1, path
        file.write_text(text, encoding="utf-8")
    return build(folder)

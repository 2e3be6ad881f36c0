"""The recipes of etc/packages: their options configure and build this tree, which installs the files that they name."""

# SPDX-License-Identifier: Apache-2.0

import re
import subprocess
from pathlib import Path

import pytest

from harness import REPOSITORY, succeed_here

PACKAGES = REPOSITORY / "etc" / "packages"


def install(folder, options):
    for line in (["cmake", "-S", REPOSITORY, "-B", folder / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib",
                  *options], ["cmake", "--build", folder / "build"], ["cmake", "--install", folder / "build", "--prefix", folder / "usr"]):
        succeed_here(line)
    return folder / "usr"


def read_version():
    header = (REPOSITORY / "libbootstrap/include/bootstrap/bootstrap.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"define BOOTSTRAP_VERSION_\w+ (\d+)", header))


@pytest.mark.full
def test_the_easybuild_recipe_builds_this_tree(tmp_path):
    [file] = (PACKAGES / "easybuild").glob("*.eb")
    recipe = {"SOURCE_TAR_GZ": "", "SHLIB_EXT": "so"}
    exec(file.read_text(encoding="utf-8"), recipe)  # EasyBuild reads it as Python, too
    assert (recipe["version"], file.name) == (read_version(), "{name}-{version}-{0}-{1}.eb".format(*recipe["toolchain"].values(), **recipe))
    prefix = install(tmp_path, recipe["configopts"].split())
    for path in [*recipe["sanity_check_paths"]["files"], *recipe["sanity_check_paths"]["dirs"]]:
        assert (prefix / path).exists(), path
    for command in recipe["sanity_check_commands"]:
        assert subprocess.run([prefix / "bin" / command.split()[0], *command.split()[1:]], check=False).returncode == 0
    assert not list(Path(prefix).rglob("spank_bootstrap.so"))


@pytest.mark.full
def test_the_spack_recipe_builds_this_tree(tmp_path):
    """Spack is on no registry that the tests may use, so the test reads its arguments for CMake from the recipe's text."""
    recipe = (PACKAGES / "spack" / "package.py").read_text(encoding="utf-8")
    compile(recipe, "package.py", "exec")
    assert f'version("{read_version()}"' in recipe
    options = [f"-D{name}={value}" for name, value in re.findall(r'self\.define\("(\w+)", (\w+)\)', recipe)]
    variants = dict(re.findall(r'variant\("(\w+)", default=(\w+)', recipe))
    options += [f"-D{name}={variants[variant]}" for name, variant in re.findall(r'define_from_variant\("(\w+)", "(\w+)"\)', recipe)]
    assert len(options) == 2
    prefix = install(tmp_path, options)
    for name in ("bin/slurm-bootstrap", "lib/libbootstrap.so", "lib/slurm/spank_bootstrap.so", "include/bootstrap/bootstrap.h"):
        assert (prefix / name).exists(), name

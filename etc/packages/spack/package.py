# Spack recipe of slurm-bootstrap. Put it into a repository of your own as packages/slurm-bootstrap/package.py, with the address and
# the SHA-256 sum of the release's tarball.
# SPDX-License-Identifier: Apache-2.0
from spack.package import *


class SlurmBootstrap(CMakePackage):
    """Start distributed training with srun alone: a SPANK plugin, and a library that exchanges NCCL's unique ids over PMIx."""

    license("Apache-2.0")

    version("1.1.0")

    variant("spank", default=True, description="Build the SPANK plugin, which serves the Slurm that it is built with alone")

    for needed in ("c", "cxx", "cmake@3.22:", "ninja", "pkgconfig", "tl-expected", "cli11"):
        depends_on(needed, type="build")
    depends_on("pmix@4:5")
    depends_on("slurm@22.05:", when="+spank")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("BUILD_TESTING", False),
            self.define_from_variant("BOOTSTRAP_SPANK", "spank"),
        ]

    def setup_build_environment(self, env):
        if self.spec.satisfies("+spank"):
            env.set("SLURM_ROOT", self.spec["slurm"].prefix)

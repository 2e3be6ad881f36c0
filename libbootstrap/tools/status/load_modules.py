"""Makes modules of the texts that CMake puts behind this one: `slurm-bootstrap` carries all of its Python."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import types

if sys.version_info < (3, 6):
    found = (os.uname()[1], sys.version.split()[0])
    sys.exit("slurm-bootstrap: %s has Python %s, and status needs 3.6 or newer" % found)


def add_module(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)



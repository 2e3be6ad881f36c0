"""Makes modules of the texts that CMake appends to this one: `slurm-bootstrap` carries all of its Python."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import types

if sys.version_info < (3, 6):
    sys.exit("slurm-bootstrap: %s has Python %s, and this command needs 3.6 or newer" % (os.uname()[1], sys.version.split()[0]))

import _signal  # `signal` takes longer to import than Python to start

# Ctrl-C ends this command like others, without a traceback; an ignored signal stays ignored.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def complain(kind, error, trace):
    """One line, which srun shows on the host where the command runs."""
    while trace.tb_next:
        trace = trace.tb_next
    place = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    sys.stderr.write("slurm-bootstrap: its Python failed on %s: %r at %s:%d\n" % ((os.uname()[1], error) + place))


sys.excepthook = complain


def add_module(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name + ".py", "exec"), module.__dict__)



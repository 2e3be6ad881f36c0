"""Shares the files of tests between several pytest: each takes the next free file (scripts/checks/run_tests.py)."""

# SPDX-License-Identifier: Apache-2.0

import os
from itertools import chain, groupby
from pathlib import Path

# Files that keep all cores busy: one pytest runs them one after the other, and then helps with the rest.
BUSY = ("real_frameworks", "examples", "ends_at_random", "packages", "bench", "load", "layouts", "harm", "horovod")
# Files with the longest waits: they begin first, so that none of them remains for one pytest at the end.
LONGEST = ("documents", "python_package", "sanitizers", "plugin_faults", "scaling_report", "mpirun", "gpus", "exchange", "exchange_faults",
           "exchange_daemons")


def by_file(items, is_busy):
    """[[item, ...], ...] by file, in the order in which the pytest for the busy files, or another one, takes them."""
    files = [(file.stem.removeprefix("test_"), list(group)) for file, group in groupby(items, key=lambda item: item.path)]
    order = {name: place for place, name in enumerate((*BUSY, *LONGEST))}
    files.sort(key=lambda file: order.get(file[0], len(order)))
    return [group for name, group in files if is_busy or name not in BUSY]


def take(folder, file):
    """True if this pytest has taken the file, and no other one before."""
    try:
        os.close(os.open(Path(folder) / file[0].path.name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def with_next(items):
    """Yields (item, the next item or None), and reads each item as late as possible."""
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        yield item, following
        item = following


def run_taken(session, folder, is_busy):
    """pytest's own loop over the files that this pytest takes. It takes the next file before the last test of this one, which
    must know the next test to end the right fixtures."""
    taken = chain.from_iterable(file for file in by_file(session.items, is_busy) if take(folder, file))
    for item, following in with_next(taken):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

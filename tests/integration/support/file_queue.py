"""The files of tests, shared by several pytest: each takes the next one that no other has (scripts/checks/run_tests.py)."""

# SPDX-License-Identifier: Apache-2.0

import os
from itertools import chain, groupby
from pathlib import Path

# They keep all cores busy: one pytest runs these, one after the other, and then helps with the rest.
BUSY = ("real_frameworks", "examples", "ends_at_random", "packages", "bench", "load", "layouts", "harm", "horovod")
# They wait for the longest: begun first, so that none of them is left to one pytest at the end.
LONGEST = ("documents", "python_package", "sanitizers", "plugin_faults", "scaling_report", "mpirun", "gpus", "exchange", "exchange_faults",
           "exchange_daemons")


def by_file(items, is_busy):
    """[[item, ...], ...], in the order in which the pytest for the busy files, or another, takes them."""
    files = [(file.stem.removeprefix("test_"), list(group)) for file, group in groupby(items, key=lambda item: item.path)]
    order = {name: place for place, name in enumerate((*BUSY, *LONGEST))}
    files.sort(key=lambda file: order.get(file[0], len(order)))
    return [group for name, group in files if is_busy or name not in BUSY]


def take(folder, file):
    """Whether it was there to be taken."""
    try:
        os.close(os.open(Path(folder) / file[0].path.name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def with_next(items):
    """(item, the one after it or None), each asked for as late as can be."""
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        yield item, following
        item = following


def run_taken(session, folder, is_busy):
    """pytest's own loop, over the files that are taken here. The next file is taken before the last test of this one:
    that test has to know whose fixtures may end with it."""
    taken = chain.from_iterable(file for file in by_file(session.items, is_busy) if take(folder, file))
    for item, following in with_next(taken):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

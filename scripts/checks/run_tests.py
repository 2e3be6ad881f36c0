#!/usr/bin/env python3
"""Runs the integration tests in several pytest processes, which share the test files: most tests wait most of their time.

run_tests.py RESULTS.xml [PYTEST ARGUMENTS]   shows what they print, then the slowest tests, the failures, and the sum of the
                                              results; exit status 1 where a test failed
"""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from local_cluster import REPOSITORY, SCRIPT, STATE_ROOT  # noqa: E402
from test_report.report import counts  # noqa: E402

AT_ONCE = min(len(os.sched_getaffinity(0)) + 3, 5)
# Each line of progress is about a file. pytest ends with this script, even if that is killed, and takes its clusters down.
PYTEST = ["setpriv", "--pdeathsig", "TERM", "--", "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "--no-header",
          "-o", "console_output_style=classic"]  # fmt: skip
INTERRUPTED = 2  # exit status of pytest
SLOWEST = 10
# In the name of a cluster: the process that started it.
STARTED_BY = re.compile(r"(?:t|bench-|scale-)(\d+)(?:-.*)?")


def remove_left_clusters():
    """Removes the clusters of runs that were killed before they could take them down."""
    for folder in STATE_ROOT.glob("*"):
        owner = STARTED_BY.fullmatch(folder.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            print(f"run_tests: removes cluster {folder.name}, which a killed run has left", file=sys.stderr)
            subprocess.run([SCRIPT, "down", "--name", folder.name], stdin=subprocess.DEVNULL, check=False)


def run(folder, number, arguments, processes, shows, signals):
    """One pytest, whose lines are shown as they come; its exit status."""
    if signals:
        return INTERRUPTED
    line = [*PYTEST, f"--queue={folder}", f"--junit-xml={folder}/{number}.xml", *(["--busy"] if number == 0 else []), *arguments]
    with subprocess.Popen(line, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as process:
        processes.append(process)
        for signal_number in signals:  # it was not among the processes yet
            process.send_signal(signal_number)
        for text in process.stdout:
            with shows:
                print(text, end="", flush=True)
    return process.returncode


def join(results, path):
    """One file of results of all."""
    all_suites = ElementTree.Element("testsuites")
    for file in results:
        all_suites.extend(ElementTree.parse(file).getroot().iter("testsuite"))
    ElementTree.ElementTree(all_suites).write(path, encoding="unicode", xml_declaration=True)


def name_of(case):
    return f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"


def tell(path):
    """Ends with the line that counts the results."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    print(f"\nthe {SLOWEST} slowest tests:")
    for case in sorted(cases, key=lambda case: float(case.get("time")), reverse=True)[:SLOWEST]:
        print(f"  {float(case.get('time')):5.1f} s  {name_of(case)}")
    of_slurm = [case for case in cases if any("Slurm's own" in (skip.get("message") or "") for skip in case.iter("skipped"))]
    print(f"failures of Slurm's own, of {len(cases)} tests: {len(of_slurm)}", *map(name_of, of_slurm))
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            print(f"FAILED {name_of(case)}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts(path)))


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    path, *arguments = arguments
    Path(path).unlink(missing_ok=True)
    processes, shows, signals = [], threading.Lock(), []

    def pass_on(signal_number, _):
        """Ctrl-C and SIGTERM let each take its clusters down."""
        signals.append(signal_number)
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal_number)

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, pass_on)
    remove_left_clusters()
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            statuses = list(pool.map(lambda number: run(folder, number, arguments, processes, shows, signals), range(AT_ONCE)))
        if max(statuses) > 1 or min(statuses) < 0:
            print(f"run_tests: a pytest ended before its tests: exit statuses {statuses}", file=sys.stderr)
            return 3
        join(sorted(Path(folder).glob("*.xml")), path)
    tell(path)
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Runs the integration tests in several pytest at once, which share the files of tests: most tests wait most of their time.

run_tests.py RESULTS.xml [PYTEST ARGUMENTS]   shows what they print, ends with the sum of their results; exit status 1 where
                                              a test failed
"""

# SPDX-License-Identifier: Apache-2.0

import os
import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from local_cluster import REPOSITORY  # noqa: E402
from test_report.report import counts  # noqa: E402

AT_ONCE = min(len(os.sched_getaffinity(0)) + 1, 4)
# Each line of its progress is about a file.
PYTEST = ["/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "--no-header", "-o", "console_output_style=classic"]


def run(folder, number, arguments, processes, shows):
    """One pytest, whose lines are shown as they come; its exit status."""
    line = [*PYTEST, f"--queue={folder}", f"--junit-xml={folder}/{number}.xml", *(["--busy"] if number == 0 else []), *arguments]
    with subprocess.Popen(line, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as process:
        processes.append(process)
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


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    path, *arguments = arguments
    Path(path).unlink(missing_ok=True)
    processes, shows = [], threading.Lock()

    def pass_on(signal_number, _):
        """Ctrl-C and SIGTERM let each take its clusters down."""
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal_number)

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, pass_on)
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            statuses = list(pool.map(lambda number: run(folder, number, arguments, processes, shows), range(AT_ONCE)))
        if max(statuses) > 1 or min(statuses) < 0:
            print(f"run_tests: a pytest ended before its tests: exit statuses {statuses}", file=sys.stderr)
            return 3
        join(sorted(Path(folder).glob("*.xml")), path)
    found = counts(path)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**found))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

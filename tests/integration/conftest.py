"""Fixtures of the integration tests: real clusters in namespaces of this machine."""

import ctypes
import os
import random
import re
import shutil
import signal
from collections import Counter
from contextlib import contextmanager

import pytest

from campaign import Campaign
from default_cases import left_to_full
from file_queue import run_taken
from framework_environments import environments  # noqa: F401  a fixture
from harness import Cluster, driver_gpus
from test_report.figures import Figure, keep


def pytest_addoption(parser):
    parser.addoption("--queue", help="a folder: files of tests that several pytest share are marked there as taken")
    parser.addoption("--busy", action="store_true", help="with --queue: of these pytest the one for files that use all cores")
    parser.addoption("--default", action="store_true", help="one case of each kind: not what default_cases.py leaves to --full")
    parser.addoption("--full", action="store_true", help="the long form: hundreds of layouts")
    parser.addoption("--seed", type=int, default=0, help="of what is generated; 0: another one each time, which is told at the end")
    parser.addoption("--stepmgr", action="store_true", help="each job of the clusters has a step manager: Slurm 24.05 and newer")
    parser.addoption("--minutes", type=float, default=35, help="after which a campaign of --full begins no other case")
    parser.addoption("--harm-with", choices=["plugin", "nothing"], default="plugin",
                     help="what the harm suite compares with stock: nothing tries whether its cases are steady")
    parser.addoption("--write-frameworks-table", action="store_true", help="write the table of etc/doc/frameworks-run.md from this run")
    parser.addoption("--write-harm-table", action="store_true", help="write etc/doc/harm.md from this run")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a real GPU; skips without one, and never passes")
    config.addinivalue_line("markers", "full: of our own tools, and long; runs with --full")
    # Tests with generated cases need it when they are collected.
    config.option.seed = config.option.seed or random.SystemRandom().randrange(1, 1_000_000)
    if config.option.stepmgr:
        Cluster.settings = ("--set", "SlurmctldParameters=enable_stepmgr", "--set", "PrologFlags=Contain")
        Cluster.has_step_managers = True
    # SIGTERM ends pytest as Ctrl-C does: through the fixtures, which take their clusters down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Programs that a shell starts in the background ignore SIGINT, and every srun would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption("--default"):
        left = left_to_full(items)
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]
    for item in items:
        if item.get_closest_marker("full") and not config.getoption("--full"):
            item.add_marker(pytest.mark.skip(reason="runs with --full"))
        if item.get_closest_marker("gpu"):
            item.user_properties.append(("says", sentence_of(item)))


# srun ends a step if its connection to slurmstepd for output is reset: `_server_read` of Slurm's step_io.c. No plugin takes part.
# It happened on machines with many more programs than cores.
OF_SLURM = re.compile(r"srun: error: .*step_launch_notify_io_failure: aborting, io error with slurmstepd on node \d+")
# Characters of a failure. Python's XML parser takes minutes for a text of some megabytes.
LONGEST_FAILURE = 100_000


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Reports a failure of Slurm's own as skipped, and keeps the begin and the end of a long text."""
    report = (yield).get_result()
    text = report.longreprtext if report.failed else ""
    if len(text) > LONGEST_FAILURE:
        half = LONGEST_FAILURE // 2
        report.longrepr = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    found = OF_SLURM.search(text)
    if found:
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1], f"Slurm's own failure: {found[0]}")


def sentence_of(item):
    """The title of a test in the page of scripts/gpu-check: the first line of its docstring, or else its name."""
    says = (item.function.__doc__ or item.originalname.removeprefix("test_").replace("_", " ")).splitlines()[0]
    return f"{says} ({item.callspec.id})" if hasattr(item, "callspec") else says


def pytest_runtestloop(session):
    folder = session.config.getoption("--queue")
    if folder is None or session.testsfailed or session.config.option.collectonly:
        return None  # pytest's own loop
    run_taken(session, folder, session.config.getoption("--busy"))
    return True


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"what was generated: --seed {config.option.seed}")


def limit_time(item):
    """Lets a test that hangs fail, so that the other tests run; not while clusters are taken down."""
    seconds = 7200 if item.config.getoption("--full") else 2400

    def give_up(*_):
        pytest.fail(f"{item.nodeid} has not ended after {seconds} s")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    yield from limit_time(item)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    yield from limit_time(item)


@pytest.fixture(scope="session")
def is_full(pytestconfig):
    return pytestconfig.getoption("--full")


@contextmanager
def clusters():
    """A function that makes clusters. Each has a name that no other test run on this machine uses, and is removed at the end."""
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    if not shutil.which("slurmctld"):
        pytest.skip("a cluster needs slurmctld; run scripts/setup")
    made = []

    def make(label, asks=True):
        cluster = Cluster(f"t{os.getpid()}-{label}")
        cluster.asks = asks
        made.append(cluster)
        return cluster

    try:
        yield make
    finally:
        # A second Ctrl-C must not stop the cleanup.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        troubles = [cluster.close() for cluster in made]
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert not any(troubles), "\n".join(filter(None, troubles))


@pytest.fixture(scope="module")
def cluster_factory():
    """Makes clusters for a file of tests."""
    with clusters() as make:
        yield make


@pytest.fixture(scope="session")
def shared_clusters():
    with clusters() as make:
        yield make


@pytest.fixture(scope="session")
def cluster(shared_clusters):
    """The cluster that most tests share: two nodes, two GPUs each, no plugin."""
    return shared_clusters("plain").up("--no-plugin")


@pytest.fixture(scope="session")
def wide_cluster(shared_clusters):
    """Four nodes with many CPUs, where the plugin sets up every step, also steps with more tasks than GPUs."""
    return shared_clusters("wide").up(
        *("--nodes", "4", "--cpus", "64", "--gpus", "8", "--plugin-args", "when=always gpu_share=on"),
        *("--set", "LaunchParameters=use_interactive_step"),
    )


@pytest.fixture(scope="session")
def gpus():
    """The UUIDs of this machine's real GPUs."""
    found = driver_gpus()
    if not found:
        pytest.skip("needs a GPU, NVIDIA's driver and nvidia-smi, and no MIG")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        pytest.skip(f"needs libcuda: {error}")
    return found


@pytest.fixture(scope="module")
def gpu_cluster(cluster_factory, gpus):
    return cluster_factory("gpu").up("--nodes", "1", "--gpus", "real", "--cpus", str(2 * len(gpus)))


@pytest.fixture(scope="session")
def seed(pytestconfig):
    return pytestconfig.getoption("--seed")


@pytest.fixture
def campaign(request):
    option = request.config.getoption
    return Campaign(option("--full"), option("--minutes"), option("--seed"))


@pytest.fixture
def figure(campaign, capsys):
    """Prints a figure and keeps it for the report: figure("B1", got="0 of 10,000 failed", met=True, control="...", seed=7).
    The figure of a campaign that was cut short is not met."""

    def add(identity, part="", *, met, why="", **facts):
        is_full = facts.pop("is_full", campaign.is_full)
        why = "; ".join(filter(None, (campaign.why, why)))
        met, is_full = met and campaign.is_whole, is_full and campaign.is_whole
        measured = Figure(id=identity, part=part, met=met, is_full=is_full, why=why, **facts)
        with capsys.disabled():
            print(f"\n{measured.name}: {measured.got}" + (f" (seed {measured.seed})" if measured.seed else ""))
        keep(measured)

    return add


@pytest.fixture(scope="module")
def tally(request):
    """Adds up what several tests of a file measure for a figure: tally("M6", "steps refused"). The figure is kept when all of
    them have run. It is met if none of them failed and TALLY_GOALS of the file, if it has any, are reached."""
    counts, failed_before = {}, request.session.testsfailed
    goals = getattr(request.module, "TALLY_GOALS", {})

    def add(identity, what, count=1, part=""):
        counts.setdefault((identity, part), Counter())[what] += count

    yield add
    failed = request.session.testsfailed - failed_before
    for (identity, part), of_figure in counts.items():
        total, goal = sum(of_figure.values()), goals.get(identity, 0)
        told = ", ".join(f"{count:,} {what}" for what, count in of_figure.items())
        why = f"{total:,} of {goal:,} were run" if total < goal else ""
        keep(Figure(id=identity, part=part, got=f"{told}; {failed} tests failed", met=not failed and not why,
                    is_full=total >= goal and request.config.getoption("--full"), why=why,
                    control=getattr(request.module, "TALLY_CONTROL", "")))  # fmt: skip

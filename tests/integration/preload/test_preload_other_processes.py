"""The preloaded library in processes that are not ranks: it costs microseconds and changes nothing."""

import os
import shutil
import subprocess

import pytest

from built_files import LIBRARY, built

HELLO = '#include <stdio.h>\nint main(void) { puts("out"); fputs("err\\n", stderr); return 3; }\n'

# A child of a rank that has been set up: stamp and identity agree.
RANK = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_BOOTSTRAP_STEP": "12.0.0",
        "RANK": "1", "WORLD_SIZE": "2"}
BATCH = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0"}
ROLES = {"no job": {}, "batch step": BATCH, "child of a rank": RANK}


def run(command: list[str], role: str, preload: str = "", **more) -> tuple[int, bytes, bytes]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "BOOTSTRAP", "PMI"))}
    env |= ROLES[role] | ({"LD_PRELOAD": preload} if preload else {}) | more
    done = subprocess.run(command, env=env, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, list[str]]:
    """Commands by name; programs that cannot be built here are left out."""
    folder = tmp_path_factory.mktemp("programs")
    commands = {
        "bash": ["bash", "-c", "echo out; echo err >&2; ls / | head -n 1; exit 3"],
        "python": ["/usr/bin/python3", "-c", "import os, sys; print(len(os.listdir('/proc/self/fd'))); sys.exit(3)"],
        "threads": ["/usr/bin/python3", "-c", "import threading as t; t.Thread(target=print, args=('x',)).start()"],
    }
    for name, compiler, options in (("static", "gcc", ["-static"]), ("setuid", "gcc", []), ("plain", "gcc", []),
                                    ("clang ASan", "clang-14", ["-fsanitize=address"]), ("gcc ASan", "gcc", ["-fsanitize=address"])):
        target = str(folder / name.replace(" ", "-"))
        if not shutil.which(compiler):
            continue
        done = subprocess.run([compiler, "-x", "c", "-", "-o", target, *options], input=HELLO, text=True, capture_output=True)
        if done.returncode == 0:
            commands[name] = [target]
    if os.geteuid() == 0 and "setuid" in commands:
        os.chmod(folder, 0o755)
        os.chown(commands["setuid"][0], 65534, -1)
        os.chmod(commands["setuid"][0], 0o4755)
    return commands


@pytest.mark.parametrize("role", ROLES)
def test_programs_run_as_without_us(programs, role, tally):
    for name, command in programs.items():
        if name == "gcc ASan":
            continue
        assert run(command, role, built(LIBRARY)) == run(command, role), f"{name}: {command}"
        tally("L1", "programs with the same output and status")


def test_a_program_with_gccs_asan_runs_if_our_library_is_last(programs):
    """ASan's runtime must be first; the plugin appends its library, and a user must do so, too."""
    if "gcc ASan" not in programs:
        pytest.skip("no libasan")
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    runtime = os.path.realpath(runtime)
    alone = run(programs["gcc ASan"], "child of a rank", runtime)
    assert run(programs["gcc ASan"], "child of a rank", f"{runtime}:{built(LIBRARY)}") == alone
    control = run(programs["gcc ASan"], "child of a rank", f"{built(LIBRARY)}:{runtime}")
    assert b"does not come first" in control[2]


FEATURES = ("import ctypes; process = ctypes.CDLL(None); "
            "print(*(name for name in ('bootstrap_open', 'ncclCommInitRank', 'ncclCommInitRankScalable') "
            "if hasattr(process, name)))")


@pytest.mark.parametrize("nccl, calls", [("", []), ("2.14.3", ["ncclCommInitRank"]),
                                         ("2.28.9", ["ncclCommInitRank", "ncclCommInitRankScalable"])])
def test_a_program_finds_the_functions_of_its_own_nccl(nccl, calls):
    """dlsym(3) looks them up in the process. One of our names shows that our library is loaded."""
    libraries = [built(LIBRARY), *([built(f"tests/doubles/nccl-{nccl}/libnccl.so.2")] if nccl else [])]
    for role in ROLES:
        status, output, _ = run(["/usr/bin/python3", "-c", FEATURES], role, ":".join(libraries))
        assert (status, output.decode().split()) == (0, ["bootstrap_open", *calls])


@pytest.mark.parametrize("form", ["{own}:{ours}", "{ours}:{own}", "{ours}:{ours}", " {own} {ours} ", "{ours} {own}:{ours}"])
def test_our_library_joins_the_users_list_as_ld_so_reads_it(programs, form, tally):
    both = form.format(own=built("tests/integration/preload_empty.so"), ours=built(LIBRARY))
    for role in ROLES:
        assert run(programs["bash"], role, both) == run(programs["bash"], role)
        tally("L2", "lists of the user's with ours in them: nothing else changes")


def system_calls(command: list[str], role: str, preload: str, folder) -> list[str]:
    log = folder / "calls"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "BOOTSTRAP", "PMI", "LD_"))}
    line = ["strace", "-f", "-qq", "-o", str(log), "-E", f"LD_PRELOAD={preload}", *command]
    subprocess.run(line, env=env | ROLES[role], capture_output=True, timeout=60)
    return [entry.split(None, 1)[1] for entry in log.read_text().splitlines()]


def added_calls(library: str, role: str, folder) -> list[str]:
    """System calls that a trivial program makes with the library, but not with an empty one."""
    def counted(preload):
        calls = system_calls([built("tests/integration/preload_trivial")], role, preload, folder)
        return [call.partition("(")[0] for call in calls if preload not in call]

    more, fewer = counted(library), counted(built("tests/integration/preload_empty.so"))
    for call in fewer:
        if call in more:
            more.remove(call)
    return more


@pytest.mark.parametrize("role", ROLES)
def test_no_system_call_but_those_that_load_the_file(role, tmp_path, tally):
    if not shutil.which("strace"):
        pytest.skip("no strace")
    # Calls of ld.so, getpid, and calls of malloc: libstdc++ reserves memory for exceptions when memory has run out.
    allowed = {"mmap", "mprotect", "close", "read", "pread64", "fstat", "newfstatat", "getpid", "brk", "getrandom"}
    assert set(added_calls(built(LIBRARY), role, tmp_path)) <= allowed
    assert "write" in added_calls(built("tests/integration/preload_bad.so"), role, tmp_path)  # control
    tally("L1", "roles of a process without a system call of ours")

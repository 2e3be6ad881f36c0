"""`slurm-bootstrap check` and `run`: the table is right about good steps, about each way to break one, and about versions,
plugstack.conf and frameworks on the nodes."""

import json
import re

import pytest

from built_files import BUILT_INSIDE, COMMAND, LIBRARY, PLUGIN
from check_steps import CPU, FRAMEWORKS, GPU, NAMES, NEW_NCCL, check
from harness import Cluster, module_cluster, needs_device_cgroups, our_lines, stop, wait_for
from port_steps import background

DRIVER = f"{BUILT_INSIDE}/tests/doubles/cuda"  # a libcuda.so.1 for nodes without a GPU
OLD_NCCL = f"{BUILT_INSIDE}/tests/doubles/nccl-2.18.3/libnccl.so.2"
WIDTH = 80
PATIENT = (COMMAND, "check", "--json", "--timeout", "600")  # its step ends earlier unless something waits

# Listens like any program, accepts connections and sends nothing.
LISTEN = """import socket, sys, time
server = socket.create_server(("", int(sys.argv[1])), backlog=64)
print("ready", flush=True)
time.sleep(60)
"""

# Connects to rank 0 before this rank does, and sends lines that no rank sends.
INTRUDE = """import os, socket, sys, time
words = [b"GET / HTTP/1.0\\r\\n\\r\\n", bytes(range(256)), b"hello 99.0.0 1 1.0.0\\n", b"report\\n"]
for i in range(20):
    while True:
        try:
            door = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    door.sendall(words[i % len(words)])
    try:
        door.recv(1)
    except ConnectionResetError:
        pass
os.execv(sys.argv[1], sys.argv[1:])
"""

# Listens at the port of the check, as a rendezvous server does, and finds out whether another process still listens.
SERVE = """import os, socket, sys
port = int(os.environ["MASTER_PORT"])
listening = [line for table in ("tcp", "tcp6") for line in open(f"/proc/net/{table}")
             if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"]
if os.environ["RANK"] == "0":
    socket.create_server(("", port))
    print(f"{len(listening)} listened before", flush=True)
print(" ".join(sys.argv[1:]), os.environ["RANK"], flush=True)
raise SystemExit(7)
"""


def programs(cluster: Cluster, name: str, *lines: str) -> tuple[str, ...]:
    """Runs other programs in some of the ranks."""
    return "--multi-prog", cluster.write_home(name, "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def cluster(cluster_factory) -> Cluster:
    cluster = cluster_factory("check").up("--nodes", "4", "--cpus", "16", "--gpus", "4", "--plugin-args", "when=always")
    for name, text in ("listen.py", LISTEN), ("intrude.py", INTRUDE), ("serve.py", SERVE):
        cluster.write_home(name, text)
    return cluster


constrained = module_cluster(
    "check-gpus", "--nodes", "2", "--cpus", "16", "--gpus", "4", "--constrain-devices", "--plugin-args", "when=always")


def test_a_good_step_is_good_in_all_rows(cluster):
    done = check(cluster, "--mpi=pmix", *GPU, env={"LD_LIBRARY_PATH": DRIVER, "SLURM_BOOTSTRAP_NCCL": NEW_NCCL})
    assert {row["result"] for row in done.rows.values()} == {"ok"}, done.stdout
    assert (done.status, done.stderr) == (0, "")
    assert re.fullmatch(r"over PMIx, client \S+, server \S+: \S+ m?s", done.text("exchange"))
    assert done.text("NCCL") == f"2.28.9 ({NEW_NCCL})"
    assert done.text("GPUs") == "4 GPUs on 2 nodes; each rank can open its own"
    assert done.text("plan") == "the same for all ranks, set by the plugin"
    assert re.fullmatch(r"node001 is 10\.\S+ \(eth0\), round trip \S+ ms", done.text("network"))


def test_the_table_is_printed_once_with_the_same_results(cluster):
    options = ["srun", "--quiet", "--mpi=pmix", *GPU]
    done = cluster.run([*options, COMMAND, "check"], env={"LD_LIBRARY_PATH": DRIVER})
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"bootstrap: StepId=\d+\.0: 4 ranks on 2 nodes, rendezvous at node001:\d+", lines[0])
    assert lines[2].split() == ["CHECK", "RESULT", "DETAILS"] and lines[-1] == "All checks passed."
    names = [line[:15].strip() for line in lines[3:-2] if line[0] != " "]
    assert [name for name in NAMES if name in names or name != FRAMEWORKS] == names
    assert max(map(len, lines)) <= WIDTH


def test_a_step_without_pmix_and_gpus_has_no_warning(cluster):
    done = check(cluster, "--mpi=none", *CPU)
    assert done.troubled == [] and done.status == 0, done.stdout
    assert [done.result(name) for name in ("CUDA", "GPUs", "GPU peers")] == ["not there"] * 3
    assert re.fullmatch(r"over PMI-1: \S+ m?s", done.text("exchange"))


def test_all_ranks_of_a_larger_step_are_in_the_table(cluster):
    done = check(cluster, "--mpi=pmix", "-N4", "--ntasks-per-node=8", "--gres=none")
    assert done.troubled == [], done.stdout
    assert "all 32 ranks answered" in done.text("ranks")


def test_a_taken_port_is_named_and_the_rest_is_still_checked(cluster):
    port = "31501"
    with background(cluster, ["python3", "listen.py", port], ready=True):
        done = check(cluster, "--mpi=pmix", *CPU, env={"MASTER_PORT": port}, program=PATIENT, timeout=300)
    assert done.failed == ["port"] and done.status == 1, done.stdout
    assert done.text("port") == f"{port} on node001 is not free for rank 0: another program uses it"
    assert done.result("ranks") == done.result("exchange") == "ok"
    # Control: the same port when it is free.
    assert check(cluster, "--mpi=pmix", *CPU, env={"MASTER_PORT": port}).failed == []


@needs_device_cgroups
def test_hidden_peers_are_reported_with_the_hint(constrained):
    done = check(constrained, "--mpi=none", *GPU, "--gpu-bind=single:1")
    assert done.result("GPU peers") == "warning" and done.ranks("GPU peers") == [0, 1, 2, 3], done.stdout
    assert "all but 1 of the 2 GPUs" in done.text("GPU peers")
    assert done.rows["GPU peers"]["hint"] == "srun --gpu-bind=none"
    assert (done.result("GPUs"), done.status) == ("ok", 0)
    # Control: without the binding no GPU is hidden, and the two GPUs of the node outside the step do not count.
    assert check(constrained, "--mpi=none", *GPU).result("GPU peers") == "ok"


@needs_device_cgroups
def test_a_gpu_that_cannot_be_opened_is_reported(constrained):
    take = f"if [ $SLURM_PROCID = 3 ]; then export CUDA_VISIBLE_DEVICES=0,3; fi; exec {COMMAND} check --json"
    done = check(constrained, "--mpi=none", *GPU, program=("bash", "-c", take))
    assert done.failed == ["GPUs"] and done.ranks("GPUs") == [3] and done.status == 1, done.stdout


def test_two_ranks_on_one_gpu_are_named(cluster):
    take = f"if [ $SLURM_PROCID = 2 ]; then export BOOTSTRAP_GPU=1; fi; exec {COMMAND} check --json"
    done = check(cluster, "--mpi=none", *GPU, program=("bash", "-c", take))
    assert done.failed == ["GPUs"] and done.ranks("GPUs") == [2, 3] and done.status == 1, done.stdout
    assert done.text("GPUs").startswith("2 ranks of node002 share /dev/nvidia1")
    assert done.result("plan") == "warning" and 'BOOTSTRAP_GPU is "1"' in done.text("plan")


ENDS = "--bootstrap-grace=1"  # second after the first rank that fails


def test_a_rank_that_never_comes_is_named_at_the_deadline(cluster):
    options = programs(cluster, "missing", f"0-2 {COMMAND} check --json --timeout 3", "3 sleep 600")
    done = check(cluster, "--mpi=pmix", *CPU, ENDS, *options, program=(), timeout=300)
    assert done.failed == ["ranks"] and done.ranks("ranks") == [3], done.stdout
    assert done.text("ranks") == "1 of 4 ranks did not answer within 3 s"
    assert done.result("exchange") == "not tried"  # a fence without rank 3 would end the step
    assert done.status != 0


def test_each_rank_reports_that_it_cannot_reach_rank_0(cluster):
    options = programs(cluster, "headless", "0 sleep 600", f"1-3 {COMMAND} check --timeout 3")
    done = cluster.run(["srun", "--quiet", *CPU, ENDS, *options], timeout=300)
    said = re.findall(r"^bootstrap: StepId=\d+\.0 task (\d): this rank, on node00\d, cannot reach rank 0 at node001:\d+ "
                      r"within 3 s: Connection refused \(10\.\S+\)$", done.stderr, re.MULTILINE)  # fmt: skip
    assert sorted(said) == ["1", "2", "3"] and done.stdout == "", done.stderr
    assert done.returncode != 0


def test_another_nccl_on_one_node_is_named(cluster):
    take = f"[ $SLURM_NODEID = 1 ] && export SLURM_BOOTSTRAP_NCCL={OLD_NCCL}; exec {COMMAND} check --json"
    done = check(cluster, *CPU, program=("bash", "-c", take), env={"SLURM_BOOTSTRAP_NCCL": NEW_NCCL})
    assert done.failed == ["NCCL"] and done.ranks("NCCL") == [2, 3] and done.status == 1, done.stdout
    assert done.text("NCCL") == ("2.18.3 on 2 ranks, 2.28.9 on the others; different versions of NCCL make no communicator, and some wait "
                                 "for each other for ever")


def test_a_rank_with_another_plan_is_named(cluster):
    options = programs(cluster, "astray", f"0-1,3 {COMMAND} check --json", f"2 env MASTER_PORT=29999 {COMMAND} check")
    done = check(cluster, "--mpi=pmix", *CPU, *options, program=())
    assert done.failed == ["plan"] and done.ranks("plan") == [2] and done.status == 1, done.stdout
    assert done.text("plan") == "another plugin, a TaskProlog or a script changed MASTER_PORT after this plugin had set it"
    assert done.result("exchange") == "ok"  # it needs no port


def test_an_address_that_is_not_of_rank_0_is_reported(cluster):
    def meet_at(address):
        """Sets MASTER_ADDR in the task, since srun replaces a wrong one in its own environment."""
        return check(cluster, *CPU, program=("env", f"MASTER_ADDR={address}", COMMAND, "check", "--json"))

    done = meet_at("localhost")
    assert done.failed == ["network"] and done.ranks("network") == [2, 3], done.stdout
    assert "MASTER_ADDR" in done.text("plan") and "see the row of the plan" in done.rows["network"]["hint"]
    done = meet_at("no-such-host.invalid")
    assert done.failed == ["network"] and done.ranks("network") == [0, 1, 2, 3], done.stdout
    assert "does not resolve" in done.text("network")
    done = meet_at("node004")
    assert done.failed == ["network"], done.stdout
    done = check(cluster, *CPU, env={"MASTER_ADDR": "localhost"})
    assert done.failed == [] and done.status == 0, done.stdout


def test_a_node_that_is_cut_off_is_named_by_both_sides(cluster, tmp_path):
    def link(state):
        cluster.run(["ip", "link", "set", "eth0", state], user="root", node="node002")

    # srun gets nothing from node002 while it is cut off; home is no network here.
    wait = "touch ~/cut.$SLURM_PROCID; until [ -e /tmp/go ]; do sleep 0.1; done"
    step = f"{wait}; exec {COMMAND} check --json --timeout 3 2> ~/said.$SLURM_PROCID"
    home = cluster.home
    table = tmp_path / "table"
    process = cluster.start(["srun", "--quiet", *CPU, "bash", "-c", step], stdout=table.open("w"))
    try:
        wait_for(lambda: all((home / f"cut.{rank}").exists() for rank in range(4)))
        link("down")
        for node in "node001", "node002":
            cluster.run(["touch", "/tmp/go"], node=node)
        sentence = r"bootstrap: StepId=\d+\.0 task {}: this rank, on node002, cannot reach rank 0 at node001:\d+ within 3 s: \w"
        wait_for(lambda: table.read_text().endswith("}\n"), what="rank 0 said nothing")
        wait_for(lambda: all(re.match(sentence.format(rank), (home / f"said.{rank}").read_text()) for rank in (2, 3)),
                 what="node002 said nothing")  # fmt: skip
    finally:
        link("up")
        stop(process)  # Slurm itself takes minutes to notice that node002 is back
    rows = {row["check"]: row for row in json.loads(table.read_text())["checks"]}
    assert rows["ranks"]["result"] == "FAILED" and rows["ranks"]["ranks"] == [2, 3], rows


def test_a_stranger_that_connects_is_refused(cluster):
    options = programs(cluster, "intruder", f"0-2 {COMMAND} check --json",
                       f"3 python3 /home/alice/intrude.py {COMMAND} check")
    done = check(cluster, "--mpi=pmix", *CPU, *options, program=())
    assert done.troubled == [] and done.status == 0, done.stdout


def test_run_becomes_the_program_and_leaves_the_port_to_it(cluster):
    program = ("python3", "serve.py", "--timeout", "1", "-x", "a b")
    # Each rank ends with 7, and no other rank is ended because of it.
    step = ["srun", "--kill-on-bad-exit=0", "--mpi=pmix", *CPU, COMMAND, "run", *program]
    done = cluster.run(step)
    assert done.returncode == 7, done.stderr
    own = [f"--timeout 1 -x a b {rank}" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == sorted([*own, "0 listened before"])
    said = our_lines(done)
    assert len(said) == 1 and re.search("all 4 tasks failed in the same way, .* first: exit code 7|failed first: exit code 7",
                                        said[0]), done.stderr


def test_run_starts_nothing_in_a_broken_step_without_force(cluster):
    port = "31502"
    step = ["srun", "--quiet", *CPU, COMMAND, "run"]
    with background(cluster, ["python3", "listen.py", port], ready=True):
        done = cluster.run([*step, "--", "echo", "started"], env={"MASTER_PORT": port})
        assert (done.returncode, done.stdout) == (1, "")
        assert re.search(rf"^port +FAILED +{port} on node001 is not free", done.stderr, re.MULTILINE), done.stderr
        done = cluster.run([*step, "--keep-going", "--", "echo", "started"], env={"MASTER_PORT": port})
        assert (done.returncode, done.stdout) == (0, "started\n" * 4)
        assert "1 FAILED: port." in done.stderr
    # Control: without the listener it starts.
    done = cluster.run([*step, "--", "echo", "started"], env={"MASTER_PORT": port})
    assert (done.returncode, done.stdout) == (0, "started\n" * 4)


def test_run_names_what_it_cannot_start(cluster):
    done = cluster.run(["srun", "--quiet", "-n1", COMMAND, "run", "--", "/no/such/program"])
    assert done.returncode == 127
    assert "slurm-bootstrap: cannot run /no/such/program: No such file or directory" in done.stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_the_message_outside_a_step_names_the_srun_line(cluster, command):
    program = ["--", "true"] if command == "run" else []
    done = cluster.run([COMMAND, command, *program])
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert f"srun slurm-bootstrap {command}" in done.stderr


def test_every_node_can_still_run_jobs(cluster):
    wait_for(lambda: cluster.script("status").returncode == 0)  # the one that was cut off needs a moment


# -- what is installed


PRELOAD = f"{BUILT_INSIDE}/{LIBRARY}"
ALONE = ["versions", "plugstack.conf", "plugin", "PMIx", "frameworks", "NCCL", "CUDA", "GPUs", "CPUs", "/dev/shm",
         "locked memory", "system"]  # fmt: skip


def test_check_of_one_machine_needs_no_step(cluster):
    done = cluster.run([COMMAND, "check", "--local", "--json"], node="node002")
    table = json.loads(done.stdout)
    assert table["host"] == "node002"
    rows = {row["check"]: row for row in table["checks"]}
    assert done.returncode == 0 and table["step"] == ""
    assert rows["GPUs"]["text"] == "4, all can be opened"
    assert [name for name in ALONE if name in rows or name != FRAMEWORKS] == list(rows)
    assert "etc/plugstack.conf:1: optional when=always" in rows["plugstack.conf"]["text"]
    assert re.match(r"\d+\.\d+\.\d+ for Slurm \d+\.\d+\.\d+ \(/", rows["plugin"]["text"])


@pytest.mark.parametrize("line, row, text", [
    ("optional {plugin} wehn=always", "plugstack.conf", 'argument "wehn=always" in plugstack.conf is unknown'),
    ("optional {plugin} port=x", "plugstack.conf", 'port="x" in plugstack.conf is not valid'),
    ("optinal {plugin}", "plugstack.conf", '"optinal" is not optional, required or include; Slurm ignores the line'),
    ("optional /none/spank_bootstrap.so", "plugin", "/none/spank_bootstrap.so: No such file or directory"),
])  # fmt: skip
def test_a_mistake_in_plugstack_conf_is_named_with_its_line(cluster, line, row, text):
    with cluster.other_plugstack("# the plugin\n" + line.format(plugin=f"{BUILT_INSIDE}/{PLUGIN}") + "\n"):
        done = cluster.run([COMMAND, "check", "--local", "--json"])
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and rows[row]["result"] == "FAILED", done.stdout
    assert f"etc/plugstack.conf:2: {text}" in rows[row]["text"]


def test_a_node_without_the_plugin_is_named_and_run_refuses(cluster):
    with cluster.without_plugin("node002"):
        done = check(cluster, *CPU)
        started = cluster.run(["srun", "--quiet", *CPU, COMMAND, "run", "echo", "started"])
    assert done.failed == ["versions"] and done.ranks("versions") == [2, 3] and done.status == 1, done.stdout
    assert done.text("versions").startswith("no plugin on these nodes, but plugin "), done.stdout
    assert done.text("versions").endswith("etc/plugstack.conf loads spank_bootstrap.so")
    assert started.returncode == 1 and started.stdout == ""
    table = " ".join(started.stderr.split())
    assert done.text("versions") in table and "ranks 2-3 (all of node002)" in table
    # Control: with the plugin there.
    done = check(cluster, *CPU)
    assert done.failed == [] and re.match(r"plugin (\S+), .*command \1, Slurm \d+\.\d+\.\d+$", done.text("versions")), done.stdout


def test_the_frameworks_of_the_python_of_the_task_are_named(cluster):
    """The versions come from the names of installed packages; none of these can be imported."""
    version = cluster.run(["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()
    packages = cluster.home / f"venv/lib/python{version}/site-packages"
    for name in "torch-9.9.9", "horovod-0.28.1", "nvidia_nccl_cu12-2.21.5", "other-1.0":
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "nvidia/nccl/lib").mkdir(parents=True)
    (packages / "nvidia/nccl/lib/libnccl.so.2").touch()
    (cluster.home / "closed").mkdir(0o711)  # of root
    (cluster.home / "venv/bin").mkdir()
    (cluster.home / "venv/bin/python3").symlink_to("/usr/bin/python3")
    (cluster.home / "venv/pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    inside = f"/home/alice/venv/lib/python{version}/site-packages"
    path = "/home/alice/venv/bin:/usr/bin:/bin"  # of an active environment
    done = check(cluster, *CPU, env={"PATH": path, "PYTHONPATH": "/home/alice/closed", "SLURM_BOOTSTRAP_NCCL": NEW_NCCL})
    assert re.fullmatch(rf"Python {version}\S* \(/home/alice/venv/bin/python3\): "
                        r"horovod 0\.28\.1, torch 9\.9\.9",
                        done.text(FRAMEWORKS)), done.stdout  # fmt: skip
    assert done.text("NCCL") == f"2.28.9 ({NEW_NCCL}); Python loads 2.21.5 ({inside}/nvidia/nccl/lib/libnccl.so.2)"
    # A Python that does not answer, or none, is no failure.
    (cluster.home / "venv/bin/python3").unlink()
    (cluster.home / "venv/bin/python3").write_text("#!/bin/sh\nsleep 600\n")
    (cluster.home / "venv/bin/python3").chmod(0o755)
    done = check(cluster, *CPU, env={"PATH": path}, timeout=300)
    assert done.failed == [] and FRAMEWORKS not in done.rows, done.stdout


def test_the_origin_of_the_variables_is_named(cluster_factory):
    plain = cluster_factory("check-plain").up("--no-plugin", "--cpus", "8")
    done = check(plain, "-N2", "--ntasks-per-node=2")
    assert done.result("plan") == "warning" and "but not set" in done.text("plan"), done.stdout
    done = check(plain, "-N2", "--ntasks-per-node=2", f"--export=ALL,LD_PRELOAD={PRELOAD}")
    assert done.text("plan") == "the same for all ranks, set by the preloaded library", done.stdout

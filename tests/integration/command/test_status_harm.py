"""`slurm-bootstrap status` where a look could do harm: a table or one sentence in time, and nothing stays behind."""

# SPDX-License-Identifier: Apache-2.0

import os
import re
import shutil
from contextlib import contextmanager

import pytest

from built_files import COMMAND, built
from harness import needs_device_cgroups, stop, wait_for
from status_steps import FOUR, frozen_mount, give_program, look, look_json, rank, running, status

LIMIT = 300  # seconds, the bound for a look that hangs; Slurm waits long for a frozen daemon
ALIKE = "all 4 ranks run alike"
PYTHON = ("/usr/bin/python3", "-I")


@pytest.fixture(scope="module")
def site(cluster_factory):
    cluster = cluster_factory("status-harm", asks=False).up(
        "--nodes", "2", "--cpus", "32", "--gpus", "2", "--set", f"MessageTimeout={2 * LIMIT}")
    give_program(cluster, "status_rank.py")
    return cluster


@pytest.fixture(scope="module")
def ranks(site):
    with four_ranks(site, "ranks") as step:
        yield step


@contextmanager
def four_ranks(site, name, *srun, words=(), **more):
    with running(site, name, *FOUR, *srun, *PYTHON, "/home/alice/status_rank.py", f"/home/alice/{name}", *words, **more) as step:
        wait_for_ranks(site, name, 4)
        yield step


def wait_for_ranks(site, folder, count, job=""):
    """Slurm lists a step before its tasks execute the user's program."""
    wait_for(lambda: len(list((site.home / folder).glob(f"{job}*.started"))) == count, what=f"ranks of {folder} do not start")


def end(step):
    """Lets the ranks end. The step has its own exit status, and each node is free again."""
    (step.folder / "end").touch()
    assert step.process.wait(30) == 7, (step.folder / "output").read_text()
    wait_for_idle_nodes(step.cluster)


def wait_for_idle_nodes(cluster):
    wait_for(lambda: cluster.run(["sinfo", "-h", "-t", "completing,drained,draining,down", "-o", "%N"]).stdout == "",
             what="a node is left behind")
    assert "slurm-bootstrap-status" not in cluster.run(["squeue", "-h", "-s", "-o", "%j"]).stdout


@pytest.mark.parametrize("env",
                         [{"SLURM_HOSTFILE": "/nowhere"}, {"SLURM_EXACT": "1", "SLURM_EXCLUSIVE": "1"}, {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "9"},
                          {"SLURM_MPI_TYPE": "pmix", "PMIX_RANK": "1"}, {"SQUEUE_FORMAT": "%u", "SQUEUE_STATES": "PD"}],
                         ids=lambda env: next(iter(env)))
def test_variables_of_the_user_do_no_harm(site, ranks, env):
    assert look(site, ranks.id, env=env).first == ALIKE


def test_without_an_argument_it_takes_the_only_world(site, ranks):
    assert look(site).first == ALIKE


@pytest.mark.parametrize("node", ["head", "node002"])
def test_a_look_works_from_any_host(site, ranks, node):
    assert look(site, ranks.id, node=node).first == ALIKE


def test_a_look_leaves_no_step(site, ranks):
    before = len(site.run(["squeue", "-h", "-s", "-o", "%i"]).stdout.split())
    look(site, ranks.id)
    assert len(site.run(["squeue", "-h", "-s", "-o", "%i"]).stdout.split()) == before


def test_the_json_has_all_ranks(site, ranks):
    seen = look_json(site, ranks.id)
    assert [(one["rank"], one["node"]) for one in seen["ranks"]] == [(0, "node001"), (1, "node001"), (2, "node002"), (3, "node002")]
    assert seen["first_line"] == ALIKE and {one["phase"] for one in seen["ranks"]} == {"no_framework"}


def test_a_process_that_cannot_be_dumped_is_unknown(site):
    with four_ranks(site, "undumpable", words=["undumpable"]) as step:
        wait_for(lambda: "unknown" in [one["phase"] for one in look_json(site, step.id)["ranks"]])
        assert re.fullmatch(rf"{rank(2, 'node002', 0)} is unknown: the kernel does not allow to look at it: Permission denied",
                            look(site, step.id).first)
        end(step)


def test_a_look_works_where_proc_is_hidden(site, ranks):
    site.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], user="root", node="node002")
    try:
        assert look(site, ranks.id).first == ALIKE
    finally:
        site.run(["umount", "/proc"], user="root", node="node002")


def test_a_node_without_python_is_named(site, ranks):
    python = os.path.realpath(PYTHON[0])
    with site.mounted("/dev/null", python, "node002"):
        assert look(site, ranks.id).first == "node002 (ranks 2-3) did not answer"
        done = status(site, ranks.id, node="node002", env={"PATH": "/usr/bin:/bin"})
        assert done.returncode == 1
        assert done.stderr == "slurm-bootstrap: looked for python3 on node002, which has none; it needs Python 3.6 or newer\n"


def test_a_look_works_although_the_jobs_folder_is_frozen(site):
    with frozen_mount(site, "jobs-folder", "node002", "later") as folder, \
            running(site, "frozen", "-N1", "-n2", "-w", "node002", "--chdir", folder, *PYTHON, "/home/alice/status_rank.py",
                    "/home/alice/frozen") as step:
        wait_for_ranks(site, "frozen", 2)
        site.run(["pkill", "-USR1", "-f", "frozen_mount.py /home/alice/jobs-folder"], user="root", node="node002")
        assert look(site, step.id, timeout=LIMIT).first == "all 2 ranks run alike"
        end(step)


def test_a_node_with_a_frozen_slurmd_is_named(site):
    with four_ranks(site, "slurmd") as step:
        pids = site.run(["sh", "-c", "pgrep -x slurmd"], user="root", node="node002").stdout.split()
        frozen = next(pid for pid in pids if f"node002" in network_of(site, pid))
        site.run(["kill", "-STOP", frozen], user="root", node="node002")
        try:
            done = look(site, step.id, timeout=LIMIT)
        finally:
            site.run(["kill", "-CONT", frozen], user="root", node="node002")
        assert done.first == "node002 (ranks 2-3) did not answer"
        assert re.search(r"^0-1 +node001 ", done.stdout, re.MULTILINE), done.stdout
        wait_for(lambda: look(site, step.id).first == ALIKE)
        end(step)


def network_of(site, pid):
    """The name of a process's host; all hosts share their process ids."""
    return site.run(["sh", "-c", f"nsenter -t {pid} -u hostname"], user="root", node="node002").stdout


def test_a_suspended_job_is_named(site):
    with four_ranks(site, "suspended") as step:
        job = step.id.split(".")[0]
        assert site.run(["scontrol", "suspend", job], user="root").returncode == 0
        done = status(site, step.id, timeout=LIMIT)
        site.run(["scontrol", "resume", job], user="root")
        assert done.returncode == 1
        assert done.stderr == (f"slurm-bootstrap: job {job} is suspended, so that no step can look at it; its processes are stopped until: "
                               f"scontrol resume {job}\n")
        end(step)


def test_steps_of_batch_scripts_and_of_salloc_are_found(site):
    site.run(["mkdir", "/home/alice/batched"])
    program = [*PYTHON, "/home/alice/status_rank.py", "/home/alice/batched"]
    jobs = []
    for options in ([], ["--exclusive"], ["--exact", "-c2"], ["--mem=100", "--gres=gpu:1"], ["--gpus-per-task=1"]):
        script = " ".join(["srun", *options, *program])
        jobs.append(site.run(["sbatch", "--parsable", "-o", "/dev/null", *FOUR, "-c2", "--gres=gpu:2", "--oversubscribe", "--wrap",
                              script]).stdout.strip())
    jobs.append(site.allocate(*FOUR))
    inside = site.start(["srun", f"--jobid={jobs[-1]}", *FOUR, *program])
    for job in jobs:
        wait_for_ranks(site, "batched", 4, job)
        assert look(site, job).first == ALIKE
        if job == jobs[1]:
            done = status(site)
            assert (done.returncode == 1
                    and done.stderr.startswith("slurm-bootstrap: you have several running steps; name one of them: ")), done
        site.run(["scancel", job]) if job != jobs[-1] else (site.home / "batched" / "end").touch()
    assert inside.wait(30) == 7
    site.run(["scancel", jobs[-1]])
    wait_for_idle_nodes(site)


def test_a_heterogeneous_job_is_found_by_any_of_its_ids(site):
    site.run(["mkdir", "/home/alice/het"])
    script = f"srun --het-group=0,1 {' '.join(PYTHON)} /home/alice/status_rank.py /home/alice/het"
    leader = site.run(["sbatch", "--parsable", "-o", "/dev/null", "-N1", "-n2", ":", "-N1", "-n2", "--wrap", script]).stdout.strip()
    second = str(int(leader) + 1)
    wait_for_ranks(site, "het", 4)
    for name in (leader, second, f"{leader}.0", f"{second}.0", f"{leader}+1"):
        done = look(site, name)
        assert done.first == ALIKE and f"StepId={leader}.0: 4 ranks on 2 nodes." in done.stdout, (name, done)
    (site.home / "het" / "end").touch()
    wait_for(lambda: second not in site.run(["squeue", "-h", "-o", "%A"]).stdout.split())
    wait_for_idle_nodes(site)


def test_an_array_task_is_shown_alone(site):
    site.run(["mkdir", "/home/alice/array"])
    script = f"srun {' '.join(PYTHON)} /home/alice/status_rank.py /home/alice/array"
    array = site.run(["sbatch", "--parsable", "-o", "/dev/null", "--array=1-3", "-N1", "-n2", "--wrap", script]).stdout.strip()
    wait_for_ranks(site, "array", 6)
    for task in (f"{array}_1", f"{array}_3"):  # the last one has the id of the array
        watch = site.start([COMMAND, "status", task, "--watch", "1"])
        reports = [line for _, line in zip(range(2), (line for line in watch.stdout if line.startswith("StepId=")))]
        stop(watch)
        assert [report.partition(" With")[0] for report in reports] == [f"StepId={task}.0: 2 ranks on 1 node."] * 2
    assert status(site, array).stderr.startswith(f"slurm-bootstrap: job {array} has several running steps; name one of them: {array}_")
    (site.home / "array" / "end").touch()
    wait_for(lambda: site.run(["squeue", "-h", "-j", array]).stdout == "")
    wait_for_idle_nodes(site)


@pytest.mark.parametrize("version, says", [("2.30.3", "  NCCL version 2.30.3\n"), ("", "because the release of NCCL is unknown")])
def test_the_ras_of_nccl_is_asked_where_that_is_safe(site, version, says):
    """A double listens at the port of the RAS; the releases are those in the names of files."""
    name = f"ras{version}"
    library = site.home / f"libnccl.so.2{version[1:]}"
    shutil.copy(built("tests/doubles/nccl-2.28.9/libnccl.so.2"), library)
    with four_ranks(site, name, words=[f"/home/alice/{library.name}"]) as step:
        wait_for(lambda: look_json(site, step.id)["ranks"][0]["ras_port"] == 28028)
        done = look(site, step.id, "--nccl")
        assert says in re.sub(r"\n +(?=\S)", " ", done.stdout) or says in done.stdout, done.stdout
        assert "\x1b" not in done.stdout and "Job summary" not in look(site, step.id).stdout
        assert status(site, step.id, "--nccl", "--watch", "5").returncode == 2
        end(step)


@needs_device_cgroups
def test_a_look_works_with_constrained_devices(cluster_factory):
    cluster = cluster_factory("status-devices", asks=False).up("--nodes", "2", "--gpus", "2", "--constrain-devices")
    give_program(cluster, "status_rank.py")
    with four_ranks(cluster, "devices", "--gres=gpu:2") as step:
        assert look(cluster, step.id).first == ALIKE
        end(step)


def test_a_refused_look_is_one_sentence(site, ranks):
    job = ranks.id.split(".")[0]
    alone = site.start(["srun", "-n1", "-J", "alone", *PYTHON, "/home/alice/status_rank.py", "/home/alice/ranks"])
    ended = site.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true"]).stdout.strip()

    def ids(name):
        return site.run(["squeue", "-h", "-n", name, "-t", "running", "-o", "%A"]).stdout.split()

    wait_for(lambda: ids("alone"))
    wait_for_ranks(site, "ranks", 1, ids("alone")[0])
    wait_for(lambda: site.run(["squeue", "-h", "-t", "all", "-j", ended, "-o", "%T"]).stdout.strip() == "COMPLETED")
    cases = {
        rf"step {ids('alone')[0]}\.0 has one task \(python3, pid \d+ on node00\d\), so there is no other rank to compare it with":
            (ids("alone")[0], {}),
        rf"job {job} belongs to alice\(10001\); only this user can look at it": (ranks.id, {"user": "bob"}),
        rf"job {ended} does not run; its state is COMPLETED": (ended, {}),
        r"Slurm knows no job 99999; it has ended, or the number is wrong; squeue --me lists your jobs": ("99999", {}),
        rf"job {job} has no running step 7; running: {job}\.0 \(ranks, 4 tasks on node\[001-002\]\)": (f"{job}.7", {}),
        r'"twelve" is no JOBID or JOBID\.STEP, such as 12 or 12\.0; squeue -s --me lists your steps': ("twelve", {}),
    }
    for pattern, (name, more) in cases.items():
        done = status(site, name, timeout=LIMIT, **more)
        assert done.returncode != 0 and done.stdout == "", done
        assert re.fullmatch(rf"slurm-bootstrap: {pattern}\n", done.stderr), done.stderr
    alone.kill()
    site.run(["scancel", "-n", "alone", "-s", "KILL"])


def test_the_table_without_py_spy_has_a_note_about_it(site, ranks):
    done = site.run(["sh", "-c", "exec $0 status $1 --stacks", COMMAND, ranks.id], timeout=LIMIT)
    assert done.returncode == 0 and "\nRANK  HOST" in done.stdout, done
    assert done.stderr == ("slurm-bootstrap: looked for py-spy in PATH, which has none, so --stacks shows no code; install it with: pip "
                           "install py-spy\n")


def test_a_job_without_srun_is_named(site):
    job = site.run(["sbatch", "--parsable", "-n2", "-o", "/dev/null", "--wrap", "sleep 100"]).stdout.strip()
    wait_for(lambda: "batch" in site.run(["squeue", "-h", "-s", "-j", job, "-o", "%i"]).stdout)
    done = status(site, job, timeout=LIMIT)
    assert done.returncode == 1
    assert done.stderr == (f"slurm-bootstrap: job {job} runs no step of srun, only its batch script or shell; is srun in front of the "
                           "program?\n"), done
    site.run(["scancel", job])


@pytest.mark.parametrize("script, sentence", [
    ("PATH=/nowhere exec $0 status", "looked for srun in PATH, which has none; run this command on a host with Slurm's commands, such as a login node"),
    ("cp $0 /tmp/slurm-bootstrap && exec /tmp/slurm-bootstrap status $1", "started /tmp/slurm-bootstrap with srun on the nodes of step {0}, "
     "which do not have it; install it there, or start one from a folder that all nodes share"),
], ids=["srun", "the command"])  # fmt: skip
def test_a_missing_program_is_named(site, ranks, script, sentence):
    done = site.run(["sh", "-c", script, COMMAND, ranks.id])
    assert done.returncode == 1
    assert done.stderr == f"slurm-bootstrap: {sentence.format(ranks.id)}\n", done

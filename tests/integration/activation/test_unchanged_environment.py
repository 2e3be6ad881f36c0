"""Programs beside a step that is set up have no variable of it: jobs sent from a task, the extern step, srun's own epilog. The
harm suite has the steps that are not set up."""

import pytest

from activation_steps import OURS, TWO, cluster, srun  # one is a fixture
from harness import since


def ours_in(text, separator="\n"):
    """Our variables in an environment."""
    return {entry.partition("=")[0] for entry in text.split(separator) if entry.startswith(OURS)}


@pytest.mark.parametrize("send", ["sbatch -Q --wait -w node002 -o $HOME/sent.out --wrap env", "salloc -Q -w node002 env"])
def test_a_job_sent_from_a_task_is_no_part_of_its_step(cluster, send):
    script = f"[ $RANK = 0 ] || exit 9; export MY_OWN=1 LOCAL_RANK=mine; {send} > $HOME/sent.env; cat $HOME/sent.*; rm -f $HOME/sent.*"
    sent = srun(cluster, "-w node001 -n1 --gres=gpu:1", "bash", "-c", script, env={"SLURM_BOOTSTRAP": "on"}).stdout
    assert "MY_OWN=1\n" in sent, "control: the job ran"
    assert "LOCAL_RANK=mine\n" in sent, "a value that the user changed is the user's"
    assert ours_in(sent) == {"SLURM_BOOTSTRAP", "LOCAL_RANK"}, "the user's setting applies to the job, too"


def test_epilog_of_srun_sees_the_messages_to_the_nodes_and_nothing_else(cluster):
    """srun's environment carries its messages to the nodes, and no hook of srun runs between the launch and its epilog."""
    program = cluster.write_home("epilog", "#!/bin/sh\nenv > ~/epilog.env\n")
    srun(cluster, f"{TWO} --epilog={program}", "python3", "-c", "1")
    seen = (cluster.home / "epilog.env").read_text()
    assert "SLURM_JOB_ID=" in seen, "control: it ran"
    assert ours_in(seen) == {"SLURM_BOOTSTRAP_DECISION", "SLURM_BOOTSTRAP_LAYOUT", "SLURM_BOOTSTRAP_FAILURE"}


def test_the_extern_step_has_no_variable_of_ours(cluster_factory):
    # PrologFlags=Contain gives every job an extern step. Each job then takes seconds to end, so this cluster is a separate one.
    cluster = cluster_factory("extern").up("--nodes", "1", "--gpus", "4", "--set", "PrologFlags=contain", "--plugin-args", "when=always")
    job = cluster.allocate("-n1", "--gres=gpu:2", "--bootstrap=on")
    listing = cluster.run(["ps", "-eo", "pid,ppid,args"], user="root").stdout
    processes = [line.split(None, 2) for line in listing.splitlines()]
    step = next(pid for pid, _, command in processes if f"[{job}.extern" in command)
    child = next((pid for pid, parent, _ in processes if parent == step), None)
    if child is None and since("an extern step may have no process"):
        pytest.skip("the extern step of this Slurm has no process")
    seen = cluster.run(["cat", f"/proc/{child}/environ"], user="root").stdout
    assert "SLURMD_NODENAME=node001" in seen and not ours_in(seen, "\0") - {"SLURM_BOOTSTRAP"}

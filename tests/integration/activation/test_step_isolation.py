"""What the plugin does to one step must not reach another: jobs sent from a task, steps at the same time, other steps."""

import pytest

OURS = "^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|BOOTSTRAP_|SLURM_BOOTSTRAP)"


@pytest.fixture(scope="module")
def pair(cluster_factory):
    """Two nodes where the plugin sets up steps with GPUs, as on a real cluster."""
    return cluster_factory("isolation").up("--nodes", "2", "--cpus", "8")


@pytest.mark.parametrize("send", ["sbatch -Q --wait -w node002 -o $HOME/sent.out --wrap env", "salloc -Q -w node002 env"])
def test_a_job_sent_from_a_task_is_no_part_of_its_step(pair, send):
    script = f"env | grep -qE '{OURS}' || exit 9; export MY_OWN=1 LOCAL_RANK=mine; {send} > $HOME/sent.env"
    script += "; cat $HOME/sent.out $HOME/sent.env 2>/dev/null; rm -f $HOME/sent.*"
    done = pair.run(["srun", "-w", "node001", "-n1", "--gres=gpu:1", "bash", "-c", script])
    assert done.returncode == 0, done.stderr
    sent = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert sent["MY_OWN"] == "1", "the job did not run"
    left = {name for name in sent if name.startswith(("BOOTSTRAP_", "SLURM_BOOTSTRAP", "MASTER_"))}
    assert left == {"SLURM_BOOTSTRAP"}, "what the user said is for the job, too"
    assert "RANK" not in sent and "WORLD_SIZE" not in sent
    assert sent["LOCAL_RANK"] == "mine", "a value that the user changed is the user's"


def test_a_port_of_the_user_may_be_shared_by_steps_at_the_same_time(pair):
    # The first step has the port from before its tasks start until the others have ended, and 30 seconds at most.
    script = """export MASTER_PORT=29500; rm -f ~/held.* ~/over
    srun --overlap -N2 -n2 --gres=gpu:1 timeout 30 bash -c \
      'touch ~/held.$SLURM_PROCID; until [ -e ~/over ]; do sleep 0.1; done' &
    for ((i = 0; i < 200; i++)); do [ ! -e ~/held.0 ] || break; sleep 0.1; done
    srun --overlap -N1 -n1 --gres=gpu:1 echo one; srun --overlap -N2 -n2 --gres=gpu:1 echo two
    touch ~/over; wait $!"""
    done = pair.run(["salloc", "-Q", "-N2", "-n2", "--gres=gpu:2", "bash", "-c", script])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["one", "two", "two"]
    # One task alone needs no port and gets no message; two get the message that the port is taken.
    warnings = [line for line in done.stderr.splitlines() if "bootstrap:" in line]
    assert (len(warnings) == 1
            and "MASTER_PORT 29500 on node001 is already in use by another program; you set this port" in warnings[0]), done.stderr


WORLD = ["-N1", "-n2", "--gres=gpu:2"]
# In Python, so that a world of it is set up unasked, and without a shell of which one part might survive the other.
FIRST_TASK_FAILS = "import os, sys, time; os.environ['SLURM_PROCID'] == '0' and sys.exit(3); time.sleep({}); print('survived')"


@pytest.mark.parametrize("options", [["-n2"], ["-n2", "--bootstrap=off"], WORLD, [*WORLD, "--bootstrap=off"]], ids=" ".join)
def test_steps_that_did_not_ask_end_as_slurm_ends_them(pair, options):
    """The second task outlives the first, also where the step is set up: its exit code is what it is without us."""
    done = pair.run(["srun", *options, "python3", "-c", FIRST_TASK_FAILS.format(3), "--gpus=1"], env={"SLURM_BOOTSTRAP": ""})
    assert done.stdout.split() == ["survived"] and done.returncode == 3, done.stderr
    assert "SLURM_KILL_BAD_EXIT" not in pair.run(["srun", *options, "env"], env={"SLURM_BOOTSTRAP": "on"}).stdout

"""Kinds D, L, M and N of the reports: the ends of steps and their messages, words on command lines, names of variables."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import UNSEEN, WEEK, rows

# A step that is set up may name its first failure in one line.
FAILURE = {"ignores": r"bootstrap: "}
# A world that reports its start, and then waits to be ended.
SLEEPS = """cat > sleeps.py <<'X'
import os, signal, sys, time
if sys.argv[1:]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
with open("up." + os.environ["SLURM_PROCID"], "w") as file:
    file.write("up")
time.sleep(20)
X
there() { await up.0; await up.1; sleep 0.1; }
"""

ENDS = rows(
    "how steps end",
    ("requeue_code", "public reports, D", "A task ends with 85, by which the site requeues; the other one goes on.",
     "$L2 bash -c '[ $SLURM_PROCID = 0 ] && exit 85; sleep 1; echo finished'"),
    ("requeue_code_python", "public reports, D", "The same in a world of Python.",
     "$L2 python3 -c 'import os, sys, time; os.environ[\"SLURM_PROCID\"] == \"0\" and sys.exit(85); time.sleep(1); print(\"finished\")'",
     FAILURE),
    ("checkpoint_on_signal", "public reports, D", "Ranks save on SIGUSR1 and end with 1 one after the other: all are saved.",
     """cat > save.py <<'X'
import os, signal, sys, time
rank = int(os.environ["SLURM_PROCID"])
def save(*_):
    time.sleep(rank * 0.5); print("saved", rank, flush=True); sys.exit(1)
signal.signal(signal.SIGUSR1, save)
open(f"ready.{rank}", "w").close()
time.sleep(20)
X
$W4 python3 save.py & step=$!
until [[ -e ready.0 && -e ready.1 && -e ready.2 && -e ready.3 ]]; do sleep 0.05; done
scancel --signal=USR1 $(squeue -h --me -p $SLURM_PARTITION -o %A); wait $step""", FAILURE),
    # The job ends under its step, so that srun's messages vary from run to run.
    ("checkpoint_batch_signal", WEEK, "A batch script traps the signal that sbatch --signal=B: sends.",
     """cat > batch <<'X'
#!/bin/bash
trap 'echo caught; echo 7 > status; exit 7' USR1
touch ready; $L2 bash -c 'sleep 20' 2> said & wait
X
sbatch -Q -o log -N1 -n2 --gres=gpu:2 batch; until [[ -e ready ]]; do sleep 0.05; done; sleep 0.5
scancel --signal=USR1 --batch $(squeue -h --me -p $SLURM_PARTITION -o %A)
await status; ready; cat log status; grep bootstrap said; exit 0"""),
    ("farm_member_fails", "public reports, D", "A farm in shells, one member ends with 1.",
     "$W4 bash -c 'sleep 0.$SLURM_PROCID; [ $SLURM_PROCID != 1 ] || exit 1; echo member $SLURM_PROCID'"),
    ("grep_without_match", "public reports, D", "grep in each task, one of which finds nothing.",
     "$L2 sh -c 'echo $SLURM_PROCID | grep 1'"),
    ("grep_elf", "public reports, D", "The same with grep as the program of the step.", "echo a > words; $L2 grep b words", FAILURE),
    ("multi_prog", "public reports, D", "A helper in --multi-prog ends with 3, the others go on.",
     """printf '#!/bin/sh\\n[ $1 = helper ] && exit 3; sleep 1; echo worker\\n' > part; chmod +x part
printf '0 ./part helper\\n1 ./part worker\\n' > conf; $L2 --multi-prog conf"""),
    ("multi_prog_env", "rules", "The environment of --multi-prog in a world's shape.",
     """printf '* python3 %s/show_env.py\\n' $P > conf; $L2 --multi-prog conf"""),
    ("pty_other_shell", "public reports, D", "A terminal on two nodes whose other shell ends with 1.",
     """terminal "$W2 --pty bash -c '[ \\$SLURM_PROCID = 0 ] || exit 1; sleep 1; echo mine'" """),
    ("kill_on_bad_exit", WEEK, "--kill-on-bad-exit=1 of the user's own.",
     "$L2 --kill-on-bad-exit=1 bash -c '[ $SLURM_PROCID = 0 ] && exit 9; exec sleep 20'"),
    ("kill_on_bad_exit_variable", WEEK, "SLURM_KILL_BAD_EXIT=0 of the user's own.",
     "SLURM_KILL_BAD_EXIT=0 $L2 bash -c '[ $SLURM_PROCID = 0 ] && exit 9; sleep 1; echo finished'"),
    ("wait_option", "public reports, L", "--wait=1: the step ends after its first task.",
     "$L2 --wait=1 bash -c '[ $SLURM_PROCID = 0 ] || exec sleep 20'"),
    ("wait_option_python", "public reports, L", "The same in a world of Python.",
     "$L2 --wait=1 python3 -c 'import os, time; os.environ[\"SLURM_PROCID\"] == \"0\" or time.sleep(20)'"),
    ("exit_codes", WEEK, "srun's exit status is the highest of its tasks.", "srun -n4 bash -c 'exit $((SLURM_PROCID * 2))'"),
    ("exit_signal", WEEK, "A task that a signal ends.", "$L1 bash -c 'kill -SEGV $$'"),
    ("exit_mpi", WEEK, "An MPI program whose rank ends with 3 after MPI_Finalize.", "srun --mpi=pmix -n4 --gres=gpu:1 $B/mpi_ring 2"),
    ("timeout_srun", "public reports, L", "timeout ends srun: nothing is said about memory.",
     SLEEPS + "$L2 python3 sleeps.py & there; kill -TERM $!; wait $!"),
    ("timeout_command", WEEK, "timeout 1 srun in a shell's step.", "timeout 1 $W4 bash -c 'sleep 20'"),
    ("scancel_step", "public reports, L", "scancel of a world: nothing is said about memory.",
     SLEEPS + "$L2 python3 sleeps.py & there; scancel $(squeue -h --me -p $SLURM_PARTITION -o %A); wait $!"),
    ("scancel_term_handler", "public reports, L", "scancel of a program whose TERM handler ends with 1.",
     SLEEPS + "$L2 python3 sleeps.py handler & there; scancel $(squeue -h --me -p $SLURM_PARTITION -o %A); wait $!"),
    # Without the plugin the exit status is 130 or 137 by chance, and the output of the tasks varies as well.
    ("ctrl_c", "public reports, L", "Ctrl-C, twice: nothing is said of a failure.",
     SLEEPS + """set -m; $L2 python3 sleeps.py 2> said & there; kill -INT $!; sleep 0.2; kill -INT $!
wait $! 2> /dev/null; grep bootstrap said; exec 2> /dev/null; echo over; exit 0"""),
    ("all_fail_alike", "public reports, L", "All ranks fail alike.", "$W4 python3 -c 'raise SystemExit(4)'", FAILURE),
    ("not_there", WEEK, "A program that is not there.", "$W4 /nowhere/program", UNSEEN),
    ("scancel_batch", WEEK, "A batch job that is cancelled while its step runs.",
     """sbatch -Q -o log -N1 -n2 --gres=gpu:2 --wrap 'srun bash -c "touch ready; sleep 20"'; until [[ -e ready ]]; do sleep 0.05; done
scancel $(squeue -h --me -p $SLURM_PARTITION -o %A); ready
grep -v CANCELLED log"""),
    ("own_error_on_stderr", WEEK, "Output and errors of tasks come as they were written.",
     "$L2 -l bash -c 'echo out; echo err >&2; exit 2'"),
)  # fmt: skip

WORDS = rows(
    "words and names",
    ("program_argument_gpus", "public reports, M", "A CPU step whose program has --gpus as an argument, and a task that fails.",
     """printf '#!/bin/bash\\n[ $SLURM_PROCID = 0 ] && exit 2; sleep 0.5; echo $*\\n' > prog.sh; chmod +x prog.sh; srun -n2 -l ./prog.sh --gpus 1"""),
    ("program_argument_gpus_env", "public reports, M", "The environment of such a step.", "srun -n2 python3 $P/show_env.py --gpus 1"),
    ("program_argument_interactive", "public reports, M", "A program with the argument --interactive.",
     "$L1 python3 $P/show_env.py --interactive"),
    ("program_argument_ours", "rules", "A program of a CPU step with --bootstrap=on as an argument of its own.",
     "srun -n2 python3 $P/show_env.py --bootstrap=on"),
    ("program_argument_pty", "rules", "A program with --pty and --multi-prog as arguments of its own.",
     "srun -n2 python3 $P/show_env.py --pty --multi-prog"),
    *((f"name_{name}", "public reports, N", f"{value} in a user's environment, for something else: {what}.", script,
       {"variables": dict([value.split("=", 1)])})
      for name, value, what, script in (
          ("mode", "BOOTSTRAP_MODE=prod", "srun", 'srun -n2 bash -c "$SHOW"'),
          ("port", "BOOTSTRAP_PORT=kafka:9092", "srun with GPUs", '$W4 bash -c "$SHOW"'),
          ("port_world", "BOOTSTRAP_PORT=kafka:9092", "a world", "$W4 python3 -c 'print(\"trains\")'"),
          ("port_sbatch", "BOOTSTRAP_PORT=kafka:9092", "sbatch", "job -n1 <<< 'srun hostname; echo $BOOTSTRAP_PORT'"),
          ("claim", "BOOTSTRAP_CLAIM=1", "salloc", "salloc -Q -n1 --gres=gpu:1 srun hostname"),
          ("timeout", "BOOTSTRAP_TIMEOUT=forever", "srun", "$L1 hostname"),
          ("frameworks", "BOOTSTRAP_FRAMEWORKS=react", "srun", '$L2 bash -c "$SHOW"'))),
    ("own_name_wrong", "rules", "A wrong value of a setting of ours, on a step that is not set up.",
     'SLURM_BOOTSTRAP_PORT=99999999 srun -n2 bash -c "$SHOW"'),
    ("rank_of_the_user", WEEK, "RANK and WORLD_SIZE of the user's reach shells as they are.", 'RANK=7 WORLD_SIZE=9 $W4 bash -c "$SHOW"'),
    ("master_of_the_user", WEEK, "MASTER_ADDR and MASTER_PORT of the user's are kept in a world.",
     """head=$(scontrol show hostnames "$(sinfo -h -p $SLURM_PARTITION -o %N)" | head -n 1)
MASTER_ADDR=$head MASTER_PORT=29512 $W4 python3 -c 'import os; print(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])'"""),
    ("ranks_of_the_user_right", WEEK, "A training program that takes its ranks from Slurm and sets the usual variables itself.",
     """cat > train.py <<'X'
import os
for name, source in (("RANK", "PROCID"), ("WORLD_SIZE", "NTASKS"), ("LOCAL_RANK", "LOCALID")):
    os.environ[name] = os.environ[f"SLURM_{source}"]
gpu = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[int(os.environ["LOCAL_RANK"])]
print("member", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "on", gpu)
X
$W4 python3 train.py"""),
    ("observe", "rules", "when=observe: an environment in a world's shape is stock's.", "$W4 python3 $P/show_env.py",
     {"arguments": "when=observe"}),
    ("asked", "rules", "when=asked: the same.", "$W4 python3 $P/show_env.py", {"arguments": "when=asked"}),
    ("gpu_pty", "rules", "when=gpu leaves terminals alone.", """terminal "$L1 --pty bash -c \\"\\$SHOW\\"" """, {"arguments": "when=gpu"}),
    ("gpu_cpu_step", "rules", "when=gpu leaves steps without GPUs alone.", 'srun -N2 -n4 bash -c "$SHOW"', {"arguments": "when=gpu"}),
    ("gpu_launcher", "rules", "when=gpu leaves launchers alone.",
     "$L1 -c4 mpirun --oversubscribe -n 2 $READ deepspeed", {"arguments": "when=gpu", "needs": ("mpirun",)}),
)  # fmt: skip

CASES = ENDS + WORDS

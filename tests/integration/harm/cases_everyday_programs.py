"""What a site runs in a week: our own rows, and reported uses that the plugin never changed."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import UNSEEN, WEEK, Site, rows

DAILY = rows(
    "a site's week",
    ("hostname", WEEK, "srun hostname.", "srun -N2 -n4 hostname; ready; $W4 rm -rf x 2>&1 | wc -l"),
    ("labelled", WEEK, "srun -l with GPUs.", "$W4 -l hostname"),
    ("bash_env", WEEK, "The environment of shells in a world's shape.", '$W4 bash -c "$SHOW"'),
    ("sh_script_env", WEEK, "The environment of a script of the user's in a world's shape.", "$W4 $P/show_env.sh"),
    ("perl_env", WEEK, "A Perl program in a world's shape.", "$W4 $P/show_env.pl"),
    ("perl_interpreter_env", WEEK, "A shell script that starts Perl.",
     "printf '#!/bin/sh\\nperl %s/show_env.pl\\n' $P > run; chmod +x run; $W4 ./run"),
    ("static_program", "fine already", "A static program.", "srun -n2 -N2 $B/show_env_static"),
    ("static_program_world", "fine already", "A static program in a world's shape runs.", "$W4 $B/show_env_static | grep -c SLURM_PROCID"),
    ("export_none", WEEK, "srun --export=NONE, shells.", '$W4 --export=NONE /bin/bash -c "$(echo "$SHOW")"'),
    ("export_list", WEEK, "srun --export with a list.", 'A=1 B2=2 $W4 --export=A,PATH,HOME,SHOW bash -c "$SHOW"'),
    ("sbatch_export_none", WEEK, "sbatch --export=NONE and a step.",
     "job --export=NONE -N1 -n2 --gres=gpu:2 <<< 'srun --export=ALL /bin/bash -c \"env | sort | grep -v ^_=\"'"),
    ("batch_env", WEEK, "The environment of a batch script.", 'job -N1 -n2 --gres=gpu:2 <<< \'eval "$SHOW"\''),
    ("array_env", WEEK, "The environment of a batch script of an array.", 'job --array=7 -N1 -n2 --gres=gpu:2 <<< \'eval "$SHOW"\''),
    ("salloc_env", WEEK, "The environment of salloc's command.", 'salloc -Q -N1 -n2 --gres=gpu:2 bash -c "$SHOW"'),
    ("interactive_step", WEEK, "The shell of salloc, by use_interactive_step.",
     "echo 'eval \"$SHOW\"; exit' | script -qec 'salloc -Q -n1 --gres=gpu:1' /dev/null | grep '='"),
    ("arrays", "fine already", "An array of three, one GPU each.",
     """cat > batch <<'X'
#!/bin/bash
srun bash -c 'echo $SLURM_ARRAY_TASK_ID ${RANK:-none} $CUDA_VISIBLE_DEVICES' > out.$SLURM_ARRAY_TASK_ID; echo 1 > end.$SLURM_ARRAY_TASK_ID
X
sbatch -Q --array=1-3%1 -w $(sinfo -h -p $SLURM_PARTITION -N -o %N | head -n 1) -n1 --gres=gpu:1 -o /dev/null batch
await end.1; await end.2; await end.3; cat out.?"""),
    ("background_farm", WEEK, "Steps in the background with wait, and a log for each.",
     """job -N2 --ntasks-per-node=2 --gres=gpu:2 <<'X'
for i in 1 2 3 4; do srun --exact -N1 -n1 --gres=gpu:1 -o log.$i bash -c 'echo ${RANK:-none} ${WORLD_SIZE:-none}' & done; wait; cat log.?
X"""),
    ("parallel_srun", WEEK, "GNU parallel starts srun for each of its jobs.",
     """job -N1 -n4 --gres=gpu:4 <<< "parallel --will-cite -j4 srun --exact -n1 -c1 --gres=gpu:1 bash -c \\"'echo {} \\\\\\${RANK:-none}'\\" ::: a b c d 2>&1" """,
      {"needs": ("parallel",)}),
    ("srun_parallel", WEEK, "GNU parallel in a step with all GPUs.",
     "srun -n1 -c4 --gres=gpu:4 parallel --will-cite -j4 'echo {} ${RANK:-none} ${OMP_NUM_THREADS:-none}' ::: a b c d",
     {"needs": ("parallel",)}),
    ("parallel_slots", WEEK, "Its slots choose the GPU.",
     "srun -n1 -c4 --gres=gpu:4 parallel --will-cite -j4 'CUDA_VISIBLE_DEVICES=$(({%} - 1)) python3 $P/readers.py torch_mpi > /dev/null; "
     "echo done {}' ::: a b c d", {"needs": ("parallel",)}),
    ("xargs", WEEK, "xargs -P in a step.",
     "srun -n1 -c4 --gres=gpu:2 xargs -P4 -n1 sh -c 'echo $0 ${RANK:-none} ${LOCAL_RANK:-none}' <<< 'a b c d'"),
    ("xargs_world", WEEK, "xargs in a world's shape starts others: a launcher.",
     "$L2 --input=none xargs -a /etc/hostname -n1 $P/show_env.sh"),
    ("make", WEEK, "make -j in a step.",
     "printf 'all: a b\\na b:\\n\\t@echo $@ $${RANK:-none} $${OMP_NUM_THREADS:-none}\\n' > Makefile; srun -n1 -c4 --gres=gpu:1 make -j4"),
    ("make_world", WEEK, "make in a world's shape.", "printf 'all:\\n\\t@%s/show_env.sh\\n' $P > Makefile; $L2 make"),
    ("mpi_pmix", WEEK, "An MPI program on CPUs.", "srun --mpi=pmix -N2 -n4 $B/mpi_ring"),
    ("mpi_world", WEEK, "An MPI program in a world's shape.", "srun --mpi=pmix -N2 --ntasks-per-node=2 --gres=gpu:2 $B/mpi_ring"),
    ("mpi_wrapped", WEEK, "The same behind a wrapper of the site.",
     "printf '#!/bin/sh\\nulimit -c 0\\nexec \"$@\"\\n' > wrap; chmod +x wrap; $W4 --mpi=pmix ./wrap $B/mpi_ring"),
    ("mpirun_batch", "fine already", "mpirun in a batch job of two nodes.",
     "job -N2 --ntasks-per-node=2 --gres=gpu:2 <<< 'mpirun $B/mpi_ring'", {"needs": ("mpirun",)}),
    ("mpirun_salloc", "fine already", "salloc mpirun.", "salloc -Q -N2 --ntasks-per-node=2 --gres=gpu:2 mpirun $B/mpi_ring",
     {"needs": ("mpirun",)}),
    ("mpirun_env", WEEK, "mpirun behind env in a batch job.",
     "job -N2 --ntasks-per-node=1 --gres=gpu:1 <<< 'env A=1 mpirun $B/mpi_ring'", {"needs": ("mpirun",)}),
    ("mpi4py", WEEK, "mpi4py in a world's shape.",
     "srun --mpi=pmix -N2 --ntasks-per-node=2 --gres=gpu:2 python3 -c 'import time; time.sleep(0.3); from mpi4py import MPI; c = "
     "MPI.COMM_WORLD; print(c.rank, c.size, c.allreduce(c.rank))'",
     {"is_slow": True}),
    ("mpi4py_futures", WEEK, "mpi4py.futures: one rank leads, the others serve.",
     """cat > pool.py <<'X'
from mpi4py.futures import MPIPoolExecutor
if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        print(sum(pool.map(abs, range(10))))
X
$W4 --mpi=pmix sh -c 'sleep 0.3; exec python3 -m mpi4py.futures pool.py'""",
     {"is_slow": True, "seconds": 120}),
    ("sleep_server", WEEK, "A server of the user's in one task, and a client in an --overlap step.",
     """job -N1 -n2 --gres=gpu:1 <<'X'
srun --overlap -n1 --gres=gpu:1 python3 -m http.server 18080 > /dev/null 2>&1 & sleep 0.7
srun --overlap -n1 python3 -c 'import urllib.request; print(urllib.request.urlopen("http://localhost:18080").status)'; kill %1; wait; true
X"""),
    ("jupyter", WEEK, "jupyter as the program of a step.", "cp $P/show_env.py jupyter; $L1 ./jupyter lab; ready; $L2 ./jupyter lab"),
    ("wandb_agent", "rules", "A sweep by wandb agent, one on each GPU.", "cp $P/show_env.py wandb; $L2 ./wandb agent id"),
    ("task_prolog", WEEK, "--task-prolog that exports and prints.",
     """printf '#!/bin/sh\\necho export SITE_VALUE=1\\necho print from the prolog\\necho unset SITE_OTHER\\n' > prolog; chmod +x prolog
SITE_OTHER=2 $W4 --task-prolog=$OUT/prolog bash -c "$SHOW" """),
    ("task_prolog_master", "rules", "A task prolog that exports MASTER_ADDR as sites do.",
     """printf '#!/bin/sh\\necho export MASTER_ADDR=first MASTER_PORT=29500 | xargs -n1 echo export | grep =\\n' > prolog; chmod +x prolog
$W4 --task-prolog=$OUT/prolog python3 -c 'import os; print(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])'"""),
    ("task_prolog_env", WEEK, "What --task-prolog and --task-epilog see.",
     """printf '#!/bin/bash\\n%s/show_env.sh >> %s/seen\\n' $P $OUT > program; chmod +x program
$L1 --task-prolog=$OUT/program --task-epilog=$OUT/program true; cat seen"""),
    ("site_task_prolog", WEEK, "The site's own TaskProlog in slurm.conf.", '$W4 bash -c "$SHOW"',
     {"site": Site("TaskProlog", settings=("TaskProlog=/run/slurm-bootstrap-tree/tests/integration/harm/programs/task_prolog.sh",))}),
    ("srun_prolog", WEEK, "srun's own --prolog.", "cp $P/show_env.sh program; srun -n1 --gres=gpu:1 --prolog=$OUT/program true"),
    ("srun_epilog", WEEK, "srun's own --epilog.", "cp $P/show_env.sh program; srun -n1 --gres=gpu:1 --epilog=$OUT/program true"),
    ("cpu_bind_verbose", WEEK, "--cpu-bind=verbose says the same.", "$W4 --cpu-bind=verbose,cores hostname 2>&1 | sed 's/\\[[0-9]*\\]//'"),
    ("cpu_bind_map", WEEK, "--cpu-bind with a map.", "$L2 --cpu-bind=map_cpu:1,0 bash -c 'taskset -cp $$ | sed s/.*:// '"),
    ("affinity", WEEK, "The cores of tasks.", "$W4 -c2 bash -c 'grep Cpus_allowed_list /proc/self/status'"),
    ("gres_flags", WEEK, "--gres-flags=enforce-binding.", '$L2 --gres-flags=enforce-binding bash -c "$SHOW"'),
    ("ulimits", "fine already", "Tight limits.", "ulimit -n 40; $W4 bash -c 'ulimit -n; ulimit -c'; ready; ulimit -s 2000000 -v 2000000; $W4 --propagate=NONE sh -c 'echo cpu'"),
    ("ulimit_world", "fine already", "Tight limits of a world.",
     "ulimit -n 40; $W4 python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))'"),
    ("descriptors", WEEK, "Open descriptors of a task.", "$W4 bash -c 'ls /proc/self/fd | wc -l'"),
    ("descriptors_world", WEEK, "Open descriptors in a world.", "$W4 python3 -c 'import os; print(len(os.listdir(\"/proc/self/fd\")))'"),
    ("processes", WEEK, "What slurmstepd has started on the node.", "$L1 bash -c 'ps -o comm= --ppid $PPID; true'"),
    ("processes_world", WEEK, "The same in a world.",
     """cat > beside.py <<'X'
import os, subprocess
print(sorted(set(subprocess.run(["ps", "-o", "comm=", "--ppid", str(os.getppid())], capture_output=True, text=True).stdout.split())))
X
$L2 python3 beside.py"""),
    ("ld_preload", "fine already", "A library of the user's in LD_PRELOAD.", 'LD_PRELOAD=$D/keep_loaded.so $W4 bash -c "$SHOW"'),
    ("ld_preload_world", "fine already", "The same in a world.",
     "LD_PRELOAD=$D/keep_loaded.so $W4 python3 -c 'import os; print(os.environ[\"LD_PRELOAD\"])'"),
    ("setarch", WEEK, "A program without address randomisation.", "srun -n1 --gres=gpu:1 setarch -R $B/show_env"),
    ("input", WEEK, "Standard input goes to the tasks.",
     "echo text | $L2 cat; ready; seq 3 | $L1 python3 -c 'import sys; print(sum(map(int, sys.stdin)))'"),
    ("output_files", WEEK, "Output by task into files.", "$W4 -o out.%t bash -c 'echo $SLURM_PROCID'; cat out.?"),
    ("chdir", WEEK, "srun --chdir with a relative program.", "mkdir sub; cp $P/show_env.sh sub/run; $W4 --chdir=$OUT/sub ./run", UNSEEN),
    ("sweep_bash", WEEK, "A sweep in shells by SLURM_PROCID.",
     "srun -N2 -n8 --gres=gpu:4 bash -c 'python3 $P/readers.py trainer 0.$SLURM_PROCID'"),
    ("sweep_for", WEEK, "A loop of steps in a batch script.",
     "job -N1 -n1 --gres=gpu:2 <<< 'for rate in 1 2 3; do srun python3 $P/readers.py trainer 0.$rate; done'"),
    ("master_by_scontrol", WEEK, "The usual recipe: MASTER_ADDR and ranks made by hand in a shell of each task.",
     """job -N2 --ntasks-per-node=2 --gres=gpu:2 <<'X'
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) MASTER_PORT=12340 WORLD_SIZE=$SLURM_NTASKS
srun bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; python3 $P/readers.py torch_env'
X"""),
    ("master_by_scontrol_python", WEEK, "The same, and the program sets its ranks from Slurm.",
     """job -N2 --ntasks-per-node=2 --gres=gpu:2 <<'X'
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1) MASTER_PORT=12340 WORLD_SIZE=$SLURM_NTASKS
srun python3 -c 'import os; print(os.environ["SLURM_PROCID"], os.environ["WORLD_SIZE"], os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])'
X"""),
    ("conda_like", WEEK, "A Python of the user's own environment, one task.",
     "python3 -m venv --without-pip --system-site-packages env; $L1 env/bin/python $P/show_env.py"),
    ("stress", WEEK, "stress-ng with as many workers as it finds.",
     "srun -n1 -c2 --gres=gpu:1 stress-ng --cpu 0 --cpu-ops 4 --metrics-brief 2>&1 | grep -oE 'dispatching hogs: .*'",
     {"needs": ("stress-ng",)}),
    ("sattach", WEEK, "sattach to a running step.",
     """sbatch -Q -o /dev/null -n1 --gres=gpu:1 --wrap 'srun bash -c "touch ready; sleep 1.5; echo seen"'; until [[ -e ready ]]; do sleep 0.05; done
sattach $(squeue -h --me -p $SLURM_PARTITION -o %A).0"""),
    ("sbcast", WEEK, "sbcast, then the program where it was put.",
     "job -N2 --ntasks-per-node=1 --gres=gpu:1 <<< 'sbcast -f $P/show_env.sh /tmp/sbcast_run; srun /tmp/sbcast_run'", UNSEEN),
    ("test_only", WEEK, "--test-only and --help.", "srun --test-only -n1 true 2>&1 | sed 's/Job .*/tested/'; srun --usage | wc -l"),
    ("steps_in_order", WEEK, "Three steps of one job are numbered as ever.",
     "job -N1 -n2 --gres=gpu:2 <<< 'for i in 0 1 2; do srun bash -c \"echo step \\$SLURM_STEP_ID | tr 0-9 a-j\"; done'"),
)  # fmt: skip

CASES = DAILY

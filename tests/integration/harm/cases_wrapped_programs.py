"""Programs behind wrappers: independent runs stay apart, and training behind a tool with any options is one world."""

# SPDX-License-Identifier: Apache-2.0

from harm_case import BETTER, WEEK, rows

# Each run of a farm shows the fault that a world would cause. The stand-ins run the words behind "--", or the last ones.
FOLDS = """printf '#!/bin/bash\\necho fold ${RANK:-none} ${WORLD_SIZE:-none} ${MASTER_ADDR:-none}\\n' > folds.sh; chmod +x folds.sh; mkdir bin
printf '#!/usr/bin/env python3\\nimport os, sys\\nwords = sys.argv[sys.argv.index("--") + 1:]\\nos.execvp(words[0], words)\\n' > bin/dotenv
printf '#!/bin/bash\\nuntil [[ $1 == python3 || $1 == ./folds.sh || $# == 1 ]]; do shift; done; exec "$@"\\n' > bin/nsys
chmod +x bin/*; cp bin/dotenv bin/ddtrace-run; cp bin/dotenv runner; cp bin/nsys bin/apptainer; export PATH=$OUT/bin:$PATH
"""
TRAIN = "python3 $P/readers.py torch_env"
# Without any variable, so also without PATH.
CLEAN = "/usr/bin/python3 -c 'import os; print(sorted(os.environ))'"
KEPT_FROM = "keeps RANK, MASTER_ADDR and the other variables from the program"  # the warning
WORLD = {"relation": BETTER, "gives": ("3: member 3 of 4",)}


def each(wrappers, program):
    """One step for each wrapper."""
    return FOLDS + "\n".join(f"$L2 {wrapper} {program}" for wrapper in wrappers)


CASES = rows(
    "programs behind wrappers",
    ("farm_tools", "rules", "Folds in a user's script behind setarch, flock and their like.",
     each(("setarch -R", "setarch x86_64 -R", "linux64", "flock lock", "timeout 20", "nice -n5", "stdbuf -o L", "taskset --cpu-list 0",
           "env -u python3", "prlimit --core=0", "chrt --other 0"), "./folds.sh")),
    ("farm_tools_path", WEEK, "The same, where the script is found in PATH.",
     FOLDS + "cp folds.sh bin/folds; $L2 nice folds; $L2 timeout 20 folds; $L2 env A=1 folds"),
    ("farm_python_command", "rules", "Folds in a user's script behind commands that are Python scripts.",
     each(("dotenv run --", "dotenv -f x.env run --", "ddtrace-run --", "./runner --"), "./folds.sh")),
    ("farm_python_command_shell", WEEK, "The same in a shell, and by a launcher.",
     FOLDS + "$L2 dotenv run -- bash ./folds.sh; $L2 ./runner -- sh ./folds.sh; cp folds.sh bin/accelerate; $L2 ddtrace-run -- accelerate launch x.py"),
    ("farm_compiled_wrapper", WEEK, "The same behind a compiled program that is no known tool.",
     FOLDS + "for words in ./folds.sh 'bash ./folds.sh' 'nice ./folds.sh'; do $L2 /lib64/ld-linux-x86-64.so.2 /usr/bin/env $words; done"),
    ("farm_profiler", WEEK, "The same behind a profiler, whose output has the name of Python.",
     FOLDS + "$L2 nsys profile --sample none -o python3.11 ./folds.sh; $L2 nsys profile --force-overwrite true ./folds.sh"),
    ("farm_container", WEEK, "The same in a container.", FOLDS + "$L2 apptainer --silent exec --nv image.sif ./folds.sh"),
    ("farm_own_script_named_as_tool", WEEK, "A user's script that has the name of a tool and starts Python.",
     "printf '#!/bin/bash\\nexport CUDA_VISIBLE_DEVICES=$SLURM_LOCALID; exec \"$@\"\\n' > perf; chmod +x perf; cp perf select_gpu\n"
     "for own in ./perf ./select_gpu; do $L2 $own python3 -c 'import os; print(*map(os.environ.get, (\"RANK\", \"MASTER_ADDR\", \"CUDA_VISIBLE_DEVICES\")))'; done"),
    ("farm_of_site", WEEK, "A launcher that the site names: launchers=.", "cp $P/show_env.py farm.py; $L2 python3 farm.py",
     {"arguments": "launchers=farmctl,farm.py"}),
    ("gpus_of_a_part", WEEK, "A step with half of the --gpus of its job, on two nodes.",
     "salloc -Q -N2 --ntasks-per-node=1 -c3 --gpus=4 srun -N2 -n2 --gpus=2 python3 $P/show_env.py"),
    ("farm_agents", WEEK, "Agents and servers of debuggers by their names.",
     "mkdir bin; for name in mw_smpd mpid flux-broker pueued dmtcp_coordinator parsl tvdsvr STATD gdbserver MATLAB; do\n"
     "cp $B/show_env_static bin/$name; $L2 ./bin/$name | grep -cE '(^| )(RANK|MASTER_ADDR)='; done"),
    ("one_gpu_farm_clean", "FastSurfer 693", "Programs that env -i starts without any variable.",
     f"$L2 env -i {CLEAN}", {"ignores": KEPT_FROM}),
    ("one_gpu_farm_cleanenv", "FastSurfer 693", "The same by the --cleanenv of a container.",
     FOLDS + "printf '#!/bin/bash\\nuntil [[ $1 == /usr/bin/python3 ]]; do shift; done; exec env -i \"$@\"\\n' > bin/apptainer\n"
     f"$L2 apptainer exec --cleanenv image.sif {CLEAN}",
     {"ignores": KEPT_FROM}),
    ("gain_named_as_launcher", WEEK, "Training by a file of the user's that has a launcher's name.",
     f"printf '#!/usr/bin/env python3\nimport os, sys\nos.execvp(sys.argv[1], sys.argv[1:])\n' > tune; chmod +x tune; $W4 ./tune {TRAIN}",
     WORLD),
    ("gain_het_group", "NeMo-Skills 336", "One component of a heterogeneous job, whose shape is a world.",
     f"salloc -Q -N1 -n1 -c2 --gres=gpu:1 : -N1 -n2 -c2 --gres=gpu:2 srun --het-group=1 {TRAIN}", WORLD | {"gives": ("1: member 1 of 2",)}),
    ("gain_profiler", "rules", "Training behind a profiler with values in words of their own.",
     FOLDS + f"$W4 nsys profile --force-overwrite true --trace cuda,nvtx --sample none -o x {TRAIN}", WORLD),
    ("gain_tool_options", WEEK, "Training behind tools with options that nobody listed.",
     f"$W4 env --default-signal=USR1 nice -n 1 timeout --signal TERM --kill-after 9 20 stdbuf --output L setarch -R {TRAIN}", WORLD),
    ("gain_container", WEEK, "Training in a container, options before the subcommand.",
     FOLDS + f"$W4 apptainer --silent exec --nv --bind /a:/b image.sif {TRAIN}", WORLD),
    ("gain_of_site", WEEK, "A script that the site names as training: trainers=.",
     f"printf '#!/bin/bash\\nexec {TRAIN}\\n' > train_here; chmod +x train_here; $W4 ./train_here", WORLD | {"arguments": "trainers=train_here"}),
    ("gain_gpus_two_nodes", "LlamaFactory 3544", "--gpus=8 alone, on two nodes with four tasks each.",
     f"srun -N2 --ntasks-per-node=4 --gpus=8 {TRAIN}", WORLD | {"gives": ("7: member 7 of 8",)}),
    ("gain_torchrun_named", "pytorch 73656", "torchrun by another name.",
     'cp "$(command -v torchrun)" torchrun_site; $W2 ./torchrun_site --nproc_per_node=2 $P/readers.py torch_env',
     {"relation": BETTER, "gives": ("1: member 3 of 4",), "needs": ("torchrun",), "seconds": 120,
      "variables": {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1", "OMP_NUM_THREADS": "1"}}),
)  # fmt: skip

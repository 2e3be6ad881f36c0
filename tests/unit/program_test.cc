// Finds the program of a step in its command line, and the messages about it: a remedy, options that cannot be right,
// and wrappers that remove its variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/program/program_names.h"
#include "core/step/planned_variables.h"
#include "core/util/text.h"
#include "known_programs.h"

namespace bootstrap {
namespace {

using K = ProgramKind;

// The command lines of a kind, one in each line or separated by " | ".
struct Rows {
  const char* what;
  ProgramKind kind;
  const char* lines;
};

const Rows kRows[] = {
    {"the program itself", K::kTraining, R"(
./train | bin/train --gpus 2 | nvcc-made | gmx mdrun | local-prog | train.py | pip-script | ./trainer | ./trainer-S | ./trainer-uv | ./test
python3 train.py | python train.py --launcher slurm | /opt/conda/bin/python3.11 -u train.py | python3 -uB -X dev -W ignore train.py
./tune --lr 1 | nice ./tune | python3 ./tune | python3 tools/just --lr 1 | src/trl/train.py
python3 -c pass | python3 -m my.package.train | python3 | pypy3 x.py | ipython3 train.py | /home/me/shim/python3 train.py
./train --backend ray --epochs 3 | ./train --config ./settings.sh | gmx mdrun -o /scratch/new | slurm-bootstrap run -- bash
)"},
    {"shells, and scripts of other languages", K::kShell, R"(
bash -c ./train | /bin/sh train.sh | bash-5.2 -c ./train | zsh | env A=1 bash x | flock lock bash -c ./train | setarch -R bash -c x
pipenv run bash | docker run --rm --gpus all image bash | docker run --rm python bash -c x | apptainer exec --nv image.sif bash x.sh
nsys profile --sample none bash ./folds.sh | dotenv run -- bash -c ./folds.sh | env -S bash -c x | nice -n5 bash x.sh
)"},
    {"a user's script, also behind a wrapper", K::kScript, R"(
./folds.sh | ./sh-of-python train.py | ./rscript | perl-script | ./data | ./settings.sh | ./select_gpu python3 t.py | ./perf python3 t.py
MATLAB -batch x
perl x.pl | perl5.36.0 x.pl | Rscript x.R | /usr/bin/julia x.jl | perf record -o x Rscript fit.R | nice perl x.pl
setarch -R ./folds.sh | setarch x86_64 -R ./folds.sh 3 | linux64 -R ./folds.sh | prlimit --core=0 ./folds.sh | env A=1 ./folds.sh
flock -n lock ./folds.sh | timeout 60 folds | nice -n5 folds 3 | numactl -N 0 ./folds.sh | xvfb-run -a ./folds.sh
strace -e write ./folds.sh
dotenv run -- ./folds.sh | dotenv -f x.env run -- ./folds.sh | ddtrace-run ./folds.sh | opentelemetry-instrument --x y ./folds.sh
uv run ./folds.sh | uv run --with x.py ./folds.sh | uv run -p python3 ./folds.sh | poetry -C X run ./folds.sh | pixi run -e gpu ./folds.sh
conda run -n python39 ./folds.sh | conda run -n test ./folds.sh | memray run ./folds.sh | coverage run x.py ./folds.sh
nsys profile --force-overwrite true -o python3 ./folds.sh | ncu --profile-from-start off ./folds.sh | py-spy record -o x -- ./folds.sh
apptainer --silent exec image.sif ./folds.sh | udocker run ubuntu ./folds.sh | docker run --gpus all python ./folds.sh
shifter --image=x ./folds.sh
./wrap ./folds.sh | ./wrap --opt ./folds.sh | ./trainer run ./folds.sh | ./wrap -v bash -c x | ./wrap -- sh -c x | ./wrap -x perl x.pl
./wrap make -j4 | ./wrap -n 4 parallel ./train | ./trainer accelerate launch t.py | ./train lock bash -c ./train
./train /opt/bin/accelerate launch
numactl --show | nice run | rm -rf x | /bin/hostname | test -f x | julia-1.10 x.jl | octave-cli-8.2 x.m
)"},
    {"a program that srun cannot see", K::kUnseen, R"(
/nowhere/train | ./not-there | train-not-in-path | ./image.sif python3 t.py | env -C /tmp ./train | nice /local/run | nice -5 /local/farm
perf stat /local/farm | conda run -n other ctrain | conda activate torch | nsys stats x | pixi run train | taskset -p 1
apptainer exec --nv -B /data:/data image.sif ./train | singularity run image.sif | singularity exec -B python3 image.sif /local/x
docker run --rm --entrypoint bash image -c x | nice apptainer exec image.sif ./train | env --chdir /tmp ./train
)"},
    {"launchers, agents and servers", K::kLauncher, R"(
mpirun -n 2 ./train | /usr/lib/openmpi/bin/mpirun.openmpi ./train | mpiexec.hydra ./train | orted --hnp | prted | hydra_pmi_proxy
accelerate launch train.py | deepspeed train.py | composer -n 2 train.py | horovodrun -np 2 python train.py | likwid-mpirun -np 2 ./train
ray start --head | wandb agent x | dask-worker | dask-anything-new | jupyter lab | jupyter-nbconvert | vllm serve m | sshd -D
nvidia-smi -L
clush -w node[1-2] python3 t.py | nice pdsh -a ./train | perf stat --new clush python3 t.py | numactl --x pdsh python3 t.py
snakemake -j4 | parallel -j2 ./train | xargs -P2 ./train | make -j4 | just train | dvc repro | tmux new | srun ./train | sudo python3 t.py
python3 /usr/bin/accelerate launch train.py | python3 -m accelerate.commands.launch train.py
python3 -u -m deepspeed.launcher.runner t.py
python3 -m composer.cli.launcher -n 2 t.py | python3 -m lightning.fabric run t.py | python3 -m http.server | python3 -m ipykernel_launcher
python3 -u -m submitit.core._submit x | ipython3 -m ipyparallel.engine | python3 -m our.farm | python3 farmctl | farmctl python3 t.py
env A=1 mpirun -n 2 ./train | env -i mpirun python3 x.py | time mpirun ./train | timeout -k 5 --signal=TERM 60 mpirun x | perf stat make
numactl -l parallel python3 x.py | xvfb-run -a mpirun -n 2 python3 t.py | uv run accelerate launch t.py
uv tool run accelerate launch t.py | uv run --module accelerate.commands.launch t.py
python3 -mpytest | uv pip install x | coverage run -m pytest | ddtrace-run accelerate launch --num_processes 1 t.py
singularity -q exec i.sif accelerate launch t.py
nsys profile -o x deepspeed --num_gpus 1 train.py | nice farmctl x | tune run x | /home/me/bin/tune run x | .venv/bin/accelerate launch t.py
mw_smpd -phrase x | mpid | flux-broker | pueued -d | dmtcp_coordinator | parsl x | tvdsvr -callback x | STATD | gdbserver :1 ./train
./mpirun python3 x.py | python3 venv/bin/accelerate launch t.py | uv run venv/bin/deepspeed t.py
)"},
    {"public start lines: wrappers", K::kTraining, R"(
env A=1 ./train | env -i -u X A=1 python3 train.py | env -S python3 -u train.py | env PATH=/opt/bin special | env | env A=1
env --new ./train
time -p ./train | time -f %e ./train | nice ./train | nice -n 5 ./train | nice -5 ./train | stdbuf -oL -e0 ./train
stdbuf -oL ./train --out /new
timeout --foreground 1h python3 t.py | timeout --signal=USR1 --kill-after 60 3500 python train.py | ionice -c2 -n0 python t.py
chrt -b 0 python t.py
numactl --cpunodebind=0 --membind 0 ./train | numactl --preferred-many 0,1 python t.py | numactl --mystery 0 ./train
taskset 0xff python3 t.py
setsid -w ./train | nohup python3 -u t.py | setarch x86_64 -R python t.py | prlimit --memlock=unlimited ./trainer
flock -x lock python t.py
xvfb-run -a python3 train.py --headless | unbuffer python t.py | hwloc-bind --cpubind core:0-3 -- python t.py
likwid-perfctr -C 0-3 -g X ./train
env A=1 nice numactl -l time -p timeout 5 ./train | ./wrap python3 t.py
)"},
    {"public start lines: environments", K::kTraining, R"(
conda run -n torch python3 t.py | conda run --no-capture-output -n torch ctrain | conda run -p /venv mytrain
conda run -n ray python t.py | uv run --extra ray -- python t.py | conda run --name torch ctrain | conda run --prefix /venv mytrain
mamba run -n torch --cwd /work python t.py | micromamba -r /opt/mamba run -n torch python t.py | pyenv exec python t.py
uv run train.py | uv run dottrain | uv run --frozen dottrain | uv run --with deepspeed python t.py
uv run --project ./p --extra cu124 python t.py
uv --project ./p run t.py | uv --directory /w run python -m pkg.train | uv run --no-sync --python 3.12 -m pkg.train | uv run -m train
poetry run python t.py | poetry -C /w/p run python t.py | hatch -e gpu run python t.py
pixi run --manifest-path /w/p.toml -e cuda python t.py
pipenv run python t.py | pdm run -p /w python t.py | guix shell python pytorch -- python3 t.py | direnv exec . python t.py
dotenv -f prod.env run -- python t.py | ddtrace-run python t.py | opentelemetry-instrument --traces_exporter otlp python t.py
)"},
    {"public start lines: containers", K::kTraining, R"(
apptainer exec --nv image.sif python3 t.py | apptainer exec ./image.sif python3 t.py
apptainer --silent exec --bind /a:/a i.sif python t.py
singularity -q exec --nv -B /scratch i.sif python -m pkg.train | singularity exec --overlay my.ext3:ro /img/cuda.sif python t.py
apptainer run --nv docker://pytorch/pytorch:latest python t.py | apptainer exec --newest image.sif python3 t.py
apptainer exec i.sif train.py
shifter --image=nersc/pytorch:24.06 --module=gpu,nccl-plugin python t.py | podman-hpc run --rm --gpu -v /w:/w -w /w img:tag python t.py
podman run --rm --device nvidia.com/gpu=all --security-opt=label=disable img python t.py
docker run --rm --gpus all --ipc host img:24 python t.py
enroot start --rw --mount /data:/data pytorch python t.py | sarus run --mpi --mount=type=bind,source=/d,destination=/d img python t.py
ch-run --set-env -b /d:/d -w img -- python t.py | udocker run --volume=/d c1 python t.py
apptainer exec i.sif conda run -n torch python t.py
)"},
    {"public start lines: profilers and debuggers", K::kTraining, R"(
nsys profile -o out --trace=cuda,nvtx,osrt python3 t.py | nsys profile --force-overwrite true -o out python t.py
nsys launch --session-new s python t.py
nsys profile -w true -t cuda,nvtx -s cpu --capture-range=cudaProfilerApi --stop-on-range-end=true -x true -o report python main.py
nsys profile --capture-range cudaProfilerApi --cuda-graph-trace graph -f true -o p python t.py --tensor-model-parallel-size 2
nsys profile --trace cuda,nvtx --sample none --cpuctxsw none python t.py | nsys profile --gpu-metrics-device all --delay 30 -o r ./train
ncu --profile-from-start off -o report python t.py | ncu --target-processes all --set full -k regex:gemm -c 10 -o rep ./train
nvprof -o x.%p python t.py
ncu --kernel-name-base demangled --launch-skip 5 python bench.py | compute-sanitizer --tool memcheck python t.py
cuda-gdb -batch -ex run --args ./train
rocprofv3 --hip-trace --kernel-trace -d out -- python3 t.py | rocprof --stats -o r.csv python t.py | rocprof-sys-sample -PTHD -- ./train
vtune -collect hotspots -result-dir r -- python3 t.py | advisor --collect=roofline --project-dir=./adv -- ./train
map --profile -o out.map python3 t.py
perf record -F 99 -g -o perf.data python3 t.py | perf stat -e cycles:u,instructions:u ./train
strace -f -e trace=network -o trace python3 t.py
valgrind --tool=memcheck --log-file=v.%p ./train | gdb -batch -ex run -ex bt --args python3 t.py | gdb ./train | ddt --connect ./train
py-spy record -s -o prof.svg -- python t.py | scalene --cli --outfile s.json train.py | viztracer -o result.json train.py --epochs 2
memray run -o out.bin train.py | memray run -m pkg.train | coverage run -p train.py | coverage run -m pkg.train | kernprof -l train.py
hpcrun -e CPUTIME -e gpu=nvidia -o m ./train | tau_exec -T cupti -cupti ./train
numactl -m 0 nsys profile --trace cuda,nvtx -o x python t.py
)"},
    {"a name that is an option's value", K::kTraining, R"(
nsys profile -o python3 python3 t.py | nsys profile -o bash python3 t.py | nsys profile -o x.py ./train
nsys profile -o torchrun python t.py
timeout -k bash 60 python3 t.py | nsys profile -o sh ./train | conda run -n vllm python -m pkg.train | strace -o make python3 t.py
apptainer exec -B bash i.sif python3 t.py | uv run --python python3.11 train.py
)"},
    {"a site's own names", K::kTraining, R"(
train_wrapper x | ./folds-of-ours | nice train_wrapper x | python3 train_wrapper | apptainer exec i.sif train_wrapper bash
)"},
    {"torchrun", K::kTorchrun, R"(
torchrun train.py | /usr/bin/torchrun --nproc-per-node=2 train.py --nnodes 7 | torchrun --nproc_per_node 2 -m pkg.train
torchrun --nnodes 2 train.py
torchrun --nnodes=2 --max-restarts=3 train.py | torchrun --nproc_per=gpu train.py | torchrun -r 3 -t3 train.py
torchrun_jsc --nproc_per_node 4 t.py
python3 -m torch.distributed.run train.py | python3 /usr/bin/torchrun train.py | python3 -m torch.distributed.launch --use_env train.py
numactl -l torchrun train.py | uv run --frozen torchrun --nproc_per_node 4 t.py | uv run -m torch.distributed.run t.py
python3 -m torchrun_jsc t.py | uv run --module torch.distributed.run t.py
singularity exec --nv image.sif torchrun t.py | nsys profile -t cuda --force-overwrite true -o o torchrun --nproc_per_node 4 t.py
./wrap torchrun t.py
)"},
    {"a torchrun that decides for itself", K::kLauncher, R"(
torchrun --nnodes=1 train.py | torchrun --nnodes 3 train.py | torchrun --nnodes=1:4 train.py | torchrun --nnod 1 train.py
torchrun --standalone train.py
torchrun --stand train.py | torchrun --rdzv-backend c10d train.py | torchrun --rdzv_endpoint=localhost:0 train.py
torchrun --local-addr 10.0.0.1 train.py
torchrun --rdzv_b c10d train.py | torchrun --node-rank 0 train.py | torchrun --node_rank=0 train.py | torchrun --master_port 1234 train.py
torchrun --master-a x train.py | torchrun --brand-new-option x train.py | python3 -m torch.distributed.run --standalone t.py
torchrun_jsc --nnodes=1 t.py | torchrunx t.py | torchrun_unseen t.py
)"},
};

TEST(Program, IsJudgedByItsCommandLine) {
  for (const auto& [what, kind, lines] : kRows) {
    const auto text = replaced(lines, " | ", "\n");
    for (const auto line : split(text, '\n')) {
      if (line.empty()) continue;
      const auto program = program_of(line);
      EXPECT_EQ(static_cast<int>(program.kind), static_cast<int>(kind))
          << what << ": " << line << ": " << program.reason;
      EXPECT_FALSE(program.reason.empty()) << line;
    }
  }
}

TEST(Program, ARelativeNameIsUnseenIfSrunChangesItsFolder) {
  EXPECT_EQ(program_of("./train", user_environment(), true).kind, K::kUnseen);
  EXPECT_EQ(program_of("local-prog", user_environment(), true).kind, K::kUnseen);
  EXPECT_EQ(program_of("nvcc-made", user_environment(), true).kind, K::kTraining);
  EXPECT_EQ(program_of("python3 t.py", user_environment(), true).kind, K::kTraining);
}

TEST(Program, BehindARunnerTheActiveEnvironmentIsSearched) {
  auto environment = user_environment();
  environment.set("VIRTUAL_ENV", "/venv");
  EXPECT_EQ(program_of("poetry run mytrain", environment).kind, K::kTraining);
  EXPECT_EQ(program_of("mytrain", environment).kind, K::kUnseen) << "not in PATH";
}

TEST(Program, TorchrunsVariablesOfTheUserDecideToo) {
  for (const auto* name : {"PET_NNODES", "PET_STANDALONE", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_NODE_RANK",
                           "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_LOCAL_ADDR"}) {
    auto environment = user_environment();
    environment.set(name, "1");
    EXPECT_EQ(program_of("torchrun t.py", environment).kind, K::kLauncher) << name;
  }
  auto environment = user_environment();
  environment.set("PET_NNODES", "2");
  environment.set("PET_NPROC_PER_NODE", "2");
  EXPECT_EQ(program_of("torchrun t.py", environment).kind, K::kTorchrun) << "the values of the step";
}

TEST(Program, ReasonsNameTheDecidingWord) {
  const std::pair<const char*, const char*> rows[] = {
      {"mpirun x", "mpirun starts its own ranks"},
      {"./train", "train is a compiled program"},
      {"nsys profile --new x python3 t.py", "t.py is a Python script"},
      {"nsys profile --new x ./folds.sh", "folds.sh is a script for \"bash\""},
      {"setarch -R bash -c x", "bash is a shell: the plugin does not set up what a shell starts"},
      {"./wrap -v bash -c x", "wrap may start \"bash\""},
      {"/nowhere/x", "srun cannot see \"/nowhere/x\""},
      {"apptainer exec image.sif x", "srun cannot see the program that apptainer starts"},
      {"numactl --show", "numactl has no program to start"},
      {"farmctl x", "farmctl is in launchers= of plugstack.conf"},
      {"train_wrapper x", "train_wrapper is in trainers= of plugstack.conf"},
      {"torchrun --standalone x", "the user set \"--standalone\" for torchrun"},
      {"torchrun --nnodes 2 --node_rank=0 x",
       "\"--node_rank=0\" cannot be right on several nodes: the step would wait for ever"},
      {"torchrun --nnodes 2 --master_addr node003 x",
       "\"--master_addr node003\" is no node of the step: the step would wait for ever"},
  };
  for (const auto& [line, reason] : rows) EXPECT_EQ(program_of(line).reason, reason) << line;
}

bool is_launcher(const std::vector<std::string>& words) {
  std::vector<const char*> pointers;
  for (const auto& word : words) pointers.push_back(word.c_str());
  return is_launcher_process(static_cast<int>(pointers.size()), pointers.data());
}

TEST(Program, AProcessKnowsALauncherByItsOwnWords) {
  for (const auto* line :
       {"/usr/bin/orted x", "mpirun.openmpi", "/usr/bin/python3 /usr/bin/torchrun t.py", "torchrun t.py",
        "python3 -u -m torch.distributed.run t.py", "python3 -m accelerate.commands.launch t.py", "ray start",
        "/usr/bin/python3 /usr/bin/accelerate launch t.py", "make", "python3 /usr/bin/torchrun_jsc t.py",
        "/opt/conda/bin/python /opt/conda/bin/conda run x"}) {
    EXPECT_TRUE(is_launcher(words_of(line))) << line;
  }
  for (const auto* line :
       {"python3 t.py", "./train", "bash", "python3 -c torchrun", "python3 -m my.train", "python3", ""}) {
    EXPECT_FALSE(is_launcher(words_of(line))) << line;
  }
  EXPECT_FALSE(is_launcher_process(0, nullptr));
}

// Any command line gets a kind and a reason.
TEST(Program, AnyWordsAreJudged) {
  const std::vector<std::string> pool{
      "env", "-S",      "--",       "-",    "",          "A=1",  "python3", "-m",   "-c",      "torchrun", "--nnodes",
      "=",   "numactl", "-",        "--x=", "apptainer", "exec", "conda",   "run",  "-n",      "timeout",  "./wrap",
      "-5",  "./train", "\x01\xff", "uv",   "bash",      "-W",   "-X",      "nsys", "profile", "-o",       "make"};
  std::mt19937 random(7);
  const auto environment = user_environment();
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> words(random() % 8);
    for (auto& word : words) word = pool[random() % pool.size()];
    const auto program = classify_program(words, {.environment = environment, .read_head = known_head});
    ASSERT_FALSE(program.reason.empty());
    (void)is_launcher(words);
  }
}

TEST(Program, NoMoreThan64WordsAreRead) {
  std::string line = "./wrap";
  for (int i = 0; i < 64; ++i) line += " a";
  EXPECT_EQ(program_of(line + " bash").kind, K::kTraining);
  EXPECT_EQ(program_of(line.substr(0, line.size() - 2) + " bash").kind, K::kScript);
}

TEST(Program, NamesOptionsThatCannotBeRightOnSeveralNodes) {
  for (const auto* line :
       {"torchrun --nnodes 2 --node_rank 0 --master_addr node001 t.py", "torchrun --nnodes=2 --node-rank=1 t.py",
        "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint localhost:29400 t.py",
        "torchrun --nno 2 --node 0 t.py", "torchrun --nnodes 2:4 --rdzv_backend=c10d --rdzv-endpoint=127.0.0.1:0 t.py",
        "nice torchrun --nnodes 4 --node_rank 0 t.py",
        "python3 -m torch.distributed.run --nnodes 2 --rdzv_endpoint [::1]:29400 t.py",
        "python3 -m torch.distributed.launch --nnodes 2 --rdzv_endpoint=::1 t.py",
        "torchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr localhost t.py",
        "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint node003:29400 t.py",
        "accelerate launch --multi_gpu --num_machines 2 --machine_rank 0 --main_process_ip node001 t.py",
        "accelerate launch --num_machines=2 --main_process_ip=127.0.0.1 t.py",
        "accelerate-launch --num-machines 2 --machine-rank 1 t.py",
        "python3 -m accelerate.commands.launch --num_machines 2 --machine_rank 0 t.py"}) {
    EXPECT_TRUE(program_of(line).is_stuck) << line;
  }
  for (const auto* line :
       {"torchrun --nnodes 2 t.py", "torchrun --nnodes 1 --node_rank 0 t.py", "torchrun --node_rank 0 t.py",
        "torchrun --rdzv_backend c10d --rdzv_endpoint localhost:0 t.py",
        "torchrun --nnodes 1:4 --rdzv_endpoint localhost:0 t.py",
        "torchrun --nnodes 2 --rdzv_backend c10d --node_rank 0 --rdzv_endpoint node001:1 t.py",
        "torchrun --standalone --nnodes 2 t.py",
        "torchrun --nnodes 2 --node_rank $SLURM_NODEID --master_addr node001 t.py",
        "torchrun t.py --nnodes 2 --node_rank 0", "torchrun --nnodes 2 --master_addr node001i t.py",
        "accelerate launch --num_machines 1 --machine_rank 0 t.py",
        "accelerate launch t.py --num_machines 2 --machine_rank 0",
        "accelerate config --num_machines 2 --machine_rank 0",
        "accelerate launch --num_machines 2 --machine_rank 0 --rdzv_backend c10d --main_process_ip node001 t.py"}) {
    EXPECT_FALSE(program_of(line).is_stuck) << line;
  }
  const auto environment = user_environment();
  const auto one = classify_program(words_of("torchrun --nnodes 2 --node_rank 0 t.py"),
                                    {.environment = environment, .read_head = known_head});
  EXPECT_FALSE(one.is_stuck) << "a step for each node";
  EXPECT_EQ(one.remedy, "");
  auto exported = user_environment();
  exported.set("PET_NODE_RANK", "0");
  EXPECT_EQ(program_of("torchrun --nnodes 2 --rdzv_id 7 t.py", exported).reason,
            "\"PET_NODE_RANK=0\" cannot be right on several nodes: the step would wait for ever");
  EXPECT_EQ(program_of("torchrun --nnodes 2 --rdzv_id 7 t.py", exported).remedy,
            "remove --rdzv_id 7 and unset PET_NODE_RANK");
}

TEST(Program, TheRemedyForALauncherNamesTheUsersProgram) {
  const std::string plain = "start your program with srun itself";
  const std::pair<const char*, std::string> rows[] = {
      {"accelerate launch --num_processes 4 acc.py", plain + ": srun --ntasks-per-node=N python3 acc.py"},
      {"deepspeed --num_gpus 2 acc.py --lr 1", plain + ": srun --ntasks-per-node=N python3 acc.py ..."},
      {"mpirun -n 2 python3 -u acc.py x", plain + ": srun --ntasks-per-node=N python3 -u acc.py ..."},
      {"horovodrun -np 2 python -m pkg.train", plain + ": srun --ntasks-per-node=N python -m pkg.train"},
      {"mpirun -n 2 ./train", plain + ": srun --ntasks-per-node=N ./train"},
      {"xargs -P2 python3 -c pass", plain},
      {"ray start --head", plain},
      {"farmctl python3 t.py", plain + ": srun --ntasks-per-node=N python3 t.py"},
      {"torchrun --nnodes 2 --node_rank 0 --master_port=1 t.py", "remove --node_rank 0 --master_port=1"},
      {"./wrap -v mpirun x", "use --bootstrap=on if it does not"},
      {"torchrun t.py", ""},
  };
  for (const auto& [line, remedy] : rows) EXPECT_EQ(program_of(line).remedy, remedy) << line;
  EXPECT_TRUE(program_of("accelerate launch acc.py").starts_ranks);
  EXPECT_FALSE(program_of("ray start").starts_ranks);
}

TEST(Program, NamesAWrapperThatRemovesItsVariables) {
  for (const auto* line :
       {"env -i python3 t.py", "env - python3 t.py", "env -u X -i A=1 ./train", "env --ignore-env python3 t.py",
        "nice -n 1 env -i t.py", "env -iu X python3 t.py", "timeout 60 env -i python3 t.py",
        "apptainer exec --cleanenv i.sif python3 t.py", "env -i torchrun t.py",
        "apptainer -q exec --nv -B /a:/a -e i.sif python3 t.py", "singularity exec --containall --nv i.sif ./train",
        "singularity exec -Ce i.sif python3 t.py", "apptainer run --compat i.sif x", "sudo python3 t.py",
        "sudo -u me python3 t.py"}) {
    EXPECT_NE(program_of(line).closed, "") << line;
  }
  for (const auto* line :
       {"env A=1 python3 t.py", "env -u i python3 t.py", "env python3 t.py -i", "env -ui python3 t.py",
        "apptainer exec --contain i.sif python3 t.py", "apptainer exec --nv -c -B /Ce i.sif python3 t.py",
        "apptainer exec i.sif python3 t.py -e 5", "apptainer exec --nv i.sif ./train -e 5",
        "apptainer exec -BC i.sif python3 t.py", "sudo -E python3 t.py", "sudo -u me -HE x",
        "sudo --preserve-env=RANK python3 t.py", "nice -i t.py", "python3 t.py env -i", "./train -e"}) {
    EXPECT_EQ(program_of(line).closed, "") << line;
  }
  EXPECT_EQ(program_of("apptainer exec --cleanenv i.sif python3 t.py").closed,
            "\"apptainer --cleanenv\" keeps RANK, MASTER_ADDR and the other variables from the program; use apptainer "
            "without --cleanenv, or pass them from a shell of each task, as APPTAINERENV_RANK and so on");
}

}  // namespace
}  // namespace bootstrap

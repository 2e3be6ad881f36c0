// What a step starts, told from its command line.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/program.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/program/launcher_names.h"
#include "core/step/planned_variables.h"
#include "core/util/text.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using K = ProgramKind;

// The files of a machine; what is not here is not there.
class Files : public ProgramFiles {
 public:
  std::optional<std::string> head(const std::string& path) const override {
    static const std::map<std::string, std::string> kFiles{
        {"/usr/bin/env",
         "\x7f"
         "ELF"},
        {"/usr/bin/hostname",
         "\x7f"
         "ELF"},
        {"/usr/bin/gmx",
         "\x7f"
         "ELF"},
        {"/usr/bin/perl-script", "#!/usr/bin/perl -w\n"},
        {"/usr/bin/pip-script", "#!/bin/sh\n'''exec' \"/opt/my env/bin/python\" \"$0\" \"$@\"\n' '''\n"},
        {"./train",
         "\x7f"
         "ELF"},
        {"bin/train",
         "\x7f"
         "ELF"},
        {"./train.sh", "#!/bin/bash\nexec python3 train.py\n"},
        {"./sh-of-python", "#!/bin/sh\nexec python3 \"$@\"\n"},
        {"./trainer", "#!/usr/bin/env python3\n"},
        {"./trainer-S", "#!/usr/bin/env -S python3 -u\n"},
        {"./trainer-uv", "#!/usr/bin/env -S uv run --script\n"},
        {"./rscript", "#!/usr/bin/env Rscript\n"},
        {"./data", "0-1 ./train\n2 ./other\n"},
        {"./empty", ""},
        {"./local-prog",
         "\x7f"
         "ELF"},
        {"/venv/bin/mytrain", "#!/venv/bin/python3\n"},
        {"/conda/envs/torch/bin/ctrain", "#!/conda/envs/torch/bin/python\n"},
        {".venv/bin/dottrain", "#!/somewhere/.venv/bin/python\n"},
        {"/opt/bin/special",
         "\x7f"
         "ELF"},
        {"/home/me/shim/python3", "#!/bin/bash\nexec apptainer exec x python3\n"},
    };
    const auto found = kFiles.find(path);
    if (found == kFiles.end()) return std::nullopt;
    return found->second;
  }
};

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const auto word : split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

Environment user_environment() {
  return environment_of({{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"CONDA_PREFIX", "/conda"}});
}

Program program_of(std::string_view line, const Environment& environment = user_environment(), bool has_chdir = false,
                   std::uint32_t nodes = 2) {
  const Files files;
  return classify_program(words_of(line),
                          {.environment = environment, .files = files, .has_chdir = has_chdir, .nodes = nodes});
}

struct Line {
  const char* text;
  ProgramKind kind;
};

TEST(Program, IsJudgedByItsCommandLine) {
  const Line lines[] = {
      // The program itself.
      {"./train", K::kTraining},
      {"bin/train --gpus 2", K::kTraining},
      {"hostname", K::kTraining},
      {"gmx mdrun", K::kTraining},
      {"local-prog", K::kTraining},
      {"python3 train.py", K::kTraining},
      {"python train.py --launcher slurm", K::kTraining},
      {"/opt/conda/bin/python3.11 -u train.py", K::kTraining},
      {"python3 -uB -X dev -W ignore train.py", K::kTraining},
      {"python3 -c pass", K::kTraining},
      {"python3 -m my.package.train", K::kTraining},
      {"python3", K::kTraining},
      {"pypy3 x.py", K::kTraining},
      {"train.py", K::kTraining},
      {"/home/me/shim/python3 train.py", K::kTraining},
      {"./trainer", K::kTraining},
      {"./trainer-S", K::kTraining},
      {"./trainer-uv", K::kTraining},
      {"pip-script", K::kTraining},
      // Shells, scripts, and what cannot be seen.
      {"bash -c ./train", K::kShell},
      {"/bin/sh train.sh", K::kShell},
      {"bash-5.2 -c ./train", K::kShell},
      {"flock lock bash -c ./train", K::kShell},
      {"prlimit --core=0 ./trainer", K::kTraining},
      {"./train lock bash -c ./train", K::kScript},
      {"./train /opt/bin/accelerate launch", K::kScript},
      {"nvidia-smi -L", K::kLauncher},
      {"zsh", K::kShell},
      {"./train.sh", K::kScript},
      {"./sh-of-python train.py", K::kScript},
      {"./rscript", K::kScript},
      {"perl-script", K::kScript},
      {"./data", K::kScript},
      {"./empty", K::kScript},
      {"/nowhere/train", K::kUnseen},
      {"./not-there", K::kUnseen},
      {"train-not-in-path", K::kUnseen},
      {"", K::kUnseen},
      // Launchers and agents.
      {"mpirun -n 2 ./train", K::kLauncher},
      {"/usr/lib/openmpi/bin/mpirun.openmpi ./train", K::kLauncher},
      {"mpiexec.hydra ./train", K::kLauncher},
      {"orted --hnp", K::kLauncher},
      {"prted", K::kLauncher},
      {"hydra_pmi_proxy", K::kLauncher},
      {"accelerate launch train.py", K::kLauncher},
      {"deepspeed train.py", K::kLauncher},
      {"composer -n 2 train.py", K::kLauncher},
      {"horovodrun -np 2 python train.py", K::kLauncher},
      {"ray start --head", K::kLauncher},
      {"wandb agent x", K::kLauncher},
      {"dask-worker", K::kLauncher},
      {"dask-anything-new", K::kLauncher},
      {"jupyter lab", K::kLauncher},
      {"jupyter-nbconvert", K::kLauncher},
      {"snakemake -j4", K::kLauncher},
      {"parallel -j2 ./train", K::kLauncher},
      {"xargs -P2 ./train", K::kLauncher},
      {"make -j4", K::kLauncher},
      {"tmux new", K::kLauncher},
      {"srun ./train", K::kLauncher},
      {"sshd -D", K::kLauncher},
      {"vllm serve m", K::kLauncher},
      {"python3 /usr/bin/accelerate launch train.py", K::kLauncher},
      {"python3 -m accelerate.commands.launch train.py", K::kLauncher},
      {"python3 -u -m deepspeed.launcher.runner train.py", K::kLauncher},
      {"python3 -m composer.cli.launcher -n 2 t.py", K::kLauncher},
      {"python3 -m lightning.fabric run t.py", K::kLauncher},
      {"python3 -m http.server", K::kLauncher},
      {"python3 -m ipykernel_launcher", K::kLauncher},
      {"python3 -u -m submitit.core._submit x", K::kLauncher},
      // Behind prefixes.
      {"env A=1 ./train", K::kTraining},
      {"env -i -u X A=1 python3 train.py", K::kTraining},
      {"env A=1 mpirun -n 2 ./train", K::kLauncher},
      {"/usr/bin/env A=1 bash -c x", K::kShell},
      {"env -S python3 -u train.py", K::kTraining},
      {"env PATH=/opt/bin special", K::kTraining},
      {"env -C /tmp ./train", K::kUnseen},
      {"env --unknown ./train", K::kScript},
      {"time mpirun ./train", K::kLauncher},
      {"time -p ./train", K::kTraining},
      {"time -f %e ./train", K::kTraining},
      {"nice ./train", K::kTraining},
      {"nice -n 5 ./train", K::kTraining},
      {"nice -n5 ./train", K::kTraining},
      {"nice -5 ./train", K::kTraining},
      {"timeout 60 ./train", K::kTraining},
      {"timeout -k 5 --signal=TERM 60 mpirun x", K::kLauncher},
      {"timeout --foreground 1h python3 t.py", K::kTraining},
      {"stdbuf -oL -e0 ./train", K::kTraining},
      {"stdbuf --output=L ./train", K::kTraining},
      {"numactl --cpunodebind=0 --membind 0 ./train", K::kTraining},
      {"numactl -N 0 -m 0 bash x", K::kShell},
      {"numactl --mystery 0 ./train", K::kScript},
      {"taskset -c 0-3 ./train", K::kTraining},
      {"taskset 0xff python3 t.py", K::kTraining},
      {"setsid -w ./train", K::kTraining},
      {"nohup python3 t.py", K::kTraining},
      {"env A=1 nice numactl -l time -p timeout 5 ./train", K::kTraining},
      {"env", K::kTraining},
      {"env A=1", K::kTraining},
      {"numactl --show", K::kScript},
      {"perl x.pl", K::kScript},
      {"perl5.36.0 x.pl", K::kScript},
      {"Rscript x.R", K::kScript},
      {"/usr/bin/julia x.jl", K::kScript},
      // Environments.
      {"conda run -n torch python3 t.py", K::kTraining},
      {"conda run --no-capture-output -n torch ctrain", K::kTraining},
      {"conda run -p /venv mytrain", K::kTraining},
      {"conda run -n other ctrain", K::kUnseen},
      {"conda activate torch", K::kLauncher},
      {"uv run train.py", K::kTraining},
      {"uv run --frozen --with numpy python t.py", K::kTraining},
      {"uv run -m torch.distributed.run t.py", K::kTorchrun},
      {"uv run accelerate launch t.py", K::kLauncher},
      {"uv run dottrain", K::kTraining},
      {"uv pip install x", K::kLauncher},
      {"poetry run python t.py", K::kTraining},
      {"pixi run -e gpu python t.py", K::kTraining},
      {"micromamba run -n torch python t.py", K::kTraining},
      {"pipenv run bash", K::kShell},
      // Containers.
      {"apptainer exec --nv image.sif python3 t.py", K::kTraining},
      {"apptainer exec --nv -B /data:/data image.sif ./train", K::kUnseen},
      {"singularity exec --nv image.sif torchrun t.py", K::kTorchrun},
      {"singularity run image.sif", K::kUnseen},
      {"apptainer exec --newest image.sif python3 t.py", K::kScript},
      {"podman-hpc run --rm --gpu image python3 t.py", K::kTraining},
      {"docker run --rm --gpus all image bash", K::kShell},
      {"shifter --image=x python3 t.py", K::kTraining},
      {"sarus run --mpi image python3 t.py", K::kTraining},
      {"enroot start --rw image python3 t.py", K::kTraining},
      {"ch-run -w image -- python3 t.py", K::kTraining},
      // Profilers and debuggers.
      {"nsys profile -o out --trace=cuda,nvtx python3 t.py", K::kTraining},
      {"nsys stats x", K::kLauncher},
      {"ncu --set full -o x ./train", K::kTraining},
      {"perf record -g -o x ./train", K::kTraining},
      {"strace -f -o x ./train", K::kTraining},
      {"gdb -batch -ex run --args ./train", K::kTraining},
      {"gdb ./train", K::kTraining},
      {"valgrind --tool=memcheck ./train", K::kTraining},
      {"py-spy record -o x -- python3 t.py", K::kTraining},
      {"compute-sanitizer --tool memcheck ./train", K::kTraining},
      {"coverage run -p train.py", K::kTraining},
      // torchrun.
      {"torchrun train.py", K::kTorchrun},
      {"/usr/bin/torchrun --nproc-per-node=2 train.py --nnodes 7", K::kTorchrun},
      {"torchrun --nproc_per_node 2 -m pkg.train", K::kTorchrun},
      {"torchrun --nnodes 2 train.py", K::kTorchrun},
      {"torchrun --nnodes=2 --max-restarts=3 train.py", K::kTorchrun},
      {"torchrun --nproc_per=gpu train.py", K::kTorchrun},
      {"torchrun -r 3 -t3 train.py", K::kTorchrun},
      {"python3 -m torch.distributed.run train.py", K::kTorchrun},
      {"python3 /usr/bin/torchrun train.py", K::kTorchrun},
      {"python3 -m torch.distributed.launch --use_env train.py", K::kTorchrun},
      {"numactl -l torchrun train.py", K::kTorchrun},
      {"torchrun --nnodes=1 train.py", K::kLauncher},
      {"torchrun --nnodes 3 train.py", K::kLauncher},
      {"torchrun --nnodes=1:4 train.py", K::kLauncher},
      {"torchrun --nnod 1 train.py", K::kLauncher},
      {"torchrun --standalone train.py", K::kLauncher},
      {"torchrun --stand train.py", K::kLauncher},
      {"torchrun --rdzv-backend c10d train.py", K::kLauncher},
      {"torchrun --rdzv_endpoint=localhost:0 train.py", K::kLauncher},
      {"torchrun --local-addr 10.0.0.1 train.py", K::kLauncher},
      {"torchrun --rdzv_b c10d train.py", K::kLauncher},
      {"torchrun --node-rank 0 train.py", K::kLauncher},
      {"torchrun --node_rank=0 train.py", K::kLauncher},
      {"torchrun --master_port 1234 train.py", K::kLauncher},
      {"torchrun --master-a x train.py", K::kLauncher},
      {"torchrun --brand-new-option x train.py", K::kLauncher},
      {"python3 -m torch.distributed.run --standalone t.py", K::kLauncher},
  };
  for (const auto& [text, kind] : lines) {
    const auto program = program_of(text);
    EXPECT_EQ(static_cast<int>(program.kind), static_cast<int>(kind)) << text << ": " << program.reason;
    EXPECT_FALSE(program.reason.empty()) << text;
  }
}

TEST(Program, ARelativeNameIsUnseenWhereSrunChangesItsFolder) {
  EXPECT_EQ(program_of("./train", user_environment(), true).kind, K::kUnseen);
  EXPECT_EQ(program_of("local-prog", user_environment(), true).kind, K::kUnseen);
  EXPECT_EQ(program_of("hostname", user_environment(), true).kind, K::kTraining);
  EXPECT_EQ(program_of("python3 t.py", user_environment(), true).kind, K::kTraining);
}

TEST(Program, AnActiveEnvironmentIsLookedIntoBehindARunner) {
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
  EXPECT_EQ(program_of("torchrun t.py", environment).kind, K::kTorchrun) << "nothing new";
}

TEST(Program, ReasonsAreForPeople) {
  EXPECT_EQ(program_of("mpirun x").reason, "mpirun starts its own ranks");
  EXPECT_EQ(program_of("./train").reason, "train is a compiled program");
  EXPECT_EQ(program_of("python3 t.py").reason, "t.py is a Python script");
  EXPECT_EQ(program_of("/nowhere/x").reason, "srun cannot see \"/nowhere/x\"");
  EXPECT_EQ(program_of("numactl --mystery ./x").reason, "option \"--mystery\" of numactl is unknown");
  EXPECT_EQ(program_of("torchrun --standalone x").reason, "the user set \"--standalone\" for torchrun");
}

bool is_launcher(std::string_view line) {
  const auto words = words_of(line);
  std::vector<const char*> pointers;
  for (const auto& word : words) pointers.push_back(word.c_str());
  return is_launcher_process(static_cast<int>(pointers.size()), pointers.data());
}

TEST(Program, AProcessKnowsALauncherByItsOwnWords) {
  for (const auto* line :
       {"/usr/bin/orted x", "mpirun.openmpi", "/usr/bin/python3 /usr/bin/torchrun t.py", "torchrun t.py",
        "python3 -u -m torch.distributed.run t.py", "python3 -m accelerate.commands.launch t.py", "ray start",
        "/usr/bin/python3 /usr/bin/accelerate launch t.py", "make"}) {
    EXPECT_TRUE(is_launcher(line)) << line;
  }
  for (const auto* line :
       {"python3 t.py", "./train", "bash", "python3 -c torchrun", "python3 -m my.train", "python3", ""}) {
    EXPECT_FALSE(is_launcher(line)) << line;
  }
  EXPECT_FALSE(is_launcher_process(0, nullptr));
}

// Whatever the words are, there is an answer, and it has a reason.
TEST(Program, AnyWordsAreJudged) {
  const std::vector<std::string> pool{
      "env", "-S",      "--",       "-",    "",          "A=1",  "python3", "-m",   "-c",      "torchrun", "--nnodes",
      "=",   "numactl", "-",        "--x=", "apptainer", "exec", "conda",   "run",  "-n",      "timeout",  "nice",
      "-5",  "./train", "\x01\xff", "uv",   "bash",      "-W",   "-X",      "nsys", "profile", "-o"};
  std::mt19937 random(7);
  const auto environment = user_environment();
  const Files files;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> words(random() % 8);
    for (auto& word : words) word = pool[random() % pool.size()];
    const auto program = classify_program(words, {.environment = environment, .files = files});
    ASSERT_FALSE(program.reason.empty());
    std::vector<const char*> pointers;
    for (const auto& word : words) pointers.push_back(word.c_str());
    (void)is_launcher_process(static_cast<int>(pointers.size()), pointers.data());
  }
}

}  // namespace
}  // namespace bootstrap

// What people read about a program: a remedy, words that cannot be right, and what loses its variables.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "known_programs.h"

namespace bootstrap {
namespace {

TEST(Program, OptionsThatCannotBeRightOnSeveralNodes) {
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

TEST(Program, OfALauncherTheRemedyNamesTheUsersProgram) {
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

TEST(Program, WhatKeepsTheVariablesFromItIsNamed) {
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
            "without "
            "--cleanenv, or pass them from a shell of each task, as APPTAINERENV_RANK and so on");
}

}  // namespace
}  // namespace bootstrap

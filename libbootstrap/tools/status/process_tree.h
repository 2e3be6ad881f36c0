// Finds the ranks among the processes below one task of Slurm: behind shells, launchers and containers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bootstrap {

// One process of a task.
struct ProcessSight {
  std::uint64_t pid = 0;
  std::uint64_t parent = 0;
  std::string name;
  std::vector<std::string> words;  // of its command line; empty: unknown
  std::string rank;                // that its environment has, for torchrun, mpirun and others; empty: none
  std::string local_rank;
  std::string world_size;
  std::string framework;
};

// One rank: the process that does the work, and all processes that belong to it.
struct RankProcesses {
  std::size_t main = 0;              // place in the list that find_ranks() was given
  std::vector<std::size_t> members;  // places; the main process is one of them
  std::string chain;                 // names from the task down to the main process: "bash, python3"
  bool is_launcher = false;          // the main process is a shell or a launcher, as no other runs below it
  bool is_worker = false;            // a launcher gave it a rank, a local rank and a world size
};

// `tree`: the task first, each process behind its parent. One rank for each process that a launcher gave a rank of its
// own, such as a worker of torchrun; without such processes the task is the one rank. A worker of a data loader has the
// rank of its parent and belongs to it.
std::vector<RankProcesses> find_ranks(const std::vector<ProcessSight>& tree);

}  // namespace bootstrap

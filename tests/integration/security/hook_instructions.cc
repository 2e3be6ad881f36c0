// Runs the hooks of one step with an environment from a file, so that callgrind can count their instructions.
// Usage: hook_instructions FILE, with the entries NAME=VALUE, each followed by a NUL. Slurm is its double.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "spank_double.h"

extern "C" {
extern int slurm_spank_init(spank_t, int, char**);
extern int slurm_spank_user_init(spank_t, int, char**);
extern int slurm_spank_task_init(spank_t, int, char**);
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  auto& slurm = spank_double();
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\0', at);
    slurm.job_environment.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  ::setenv("SLURMD_NODENAME", "node001", 1);
  if (slurm_spank_init(the_spank_handle(), 0, nullptr) != 0) return 3;
  if (slurm_spank_user_init(the_spank_handle(), 0, nullptr) != 0) return 4;
  slurm.task = 0;
  slurm.task_environment.emplace("SLURM_PROCID", "0");
  if (slurm_spank_task_init(the_spank_handle(), 0, nullptr) != 0) return 5;
  const auto rank = slurm.task_environment.find("RANK");
  std::printf("RANK=%s\n", rank == slurm.task_environment.end() ? "" : rank->second.c_str());
  return 0;
}

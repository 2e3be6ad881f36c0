// Runs the hooks of one step with an environment from a file, so that callgrind can count their instructions.
// Usage: hook_instructions FILE [TASKS ALL], with entries NAME=VALUE in the file, each followed by a NUL. The node has
// TASKS of the step's ALL tasks, and a double stands for Slurm. Prints the first task's RANK, and by how many KiB the
// memory of this process grew in all hooks.
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>

#include "spank_double.h"

extern "C" {
extern int slurm_spank_init(spank_t, int, char**);
extern int slurm_spank_user_init(spank_t, int, char**);
extern int slurm_spank_task_post_fork(spank_t, int, char**);
extern int slurm_spank_task_init(spank_t, int, char**);
extern int slurm_spank_task_exit(spank_t, int, char**);
}

namespace {

long peak_kib() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2 && count != 4) return 2;
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  auto& slurm = spank_double();
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\0', at);
    slurm.job_environment.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (count == 4) {
    slurm.total_tasks = static_cast<std::uint32_t>(std::atoi(arguments[3]));
    slurm.local_to_global.resize(static_cast<std::size_t>(std::atoi(arguments[2])));
    std::iota(slurm.local_to_global.begin(), slurm.local_to_global.end(), 0U);
  }
  ::setenv("SLURMD_NODENAME", "node001", 1);
  const auto before = peak_kib();
  if (slurm_spank_init(the_spank_handle(), 0, nullptr) != 0) return 3;
  if (slurm_spank_user_init(the_spank_handle(), 0, nullptr) != 0) return 4;
  const auto tasks = static_cast<int>(slurm.local_to_global.size());
  for (slurm.task = 0; *slurm.task < tasks; ++*slurm.task) {
    if (slurm_spank_task_post_fork(the_spank_handle(), 0, nullptr) != 0) return 5;
  }
  // Each task has its own process.
  int status = 0;
  const auto task = ::fork();
  if (task == 0) {
    slurm.task = 0;
    slurm.task_environment.emplace("SLURM_PROCID", "0");
    if (slurm_spank_task_init(the_spank_handle(), 0, nullptr) != 0) ::_exit(6);
    const auto rank = slurm.task_environment.find("RANK");
    std::printf("RANK=%s\n", rank == slurm.task_environment.end() ? "" : rank->second.c_str());
    std::fflush(stdout);
    ::_exit(0);
  }
  ::waitpid(task, &status, 0);
  for (slurm.task = 0; *slurm.task < tasks; ++*slurm.task) {
    if (slurm_spank_task_exit(the_spank_handle(), 0, nullptr) != 0) return 7;
  }
  std::printf("grew %ld KiB\n", peak_kib() - before);
  return WEXITSTATUS(status);
}

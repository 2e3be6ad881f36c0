// Looks at the processes of one task through /proc. Every call may wait in the kernel: call it in a process that can be
// left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/status/sight.h"

namespace bootstrap {

// One task as Slurm's record has it.
struct TaskPlace {
  std::string node;
  std::uint64_t pid = 0;
  std::uint64_t rank = 0;
  std::uint64_t local_rank = 0;
};

// A sight of this process that shows its place alone.
RankSight sight_at(const TaskPlace& place, std::uint64_t pid);

// Only /proc is read. No file of the task is opened or asked for its status: descriptors are read as links. Nothing is
// sent to the task, and no thread of it is stopped.
class TaskLook {
 public:
  explicit TaskLook(TaskPlace place) : place_(std::move(place)) {}

  // What is known without the memory of the process, which a process that waits for a disk may have locked.
  RankSight first_sight() const;
  // The ranks that Slurm started on this node, by the environment of the task: "4,5"; empty: unknown.
  std::string ranks_of_node() const;
  // Looks twice, a second apart. `stack_of` adds the stack of a Python process.
  std::vector<RankSight> look(const std::function<void(RankSight&)>& stack_of) const;

 private:
  TaskPlace place_;
};

// The tasks of a step on this node by their environment, where Slurm's own list cannot be had.
std::vector<TaskPlace> find_tasks_by_environment(const std::string& job, const std::string& step,
                                                 const std::string& node);

}  // namespace bootstrap

// Whether the kernel ended a process of this step on this node for want of memory, by the step's own cgroup.
// SPDX-License-Identifier: Apache-2.0
#include "probe/memory_events.h"

#include <string>
#include <string_view>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMostTasks = 1024;  // cgroups that are looked at

// The folder of the step in a cgroup's path, such as /system.slice/slurmstepd.scope/job_12/step_0 (version 2) or
// /slurm/uid_1000/job_12/step_0; empty without one.
std::string_view step_folder(std::string_view path) {
  const auto step = path.find("/step_");
  if (path.find("/job_") >= step || step == std::string_view::npos) return {};
  return path.substr(0, path.find('/', step + 1));
}

struct StepCgroup {
  std::string folder;  // below the root of the file system
  bool is_version_1 = false;
};

StepCgroup own_step(const FileTree& root) {
  StepCgroup found;
  const auto text = root.read("proc/self/cgroup");
  for (const auto line : split(text, '\n')) {  // "4:memory:/slurm/...", and "0::/..." of version 2
    const auto fields = split(line, ':');
    if (fields.size() != 3 || step_folder(fields[2]).empty()) continue;
    if (fields[1] == "memory") return {cat({"sys/fs/cgroup/memory", step_folder(fields[2])}), true};
    if (fields[0] == "0") found.folder = cat({"sys/fs/cgroup", step_folder(fields[2])});
  }
  return found;
}

bool counts_an_end(const FileTree& root, const std::string& file) {
  constexpr std::string_view kCount = "oom_kill ";
  const auto text = root.read(file);
  for (const auto line : split(text, '\n')) {
    if (line.starts_with(kCount)) return parse_unsigned(line.substr(kCount.size())).value_or(0) != 0;
  }
  return false;
}

}  // namespace

bool has_lost_a_process_to_memory(const FileTree& root) {
  const auto step = own_step(root);
  if (step.folder.empty()) return false;
  if (!step.is_version_1) return counts_an_end(root, cat({step.folder, "/memory.events"}));  // with all below it
  if (counts_an_end(root, cat({step.folder, "/memory.oom_control"}))) return true;
  std::size_t tasks = 0;
  for (const auto& name : root.names_in(step.folder)) {
    if (!name.starts_with("task_") || ++tasks > kMostTasks) continue;
    if (counts_an_end(root, cat({step.folder, "/", name, "/memory.oom_control"}))) return true;
  }
  return false;
}

}  // namespace bootstrap

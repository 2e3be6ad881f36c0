// What the kernel reports about processes and threads of this node, and about the memory of a step.
// SPDX-License-Identifier: Apache-2.0
#include "probe/process_state.h"

#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <csignal>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMostTasks = 1024;  // cgroups of tasks that are read

// The rest of the line that begins with `name`, without blanks around it.
std::optional<std::string_view> line_after(std::string_view text, std::string_view name) {
  for (const auto line : split(text, '\n')) {
    if (line.starts_with(name)) return trim(line.substr(name.size()));
  }
  return std::nullopt;
}

// The folder of the step in a cgroup's path, such as /system.slice/slurmstepd.scope/job_12/step_0 (version 2) or
// /slurm/uid_1000/job_12/step_0; empty without one.
std::string_view step_folder(std::string_view path) {
  const auto step = path.find("/step_");
  if (path.find("/job_") >= step || step == std::string_view::npos) return {};
  return path.substr(0, path.find('/', step + 1));
}

// Files that count the kills: that of version 2 with all cgroups below the step's.
std::vector<std::string> files_of_own_step(const FileTree& root) {
  std::vector<std::string> files;
  const auto text = root.read("proc/self/cgroup");
  for (const auto line : split(text, '\n')) {  // "4:memory:/slurm/...", and "0::/..." of version 2
    const auto fields = split(line, ':');
    if (fields.size() != 3 || step_folder(fields[2]).empty()) continue;
    if (fields[0] == "0") files = {cat({"sys/fs/cgroup", step_folder(fields[2]), "/memory.events"})};
    if (fields[1] != "memory") continue;
    const auto step = cat({"sys/fs/cgroup/memory", step_folder(fields[2])});
    files = {cat({step, "/memory.oom_control"})};
    for (const auto& name : root.names_in(step)) {
      if (!name.starts_with("task_") || files.size() > kMostTasks) continue;
      files.push_back(cat({step, "/", name, "/memory.oom_control"}));
    }
    return files;
  }
  return files;
}

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) noexcept {
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  if (text.size() < close + 4 || text[close + 1] != ' ') return std::nullopt;
  ProcessStat stat{.name = text.substr(open + 1, close - open - 1), .state = text[close + 2]};
  enum : std::size_t { kParent, kTerminal = 3, kFlags = 5, kCount };  // behind the state
  std::int64_t fields[kCount] = {};
  const char* at = text.data() + close + 3;
  for (auto& field : fields) {
    const auto* const end = text.data() + text.size();
    if (at != end) ++at;  // the blank
    const auto read = std::from_chars(at, end, field);
    if (read.ec != std::errc()) return std::nullopt;
    at = read.ptr;
  }
  constexpr std::int64_t kExiting = 0x4;  // PF_EXITING in the kernel's include/linux/sched.h
  stat.parent = static_cast<pid_t>(fields[kParent]);
  stat.has_terminal = fields[kTerminal] != 0;
  stat.is_exiting = stat.state == 'Z' || stat.state == 'X' || (fields[kFlags] & kExiting) != 0;
  return stat;
}

bool runs_on(const FileTree& root, pid_t process) {
  const auto folder = cat({"proc/", std::to_string(process)});
  const auto status = root.read(cat({folder, "/status"}));
  const auto pending = line_after(status, "SigPnd:");
  // The kernel marks SIGKILL in every thread of a process until the thread acts on it.
  if (!pending || (parse_hex(*pending).value_or(0) >> (SIGKILL - 1) & 1) != 0) return false;
  const auto text = root.read(cat({folder, "/stat"}));
  const auto stat = parse_process_stat(text);
  return stat && !stat->is_exiting;
}

bool is_another_thread_busy(const FileTree& root) {
  const auto self = root.link_name("proc/thread-self");
  const auto threads = root.names_in("proc/self/task");
  return std::any_of(threads.begin(), threads.end(), [&](const std::string& thread) {
    if (thread == self) return false;
    const auto text = root.read(cat({"proc/self/task/", thread, "/stat"}));
    const auto stat = parse_process_stat(text);
    return stat && stat->state != 'S';
  });
}

std::optional<std::uint64_t> SignalThread::count_of(const std::string& thread) const {
  const auto status = tasks_.read(cat({thread, "/status"}));
  const auto count = line_after(status, "voluntary_ctxt_switches:");
  return count ? parse_unsigned(*count) : std::nullopt;
}

bool SignalThread::find() {
  if (!thread_.empty()) return true;
  const auto waiting = cat({std::to_string(SYS_rt_sigtimedwait), " "});
  for (const auto& thread : tasks_.names_in("")) {
    if (!tasks_.read(cat({thread, "/syscall"})).starts_with(waiting)) continue;
    const auto count = count_of(thread);
    if (!count) return false;
    thread_ = thread;
    count_ = *count;
    return true;
  }
  return false;
}

bool SignalThread::was_signalled() const {
  if (thread_.empty()) return false;
  const auto count = count_of(thread_);
  return count && *count != count_;  // without a count the thread is gone: srun is about to end
}

bool has_lost_a_process_to_memory(const FileTree& root) {
  const auto files = files_of_own_step(root);
  return std::any_of(files.begin(), files.end(), [&](const std::string& file) {
    return parse_unsigned(line_after(root.read(file), "oom_kill ").value_or("")).value_or(0) != 0;
  });
}

}  // namespace bootstrap

// Whether a process belongs to the step of its environment: by its ancestors, its cgroup and its files in /proc.
// SPDX-License-Identifier: Apache-2.0
#include "preload/preload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/program/program_names.h"
#include "probe/process_state.h"

namespace bootstrap {
namespace {

constexpr int kMaxAncestors = 32;
constexpr int kMaxWords = 16;  // of a command line: a launcher is among the first

enum class Verdict : std::uint8_t { kOwn, kForeign, kUnknown };

using Buffer = char[2048];

// A file of /proc, or its beginning, with a zero behind it; empty if it cannot be read.
std::string_view read_proc(Buffer& buffer, const char* proc, pid_t process, const char* name) noexcept {
  (void)std::snprintf(buffer, sizeof buffer, "%s/%d/%s", proc, static_cast<int>(process), name);
  const int file = ::open(buffer, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::size_t size = 0;
  while (size < sizeof buffer - 1) {
    const auto more = ::read(file, buffer + size, sizeof buffer - 1 - size);
    if (more <= 0) break;
    size += static_cast<std::size_t>(more);
  }
  (void)::close(file);
  buffer[size] = '\0';
  return {buffer, size};
}

// Removes the number with which `text` begins, and returns it.
std::optional<std::uint32_t> take_number(std::string_view& text) noexcept {
  std::uint32_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return value;
}

// Reads the step's name in "slurmstepd: [12.0]", or in ".../job_12/step_0/..." of each of Slurm's cgroup plugins.
// "[12.batch]" and "step_extern" are not steps of ranks.
Verdict judge_name(const DetectedRank& detected, std::string_view text, std::string_view before_job,
                   std::string_view before_step) noexcept {
  const auto at = text.find(before_job);
  if (at == std::string_view::npos) return Verdict::kUnknown;
  text.remove_prefix(at + before_job.size());
  const auto job = take_number(text);
  if (!job || !text.starts_with(before_step)) return Verdict::kUnknown;
  text.remove_prefix(before_step.size());
  const bool is_own = take_number(text) == detected.step.step && *job >= detected.step.job &&
                      *job - detected.step.job < detected.components;
  return is_own ? Verdict::kOwn : Verdict::kForeign;
}

struct Ancestry {
  Verdict verdict = Verdict::kUnknown;
  bool is_on_terminal = false;  // the process that slurmstepd started is
};

// kUnknown for an ancestor that decides nothing.
Verdict judge_ancestor(const DetectedRank& detected, std::string_view name, const char* proc, pid_t id) noexcept {
  const bool is_slurmstepd = name == "slurmstepd";
  if (detected.step.launcher == Launcher::kMpirun) {
    if (is_slurmstepd) return Verdict::kForeign;
    if (starts_ranks_of_mpirun(name)) return Verdict::kOwn;
  }
  Buffer buffer;
  const auto line = read_proc(buffer, proc, id, "cmdline");
  if (is_slurmstepd) return judge_name(detected, line, "[", ".");
  const char* words[kMaxWords] = {};
  int count = 0;
  for (std::size_t at = 0; at < line.size() && count < kMaxWords; at += std::strlen(buffer + at) + 1) {
    words[count++] = buffer + at;
  }
  const bool starts_others =
      name == "salloc" || name == "srun" || name == "sbatch" || is_launcher_process(count, words);
  return starts_others ? Verdict::kForeign : Verdict::kUnknown;
}

Ancestry look_up(const DetectedRank& detected, pid_t process, const char* proc) noexcept {
  Ancestry found;
  pid_t id = process;
  for (int level = 0; level < kMaxAncestors && id > 0; ++level) {
    Buffer buffer;
    const auto stat = parse_process_stat(read_proc(buffer, proc, id, "stat"));
    if (!stat) return found;
    if (level > 0) found.verdict = judge_ancestor(detected, stat->name, proc, id);
    if (found.verdict != Verdict::kUnknown || stat->name == "slurmstepd") return found;
    found.is_on_terminal = stat->has_terminal;
    id = stat->parent;
  }
  return found;
}

// True if the task itself has /dev/null as standard input, output and error. Children of its shell may write to files.
bool has_only_null(pid_t task, const char* proc) noexcept {
  constexpr unsigned kMemory = 1;
  constexpr unsigned kNull = 3;
  for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor) {
    char path[512];
    struct stat facts {};
    (void)std::snprintf(path, sizeof path, "%s/%d/fd/%d", proc, static_cast<int>(task), descriptor);
    if (::stat(path, &facts) != 0 || !S_ISCHR(facts.st_mode) || facts.st_rdev != makedev(kMemory, kNull)) return false;
  }
  return true;
}

}  // namespace

bool belongs_to_step(const DetectedRank& detected, pid_t process, const char* proc) noexcept {
  const auto found = look_up(detected, process, proc);
  auto verdict = found.verdict;
  if (detected.step.launcher == Launcher::kMpirun) return verdict == Verdict::kOwn;
  Buffer buffer;
  if (verdict == Verdict::kUnknown) {
    verdict = judge_name(detected, read_proc(buffer, proc, process, "cgroup"), "/job_", "/step_");
  }
  if (verdict != Verdict::kOwn) return false;
  // All steps that start below the shell of a step with --pty, or of salloc, inherit SLURM_PTY_PORT. In the step that
  // has the terminal, srun gives it to the first task, and /dev/null to all others.
  return !detected.may_be_pty || !(found.is_on_terminal || has_only_null(detected.task, proc));
}

}  // namespace bootstrap

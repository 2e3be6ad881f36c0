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

#include "core/program/program_names.h"
#include "probe/process_state.h"

namespace bootstrap {
namespace {

constexpr int kMaxAncestors = 32;
constexpr std::size_t kMaxWords = 16;  // of a command line: a launcher is among the first
constexpr std::size_t kTextSize = 2048;

enum class Verdict : std::uint8_t { kOwn, kForeign, kUnknown };

// A file of /proc, or its beginning; a zero ends it.
struct ProcText {
  char bytes[kTextSize];
  std::size_t size = 0;

  bool read(const char* proc, pid_t process, const char* name) noexcept {
    char path[512];
    const int length = std::snprintf(path, sizeof path, "%s/%d/%s", proc, static_cast<int>(process), name);
    size = 0;
    if (length < 0 || static_cast<std::size_t>(length) >= sizeof path) return false;
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    while (size < sizeof bytes - 1) {
      const auto more = ::read(file, bytes + size, sizeof bytes - 1 - size);
      if (more <= 0) break;
      size += static_cast<std::size_t>(more);
    }
    (void)::close(file);
    bytes[size] = '\0';
    return size > 0;
  }
};

struct Ancestor {
  ProcText text;
  ProcessStat stat;  // views of `text`

  bool read(const char* proc, pid_t process) noexcept {
    const auto parsed = text.read(proc, process, "stat") ? parse_process_stat({text.bytes, text.size}) : std::nullopt;
    if (parsed) stat = *parsed;
    return parsed.has_value();
  }

  template <class... Names>
  bool is_any_of(const Names&... names) const noexcept {
    return ((stat.name == names) || ...);
  }
};

bool read_number(const char*& at, std::uint32_t& value) noexcept {
  const auto read = std::from_chars(at, at + std::strlen(at), value);
  at = read.ptr;
  return read.ec == std::errc();
}

bool is_step(const DetectedRank& detected, std::uint32_t job, std::uint32_t step) noexcept {
  return job >= detected.step.job && job - detected.step.job < detected.components && step == detected.step.step;
}

// "slurmstepd: [12.0]"; "[12.batch]" and "[12.extern]" are not steps of ranks.
Verdict judge_title(const DetectedRank& detected, const ProcText& title) noexcept {
  const char* at = std::strchr(title.bytes, '[');
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  if (at == nullptr || !read_number(++at, job) || *at != '.') return Verdict::kUnknown;
  if (!read_number(++at, step)) return Verdict::kForeign;
  return is_step(detected, job, step) ? Verdict::kOwn : Verdict::kForeign;
}

// ".../job_12/step_0/..." or "step_batch", in each of Slurm's cgroup plugins.
Verdict judge_cgroup(const DetectedRank& detected, const ProcText& text) noexcept {
  const char* at = std::strstr(text.bytes, "/job_");
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  if (at == nullptr || !read_number(at += std::strlen("/job_"), job)) return Verdict::kUnknown;
  if (std::strncmp(at, "/step_", std::strlen("/step_")) != 0) return Verdict::kUnknown;
  if (!read_number(at += std::strlen("/step_"), step)) return Verdict::kForeign;
  return is_step(detected, job, step) ? Verdict::kOwn : Verdict::kForeign;
}

struct ProcessWords {
  ProcText text;
  const char* words[kMaxWords] = {};
  int count = 0;

  ProcessWords(const char* proc, pid_t process) noexcept {
    if (!text.read(proc, process, "cmdline")) return;
    for (std::size_t at = 0; at < text.size && count < static_cast<int>(kMaxWords); ++count) {
      words[count] = text.bytes + at;
      at += std::strlen(words[count]) + 1;
    }
  }
};

struct Ancestry {
  Verdict verdict = Verdict::kUnknown;
  bool is_on_terminal = false;  // the process that slurmstepd started is
};

// kUnknown for an ancestor that decides nothing.
Verdict judge_ancestor(const DetectedRank& detected, const Ancestor& ancestor, const char* proc, pid_t id) noexcept {
  const bool is_mpirun = detected.step.launcher == Launcher::kMpirun;
  if (ancestor.is_any_of("slurmstepd")) {
    ProcText title;
    if (is_mpirun) return Verdict::kForeign;
    return title.read(proc, id, "cmdline") ? judge_title(detected, title) : Verdict::kUnknown;
  }
  if (is_mpirun && starts_ranks_of_mpirun(ancestor.stat.name)) return Verdict::kOwn;
  const ProcessWords line(proc, id);
  const bool starts_others =
      ancestor.is_any_of("salloc", "srun", "sbatch") || is_launcher_process(line.count, line.words);
  return starts_others ? Verdict::kForeign : Verdict::kUnknown;
}

Ancestry look_up(const DetectedRank& detected, pid_t process, const char* proc) noexcept {
  Ancestry found;
  pid_t id = process;
  for (int level = 0; level < kMaxAncestors && id > 0; ++level) {
    Ancestor ancestor;
    if (!ancestor.read(proc, id)) return found;
    if (level > 0) found.verdict = judge_ancestor(detected, ancestor, proc, id);
    if (found.verdict != Verdict::kUnknown || ancestor.is_any_of("slurmstepd")) return found;
    found.is_on_terminal = ancestor.stat.has_terminal;
    id = ancestor.stat.parent;
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

// All steps that start below the shell of such a step, or of salloc, inherit SLURM_PTY_PORT. In the step that has the
// terminal, srun gives it to the first task, and /dev/null to all others.
bool is_pty(const DetectedRank& detected, const Ancestry& found, const char* proc) noexcept {
  return detected.may_be_pty && (found.is_on_terminal || has_only_null(detected.task, proc));
}

}  // namespace

bool belongs_to_step(const DetectedRank& detected, pid_t process, const char* proc) noexcept {
  const auto found = look_up(detected, process, proc);
  if (detected.step.launcher == Launcher::kMpirun) return found.verdict == Verdict::kOwn;
  auto verdict = found.verdict;
  ProcText cgroup;
  if (verdict == Verdict::kUnknown && cgroup.read(proc, process, "cgroup")) verdict = judge_cgroup(detected, cgroup);
  return verdict == Verdict::kOwn && !is_pty(detected, found, proc);
}

}  // namespace bootstrap

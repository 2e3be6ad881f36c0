// Whether a process belongs to the step that its environment names, by what the kernel says of it.
// SPDX-License-Identifier: Apache-2.0
#include "preload/step_membership.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/program/program.h"

namespace bootstrap {
namespace {

constexpr int kMaxAncestors = 32;
constexpr std::size_t kMaxWords = 16;  // of a command line: a launcher is among the first
constexpr std::size_t kTextSize = 2048;

enum class Verdict : std::uint8_t { kOwn, kForeign, kUnknown };

// A file of /proc, or as much of it as fits; always ends with a zero.
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
  char name[32] = "";  // the kernel keeps 15 characters
  pid_t parent = 0;
  bool has_terminal = false;

  // proc(5): "PID (NAME) STATE PPID PGRP SESSION TTY_NR ...", where NAME may hold spaces and parentheses.
  bool read(const char* proc, pid_t process) noexcept {
    ProcText text;
    if (!text.read(proc, process, "stat")) return false;
    const char* const begin = std::strchr(text.bytes, '(');
    const char* const end = std::strrchr(text.bytes, ')');
    if (begin == nullptr || end == nullptr || end < begin) return false;
    const auto size = static_cast<std::size_t>(end - begin - 1);
    if (size >= sizeof name) return false;
    std::memcpy(name, begin + 1, size);
    name[size] = '\0';
    int ids[4] = {};  // parent, process group, session, terminal
    char* rest = nullptr;
    const char* at = end + 1;
    if (*at == ' ' && at[1] != '\0') at += 2;  // the state
    for (int& id : ids) {
      id = static_cast<int>(std::strtol(at, &rest, 10));
      if (rest == at) return false;
      at = rest;
    }
    parent = ids[0];
    has_terminal = ids[3] != 0;
    return true;
  }

  bool is(const char* other) const noexcept { return std::strcmp(name, other) == 0; }
};

bool read_number(const char*& at, std::uint32_t& value) noexcept {
  if (*at < '0' || *at > '9') return false;
  char* end = nullptr;
  const auto number = std::strtoull(at, &end, 10);
  if (number > UINT32_MAX) return false;
  value = static_cast<std::uint32_t>(number);
  at = end;
  return true;
}

bool is_step(const DetectedRank& detected, std::uint32_t job, std::uint32_t step) noexcept {
  return job >= detected.step.job && job - detected.step.job < detected.components && step == detected.step.step;
}

// "slurmstepd: [12.0]", and "[12.batch]", "[12.extern]" of what is no step of ranks.
Verdict judge_title(const DetectedRank& detected, const ProcText& title) noexcept {
  const char* at = std::strchr(title.bytes, '[');
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  if (at == nullptr || !read_number(++at, job) || *at != '.') return Verdict::kUnknown;
  if (!read_number(++at, step)) return Verdict::kForeign;
  return is_step(detected, job, step) ? Verdict::kOwn : Verdict::kForeign;
}

// ".../job_12/step_0/...", and "step_batch", in each of Slurm's cgroup plugins.
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

  // slurmd keeps the script of a job under this name in its spool folder.
  bool is_batch_script() const noexcept {
    for (int i = 0; i < count && i < 2; ++i) {
      const char* const slash = std::strrchr(words[i], '/');
      if (slash != nullptr && std::strcmp(slash, "/slurm_script") == 0) return true;
    }
    return false;
  }
};

struct Ancestry {
  Verdict verdict = Verdict::kUnknown;
  bool is_below_task = false;   // SLURM_TASK_PID is the process or an ancestor, and whose child it is, is hidden
  bool is_on_terminal = false;  // the one that slurmstepd started is
};

bool is_submitter(const Ancestor& process) noexcept {
  return process.is("salloc") || process.is("srun") || process.is("sbatch");
}

// Of Open MPI 4 and 5. mpirun itself starts the ranks of its own node.
bool is_mpiruns_daemon(const Ancestor& process) noexcept {
  for (const char* const name : {"orted", "orterun", "prted", "prterun", "mpirun", "mpiexec", "mpirun.openmpi",
                                 "mpiexec.openmpi", "oshrun", "shmemrun"}) {
    if (process.is(name)) return true;
  }
  return false;
}

// slurmstepd, or mpirun's daemon, or nothing that decides.
Verdict judge_ancestor(const DetectedRank& detected, const Ancestor& ancestor, const char* proc, pid_t id) noexcept {
  const bool is_mpirun = detected.step.launcher == Launcher::kMpirun;
  if (ancestor.is("slurmstepd")) {
    ProcText title;
    if (is_mpirun) return Verdict::kForeign;
    return title.read(proc, id, "cmdline") ? judge_title(detected, title) : Verdict::kUnknown;
  }
  if (is_mpirun && is_mpiruns_daemon(ancestor)) return Verdict::kOwn;
  const ProcessWords line(proc, id);
  if (is_submitter(ancestor) || is_launcher_process(line.count, line.words)) return Verdict::kForeign;
  return id == detected.task && line.is_batch_script() ? Verdict::kForeign : Verdict::kUnknown;
}

Ancestry look_up(const DetectedRank& detected, pid_t process, const char* proc) noexcept {
  Ancestry found;
  pid_t id = process;
  pid_t child = 0;
  for (int level = 0; level < kMaxAncestors && id > 0; ++level) {
    Ancestor ancestor;
    if (!ancestor.read(proc, id)) {
      found.is_below_task = child == detected.task;
      return found;
    }
    if (level > 0) found.verdict = judge_ancestor(detected, ancestor, proc, id);
    if (found.verdict != Verdict::kUnknown || ancestor.is("slurmstepd")) return found;
    child = id;
    found.is_on_terminal = ancestor.has_terminal;
    id = ancestor.parent;
  }
  return found;
}

// Of the task itself: what a shell of it starts may write to a file.
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

// SLURM_PTY_PORT is left over in all steps that start below such a shell, salloc's too. The first task of the step that
// has the terminal is on it; srun gives all others nothing but /dev/null.
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
  if (verdict == Verdict::kUnknown && found.is_below_task) {
    // The process itself is looked at here, since a batch script may be the one that asks.
    verdict =
        process == detected.task && ProcessWords(proc, process).is_batch_script() ? Verdict::kForeign : Verdict::kOwn;
  }
  return verdict == Verdict::kOwn && !is_pty(detected, found, proc);
}

}  // namespace bootstrap

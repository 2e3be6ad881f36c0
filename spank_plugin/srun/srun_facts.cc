// What srun knows of its step without slurmctld: its own options, what the program is, and which tasks run.
// SPDX-License-Identifier: Apache-2.0
#include "srun/srun_facts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>

#include "core/program/program_names.h"
#include "core/program/srun_arguments.h"
#include "core/step/host_list.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

bool has_option(std::span<const std::string> words, std::string_view shortest, std::string_view whole) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return is_long_option(word.substr(0, word.find('=')), shortest, whole);
  });
}

bool has_programs(std::span<const std::string> words) { return has_option(words, "--mu", "--multi-prog"); }

// The words before the program's. Slurm has counted the program's words, so this is no guess. With --multi-prog it
// counts one more, the text of the file.
std::span<const std::string> srun_words(const std::vector<std::string>& all, std::size_t program_words) {
  const auto count = all.size() - std::min(all.size(), program_words);
  const auto with_next = std::span(all).first(std::min(all.size(), count + 1));
  return has_programs(with_next) ? with_next : with_next.first(count);
}

bool has_chdir(std::span<const std::string> words, const Environment& environment) {
  const auto is_short = [](std::string_view word) { return word.starts_with("-D"); };
  return environment.has("SLURM_WORKING_DIR") || has_option(words, "--ch", "--chdir") ||
         std::any_of(words.begin(), words.end(), is_short);
}

// "-v", "-vv" or --verbose, and the variable of srun that means the same.
bool is_verbose(std::span<const std::string> words, const Environment& environment) {
  const auto is_short = [](std::string_view word) {
    return word.size() > 1 && word[0] == '-' && word.find_first_not_of('v', 1) == std::string_view::npos;
  };
  return environment.number("SLURM_DEBUG").value_or(0) > 0 || has_option(words, "--verb", "--verbose") ||
         std::any_of(words.begin(), words.end(), is_short);
}

// begin_launch sets the variable for srun's own --export. An option or the user's variable wins over it.
bool has_own_export(std::span<const std::string> words, const Environment& environment) {
  const auto is_whole = [](std::string_view text) { return text.find(kDecisionVariable) != std::string_view::npos; };
  if (std::any_of(words.begin(), words.end(), is_whole)) return false;
  if (has_option(words, "--exp", "--export")) return true;
  return !is_whole(environment.get("SLURM_EXPORT_ENV").value_or(environment.get(kExportVariable).value_or("")));
}

// srun sets the variable for the step. With -E, which may stand among other letters, it is the job's.
std::vector<std::uint32_t> dealt_tasks(std::span<const std::string> words, const Environment& environment,
                                       const SrunFacts& step) {
  const auto keeps_jobs = [](std::string_view word) {
    return word.starts_with('-') && !word.starts_with("--") && word.find('E') != std::string_view::npos;
  };
  if (step.has_components || has_option(words, "--pres", "--preserve-env")) return {};
  if (std::any_of(words.begin(), words.end(), keeps_jobs)) return {};
  const auto counts = parse_tasks_per_node(environment.get("SLURM_TASKS_PER_NODE").value_or(""));
  const bool is_of_step = counts && counts->size() == step.nodes &&
                          std::accumulate(counts->begin(), counts->end(), std::size_t{0}) == step.tasks;
  return is_of_step ? *counts : std::vector<std::uint32_t>();
}

// With --bcast Slurm has the path of the copy in place of the program, and the copy is only on the nodes.
std::vector<std::string> words_of_program(spank_t spank, const std::vector<std::string>& all,
                                          const Environment& environment) {
  auto program = job_command(spank);
  if (program.empty()) {  // of --async, where the step does not exist yet
    const auto words = program_words(all);
    return {words.begin(), words.end()};
  }
  const auto words = srun_words(all, program.size());
  if (has_option(words, "--bc", "--bcast") || environment.has("SLURM_BCAST")) {
    program.assign(all.begin() + static_cast<std::ptrdiff_t>(words.size()), all.end());
  }
  return program;
}

// The nodes of the job that the step does not have. srun has no list of the step's nodes yet, except the user's own.
std::vector<std::string> other_nodes(const Environment& environment, std::span<const std::string> srun_options,
                                     std::uint32_t nodes) {
  const auto job = parse_host_list(environment.get("SLURM_JOB_NODELIST").value_or(""));
  const auto step = parse_host_list(requested_nodes(srun_options));
  std::vector<std::string> others;
  if (!job || !step || step->size() != nodes) return others;
  std::copy_if(job->begin(), job->end(), std::back_inserter(others),
               [&](const std::string& host) { return std::find(step->begin(), step->end(), host) == step->end(); });
  return others;
}

Program find_program(std::span<const std::string> srun_options, const std::vector<std::string>& program,
                     const Environment& environment, const Settings& settings, const SrunFacts& step,
                     Deadline deadline) {
  if (has_programs(srun_options)) {
    return {ProgramKind::kScript, "", "the step has several programs (--multi-prog)"};
  }
  const ProgramPlace place{.environment = environment,
                           .read_head = head_of_program,
                           .has_chdir = has_chdir(srun_options, environment),
                           .tasks = step.tasks,
                           .nodes = {.count = step.nodes, .others = other_nodes(environment, srun_options, step.nodes)},
                           .launchers = settings.launchers.value,
                           .trainers = settings.trainers.value};
  auto found = call_in_time([program, place] { return classify_program(program, place); }, deadline);
  if (found) return std::move(*found);
  const auto name = program.empty() ? std::string() : printable(program.front());
  return {ProgramKind::kUnseen, name, cat({"srun could not read ", quote(name, 60), " in time"})};
}

}  // namespace

// To open a FIFO or a device would do something, and to open data may fetch it from tape. O_PATH opens neither, and the
// second open takes the file that was examined, even if another one has its name by now.
ProgramHead head_of_program(const std::string& path) {
  struct stat status {};
  const Descriptor examined(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!examined.is_open() || ::fstat(examined.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  if ((status.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0) return "";
  const auto same = cat({"/proc/self/fd/", std::to_string(examined.get())});
  const Descriptor file(::open(same.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a lease of the file would wait
  std::array<char, kProgramHead> buffer;
  const auto count = file.is_open() ? ::read(file.get(), buffer.data(), buffer.size()) : 0;
  return std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
}

std::vector<std::string> own_command_line() {
  constexpr std::size_t kMost = 4 << 20;  // more than Linux takes
  const Descriptor file(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  auto text = file.is_open() ? read_whole(file.get(), kMost).value_or("") : std::string();
  if (text.empty()) return {};
  if (text.ends_with('\0')) text.pop_back();
  std::vector<std::string> words;
  for (const auto word : split(text, '\0')) words.emplace_back(word);
  if (!words.empty()) words.erase(words.begin());
  return words;
}

SrunFacts gather_srun_facts(spank_t spank, const Environment& environment, const UserChoice& choice,
                            const Settings& settings, Deadline deadline) {
  const auto all = own_command_line();
  const auto program = words_of_program(spank, all, environment);
  const auto words = srun_words(all, program.size());
  SrunFacts step;
  const auto requested = requested_step(environment, all);
  step.tasks = item(spank, S_JOB_TOTAL_TASK_COUNT).value_or(requested.tasks);
  step.nodes = std::max(1U, item(spank, S_JOB_NNODES).value_or(requested.nodes));
  step.has_terminal = has_option(words, "--pt", "--pty");
  step.has_components = has_several_components(words);
  step.has_own_export = has_own_export(words, environment);
  step.is_verbose = is_verbose(words, environment);
  step.is_submitit = environment.has("SUBMITIT_EXECUTOR");
  step.partition = environment.get("SLURM_JOB_PARTITION").value_or("");
  step.tasks_per_node = dealt_tasks(words, environment, step);
  step.plane = static_cast<std::uint32_t>(environment.number("SLURM_DIST_PLANESIZE").value_or(0));
  step.gpus_of_job = static_cast<std::uint32_t>(environment.number("SLURM_GPUS_ON_NODE").value_or(0));
  step.is_explained = step.is_verbose || settings.explain.value || settings.log.value ||
                      settings.when.value == When::kObserve || process_settings(environment).debug.value;
  if (needs_program(choice, settings, step)) {
    step.program = find_program(words, program, environment, settings, step, deadline);
  }
  return step;
}

namespace {

// The table that srun shows debuggers (MPIR Process Acquisition Interface): a process id in place of 0 once the node
// has answered.
struct MpirProcess {
  char* host;
  char* program;
  int process;
};

}  // namespace

std::optional<std::vector<bool>> started_tasks() {
  constexpr int kMost = static_cast<int>(kMaxRanks);
  const auto* const size = static_cast<const int*>(::dlsym(RTLD_DEFAULT, "MPIR_proctable_size"));
  auto* const* const table = static_cast<MpirProcess* const*>(::dlsym(RTLD_DEFAULT, "MPIR_proctable"));
  if (size == nullptr || table == nullptr) return std::nullopt;
  std::vector<bool> started;
  if (*table == nullptr || *size <= 0 || *size > kMost) return started;
  std::vector<MpirProcess> processes(static_cast<std::size_t>(*size));
  const iovec to{processes.data(), processes.size() * sizeof(MpirProcess)};
  const iovec from{*table, to.iov_len};
  // srun frees the table at its end, so the kernel copies it, and returns an error then.
  if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(to.iov_len)) return started;
  for (const auto& process : processes) started.push_back(process.process != 0);
  return started;
}

}  // namespace bootstrap

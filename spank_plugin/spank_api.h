// Slurm's SPANK interface with C++ types, and the guard around our hooks. The only header that includes spank.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

// spank.h declares the callbacks outside its own extern "C" block; without this one ours would be C++ names.
extern "C" {
#include <slurm/spank.h>
}

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/exchange/libpmi_release.h"
#include "core/plan/node_gpus.h"
#include "core/util/result.h"

namespace bootstrap {

inline bool is_srun() { return spank_context() == S_CTX_LOCAL; }
inline bool is_allocator() { return spank_context() == S_CTX_ALLOCATOR; }  // sbatch, salloc
inline bool is_slurmstepd() { return spank_context() == S_CTX_REMOTE; }

// A number of Slurm's, of the type that spank.h names for it; nullopt: Slurm has none here.
template <class Number = std::uint32_t, class... Key>
std::optional<Number> item(spank_t spank, spank_item_t which, Key... key) {
  Number value = 0;
  if (spank_get_item(spank, which, key..., &value) != ESPANK_SUCCESS) return std::nullopt;
  return value;
}

std::string text_item(spank_t spank, spank_item_t which);  // empty when Slurm has none
const char* const* job_environment(spank_t spank);         // Slurm's own memory

// Calls `use(name, value)` for each variable of job_environment(). Both view Slurm's own memory.
template <class Use>
void for_each_variable(spank_t spank, Use use) {
  for (const auto* entry = job_environment(spank); entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) use(text.substr(0, equals), text.substr(equals + 1));
  }
}

std::vector<std::string> job_command(spank_t spank);  // what the step starts, word by word; empty: Slurm has none

// The option of the running Slurm that keeps it from hiding GPUs.
GpuBindDefault gpu_bind_default_of(spank_t spank);

// In slurmstepd.
SlurmOfStep slurm_of_step(spank_t spank);

// In slurmstepd: the NodeName of this node, from its own environment. The host name may differ. Empty: not known.
std::string own_host();

// In the environment of the task (in task_init) or of all tasks of the node (in user_init).
std::optional<std::string> task_variable(spank_t spank, std::string_view name);
Status set_task_variable(spank_t spank, const std::string& name, const std::string& value);
void unset_task_variable(spank_t spank, const std::string& name);

// Each message begins with "bootstrap: ", and then with the name of `step` ("12.0"), if it is about one.

// One line for the user: on the standard error of srun, sbatch or the task, and in slurmd's log on a node.
void log_error(std::string_view message);
void log_error(std::string_view step, std::string_view message);

// The step goes on after a warning. In task_init and in srun: "bootstrap: warning: StepId=12.0: ...", on the standard
// error of the task, or of srun (which drops it with --quiet). Slurm has no such level, and its `error:` would mean
// that the step ends.
void log_warning(std::string_view step, std::string_view message);

// To standard error of the task in task_init, of srun in srun. Unchanged: a table gets no "slurmstepd: " in front.
void print_to_stderr(const std::string& text) noexcept;

void log_info(std::string_view message);  // slurmd's log, and srun
void log_info(std::string_view step, std::string_view message);
void log_verbose(std::string_view message);  // srun -v
void log_verbose(std::string_view step, std::string_view message);

inline constexpr int kAccepted = 0;
inline constexpr int kStepRefused = -1;  // up to Slurm 24.11 a positive value prints a message and lets the job run

// Runs one hook. An exception that left it would end srun or slurmstepd (std::terminate), even for an optional plugin;
// only allocation can throw in here. Each hook decides what its failure does: in slurmstepd a result other than 0
// drains the node in some hooks.
template <class OnFailure, class Hook>
int guard(const char* name, OnFailure&& on_failure, Hook&& hook) noexcept {
  try {
    return hook();
  } catch (const std::exception& exception) {
    slurm_error("bootstrap: the plugin failed in %s: %s", name, exception.what());
  } catch (...) {
    slurm_error("bootstrap: the plugin failed in %s", name);
  }
  return on_failure();
}

inline int accept() noexcept { return kAccepted; }
inline int refuse() noexcept { return kStepRefused; }

}  // namespace bootstrap

// Before srun has read its command line: will this step be one that is set up?
// SPDX-License-Identifier: Apache-2.0
#include "core/forecast.h"

#include <algorithm>
#include <array>

namespace bootstrap {
namespace {

// srun's input variables, and what Slurm sets in a job that has GPUs: a step takes the job's by default.
constexpr std::array<std::string_view, 8> kGpuVariables{
    "SLURM_GPUS",           "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
    "SLURM_NTASKS_PER_GPU", "SLURM_JOB_GPUS",      "SLURM_STEP_GPUS",     "SLURM_GPUS_ON_NODE"};

bool names_gpus(std::string_view argument) {
  return argument.starts_with("--gpus") || argument.starts_with("--ntasks-per-gpu") ||
         (argument.starts_with("-G") && !argument.starts_with("-Gn")) ||
         ((argument.starts_with("--gres") || argument.starts_with("gpu:") || argument.starts_with("--tres")) &&
          argument.find("gpu") != std::string_view::npos);
}

}  // namespace

bool expects_to_apply(const Environment& environment, std::span<const std::string> arguments,
                      const Settings& settings) {
  const auto has = [&](std::string_view exact) {
    return std::find(arguments.begin(), arguments.end(), exact) != arguments.end();
  };
  if (has("--bootstrap=off")) return false;
  if (has("--bootstrap=on") || has("--bootstrap=on,explain")) return true;
  if (settings.mode.value != Mode::kAuto) return settings.mode.value == Mode::kOn;
  if (environment.has("SUBMITIT_EXECUTOR")) return false;
  if (settings.when.value != When::kGpu) return settings.when.value == When::kAlways;
  const auto gres = environment.get("SLURM_GRES").value_or("");
  return gres.find("gpu") != std::string_view::npos ||
         std::any_of(kGpuVariables.begin(), kGpuVariables.end(), [&](auto name) { return environment.has(name); }) ||
         std::any_of(arguments.begin(), arguments.end(), names_gpus);
}

bool expects_components(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == ":" || argument.starts_with("--het-group") || argument.starts_with("--pack-group");
  });
}

}  // namespace bootstrap

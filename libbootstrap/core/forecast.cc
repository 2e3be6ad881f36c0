// Before srun has read its command line: will this step be one that is set up?
// SPDX-License-Identifier: Apache-2.0
#include "core/forecast.h"

#include <algorithm>
#include <array>

#include "core/plan.h"

namespace bootstrap {
namespace {

// srun's input variables, and what Slurm sets in a job that has GPUs: a step takes the job's by default.
constexpr std::array<std::string_view, 8> kGpuVariables{
    "SLURM_GPUS",           "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_SOCKET",
    "SLURM_NTASKS_PER_GPU", "SLURM_JOB_GPUS",      "SLURM_STEP_GPUS",     "SLURM_GPUS_ON_NODE"};

// What srun's own arguments say about GPUs: the last word counts, as it does for srun.
enum class Request : std::uint8_t { kNone, kGpus, kNoGpus };

// The options that say how many GPUs, and what they say with `value`.
Request request(std::string_view option, std::string_view value) {
  const bool is_list = option == "--gres" || option.starts_with("--tres-per-");
  if (is_list) return value.find("gpu") != std::string_view::npos ? Request::kGpus : Request::kNoGpus;
  const bool is_count = option.starts_with("--gpus") || option.starts_with("--ntasks-per-gpu") || option == "-G";
  if (!is_count) return Request::kNone;
  return value == "0" ? Request::kNoGpus : Request::kGpus;
}

struct Asked {
  Request gpus = Request::kNone;
  Settings settings;
};

void note(Asked& asked, std::string_view option, std::string_view value) {
  if (option == "--bootstrap") (void)setting_specs()[0].apply(asked.settings, value, Source::kOption);
  const auto gpus = request(option, value);
  if (gpus != Request::kNone) asked.gpus = gpus;
}

// srun's arguments end where its program begins: at the first word that is neither an option nor, as far as can be told
// without srun's table of options, the value of the option before it.
Asked read_arguments(std::span<const std::string> arguments, const Settings& settings) {
  Asked asked{Request::kNone, settings};
  std::string_view open;  // an option whose value may be the next word
  for (const auto& argument : arguments.empty() ? arguments : arguments.subspan(1)) {
    const std::string_view word = argument;
    if (word == "--") break;
    if (!word.starts_with("-")) {
      if (open.empty()) break;
      note(asked, open, word);
      open = {};
      continue;
    }
    const auto equals = word.find('=');
    open = {};
    if (word.starts_with("--") && equals != std::string_view::npos) {
      note(asked, word.substr(0, equals), word.substr(equals + 1));
    } else if (!word.starts_with("--") && word.size() > 2) {
      note(asked, word.substr(0, 2), word.substr(2));  // "-G2"
    } else {
      open = word;
    }
  }
  return asked;
}

}  // namespace

bool expects_to_apply(const Environment& environment, std::span<const std::string> arguments,
                      const Settings& settings) {
  const auto asked = read_arguments(arguments, settings);
  if (!may_apply(environment, asked.settings)) return false;
  if (asked.settings.mode.value == Mode::kOn || asked.settings.when.value == When::kAlways) return true;
  if (asked.gpus != Request::kNone) return asked.gpus == Request::kGpus;
  const auto lists = {environment.get("SLURM_GRES").value_or(""), environment.get("SLURM_TRES_PER_TASK").value_or("")};
  return std::any_of(lists.begin(), lists.end(), [](auto list) { return list.find("gpu") != list.npos; }) ||
         std::any_of(kGpuVariables.begin(), kGpuVariables.end(), [&](auto name) { return environment.has(name); });
}

bool expects_components(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == ":" || argument.starts_with("--het-group") || argument.starts_with("--pack-group");
  });
}

}  // namespace bootstrap

// Before srun has read its command line: will this step be one that is set up?
// SPDX-License-Identifier: Apache-2.0
#include "core/forecast.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

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
  if (is_list) {
    // Shares of a GPU are GPUs to the nodes.
    const auto names = [value](std::string_view word) { return value.find(word) != std::string_view::npos; };
    return names("gpu") || names("shard") || names("mps") ? Request::kGpus : Request::kNoGpus;
  }
  const bool is_count = option.starts_with("--gpus") || option.starts_with("--ntasks-per-gpu") || option == "-G";
  if (!is_count) return Request::kNone;
  return value == "0" ? Request::kNoGpus : Request::kGpus;
}

// The row of one of our own options.
const SettingSpec* find_spec(std::string_view option) {
  for (const auto& spec : setting_specs()) {
    if (!spec.option.empty() && option.starts_with("--") && option.substr(2) == spec.option) return &spec;
  }
  return nullptr;
}

// An option of ours that takes no value but with '='.
bool is_complete(std::string_view option) {
  const auto* const spec = find_spec(option);
  return spec != nullptr && !spec->alone.empty();
}

// Calls `note(option, value)` for each option of srun's. Its arguments end where its program begins: at the first word
// that is neither an option nor, as far as can be told without srun's table of options, the value of the one before it.
// Those of the next component begin behind ":", which is noted, too.
template <class Note>
void for_each_option(std::span<const std::string> arguments, Note note) {
  std::string_view open;  // an option whose value may be the next word
  bool is_program = false;
  for (const auto& argument : arguments.empty() ? arguments : arguments.subspan(1)) {
    const std::string_view word = argument;
    if (word == ":") {
      is_program = false;
      open = {};
      note(word, std::string_view());
      continue;
    }
    if (is_program) continue;
    if (word == "--" || (!word.starts_with("-") && open.empty())) {
      is_program = true;
      continue;
    }
    if (!word.starts_with("-")) {
      note(open, word);
      open = {};
      continue;
    }
    const auto equals = word.find('=');
    open = {};
    if (word.starts_with("--") && equals != std::string_view::npos) {
      note(word.substr(0, equals), word.substr(equals + 1));
    } else if (!word.starts_with("--") && word.size() > 2) {
      note(word.substr(0, 2), word.substr(2));  // "-G2"
    } else if (is_complete(word)) {
      note(word, std::string_view());
    } else {
      open = word;
    }
  }
}

// The value of `option` among the arguments, as given last, else that of `variable`.
std::string_view last_word(const Environment& environment, std::span<const std::string> arguments,
                           std::string_view option, std::string_view variable) {
  auto last = environment.get(variable).value_or("");
  for_each_option(arguments, [&](std::string_view given, std::string_view value) {
    if (given == option) last = value;
  });
  return last;
}

// The part about GPUs of what --tres-bind takes, such as "gres/gpu:single:1" of "gres/nic:none+gres/gpu:single:1".
std::string_view gpu_part(std::string_view binds) {
  for (const auto bind : split(binds, '+')) {
    if (bind.find("gres/gpu:") != std::string_view::npos) return bind;
  }
  return {};
}

// What SLURM_TRES_BIND says of GPUs where that is the user's word. From 23.11 on sbatch, salloc and (for its tasks)
// srun put there also what they themselves made of --gpus-per-task, and srun what it made of --ntasks-per-gpu.
std::string_view users_tres_bind(const Environment& environment) {
  const auto bind = gpu_part(environment.get("SLURM_TRES_BIND").value_or(""));
  const auto per_task = environment.get("SLURM_TRES_PER_TASK").value_or("");
  const bool is_of_count =
      per_task.find("gpu") != std::string_view::npos && bind.find(":per_task:") != std::string_view::npos;
  const bool is_of_tasks = environment.has("SLURM_NTASKS_PER_TRES") &&
                           bind == cat({"gres/gpu:single:", environment.get("SLURM_NTASKS_PER_TRES").value_or("")});
  return is_of_count || is_of_tasks ? std::string_view() : bind;
}

bool is_binding(std::string_view value) { return !value.empty() && !value.ends_with("none"); }

// In heterogeneous jobs sbatch and salloc add the number of the component: SLURM_TRES_PER_TASK_HET_GROUP_0.
bool any_component(const Environment& environment, std::string_view name, auto condition) {
  const auto prefix = cat({name, "_HET_GROUP_"});
  const auto& all = environment.all();
  return std::any_of(all.lower_bound(prefix), all.end(), [&](const auto& entry) {
    return entry.first.starts_with(prefix) && condition(std::string_view(entry.second));
  });
}

// Where the step runs, as far as srun's words tell: in a job that is known; else srun may name several, or none.
std::string_view partitions_of(const Environment& environment, std::span<const std::string> arguments) {
  if (const auto of_job = environment.get("SLURM_JOB_PARTITION")) return *of_job;
  const auto named = last_word(Environment(), arguments, "-p", "");
  return named.empty() ? last_word(environment, arguments, "--partition", "SLURM_PARTITION") : named;
}

enum class Forecast : std::uint8_t { kNo, kYes, kUnsaid };

}  // namespace

Settings with_arguments(std::span<const std::string> arguments, const Settings& settings) {
  auto with = settings;
  for_each_option(arguments, [&](std::string_view option, std::string_view value) {
    const auto* const spec = find_spec(option);
    if (spec != nullptr) (void)spec->apply(with, value.empty() ? spec->alone : value, Source::kOption);
  });
  return with;
}

namespace {

Forecast forecast(const Environment& environment, std::span<const std::string> arguments, const Settings& settings) {
  const auto asked = with_arguments(arguments, settings);
  if (!may_apply(environment, asked)) return Forecast::kNo;
  if (asked.mode.value == Mode::kOn) return Forecast::kYes;
  if (!has_partitions(asked, partitions_of(environment, arguments))) return Forecast::kNo;
  if (asked.when.value == When::kAlways) return Forecast::kYes;
  // The last word of each option of a component counts, and one option that asks for GPUs is enough for the whole step.
  std::map<std::pair<int, std::string_view>, Request> requests;
  int component = 0;
  for_each_option(arguments, [&](std::string_view option, std::string_view value) {
    if (option == ":") ++component;
    const auto found = request(option, value);
    if (found != Request::kNone) requests[{component, option == "-G" ? "--gpus" : option}] = found;
  });
  const auto asks = [](const auto& entry) { return entry.second == Request::kGpus; };
  if (!requests.empty()) {
    return std::any_of(requests.begin(), requests.end(), asks) ? Forecast::kYes : Forecast::kNo;
  }
  const auto names_gpus = [](std::string_view list) { return list.find("gpu") != std::string_view::npos; };
  const auto any_names_gpus = [&](std::string_view name) {
    return names_gpus(environment.get(name).value_or("")) || any_component(environment, name, names_gpus);
  };
  const bool is_named =
      any_names_gpus("SLURM_GRES") || any_names_gpus("SLURM_TRES_PER_TASK") ||
      std::any_of(kGpuVariables.begin(), kGpuVariables.end(), [&](auto name) { return environment.has(name); });
  return is_named ? Forecast::kYes : Forecast::kUnsaid;
}

}  // namespace

bool expects_to_apply(const Environment& environment, std::span<const std::string> arguments,
                      const Settings& settings) {
  return forecast(environment, arguments, settings) == Forecast::kYes;
}

bool leaves_it_to_the_job(const Environment& environment, std::span<const std::string> arguments,
                          const Settings& settings) {
  return forecast(environment, arguments, settings) == Forecast::kUnsaid;
}

bool implies_gpu_binding(const Environment& environment, std::span<const std::string> arguments) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kCounts{
      {{"--gpus-per-task", "SLURM_GPUS_PER_TASK"},
       {"--ntasks-per-gpu", "SLURM_NTASKS_PER_GPU"},
       {"--ntasks-per-tres", "SLURM_NTASKS_PER_TRES"}}};
  const auto is_count = [](std::string_view value) { return !value.empty() && value != "0"; };
  const auto names_gpus = [](std::string_view value) { return value.find("gpu") != std::string_view::npos; };
  for (const auto& [option, variable] : kCounts) {
    if (is_count(last_word(environment, arguments, option, variable))) return true;
    if (any_component(environment, variable, is_count)) return true;
  }
  return names_gpus(last_word(environment, arguments, "--tres-per-task", "SLURM_TRES_PER_TASK")) ||
         any_component(environment, "SLURM_TRES_PER_TASK", names_gpus);
}

GpuBind asked_gpu_binding(const Environment& environment, std::span<const std::string> arguments) {
  const auto tres_bind = last_word(Environment(), arguments, "--tres-bind", "");
  const auto asked = {last_word(environment, arguments, "--gpu-bind", "SLURM_GPU_BIND"),
                      tres_bind.empty() ? users_tres_bind(environment) : gpu_part(tres_bind)};
  auto found = GpuBind::kNone;
  for (const auto bind : asked) {
    if (!is_binding(bind)) continue;
    found = bind.find("closest") == std::string_view::npos ? GpuBind::kNarrow : GpuBind::kClosest;
  }
  // --accel-bind=g is an older word for closest.
  const auto accelerators = last_word(environment, arguments, "--accel-bind", "SLURM_ACCEL_BIND");
  if (found == GpuBind::kNone && is_binding(accelerators)) return GpuBind::kClosest;
  return found;
}

bool expects_components(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == ":" || argument.starts_with("--het-group") || argument.starts_with("--pack-group");
  });
}

}  // namespace bootstrap

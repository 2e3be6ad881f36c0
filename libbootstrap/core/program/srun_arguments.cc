// Reads srun's own options before srun parses them.
// SPDX-License-Identifier: Apache-2.0
#include "core/program/srun_arguments.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/program/program_files.h"
#include "core/program/program_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// srun's options that take no value, or only behind "=" (srun(1), Slurm 22.05 to 26.05). All others take the next word
// as their value.
constexpr std::string_view kSrunFlags =
    "-E -H -I -K -O -Q -V -X -Z -h -k -l -s -u -v --async --bcast --compress --consolidate-segments --contiguous "
    "--disable-status --exact --exclusive --external --get-user-env --help --hold --immediate --interactive "
    "--kill-on-bad-exit --label --multi-prog --nice --no-allocate --no-kill --oom-kill-step --overcommit --overlap "
    "--oversubscribe --parsable --preserve-env --preserve-slurm-env --propagate --pty --quiet --quit-on-interrupt "
    "--reboot --resv-ports --send-libs --spread-job --spread-segments --stepmgr --test-only --unbuffered --usage "
    "--use-min-nodes --verbose --version --wait-for-children --x11";

// The row of one of our own options.
const SettingSpec* find_spec(std::string_view option) {
  for (const auto& spec : setting_specs()) {
    if (!spec.option.empty() && option.starts_with("--") && option.substr(2) == spec.option) return &spec;
  }
  return nullptr;
}

// True for an option that takes no value, or takes one only behind '='.
bool is_complete(std::string_view option) {
  const auto* const spec = find_spec(option);
  if (spec != nullptr) return !spec->alone.empty();
  return has_word(kSrunFlags, option);
}

// Calls `note(option, value)` for each option of srun's. The options end where the program begins: at the first word
// that is neither an option nor the value of the option before it. The options of the next component begin behind ":",
// for which `note` is called, too. Returns where the last program begins.
template <class Note>
std::size_t for_each_option(std::span<const std::string> arguments, Note note) {
  std::string_view open;  // an option whose value may be the next word
  bool is_program = false;
  auto program = arguments.size();
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string_view word = arguments[at];
    if (word == ":") {
      is_program = false;
      open = {};
      note(word, std::string_view());
      continue;
    }
    if (is_program) continue;
    if (word == "--" || (!word.starts_with("-") && open.empty())) {
      is_program = true;
      program = at + (word == "--" ? 1 : 0);
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
  return program;
}

// Returns the last value of these options among the arguments, else that of `variable`.
std::string_view last_word(const Environment& environment, std::span<const std::string> arguments,
                           std::string_view options, std::string_view variable) {
  auto last = environment.get(variable).value_or("");
  for_each_option(arguments, [&](std::string_view given, std::string_view value) {
    if (has_word(options, given)) last = value;
  });
  return last;
}

// Returns the part of a value of --tres-bind for GPUs: "gres/gpu:single:1" of "gres/nic:none+gres/gpu:single:1".
std::string_view gpu_part(std::string_view binds) {
  for (const auto bind : split(binds, '+')) {
    if (bind.find("gres/gpu:") != std::string_view::npos) return bind;
  }
  return {};
}

// The part of SLURM_TRES_BIND for GPUs, if the user set it. From 23.11 on sbatch, salloc and (for its tasks) srun also
// set it themselves for --gpus-per-task, and srun for --ntasks-per-gpu.
std::string_view users_tres_bind(const Environment& environment) {
  const auto bind = gpu_part(environment.get("SLURM_TRES_BIND").value_or(""));
  const auto per_task = environment.get("SLURM_TRES_PER_TASK").value_or("");
  const bool is_of_count =
      per_task.find("gpu") != std::string_view::npos && bind.find(":per_task:") != std::string_view::npos;
  const bool is_of_tasks = environment.has("SLURM_NTASKS_PER_TRES") &&
                           bind == cat({"gres/gpu:single:", environment.get("SLURM_NTASKS_PER_TRES").value_or("")});
  return is_of_count || is_of_tasks ? std::string_view() : bind;
}

constexpr std::string_view kGpuBind = "--gpu-bind";
constexpr std::string_view kTresBind = "--tres-bind";
constexpr std::string_view kAccelBind = "--accel-bind";

bool is_binding(std::string_view value) { return !value.empty() && !value.ends_with("none"); }

// In heterogeneous jobs sbatch and salloc add the number of the component: SLURM_TRES_PER_TASK_HET_GROUP_0.
bool any_component(const Environment& environment, std::string_view name, auto condition) {
  const auto prefix = cat({name, "_HET_GROUP_"});
  const auto& all = environment.all();
  return std::any_of(all.lower_bound(prefix), all.end(), [&](const auto& entry) {
    return entry.first.starts_with(prefix) && condition(std::string_view(entry.second));
  });
}

bool is_group_option(std::string_view word) { return word.starts_with("--het") || word.starts_with("--pack"); }

}  // namespace

Settings with_arguments(std::span<const std::string> arguments, const Settings& settings) {
  auto with = settings;
  for_each_option(arguments, [&](std::string_view option, std::string_view value) {
    const auto* const spec = find_spec(option);
    if (spec != nullptr) (void)spec->apply(with, value.empty() ? spec->alone : value, Source::kOption);
  });
  return with;
}

// By the plugin's own rules: --bootstrap=on asks; off and auto do not, whatever other options there are; explain only
// prints. A wrong true would change how Slurm binds GPUs in a step that does not ask.
bool asks_for_itself(std::span<const std::string> arguments) {
  std::optional<Mode> mode;
  bool has_others = false;
  for_each_option(arguments, [&](std::string_view option, std::string_view value) {
    const auto* const spec = find_spec(option);
    if (spec == nullptr) return;
    if (!is_mode(*spec)) has_others = true;
    if (const auto given = is_mode(*spec) ? mode_of(value) : std::nullopt) mode = given;
  });
  return mode ? *mode == Mode::kOn : has_others;
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

// The last option that binds counts, as for srun.
UsersBind asked_gpu_binding(const Environment& environment, std::span<const std::string> arguments) {
  const auto tres_bind = last_word(Environment(), arguments, kTresBind, "");
  const std::array<std::pair<std::string_view, std::string_view>, 2> asked{
      {{kGpuBind, last_word(environment, arguments, kGpuBind, "SLURM_GPU_BIND")},
       {kTresBind, tres_bind.empty() ? users_tres_bind(environment) : gpu_part(tres_bind)}}};
  UsersBind found;
  for (const auto& [option, bind] : asked) {
    if (!is_binding(bind)) continue;
    found.kind = bind.find("closest") == std::string_view::npos ? GpuBind::kNarrow : GpuBind::kClosest;
    // sbatch and salloc put --gpu-bind into both variables.
    if (found.option.empty() || !tres_bind.empty()) found.option = option;
  }
  // --accel-bind=g is an older word for closest.
  const auto accelerators = last_word(environment, arguments, kAccelBind, "SLURM_ACCEL_BIND");
  if (found.kind == GpuBind::kNone && is_binding(accelerators)) return {GpuBind::kClosest, std::string(kAccelBind)};
  return found;
}

std::string binding_to_keep(const Environment& environment, std::span<const std::string> arguments) {
  const auto has = [&](std::string_view name) {
    return std::any_of(arguments.begin(), arguments.end(), [&](auto& word) { return file_name_of(word) == name; });
  };
  if (!has("slurm-bootstrap") || !has("near")) return {};
  // In a step inside a step Slurm has set the variable, for the outer step.
  const auto inherited = environment.has("SLURM_STEP_ID") ? "" : environment.get("SLURM_CPU_BIND").value_or("");
  const auto bind = last_word(Environment(), arguments, "--cpu-bind", "");
  const auto words = split(bind.empty() ? inherited : bind, ',');
  const bool is_bound = std::any_of(words.begin(), words.end(), [](std::string_view word) {
    return !has_word("quiet q verbose v none no", word) && !word.empty();
  });
  return is_bound ? cat({"--cpu-bind=", bind.empty() ? inherited : bind}) : std::string();
}

std::string requested_nodes(std::span<const std::string> arguments) {
  return std::string(last_word(Environment(), arguments, "-w --nodelist", ""));
}

std::span<const std::string> program_words(std::span<const std::string> arguments) {
  return arguments.subspan(for_each_option(arguments, [](std::string_view, std::string_view) {}));
}

bool is_async(std::span<const std::string> arguments) {
  bool is_async = false;
  for_each_option(arguments, [&](std::string_view option, std::string_view) {
    is_async |= is_long_option(option, "--as", "--async");
  });
  return is_async;
}

RequestedStep requested_step(const Environment& environment, std::span<const std::string> arguments) {
  const auto number = [&](std::string_view options, std::string_view variable) {
    const auto last = last_word(environment, arguments, options, variable);
    return parse_unsigned<std::uint32_t>(last.substr(0, last.find('-'))).value_or(0);
  };
  const auto nodes = std::max(1U, number("-N --nodes", "SLURM_NNODES"));
  const auto per_node = number("--ntasks-per-node", "SLURM_NTASKS_PER_NODE");
  auto tasks = number("-n --ntasks", "");
  if (tasks == 0) tasks = per_node == 0 ? std::max(nodes, number("", "SLURM_NTASKS")) : nodes * per_node;
  return {.job = number("--jobid", "SLURM_JOB_ID"), .tasks = tasks, .nodes = std::min(nodes, tasks)};
}

bool may_be_no_world(const Environment& environment, std::span<const std::string> arguments,
                     std::string_view launchers) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kTasksOfGpu{
      {{"--ntasks-per-gpu", "SLURM_NTASKS_PER_GPU"}, {"--ntasks-per-tres", "SLURM_NTASKS_PER_TRES"}}};
  const bool shares_gpus = std::any_of(kTasksOfGpu.begin(), kTasksOfGpu.end(), [&](const auto& count) {
    const auto tasks = last_word(environment, arguments, count.first, count.second);
    return parse_unsigned<std::uint32_t>(tasks.substr(tasks.rfind(':') + 1)).value_or(0) > 1;  // "gres/gpu:2"
  });
  return shares_gpus || environment.has("SUBMITIT_EXECUTOR") ||
         std::any_of(arguments.begin(), arguments.end(), [&](std::string_view word) {
           const auto name = file_name_of(word);
           return word == "--pty" || is_launcher_name(name) || has_word(launchers, name, ',') ||
                  is_torchrun_module(word) || !launcher_module_reason(word).empty();
         });
}

bool expects_components(std::span<const std::string> arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](std::string_view word) { return word == ":" || is_group_option(word); });
}

bool has_several_components(std::span<const std::string> arguments) {
  bool has_several = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == ":") return true;
    if (!is_group_option(word)) continue;
    const auto equals = word.find('=');
    std::string_view groups = i + 1 < arguments.size() ? std::string_view(arguments[i + 1]) : std::string_view();
    if (equals != std::string_view::npos) groups = word.substr(equals + 1);
    has_several = !parse_unsigned(groups);  // "0,1", "0-2"; the last option counts
  }
  return has_several;
}

}  // namespace bootstrap

// The plugin's options, and where values come from: plugstack.conf, SLURM_BOOTSTRAP_* variables, the command line.
// SPDX-License-Identifier: Apache-2.0
#include "spank_options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "core/settings/variables.h"
#include "core/util/text.h"
#include "slurmstepd/step_on_node.h"

namespace bootstrap {
namespace {

// One option, as it was given. Slurm calls back for the job's option, of sbatch or salloc, which comes with the
// environment, before it does for srun's own line.
struct Option {
  const SettingSpec* spec;
  std::string usage = {};  // Slurm copies it; older releases keep the pointer
  std::optional<std::string> by_job;
  std::optional<std::string> on_line;  // or, in slurmstepd, whichever srun handed over
  bool is_job_next = false;            // the next callback is for the job's
};

struct State {
  bool has_begun = false;
  pid_t process = ::getpid();
  Settings site;
  std::optional<Error> site_error;
  std::vector<Option> options;

  State() {
    for (const auto& spec : setting_specs()) {
      if (!spec.option.empty()) options.push_back({.spec = &spec, .by_job = {}, .on_line = {}});
    }
  }
};

// One per process. Never freed: hooks may run until the process ends, and a global object would need a constructor.
State& state() {
  static auto* const state = new State;
  return *state;
}

// Slurm calls this once or more for each way in which the option was given, on the submit host and on the nodes.
// It only stores the value: the value that is stored last was given last.
int option_callback(int place, const char* value, int remote) {
  const auto give_up = [] {
    (void)StepOnNode::fail_all_tasks(false);
    return refuse();
  };
  return guard("option", give_up, [&] {
    auto& given = state().options[static_cast<std::size_t>(place)];
    const auto& spec = *given.spec;
    const bool is_alone = (value == nullptr || *value == '\0') && !spec.alone.empty();
    const std::string_view text = is_alone ? spec.alone : value == nullptr ? "" : value;
    if (remote == 0) {
      Settings probe;
      const auto applied = apply_setting(probe, spec, text, Source::kOption);
      if (!applied) {
        log_error(applied.error().message);
        return kStepRefused;
      }
    }
    // The beginning of a value that is too long is enough to refuse it.
    (given.is_job_next ? given.by_job : given.on_line) = std::string(text.substr(0, kMaxSetting + 1));
    given.is_job_next = false;
    return kAccepted;
  });
}

void register_options(spank_t spank) {
  auto& options = state().options;
  bool user_knows = false;
  for (std::size_t place = 0; place < options.size(); ++place) {
    const auto& spec = *options[place].spec;
    options[place].usage = cat({"[bootstrap] ", spec.help});
    // The names are string literals in the table, so they end with NUL and live as long as this code.
    spank_option option{};
    option.name = const_cast<char*>(spec.option.data());
    option.arginfo = const_cast<char*>(spec.values.data());
    option.usage = options[place].usage.data();
    option.has_arg = spec.alone.empty() ? 1 : 2;
    option.val = static_cast<int>(place);
    option.cb = option_callback;
    const auto registered = spank_option_register(spank, &option);
    if (registered == ESPANK_SUCCESS) continue;
    // Only for logs: the user may have given no option of ours.
    if (!user_knows) {
      const auto* const why = registered == ESPANK_BAD_ARG ? "another plugin has it" : spank_strerror(registered);
      const auto message = cat({"cannot register the option --", spec.option, " with Slurm: ", why});
      is_slurmstepd() ? log_info(message) : log_verbose(message);
    }
    user_knows = true;  // the others may fail for the same reason
    // ESPANK_BAD_ARG: another plugin has an option of this name, and srun gives it to that one. After any other failure
    // it is unknown what the user asked for: slurmstepd would start the step as if the option had not been given.
    if (registered != ESPANK_BAD_ARG) (void)StepOnNode::fail_all_tasks(false);
  }
}

// The value of sbatch's or salloc's option in the environment of the job; null: it was not given.
const char* option_of_job(const Option& option) {
  const auto name = replaced(option.spec->option, "-", "_");
  return std::getenv(cat({"SLURM_SPANK__SLURM_SPANK_OPTION_bootstrap_", name}).c_str());
}

// What the options of one group, the job's or those of srun's line, ask for. nullopt: none was given, or they neither
// ask nor refuse.
std::optional<UserChoice> choice_of(std::optional<std::string> Option::*where, Asked strength, std::string_view of) {
  std::optional<UserChoice> choice;
  for (const auto& option : state().options) {
    const auto& value = option.*where;
    if (!value) continue;
    const auto origin = cat({of, "--", option.spec->option});
    if (!is_mode(*option.spec)) {
      if (!choice) choice = UserChoice{.asked = strength, .is_off = false, .origin = origin};
      continue;
    }
    const auto mode = mode_of(*value);
    if (!mode) continue;  // explain alone
    return UserChoice{.asked = *mode == Mode::kOn ? strength : Asked::kUnasked,
                      .is_off = *mode == Mode::kOff,
                      .origin = cat({origin, "=", *value})};
  }
  return choice;
}

}  // namespace

bool begin_options(spank_t spank, int count, char** arguments) {
  const bool is_slurmd = !is_srun() && !is_allocator() && !is_slurmstepd();  // or in a prolog or epilog
  if (is_slurmd || state().has_begun) return false;
  state().has_begun = true;
  for (int i = 0; i < count; ++i) {
    const auto applied = apply_site_argument(state().site, arguments[i]);
    if (!applied && !state().site_error) state().site_error = applied.error();
  }
  register_options(spank);
  return true;
}

const Settings& site_settings() { return state().site; }

void expect_options_of_job() {
  for (auto& option : state().options) option.is_job_next = option_of_job(option) != nullptr;
}

bool job_asks() {
  const auto is_on = [](const char* text) {
    return text != nullptr && ::strnlen(text, kMaxSetting + 1) <= kMaxSetting && mode_of(text) == Mode::kOn;
  };
  for (const auto& option : state().options) {
    if (option.is_job_next && (!is_mode(*option.spec) || is_on(option_of_job(option)))) return true;
  }
  return is_on(std::getenv("SLURM_BOOTSTRAP"));
}

void pass_options_to_job() {
  // A job that is submitted from inside a task is no part of that task's step.
  for (const auto& name : inherited_to_unset(read_entries(environ, UnknownVariables::kSkip))) ::unsetenv(name.c_str());
  // sbatch hands its environment to the script: mpirun and the library read options there, srun from Slurm.
  for (const auto& option : state().options) {
    if (!option.on_line || is_mode(*option.spec)) continue;
    ::setenv(std::string(option.spec->variable).c_str(), option.on_line->c_str(), 1);
  }
}

bool runs_in_slurmstepd() { return state().process == ::getpid(); }

CollectedSettings collect_settings(const Environment& environment) {
  CollectedSettings collected{.settings = state().site, .error = state().site_error};
  const auto note = [&](const Status& applied) {
    if (!applied && !collected.error) collected.error = applied.error();
  };
  note(apply_environment(collected.settings, environment));
  for (const auto where : {&Option::by_job, &Option::on_line}) {
    for (const auto& option : state().options) {
      const auto& value = option.*where;
      if (value) note(apply_setting(collected.settings, *option.spec, *value, Source::kOption));
    }
  }
  return collected;
}

const std::optional<Error>& site_error() { return state().site_error; }

UserChoice user_choice(const Environment& environment) {
  if (auto choice = choice_of(&Option::on_line, Asked::kStrongly, "")) return std::move(*choice);
  if (auto choice = choice_of(&Option::by_job, Asked::kWeakly, "the job's ")) return std::move(*choice);
  const auto variable = environment.get("SLURM_BOOTSTRAP");
  if (!variable) return {};
  const auto specs = setting_specs();
  Settings unused;
  // A wrong value counts as off: "0" and "no" mean that, and independent runs that become one world train wrongly.
  const auto read =
      apply_setting(unused, *std::find_if(specs.begin(), specs.end(), is_mode), *variable, Source::kEnvironment);
  if (!read) return {.is_off = true, .wrong = read.error().message, .origin = {}};
  const auto mode = mode_of(*variable);
  if (!mode || *mode == Mode::kAuto) return {};
  return {.asked = *mode == Mode::kOn ? Asked::kWeakly : Asked::kUnasked,
          .is_off = *mode == Mode::kOff,
          .origin = cat({"SLURM_BOOTSTRAP=", *variable})};
}

bool has_options() {
  const auto& options = state().options;
  return std::any_of(options.begin(), options.end(), [](auto& option) { return option.on_line || option.by_job; });
}

}  // namespace bootstrap

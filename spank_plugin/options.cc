// The plugin's options, and where their values come from: plugstack.conf, BOOTSTRAP_* variables, the command line.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/text.h"
#include "guard.h"
#include "launcher.h"
#include "session.h"

namespace bootstrap {
namespace {

struct State {
  Context context = Context::kOther;
  pid_t process = ::getpid();
  Settings site;
  std::optional<Error> site_error;
  // Both by place in setting_specs(). Slurm copies the usages; older releases keep the pointer.
  std::vector<std::optional<std::string>> given = std::vector<std::optional<std::string>>(setting_specs().size());
  std::vector<std::string> usages = std::vector<std::string>(setting_specs().size());
  std::vector<std::string> forwarded;  // variables that `init` set for Slurm's parser
};

// One per process. Never freed: hooks may run until the process ends, and a global object would need a constructor.
State& state() {
  static auto* const state = new State;
  return *state;
}

// Slurm calls this once or more for each way in which the option was given, on the submit host and on the nodes.
// It only remembers; what it remembers last was given last.
int option_callback(int place, const char* value, int remote) {
  const auto give_up = [] {
    Session::break_down(false);  // Slurm goes on with a step whose option was refused on the node
    return refuse();
  };
  return guard("option", give_up, [&] {
    const auto& spec = setting_specs()[static_cast<std::size_t>(place)];
    const bool is_alone = (value == nullptr || *value == '\0') && !spec.alone.empty();
    const std::string_view text = is_alone ? spec.alone : value == nullptr ? "" : value;
    if (remote == 0) {
      Settings probe;
      const auto variable = std::getenv(std::string(spec.variable).c_str());
      const bool from_environment = variable != nullptr && text == variable;
      const auto applied = apply_setting(probe, spec, text, from_environment ? Source::kEnvironment : Source::kOption);
      if (!applied) {
        log_error(cat({"bootstrap: ", applied.error().message}));
        return kRefused;
      }
    }
    state().given[static_cast<std::size_t>(place)] = std::string(text);
    return kAccepted;
  });
}

void register_options(spank_t spank) {
  auto& usages = state().usages;
  const auto specs = setting_specs();
  bool is_told = false;
  for (std::size_t place = 0; place < specs.size(); ++place) {
    const auto& spec = specs[place];
    if (spec.option.empty()) continue;
    usages[place] = cat({"[bootstrap] ", spec.help});
    // The names are string literals in the table, so they end with NUL and live as long as this code.
    spank_option option{};
    option.name = const_cast<char*>(spec.option.data());
    option.arginfo = const_cast<char*>(spec.values.data());
    option.usage = usages[place].data();
    option.has_arg = spec.alone.empty() ? 1 : 2;
    option.val = static_cast<int>(place);
    option.cb = option_callback;
    const auto registered = spank_option_register(spank, &option);
    if (registered == ESPANK_SUCCESS) continue;
    if (!is_told) log_error(cat({"bootstrap: option --", spec.option, " could not be registered"}));
    is_told = true;  // where one is not, the others may well not be, either
    // ESPANK_BAD_ARG: another plugin has an option of this name, and srun gives it to that one. Whatever else went
    // wrong here and not in srun: slurmstepd would start the step as if the option had not been given.
    if (registered != ESPANK_BAD_ARG) Session::break_down(false);
  }
}

std::string option_variable(std::string_view option) {
  std::string name(option);
  for (auto& character : name) {
    if (character == '-') character = '_';
  }
  return cat({"SLURM_SPANK__SLURM_SPANK_OPTION_bootstrap_", name});
}

// SLURM_BOOTSTRAP_PORT=... becomes the default of --bootstrap-port through Slurm's own variable for it, so that a wrong
// value stops the command as a wrong option does (a hook of an optional plugin cannot), and a right one travels to the
// nodes with --export=NONE too.
void forward_variables() {
  for (const auto& spec : setting_specs()) {
    if (spec.option.empty() || spec.variable.empty()) continue;
    const char* const value = std::getenv(std::string(spec.variable).c_str());
    if (value == nullptr || *value == '\0') continue;
    const auto name = option_variable(spec.option);
    if (::setenv(name.c_str(), value, 1) == 0) state().forwarded.push_back(name);
  }
}

void read_site_arguments(int count, char** arguments) {
  for (int i = 0; i < count; ++i) {
    const auto applied = apply_site_argument(state().site, arguments[i]);
    if (!applied && !state().site_error) state().site_error = applied.error();
  }
}

// Applies what is right and answers with the first error.
Status collect(const Environment& job_environment, Settings& settings) {
  settings = state().site;
  Status collected;
  if (state().site_error) collected = fail(*state().site_error);
  const auto note = [&](const Status& applied) {
    if (collected && !applied) collected = applied;
  };
  note(apply_environment(settings, job_environment));
  const auto specs = setting_specs();
  for (std::size_t place = 0; place < specs.size(); ++place) {
    const auto& given = state().given[place];
    if (!given) continue;
    const bool from_environment = job_environment.get(specs[place].variable) == *given;
    note(apply_setting(settings, specs[place], *given, from_environment ? Source::kEnvironment : Source::kOption));
  }
  return collected;
}

}  // namespace

int init(spank_t spank, int count, char** arguments) {
  const auto context = current_context();
  if (context == Context::kOther || state().context != Context::kOther) return kAccepted;  // or listed twice
  state().context = context;
  read_site_arguments(count, arguments);
  register_options(spank);
  if (context == Context::kSlurmstepd) return kAccepted;

  if (state().site_error) log_error(cat({"bootstrap: ", state().site_error->message}));
  unset_outer_defaults();
  forward_variables();
  if (context == Context::kSrun) set_launch_defaults(spank, state().site);
  return kAccepted;
}

int after_options() {
  if (state().context == Context::kSlurmstepd || state().context == Context::kOther) return kAccepted;
  for (const auto& name : state().forwarded) ::unsetenv(name.c_str());
  if (state().context == Context::kSrun) end_of_options();
  if (state().context == Context::kAllocator) {
    // A job that is submitted from inside a task is no part of that task's step.
    for (const auto& name : inert_removals(Environment::from_entries(environ))) ::unsetenv(name.c_str());
    // sbatch hands its environment to the script: an option given to sbatch is there what a variable is to srun.
    const auto specs = setting_specs();
    for (std::size_t place = 0; place < specs.size(); ++place) {
      const auto& given = state().given[place];
      if (given) ::setenv(std::string(specs[place].variable).c_str(), given->c_str(), 1);
    }
  }
  return kAccepted;
}

bool runs_in_slurmstepd() { return state().process == ::getpid(); }

Result<Settings> collect_settings(const Environment& job_environment) {
  Settings settings;
  const auto collected = collect(job_environment, settings);
  if (!collected) return fail(collected.error());
  return settings;
}

bool is_site_wrong() { return state().site_error.has_value(); }

Settings right_settings(const Environment& job_environment) {
  Settings settings;
  (void)collect(job_environment, settings);
  return settings;
}

}  // namespace bootstrap

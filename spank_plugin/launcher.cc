// What only srun can do: tell the nodes the rank order, and give srun's own options a default.
// SPDX-License-Identifier: Apache-2.0
#include "launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/forecast.h"
#include "core/layout_text.h"
#include "core/plan.h"
#include "core/text.h"
#include "guard.h"
#include "options.h"
#include "step_layout.h"

namespace bootstrap {
namespace {

constexpr const char* kKillVariable = "SLURM_KILL_BAD_EXIT";

bool kill_default_is_ours = false;

std::vector<std::string> own_command_line() {
  std::string text;
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = ::read(file, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > Environment::kMaxValue) break;
  }
  ::close(file);
  std::vector<std::string> arguments;
  for (const auto argument : split(text, '\0')) arguments.emplace_back(argument);
  return arguments;
}

std::optional<std::uint32_t> number_variable(const char* name) {
  const char* const text = std::getenv(name);
  const auto value = parse_unsigned(text == nullptr ? "" : text, UINT32_MAX);
  if (!value) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

}  // namespace

void set_launch_defaults(const Settings& site) {
  const auto environment = Environment::from_entries(environ);
  const auto arguments = own_command_line();
  auto settings = site;
  if (!apply_environment(settings, environment)) return;  // the option parser will say what is wrong
  // Without --kill-on-bad-exit a task that ends early leaves the others waiting for it: half an hour with PyTorch.
  if (expects_to_apply(environment, arguments, settings)) {
    kill_default_is_ours = std::getenv(kKillVariable) == nullptr && ::setenv(kKillVariable, "1", 0) == 0;
  }
  // srun runs local_user_init once for all components, but copies the environment of the others before it. A variable
  // that --export names is looked up after it, so that the layout reaches them, too.
  if (expects_components(arguments) && !environment.has("SLURM_EXPORT_ENV") && !environment.has(kExportVariable)) {
    ::setenv(std::string(kExportVariable).c_str(), std::string(kExportValue).c_str(), 0);
  }
}

void unset_launch_defaults() {
  if (kill_default_is_ours) ::unsetenv(kKillVariable);
  kill_default_is_ours = false;
}

int hand_over_layout(spank_t spank) {
  if (current_context() != Context::kSrun) return kAccepted;
  const auto environment = Environment::from_entries(environ);
  const auto settings = collect_settings(environment);
  if (settings && !may_apply(environment, *settings)) return kAccepted;
  const auto job = item(spank, S_JOB_ID);
  const auto step = item(spank, S_JOB_STEPID);
  const auto tasks = number_variable("SLURM_NTASKS");  // of all components; the item counts one component
  const auto count = item(spank, S_JOB_TOTAL_TASK_COUNT);
  if (!job || !step || !count || !is_normal_step(*step)) return kAccepted;
  const auto leader = number_variable("SLURM_JOB_ID").value_or(*job);
  const StepTasks step_tasks{.in_component = *count, .in_step = std::max(tasks.value_or(*count), *count)};
  auto components = ask_step_layout(step_tasks, *job, leader, *step);
  if (components.empty()) {
    log_debug("bootstrap: slurmctld did not tell the layout of the step");  // the nodes say so if it matters
    return kAccepted;
  }
  const auto text = write_layout(leader, *step, components);
  if (!text) {
    log_error(cat({"bootstrap: ", text.error().message}));
    return kAccepted;
  }
  ::setenv(std::string(kLayoutVariable).c_str(), text->c_str(), 1);
  return kAccepted;
}

}  // namespace bootstrap

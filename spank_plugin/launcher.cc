// What only srun can do: tell the nodes the rank order, and give srun's own options a default.
// SPDX-License-Identifier: Apache-2.0
#include "launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "core/failure.h"
#include "core/forecast.h"
#include "core/hostlist.h"
#include "core/layout_text.h"
#include "core/plan.h"
#include "core/plan_gpus.h"
#include "core/rendezvous.h"
#include "core/text.h"
#include "facts.h"
#include "failure_receiver.h"
#include "guard.h"
#include "name_lookup.h"
#include "options.h"
#include "session.h"
#include "step_layout.h"

namespace bootstrap {
namespace {

// A variable that `init` set for srun's own parser of options, and what it was before.
struct LaunchDefault {
  std::string name;
  std::optional<std::string> before;
};

std::vector<LaunchDefault>& defaults() {
  static auto* const defaults = new std::vector<LaunchDefault>;  // never freed: see options.cc
  return *defaults;
}

// Unless the user has one. Flags are added to those of the user.
void set_default(std::string_view name, std::string_view value, bool is_flag = false) {
  const std::string variable(name);
  const char* const given = std::getenv(variable.c_str());
  if (given != nullptr && (!is_flag || std::string_view(given).find(value) != std::string_view::npos)) return;
  const auto before = given == nullptr ? std::nullopt : std::optional<std::string>(given);
  const auto now = before ? cat({*before, ",", value}) : std::string(value);
  if (::setenv(variable.c_str(), now.c_str(), 1) == 0) defaults().push_back({variable, before});
}

void unset_launch_defaults() {
  for (const auto& [name, before] : defaults()) {
    if (before) ::setenv(name.c_str(), before->c_str(), 1);
    if (!before) ::unsetenv(name.c_str());
  }
  defaults().clear();
}

// Components of the step, separated by ":", whose options srun has not read.
std::ptrdiff_t components_to_parse = 0;

bool is_expected = false;     // that this step is set up, by srun's words
bool is_for_the_job = false;  // to say, since these words say nothing of GPUs

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

// Slurm's own binding hides the other GPUs from each task. Where the user did not ask for it, it is to leave them;
// where he did, the nodes must know, since they see no more than what came of it: also in a step that takes the GPUs of
// its job, of which neither srun's words nor its variables tell.
void set_gpu_defaults(spank_t spank, const Environment& environment, const std::vector<std::string>& arguments,
                      bool expects_gpus) {
  ::unsetenv(std::string(kUsersBindVariable).c_str());  // of an outer step
  const auto has = [&](std::string_view word) { return std::count(arguments.begin(), arguments.end(), word) != 0; };
  if (has("--interactive")) return;  // the shell of salloc
  const auto asked = asked_gpu_binding(environment, arguments);
  if (asked != GpuBind::kNone) {
    const auto value = asked == GpuBind::kNarrow ? kNarrowingBind : kClosestBind;
    ::setenv(std::string(kUsersBindVariable).c_str(), std::string(value).c_str(), 1);
  }
  // A component that asked does not speak for the others, and its own word is stronger than the default.
  if ((asked == GpuBind::kNone || has(":")) && expects_gpus && implies_gpu_binding(environment, arguments)) {
    const auto binding = gpu_bind_default_of(spank);
    set_default(binding.variable, binding.value, binding.is_flag);
  }
}

}  // namespace

void unset_outer_defaults() {
  forget_outer_failure_receiver();
  const auto environment = Environment::from_entries(environ);
  const auto value = environment.get(kTasksPerNodeVariable);
  if (!value || !Leftovers(environment).is_ours(kTasksPerNodeVariable, *value)) return;
  ::unsetenv(std::string(kTasksPerNodeVariable).c_str());
}

void set_launch_defaults(spank_t spank, const Settings& site) {
  const auto environment = Environment::from_entries(environ);
  const auto arguments = own_command_line();
  auto settings = site;
  if (!apply_environment(settings, environment)) return;  // the option parser will say what is wrong
  is_expected = expects_to_apply(environment, arguments, settings);
  is_for_the_job = leaves_it_to_the_job(environment, arguments, settings);
  settings = with_arguments(arguments, settings);
  if (may_apply(environment, settings) && settings.gpu.value != GpuMode::kOff) {
    set_gpu_defaults(spank, environment, arguments, is_expected);
  }
  components_to_parse = 1 + std::count(arguments.begin(), arguments.end(), ":");
  // srun runs local_user_init once for all components, but copies the environment of the others before it. A variable
  // that --export names is looked up after it, so that the layout reaches them, too.
  if (expects_components(arguments) && !environment.has("SLURM_EXPORT_ENV") && !environment.has(kExportVariable)) {
    ::setenv(std::string(kExportVariable).c_str(), std::string(kExportValue).c_str(), 0);
  }
}

void end_of_options() {
  // srun parses one component after the other, each with the environment of that moment.
  if (--components_to_parse <= 0) unset_launch_defaults();
}

namespace {

// The address of MASTER_ADDR, for nodes that choose an interface by their routes. Here, since this runs as the user, in
// a command that has looked up the names of all nodes already; a loopback address is a name's own host's alone.
std::string master_ip(const Settings& settings, const std::vector<ComponentText>& components) {
  using Kind = InterfaceChoice::Kind;
  const auto kind = settings.interface.value.kind;
  if (!is_expected || (kind != Kind::kGloo && kind != Kind::kAuto) || components.front().node_of_rank.empty())
    return {};
  std::size_t nodes = 0;
  for (const auto& component : components) nodes += component.tasks_per_node.size();
  const auto hosts = HostList::parse(components.front().nodes);
  if (nodes < 2 || !hosts) return {};
  return look_up(fabric_address(settings, hosts->at(components.front().node_of_rank.front())));
}

void receive_failures(const Settings& settings, std::string_view program, const StepId& id,
                      const std::vector<ComponentText>& components) {
  FailurePolicy policy;
  policy.id = id;
  for (const auto& component : components) {
    policy.tasks += static_cast<std::uint32_t>(component.node_of_rank.size());
    const auto is_known = std::find(policy.jobs.begin(), policy.jobs.end(), component.job) != policy.jobs.end();
    if (!is_known) policy.jobs.push_back(component.job);
  }
  constexpr std::uint32_t kGrace = 30;
  const char* const grace = std::getenv("SLURM_BOOTSTRAP_GRACE");
  policy.is_asked = settings.mode.value == Mode::kOn;
  if (grace == nullptr) policy.grace = kGrace;
  if (grace != nullptr) policy.grace = number_variable("SLURM_BOOTSTRAP_GRACE");
  policy.reports_for_itself = reports_for_itself(program);
  start_failure_receiver(policy);
}

}  // namespace

int end_of_step() {
  if (current_context() == Context::kSrun) {
    end_failure_receiver();
    return kAccepted;
  }
  return Session::current().end();
}

int hand_over_layout(spank_t spank) {
  if (current_context() != Context::kSrun) return kAccepted;
  unset_launch_defaults();  // a ":" among the program's arguments was taken for a component
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
  if (components.size() > 1 && is_for_the_job) is_expected = has_gpus(components);
  const auto address = settings ? master_ip(*settings, components) : std::string();
  const auto text =
      write_layout(leader, *step, components, {.master_ip = address, .is_expected = is_expected, .with_nodes = false});
  if (!text) {
    log_error(cat({"bootstrap: ", text.error().message}));
    return kAccepted;
  }
  ::setenv(std::string(kLayoutVariable).c_str(), text->c_str(), 1);
  if (is_expected && settings)
    receive_failures(*settings, job_program(spank), {.job = leader, .step = *step}, components);
  return kAccepted;
}

}  // namespace bootstrap

// In the forked child that becomes the task: applies a plan, or ends the task with a reason.
// SPDX-License-Identifier: Apache-2.0
#include "apply.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "core/text.h"

namespace bootstrap {
namespace {

constexpr int kTravelTimeOfASentence = 300;  // milliseconds; 10 to 50 are usual

}  // namespace

Status apply(spank_t spank, const Plan& plan, std::uint32_t local_task, Rank rank) {
  // The last word on who this task is has Slurm, just before the program starts.
  const auto named = task_variable(spank, "SLURM_PROCID");
  const auto expected = std::to_string(rank);
  if (!named || *named != expected) {
    return fail(ErrorCode::kDisagreement,
                cat({"task ", expected, " of the plan is SLURM_PROCID=", named.value_or("(not set)"),
                     "; please report this, and start the step with --bootstrap=off meanwhile"}));
  }
  for (const auto& name : plan.removals) unset_task_variable(spank, name);
  for (const auto& variable : plan.variables) {
    if (variable.action == Action::kKept) continue;
    auto set = set_task_variable(spank, variable.name, variable.value(local_task));
    if (!set) return set;
  }
  return {};
}

void print_to_task(const std::string& text) noexcept {
  for (std::size_t written = 0; written < text.size();) {
    const auto count = ::write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    written += static_cast<std::size_t>(count);
  }
}

int end_task() noexcept {
  // srun ends the step on the first exit status that is not 0, and drops what the tasks wrote and it has not read by
  // then: the sentence of the one that speaks. So all of them wait for it to arrive. This is the child that was to
  // become the program; nothing else waits for it.
  (void)::poll(nullptr, 0, kTravelTimeOfASentence);
  // To return -1 would do this only for a plugin that plugstack.conf calls `required`; for an `optional` one Slurm
  // drops the -1 and starts the program. Slurm itself ends the child this way when a required plugin fails.
  ::_exit(1);
}

std::string explain_refused_port(const std::string& reason, const std::string& host, const Settings& settings) {
  const bool is_chosen = settings.port.value != 0;
  return cat({"MASTER_PORT on ", host, ": ", reason,
              is_chosen ? "; choose another one with --bootstrap-port, or leave the choice to us"
                        : "; start the step again, or choose a port with --bootstrap-port"});
}

}  // namespace bootstrap

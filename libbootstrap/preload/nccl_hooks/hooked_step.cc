// The step as the interposed calls see it: who this process is in it, and what the user wants of them.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hooked_step.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "core/plan/plan_from_environment.h"
#include "core/step/message_prefix.h"
#include "core/util/text.h"
#include "preload/active_copy.h"
#include "preload/rank_detection.h"
#include "preload/stderr_message.h"
#include "probe/mpirun_context.h"
#include "probe/read_environment.h"

namespace bootstrap {
namespace {

// What the plugin or our constructor have set is not there when they did not apply to this step.
bool is_rank(const TaskPlan& task, const Environment& environment) {
  const auto& layout = task.facts.layout;
  return task.is_set && environment.get("RANK") == std::to_string(task.facts.local_ranks.front()) &&
         environment.get("WORLD_SIZE") == std::to_string(layout.size());
}

const HookedStep* read_step() {
  if (detect_rank(environ, ::getpid()).role != Role::kInside || !is_active_copy()) return nullptr;
  auto environment = process_environment();
  auto task = read_task_plan(environment, read_mpirun_context(environment));
  if (!task || !is_rank(*task, environment)) return nullptr;
  auto options = read_preload_options(environment);
  auto gpus = gpu_ownership(*task);
  const auto* const step = new HookedStep{.id = task->facts.id,
                                          .layout = std::move(task->facts.layout),
                                          .rank = task->facts.local_ranks.front(),
                                          .environment = std::move(environment),
                                          .options = std::move(options),
                                          .gpus = std::move(gpus)};
  if (step->rank == 0) {
    for (const auto& complaint : step->options.complaints) step->warn(complaint);
  }
  return step;
}

}  // namespace

void HookedStep::warn(std::string_view sentence) const noexcept {
  try {
    say(cat({kWarningPrefix, about_step(id), sentence}));
  } catch (const std::exception&) {
    say(sentence);
  }
}

const HookedStep* this_step() noexcept {
  static const HookedStep* const step = []() noexcept -> const HookedStep* {
    try {
      return read_step();
    } catch (const std::exception&) {
      return nullptr;  // without memory NCCL will say so itself
    }
  }();
  return step;
}

}  // namespace bootstrap

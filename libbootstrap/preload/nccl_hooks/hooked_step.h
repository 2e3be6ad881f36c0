// The step as the interposed calls see it: who this process is in it, and what the user wants of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "preload/nccl_hooks/gpu_ownership.h"
#include "preload/preload_options.h"

namespace bootstrap {

struct HookedStep {
  StepId id;
  Layout layout;
  Rank rank = 0;
  Environment environment;
  PreloadOptions options;
  std::optional<GpuOwnership> gpus;

  void warn(std::string_view sentence) const noexcept;  // "bootstrap: warning: StepId=12.0: SENTENCE"
};

// Null in a process that is not itself a rank of a step: a worker of a launcher that numbers ranks anew (torchrun), a
// step in which nothing is set. Found out at the first call and kept for the life of the process.
const HookedStep* this_step() noexcept;

}  // namespace bootstrap

// Before srun has read its command line: will this step be one that is set up?
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/environment.h"
#include "core/settings.h"

namespace bootstrap {

// True when the settings, srun's input variables or its arguments ask for GPUs or for the plugin by name. Decides
// srun's defaults for --kill-on-bad-exit and --gpu-bind, which srun reads before any hook that knows more, so it is
// right wherever that can be told from the words: a wrong yes would end the other tasks of a step that is none of our
// business, a wrong no would leave tasks waiting for one that was refused.
bool expects_to_apply(const Environment& environment, std::span<const std::string> arguments, const Settings& settings);

// True when these words say nothing of GPUs, so that it depends on those of the job, which srun learns of too late for
// its defaults.
bool leaves_it_to_the_job(const Environment& environment, std::span<const std::string> arguments,
                          const Settings& settings);

// The settings with the options of ours that are among srun's arguments.
Settings with_arguments(std::span<const std::string> arguments, const Settings& settings);

// Whether Slurm would bind each task to GPUs of its own, which hides the others from it, without being asked to:
// --gpus-per-task and its kin imply it.
bool implies_gpu_binding(const Environment& environment, std::span<const std::string> arguments);

// What the user asked for with --gpu-bind and its kin: kNone also for the word none.
enum class GpuBind : std::uint8_t { kNone, kClosest, kNarrow };
GpuBind asked_gpu_binding(const Environment& environment, std::span<const std::string> arguments);

// A step of several components: "srun ... : ..." or --het-group.
bool expects_components(std::span<const std::string> arguments);

}  // namespace bootstrap

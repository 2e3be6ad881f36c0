// Reads srun's own options from its command line: before srun parses them, and for what srun's hooks do not provide.
// srun takes the default of --gpu-bind from a variable before it parses its options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/settings/settings.h"
#include "core/util/environment.h"

namespace bootstrap {

// All of these take srun's command line without its first word. The options end at the first word that is no option.

// True if one of our options asks for the step to be set up.
bool asks_for_itself(std::span<const std::string> arguments);

// Returns the settings with our options among srun's arguments applied.
Settings with_arguments(std::span<const std::string> arguments, const Settings& settings);

// True if Slurm binds each task to GPUs of its own, which hides the others from it, although the user did not ask for
// that: --gpus-per-task and similar options imply it.
bool implies_gpu_binding(const Environment& environment, std::span<const std::string> arguments);

// What the user asked for with --gpu-bind and similar options: kNone also for the word none. With kNarrow a task gets
// some of the GPUs; with kClosest that depends on its cores. srun sends it to the nodes as a record. Tasks do not see
// it.
enum class GpuBind : std::uint8_t { kNone, kClosest, kNarrow, kLast = kNarrow };
struct UsersBind {
  GpuBind kind = GpuBind::kNone;
  std::string option;  // for messages: "--gpu-bind"
};
inline auto fields_of(UsersBind& bind) { return std::tie(bind.kind, bind.option); }
UsersBind asked_gpu_binding(const Environment& environment, std::span<const std::string> arguments);

// The user's own binding of tasks to cores, where `slurm-bootstrap near` is in the line: "--cpu-bind=cores". Empty:
// there is none. A task cannot tell it from a binding that Slurm chose.
std::string binding_to_keep(const Environment& environment, std::span<const std::string> arguments);

// The program and its arguments: what follows srun's options and their values.
std::span<const std::string> program_words(std::span<const std::string> arguments);

// True for --async: srun ends once slurmctld has the step (Slurm 26.05).
bool is_async(std::span<const std::string> arguments);

// What the line and the variables of a job ask for. Slurm may give a step another size.
struct RequestedStep {
  std::uint32_t job = 0;  // 0: none
  std::uint32_t tasks = 1;
  std::uint32_t nodes = 1;
};
RequestedStep requested_step(const Environment& environment, std::span<const std::string> arguments);

// The list of --nodelist; empty: there is none.
std::string requested_nodes(std::span<const std::string> arguments);

// True if a step of a job that asks for all its steps may be left alone: a word is the name of a launcher or of its
// module, or asks for a terminal; tasks share GPUs; or submitit starts them. `launchers`: the site's own, separated by
// commas.
bool may_be_no_world(const Environment& environment, std::span<const std::string> arguments,
                     std::string_view launchers = {});

// True if the step may have several components: "srun ... : ..." or --het-group, also in its short forms.
bool expects_components(std::span<const std::string> arguments);

// The same, but false for --het-group with a single number: a step of one component is like any other.
bool has_several_components(std::span<const std::string> arguments);

}  // namespace bootstrap

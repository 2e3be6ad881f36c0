// What srun decided for a step, as it hands it to the nodes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/settings/variables.h"
#include "core/step/step_id.h"

namespace bootstrap {

// Who asked for a step to be set up.
enum class Asked : std::uint8_t {
  kUnasked,   // no option or variable
  kWeakly,    // an option of the job (#SBATCH --bootstrap=on) or SLURM_BOOTSTRAP=on: all steps of it that can be
  kStrongly,  // an option on the step's own srun line: refused with a sentence where it cannot be
};

// What the tasks get.
enum class SetUp : std::uint8_t {
  kNothing,      // where the step asked strongly: it is refused
  kTorchrun,     // PET_* for one world of all nodes, and nothing else
  kWorld,        // the ranks, where they meet, and little more
  kAllSettings,  // all that the settings name: the step was asked for
};

// From srun to the nodes, in SLURM_BOOTSTRAP_DECISION.
struct Decision {
  SetUp set_up = SetUp::kNothing;
  Asked asked = Asked::kUnasked;
  bool is_verbose = false;      // srun -v: the nodes print what they decide
  bool is_observed = false;     // when=observe: nothing is set up; `reason` is what `world` would do
  std::uint64_t salt = 0;       // random: no other user can compute the step's ports; 0: there is none
  std::string unusable_master;  // the user's MASTER_ADDR, where srun could not resolve it
  std::string reason;           // for people, short: "bash is a shell"

  bool operator==(const Decision&) const = default;
};

// "SET UP: a GPU for each task; use ..." or "NOT SET UP: ...": as srun -v, --bootstrap=explain and the command print
// it. `hint` names the option that reverses it, or is empty.
std::string verdict(const Decision& decision, std::string_view hint);

// Of a step that is set up without being asked for: how its user switches that off. Empty: it was asked for.
std::string_view hint_of(const Decision& decision);

// "set_up:world": in front of SLURM_BOOTSTRAP_SETTINGS, where it is not kAllSettings.
std::string write_set_up(SetUp set_up);
SetUp read_set_up(std::string_view settings);

// The same of a task that the preload set up: no plugin has done anything for its step.
inline constexpr std::string_view kSetByPreload = "set_by:preload";

std::string write_decision(const StepId& id, const Decision& decision);

// Whether a decision, of whichever step, is for one that asked strongly.
bool asks_strongly(std::string_view decision);

// Nothing where the text is for another step, or of another version of this plugin.
std::optional<Decision> read_decision(std::string_view text, const StepId& id);

}  // namespace bootstrap

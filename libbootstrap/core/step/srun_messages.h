// What srun hands to the nodes, each as one line of text: its decision, and the layout of ranks, which srun knows for
// every distribution.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings/variables.h"
#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/result.h"

namespace bootstrap {

// Who asked for a step to be set up.
enum class Asked : std::uint8_t {
  kUnasked,   // no option or variable
  kWeakly,    // an option of the job (#SBATCH --bootstrap=on) or SLURM_BOOTSTRAP=on: all steps of it that can be
  kStrongly,  // an option on the step's own srun line: refused with a sentence where it cannot be
  kLast = kStrongly,
};

// What the tasks get.
enum class SetUp : std::uint8_t {
  kNothing,      // where the step asked strongly: it is refused
  kTorchrun,     // PET_* for one world of all nodes, and nothing else
  kWorld,        // the ranks, where they meet, and little more
  kAllSettings,  // all that the settings name: the step was asked for
  kLast = kAllSettings,
};

// From srun to the nodes, in SLURM_BOOTSTRAP_DECISION.
struct Decision {
  SetUp set_up = SetUp::kNothing;
  Asked asked = Asked::kUnasked;
  bool is_verbose = false;                 // srun -v: the nodes print what they decide
  bool is_observed = false;                // when=observe: nothing is set up; `reason` is what `world` would do
  std::uint64_t salt = 0;                  // random: no other user can compute the step's ports; 0: there is none
  std::string unusable_master;             // the user's MASTER_ADDR, where srun could not resolve it
  std::vector<std::string> endpoint = {};  // see write_endpoint()
  std::string reason;                      // for people, short: "bash is a shell"

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

// Whether a decision of any version is for a step that asked strongly. `step`: of this step alone; empty: of any.
bool asks_strongly(std::string_view decision, std::string_view step = {});

// Nothing where the text is for another step, or of another version of this plugin.
std::optional<Decision> read_decision(std::string_view text, const StepId& id);

inline constexpr std::size_t kMaxLayoutText = 60000;  // below Environment::kMaxValue

// Tasks of one component as srun reports them.
struct ComponentText {
  std::uint32_t job = 0;                      // each component of a heterogeneous job has a job id of its own
  std::string nodes;                          // host list as Slurm wrote it
  std::vector<std::uint32_t> tasks_per_node;  // in the order of `nodes`
  std::vector<NodeIndex> node_of_rank;
};

// Where the ranks meet, as srun found it out. Each is empty where it is not known or not needed.
struct MeetingAddresses {
  std::string ours;     // the address of the MASTER_ADDR that we choose
  std::string users;    // that of the user's
  std::string of_node;  // NodeAddr of the node of rank 0, where it is used in place of the name

  bool operator==(const MeetingAddresses&) const = default;
};

// "12.0/block", "12.0/cyclic", "12.0/plane:2", "12.0/map:2,0x3,1" (node of rank 0, of ranks 1 to 3, of rank 4); the
// node list and the counts are SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.
// For several components "43.0/43;n[1-2];2x2;block/44;n3;1;block": each carries its job id, nodes and counts, since
// Slurm's variables hold only the sorted union. Behind "@" stands what srun found of addresses, if it did,
// as in "@10.0.0.1,10.1.0.1,10.0.0.1": nodes ask no name server.
Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components,
                                 const MeetingAddresses& meeting = {});

struct LayoutText {
  std::uint32_t job = 0;
  std::uint32_t step = 0;
  std::vector<LayoutComponent> components;
  std::vector<std::uint32_t> component_jobs;  // parallel to `components`; empty for a single one
  MeetingAddresses meeting;
};

// `nodes` and `tasks_per_node` stand in where the text leaves them out. Refuses what is larger than `max_ranks`,
// kMaxNodes or kMaxComponents before it makes anything of it.
Result<LayoutText> read_layout(std::string_view text, std::vector<std::string> nodes,
                               std::vector<std::uint32_t> tasks_per_node, std::size_t max_ranks = kMaxRanks);

// Which step a layout text is for, without reading the rest: a text that an outer step left behind is passed over.
bool layout_is_for(std::string_view text, std::uint32_t job, std::uint32_t step);

}  // namespace bootstrap

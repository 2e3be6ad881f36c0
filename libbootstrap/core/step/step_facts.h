// The facts about a step: what srun decided and hands to the nodes, and which rank runs where.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hardware/gpu_list.h"
#include "core/hardware/network.h"
#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Who asked for a step to be set up.
enum class Asked : std::uint8_t {
  kUnasked,  // no option or variable
  kWeakly,   // an option of the job (#SBATCH --bootstrap=on) or SLURM_BOOTSTRAP=on: all of its steps that can be set up
  kStrongly,  // an option on the step's own srun line: the step is refused if it cannot be set up
  kLast = kStrongly,
};

// What the tasks get.
enum class SetUp : std::uint8_t {
  kNothing,      // a step that asked strongly is refused
  kTorchrun,     // PET_* for one world of all nodes, and nothing else
  kWorld,        // the ranks, where they meet, and little more
  kAllSettings,  // all that the settings name: the step asked
  kLast = kAllSettings,
};

// srun sends it to the nodes in SLURM_BOOTSTRAP_DECISION.
struct Decision {
  SetUp set_up = SetUp::kNothing;
  Asked asked = Asked::kUnasked;
  bool is_verbose = false;                 // srun -v: the nodes print what they decide
  bool is_observed = false;                // when=observe: nothing is set up; `reason` is what `world` would do
  std::uint64_t salt = 0;                  // random: no other user can compute the step's ports; 0: there is none
  std::string unusable_master;             // the user's MASTER_ADDR, if srun found no usable address of it
  std::vector<std::string> endpoint = {};  // see write_endpoint()
  std::string reason;                      // for people, short: "bash is a shell"

  bool operator==(const Decision&) const = default;
};

// "SET UP: a GPU for each task; use ..." or "NOT SET UP: ...": as srun -v, --bootstrap=explain and the command print
// it. `hint` names the option that reverses it, or is empty.
std::string verdict(const Decision& decision, std::string_view hint);

// For a step that is set up unasked: how the user switches that off. Empty: the step asked, or is not set up.
std::string_view hint_of(const Decision& decision);

// "set_up:world": in front of SLURM_BOOTSTRAP_SETTINGS, if it is not kAllSettings.
std::string write_set_up(SetUp set_up);
SetUp read_set_up(std::string_view settings);

// Also in SLURM_BOOTSTRAP_SETTINGS: the preload set up this task, and no plugin did anything for its step.
inline constexpr std::string_view kSetByPreload = "set_by:preload";

std::string write_decision(const StepId& id, const Decision& decision);

// True if a decision, of any version, is for a step that asked strongly. `step`: for this step alone; empty: for any.
bool asks_strongly(std::string_view decision, std::string_view step = {});

// Returns nullopt if the text is for another step, or from another version of the plugin.
std::optional<Decision> read_decision(std::string_view text, const StepId& id);

// The source of the rank order, the most reliable one first.
enum class LayoutSource : std::uint8_t {
  kStepLayout,    // srun asked slurmctld: exact for every distribution
  kDistribution,  // computed from SLURM_DISTRIBUTION
  kMpirun,        // mpirun started the ranks: exact on one node
};

// The tasks of this node, from slurmstepd or from one of the tasks.
struct LocalTasks {
  std::string host;                            // NodeName of this node; empty when not known
  std::vector<Rank> ranks;                     // in order of local task id
  std::optional<std::uint32_t> local_id;       // SLURM_LOCALID of the only rank in `ranks`, in a task itself
  std::optional<std::uint32_t> component_job;  // set: `ranks` count from 0 within the component with this job id
  std::optional<std::size_t> component_size;   // tasks of the component; of a plain step, all tasks
};

// The facts that a rank of mpirun does not find in its environment. Slurm's ranks do not need them.
struct MpirunContext {
  std::string host;      // name of this node
  std::size_t gpus = 0;  // NVIDIA's on this node that this process may open
};

struct StepFacts {
  StepId id;
  // The decision of srun, or of a process that sets itself up.
  Decision decision{.set_up = SetUp::kAllSettings, .asked = Asked::kStrongly, .unusable_master = {}, .reason = {}};
  Layout layout;
  std::string first_listed_host;  // of SLURM_STEP_NODELIST; empty: mpirun started the ranks
  LayoutSource layout_source = LayoutSource::kDistribution;
  bool knows_hosts = true;          // false: mpirun on several nodes; only this rank's place on its own node is right
  std::vector<Rank> ranks_here;     // ranks that this process starts, or its own rank, in order of local task id
  bool is_one_task = false;         // a task's facts about itself; GPUs may be assigned already
  bool is_preloaded = false;        // the preload sets this task up, or has, and no plugin did
  bool has_gpus = false;            // Slurm gave GPUs to this step
  std::optional<GpuList> gpu_list;  // to assign on this node; nullopt: no GPUs, or unknown ones
  // Ports that Slurm reserved for this step, in its order, without those that Cray's PMI uses. Empty: the first entry
  // is no port that a user's program may listen on. nullopt: Slurm reserved none, or Cray's PMI uses all.
  std::optional<std::vector<std::uint16_t>> reserved_ports;
  Environment environment;                // of the job
  std::vector<Gpu> gpus_of_node;          // in PCI order; empty when not known
  std::vector<std::string> device_files;  // of this node's GPUs of the list's vendor; empty when not known
  MeetingAddresses meeting;
  bool is_users_master_elsewhere = false;  // meeting.users is no address of this node, which has rank 0
  std::vector<Route> routes;               // of this node, if an interface is to be chosen
  std::vector<std::string> interfaces;     // of this node but the loopback, if the user names some; else empty
  std::vector<RdmaPort> rdma;              // of this node, for UCX
  std::string slurm;                       // its item of SLURM_BOOTSTRAP_SETTINGS; empty: not known
  std::uint32_t cores_of_node = 0;         // that the step has on this node; 0: not known
  std::string_view gpu_bind_option = "--gpu-bind=none";  // srun's option that stops Slurm from hiding GPUs
};

// True if Slurm gave GPUs to the step of this environment. Slurm sets or removes this variable for every step, so it is
// never a leftover of an outer one.
bool has_gpus(const Environment& environment);

// Identity from SLURM_JOB_ID, SLURM_STEP_ID and SLURM_RESTART_COUNT.
Result<StepId> read_step_id(const Environment& environment);

// As in StepFacts::reserved_ports.
std::optional<std::vector<std::uint16_t>> read_reserved_ports(const Environment& environment);

// Fails if the sources disagree: a task that is not where the layout puts it, a size that is not the sum of its parts.
// The step's true number of tasks and nodes bounds the cost, whatever the environment has.
Result<StepFacts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local);

// The facts as one task sees them in its own environment (SLURM_PROCID and the rest, or OMPI_COMM_WORLD_RANK and the
// rest): for the library and the command.
Result<StepFacts> read_task_facts(const Environment& environment, const MpirunContext& around = {});

// True for a job of Open MPI or PRRTE. Slurm's own PMIx server has name spaces that start with "slurm.pmix.".
bool is_mpirun_name_space(std::string_view name_space) noexcept;

// "795672577" is [12141,1] in Open MPI's messages, 12141.1 in ours. Other names ("prterun-node001-17@1") are hashed.
StepId mpirun_id(std::string_view name_space) noexcept;

// True if OMPI_COMM_WORLD_RANK and PMIX_NAMESPACE show that mpirun started the ranks. SLURM_PROCID may be there as
// well: of the step in which mpirun started its daemon, or of the batch script.
bool is_mpirun_rank(const Environment& environment);

// Variables of another launcher's ranks: leftovers if srun started the step inside one of them.
std::vector<std::string> stale_mpirun_names(const Environment& environment);

// On several nodes only the rank's own place on its node is right in the layout (StepFacts::knows_hosts is false).
Result<StepFacts> read_mpirun_facts(const Environment& environment, const MpirunContext& around);

}  // namespace bootstrap

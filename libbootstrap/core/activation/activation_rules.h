// Which steps are set up, and why. srun applies the rules once for each step, and the nodes follow its decision.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"
#include "core/settings/settings.h"
#include "core/step/step_facts.h"

namespace bootstrap {

// A step's request for GPUs, as slurmctld keeps it. slurmctld copies the job's request into a step that has none. Slurm
// writes "gres:gpu:2" up to 23.02 and "gres/gpu:2" since 23.11.
struct TresRequest {
  std::string per_node = {};
  std::string per_step = {};
  std::string per_socket = {};
  std::string per_task = {};
  std::string bind = {};
  // The GPUs of each node of the job, from slurmctld's detailed record of the job: "gpu:a100:4(IDX:0-3)". Empty:
  // srun did not ask for it.
  std::vector<std::string> job_nodes = {};
};

struct GpuRequest {
  // GPUs of each node of the step. nullopt: the request has no number for each node; `reason` explains.
  std::optional<std::uint32_t> per_node;
  bool has_gpus = false;  // the step asked for GPUs, or parts of GPUs, in any way
  std::string reason;     // why the tasks of a node cannot have one GPU each; short, for people; empty: they can
  std::string_view hint;  // the request that gives each task one, for people; empty: there is none
};

// True if only the job's record has the number of GPUs of each node, because the step's own is for all nodes together.
bool needs_job_nodes(const TresRequest& request, std::uint32_t nodes);

// `nodes`: of the step. A number of GPUs for the whole step gives a number for each node only on one node, or if the
// step has all nodes and GPUs of its job and each node has the same number.
GpuRequest read_gpu_request(const TresRequest& request, std::uint32_t nodes);

// The facts about a step that srun has without asking slurmctld.
struct SrunFacts {
  std::uint32_t tasks = 1;
  std::uint32_t nodes = 1;
  bool has_terminal = false;                       // --pty
  bool has_components = false;                     // a heterogeneous step
  bool has_own_export = false;                     // an --export that drops the variables of srun's decision
  bool is_verbose = false;                         // srun -v
  bool is_explained = false;                       // the reason is printed or logged
  bool is_submitit = false;                        // submitit starts it
  std::string partition;                           // empty: not known
  std::uint32_t gpus_of_job = 0;                   // on the node of its batch script; 0: none, or not known
  std::vector<std::uint32_t> tasks_per_node = {};  // in the order of Slurm's node list; empty: not known
  std::uint32_t plane = 0;                         // of --distribution=plane=N
  Program program;
};

// The facts that slurmctld provides.
struct SlurmctldAnswers {
  TresRequest request;
  std::string partition;
  std::vector<std::uint32_t> tasks_per_node;
};

// The outcome of the rules. `hint` names the option that reverses it, or is empty.
struct Activation {
  Decision decision;
  std::string hint;
  bool needs_warning = false;  // nothing is set up, and the user may expect otherwise
  std::string line() const;    // "NOT SET UP: bash is a shell: ..." or "SET UP: ..."
};

// What the user asked for: srun's line wins over the job's option, and the job's option over SLURM_BOOTSTRAP.
struct UserChoice {
  Asked asked = Asked::kUnasked;
  bool is_off = false;
  std::string wrong = {};  // why SLURM_BOOTSTRAP has a wrong value, such as 0, which counts as off; else empty
  std::string origin;      // "--bootstrap=off", for people
};

// False if no rule looks at `step.program`.
bool needs_program(const UserChoice& choice, const Settings& settings, const SrunFacts& step);

// Applies the rules that need no call of slurmctld. Returns nullopt if slurmctld's answers decide.
std::optional<Activation> decide_without_calls(const UserChoice& choice, const Settings& settings,
                                               const SrunFacts& step);

// Applies all rules.
Activation decide_activation(const UserChoice& choice, const Settings& settings, const SrunFacts& step,
                             const SlurmctldAnswers& answers);

// For a step that cannot be set up: it is refused if it asks on its own line, and left alone if its job asked.
Activation refuse_or_leave_alone(const UserChoice& choice, const std::string& why, std::string_view hint);

// The line for a world, or a torchrun, that the user did not ask for: its size, its nodes, and how to switch it off.
// `hosts` is Slurm's list.
std::string announcement(const Decision& decision, std::uint32_t tasks, std::string_view hosts, std::string_view first);

// One sentence for each thing that the program does with the variables of a step that is set up, and that the user may
// not expect.
std::vector<std::string> program_warnings(const Decision& decision, const SrunFacts& step);

// Decides if slurmctld did not answer in time.
Activation decide_without_answers(const UserChoice& choice, const std::string& why);

// Decides if no address of rank 0 is known.
Activation decide_without_address(const UserChoice& choice, const std::string& why);

}  // namespace bootstrap

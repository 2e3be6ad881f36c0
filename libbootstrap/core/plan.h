// The decision of the whole project: facts and settings in, what each task of this node gets out. No I/O.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/facts.h"
#include "core/gpu_plan.h"
#include "core/rendezvous.h"
#include "core/result.h"
#include "core/settings.h"
#include "core/variables.h"

namespace bootstrap {

struct Scope {
  bool applies = false;
  std::string why;  // for people: "the step was given GPUs (when=gpu)"
};

struct Plan {
  std::vector<PlannedVariable> variables;
  FrameworkFlags frameworks{};        // by Framework: whose variables are set in this step
  std::vector<std::string> removals;  // leftovers and messengers that the tasks must not see
  Rendezvous rendezvous;
  std::optional<std::uint16_t> port_to_claim;  // set on the node of rank 0 alone
  bool port_is_users = false;                  // MASTER_PORT was in the environment and is kept
  std::vector<std::uint16_t> worker_ports;     // of this node's tasks, to be claimed likewise (TensorFlow)
  std::optional<std::uint16_t> served_port;    // on the node of rank 0: where Horovod's ranks are to find our server
  bool is_serving_asked = false;               // by name; else it is one of the frameworks that might be meant
  std::optional<GpuPlan> gpus;                 // set where the tasks' GPUs are ours to deal out
  std::vector<std::string> warnings;           // one sentence each, for the user

  std::optional<std::size_t> find(std::string_view name) const;  // place in `variables`
  bool is_kept(std::string_view name) const;                     // the user's value stays
};

// `why` is short enough for "bootstrap: StepId=1234567.12: nothing is set: WHY" to fit in 80 columns.
// Whether anything is set at all. Needs only what the environment tells, so that a step in which nothing is to be done
// cannot fail.
// `program` is what the step starts, where that is known; `components` is what srun says of a step of several.
Scope decide_scope(const Environment& environment, const Settings& settings, std::string_view program = {},
                   std::optional<bool> components = {});

// For the above, from the environment of a step; see expectation_of_components().
std::optional<bool> word_of_srun(const Environment& environment, const StepId& id);

// Before the step is known: whether any step could be set up from this environment.
bool may_apply(const Environment& environment, const Settings& settings);

// For a step in which nothing is set: what must go so that it sees its environment as it would be without us.
std::vector<std::string> inert_removals(const Environment& environment);

Result<Plan> make_plan(const Facts& facts, const Settings& settings);

}  // namespace bootstrap

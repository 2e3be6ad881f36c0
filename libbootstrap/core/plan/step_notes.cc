// What people read about a plan beside its table: one line for each decision, and what a user may have missed.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/step_notes.h"

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string decision_line(const PlannedVariable& variable, std::string_view from) {
  const bool is_of_task = variable.of_place != nullptr || variable.values.size() > 1;
  const auto ours = is_of_task ? std::string("a value for each task") : printable(variable.value(0));
  const auto previous = printable(variable.previous);
  if (variable.action == Action::kKept) {
    return cat({variable.name, "=", previous, " is kept (", variable.why, ")"});
  }
  if (variable.action == Action::kReplaced) {
    return cat({variable.name, "=", previous, " is replaced by ", ours, " (", variable.why, ")"});
  }
  return cat({variable.name, "=", ours, " (", from, ")"});
}

enum class Meeting : std::uint8_t { kNone, kAddress, kPort };

// Where torchrun is the program, it alone knows them, by other names.
Meeting meeting_of(const StepPlan& plan, std::string_view name) {
  const bool is_torchruns = !plan.find("MASTER_ADDR");
  if (name == (is_torchruns ? "PET_MASTER_ADDR" : "MASTER_ADDR")) return Meeting::kAddress;
  if (name == (is_torchruns ? "PET_MASTER_PORT" : "MASTER_PORT")) return Meeting::kPort;
  return Meeting::kNone;
}

std::string note_unused_gpus(const StepFacts& facts, const StepPlan& plan) {
  if (!plan.gpus || plan.gpus->is_own_list || facts.decision.set_up == SetUp::kTorchrun) return {};
  const auto& place = facts.layout.place(facts.local_ranks.front());
  const auto gpus = plan.gpus->list.entries.size();
  if (gpus <= place.local_size) return {};
  return cat({facts.layout.hosts()[place.node], " has ", counted(place.local_size, "task"), " and ",
              counted(gpus, "GPU"), ": a program that uses one GPU for each task leaves ",
              std::to_string(gpus - place.local_size), " unused; use --ntasks-per-node=", std::to_string(gpus),
              " for a task for each GPU"});
}

}  // namespace

std::vector<std::string> decision_lines(const StepFacts& facts, const StepPlan& plan) {
  std::vector<std::string> lines;
  for (const auto& variable : plan.variables) {
    const auto meeting = meeting_of(plan, variable.name);
    if (meeting == Meeting::kNone && variable.action == Action::kSet) continue;
    const bool is_port = meeting == Meeting::kPort;
    const bool is_address = meeting == Meeting::kAddress;
    lines.push_back(decision_line(variable, is_port      ? plan.master.port_from
                                            : is_address ? plan.master.address_from
                                                         : variable.from));
    if (!is_port || !plan.port_to_reserve) continue;
    lines.back() +=
        facts.is_preloaded ? ", reserved while the first program of rank 0 runs" : ", reserved until the step ends";
  }
  for (const auto& note : step_notes(facts, plan)) lines.push_back(note);
  return lines;
}

std::vector<std::string> step_notes(const StepFacts& facts, const StepPlan& plan) {
  std::vector<std::string> notes;
  // mpirun has options of its own for both.
  if (facts.id.launcher == Launcher::kMpirun) return notes;
  for (auto& note : {note_spread(facts.layout), note_unused_gpus(facts, plan)}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

std::string note_far_gpu(const StepFacts& facts, Rank rank, const CpuSet& cores, const CpuSet& near) {
  if (cores.empty() || near.empty() || !(cores & near).empty()) return {};
  const bool is_world = facts.decision.set_up == SetUp::kWorld;
  return cat({"rank ", std::to_string(rank), " runs on cores ", cores.to_list(), ", and its GPU is near to cores ",
              near.to_list(),
              is_world ? "; use --bootstrap=on for GPUs near to the cores of their tasks"
                       : "; use --gres-flags=enforce-binding for cores near to the GPUs"});
}

}  // namespace bootstrap

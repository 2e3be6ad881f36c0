// The decision of the whole project: facts and settings in, what each task of this node gets out. No I/O.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan.h"

#include <algorithm>
#include <numeric>

#include "core/failure.h"
#include "core/frameworks.h"
#include "core/layout_text.h"
#include "core/mpi_facts.h"
#include "core/plan_gpus.h"
#include "core/planner.h"
#include "core/text.h"

namespace bootstrap {
namespace {

// Longer layouts have done their duty in slurmstepd and are not left in the tasks' environment.
constexpr std::size_t kMaxLayoutInTasks = 2048;

// Programs that take device 0, or that are shown no other, must not count GPUs by LOCAL_RANK: to them each task is a
// node of its own.
void add_lonely_ranks(Planner& planner, const Facts& facts) {
  const auto size = std::to_string(facts.layout.size());
  planner.common("LOCAL_RANK", "0", "each task's own GPU is its device 0");
  planner.common("LOCAL_WORLD_SIZE", "1", "as if each task had a node of its own");
  planner.by_place("NODE_RANK", &Place::rank, "likewise");
  planner.by_place("GROUP_RANK", &Place::rank, "likewise");
  planner.common("GROUP_WORLD_SIZE", size, "likewise");
}

void add_ranks(Planner& planner, const Facts& facts, bool is_alone) {
  const bool is_mpiruns = facts.id.launcher == Launcher::kMpirun;
  planner.by_place("RANK", &Place::rank, is_mpiruns ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID");
  planner.common("WORLD_SIZE", std::to_string(facts.layout.size()),
                 is_mpiruns ? "OMPI_COMM_WORLD_SIZE" : "SLURM_STEP_NUM_TASKS");
  if (is_alone) return add_lonely_ranks(planner, facts);
  planner.by_place("LOCAL_RANK", &Place::local_rank, "place among the tasks of the node");
  planner.by_place("LOCAL_WORLD_SIZE", &Place::local_size, "tasks on the node");
  planner.by_place("NODE_RANK", &Place::node_rank, "nodes in order of their lowest rank");
  planner.by_place("GROUP_RANK", &Place::node_rank, "NODE_RANK, as torchrun names it");
  planner.common("GROUP_WORLD_SIZE", std::to_string(facts.layout.node_count()),
                 is_mpiruns ? "hosts of mpirun's ranks" : "SLURM_STEP_NUM_NODES");
}

// What a rank of mpirun that has asked where the others are leaves for the processes that it starts.
void add_answers(Planner& planner, const Facts& facts) {
  auto layout = hand_on(facts);
  if (facts.layout_source != LayoutSource::kMpirun || facts.layout.node_count() < 2) return;
  if (!layout.empty()) planner.own(kHandedOnVariable, std::move(layout), "hosts of the ranks, told by mpirun");
}

void add_meeting(Planner& planner, const Rendezvous& rendezvous, const Settings& settings) {
  const bool port_is_asked = settings.port.source >= Source::kEnvironment && settings.port.value != 0;
  const bool address_is_asked = settings.address.source >= Source::kEnvironment;
  planner.common("MASTER_ADDR", rendezvous.address, rendezvous.address_from, address_is_asked);
  planner.common("MASTER_PORT", std::to_string(rendezvous.port), rendezvous.port_from, port_is_asked);
}

void add_gpus(Planner& planner, const GpuPlan& plan, const Facts& facts) {
  if (!plan.kind().order_variable.empty()) {
    // CUDA's own default is fastest first, which is neither Slurm's order nor the same on every node.
    planner.common(plan.kind().order_variable, "PCI_BUS_ID",
                   facts.id.launcher == Launcher::kMpirun ? "so that all nodes count GPUs alike"
                                                          : "Slurm counts GPUs in this order");
  }
  for (auto& variable : gpu_variables(plan, facts)) planner.own(std::move(variable));
}

// Whether `value`, kept for all tasks of the step, is what each of them should have.
bool fits_every_rank(const PlannedVariable& variable, const Layout& layout) {
  if (variable.of_place == nullptr) return variable.previous == variable.value(0);
  for (Rank rank = 0; rank < layout.size(); ++rank) {
    if (variable.previous != std::to_string(layout.place(rank).*variable.of_place)) return false;
  }
  return true;
}

// The user's word is kept, and it may be another than was meant: a RANK in the environment of srun reaches all tasks.
// Where the ranks meet is for the user to say; who they are and how many is not open to opinion.
std::string warn_of_kept(const Plan& plan, const Layout& layout, Launcher launcher) {
  std::string names;
  for (const auto& variable : plan.variables) {
    const bool is_port = variable.name == "MASTER_PORT" && parse_unsigned(variable.previous, 65535).value_or(0) > 0;
    if (variable.action != Action::kKept || variable.name == "MASTER_ADDR" || is_port ||
        variable.name == "CUDA_DEVICE_ORDER" || variable.framework || fits_every_rank(variable, layout)) {
      continue;
    }
    names += cat({names.empty() ? "" : ", ", variable.name, "=", quoted(variable.previous, 20)});
  }
  if (names.empty()) return {};
  const bool is_mpiruns = launcher == Launcher::kMpirun;
  const std::string_view start = is_mpiruns ? "mpirun" : "srun";
  return cat({names, " came with the environment of ", start,
              " and is kept for every task, though it is not right for ", "all of them; unset it before ", start,
              ", or say ", is_mpiruns ? "SLURM_BOOTSTRAP=off" : "--bootstrap=off", " if it is meant"});
}

std::string warn_of_mig(const Plan& plan, const Layout& layout, const Settings& settings) {
  const bool is_asked = settings.gpu.source >= Source::kEnvironment;
  if (!plan.gpus || !plan.gpus->list.has_mig || is_asked || layout.size() == layout.node_count()) return {};
  return "tasks of a node have MIG instances, one each, as CUDA allows no more; NCCL does not connect instances of one "
         "GPU and has no direct copies between any (use Gloo or MPI, or whole GPUs); --bootstrap-gpu=narrow says the "
         "same "
         "without this line";
}

// The port that the tasks will really use, if it is for us to hold: here, at our address, on the node of rank 0.
std::optional<std::uint16_t> claimed_port(const Plan& plan, const Facts& facts, const Settings& settings) {
  const auto& ranks = facts.local_ranks;
  if (!settings.claim.value || std::find(ranks.begin(), ranks.end(), Rank{0}) == ranks.end()) return std::nullopt;
  if (plan.is_kept("MASTER_ADDR")) return std::nullopt;  // the user's rendezvous, perhaps served already
  if (!plan.is_kept("MASTER_PORT")) return plan.rendezvous.port;
  const auto port = parse_unsigned(plan.variables[*plan.find("MASTER_PORT")].previous, 65535);
  if (!port || *port == 0) return std::nullopt;
  return static_cast<std::uint16_t>(*port);
}

void add_messengers(std::vector<std::string>& names, const Environment& environment) {
  if (environment.get(kExportVariable) == kExportValue) names.emplace_back(kExportVariable);
  for (const auto name : {kUsersBindVariable, kFailureVariable}) {
    if (environment.has(name)) names.emplace_back(name);
  }
}

// What is left of an outer step and not set anew for this one.
std::vector<std::string> removals(const Plan& plan, const Facts& facts) {
  std::vector<std::string> names;
  for (auto& name : Leftovers(facts.environment).unchanged(facts.environment)) {
    if (!plan.find(name)) names.push_back(std::move(name));
  }
  const auto layout = facts.environment.get(kLayoutVariable);
  if (layout && (layout->size() > kMaxLayoutInTasks || facts.layout_source != LayoutSource::kStepLayout)) {
    names.emplace_back(kLayoutVariable);
  }
  add_messengers(names, facts.environment);
  return names;
}

}  // namespace

std::optional<std::size_t> Plan::find(std::string_view name) const {
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (variables[i].name == name) return i;
  }
  return std::nullopt;
}

bool Plan::is_kept(std::string_view name) const {
  const auto at = find(name);
  return at && variables[*at].action == Action::kKept;
}

namespace {

// By the user, that is: a site that preloads the library into all steps has when= to say which ones those are.
bool is_asked_by_preload(const Settings& settings) {
  return settings.preload.value && settings.preload.source >= Source::kEnvironment;
}

// Components are set up together or not at all: else a part of the ranks would wait for the others.
Status check_components(const Facts& facts, const Settings& settings) {
  const bool is_asked = settings.mode.value == Mode::kOn || is_asked_by_preload(settings);
  if (is_asked || !facts.has_gpus || word_of_srun(facts.environment, facts.id) != false) return {};
  return fail(ErrorCode::kMisplaced,
              "srun expected GPUs in no component of this heterogeneous step, and this one has some, so that its ranks "
              "would wait for the others; start the step with --bootstrap=on or --bootstrap=off");
}

}  // namespace

Scope decide_scope(const Environment& environment, const Settings& settings, std::string_view program,
                   std::optional<bool> components) {
  if (settings.mode.value == Mode::kOff) return {false, "switched off by the mode off"};
  if (settings.mode.value == Mode::kOn) return {true, "asked for by the mode on"};
  if (environment.has("SUBMITIT_EXECUTOR")) {
    // submitit exports this in its job script and refuses to start when RANK is already set.
    return {false, "submitit sets its own ranks"};
  }
  // Its ranks would inherit what is set for the daemon that starts them: RANK=0 for all of a node.
  if (is_mpi_launcher(program)) return {false, "an MPI launcher numbers its ranks itself"};
  if (is_asked_by_preload(settings)) return {true, "asked for by preloading the library"};
  if (components == true) return {true, "srun sets up all components of the step"};
  const auto partition = environment.get("SLURM_JOB_PARTITION").value_or("");
  if (!has_partitions(settings, partition)) {
    return {false, "its partition is not among those of partitions= in plugstack.conf"};
  }
  switch (settings.when.value) {
    case When::kAlways:
      return {true, "the site sets up every step (when=always)"};
    case When::kAsked:
      return {false, "nobody asked for it (when=asked)"};
    case When::kGpu:
      break;
  }
  if (has_gpus(environment)) return {true, "Slurm gave GPUs to the step (when=gpu)"};
  return {false, "Slurm gave it no GPUs (when=gpu)"};
}

bool may_apply(const Environment& environment, const Settings& settings) {
  if (settings.mode.value != Mode::kAuto) return settings.mode.value == Mode::kOn;
  return (settings.when.value != When::kAsked || is_asked_by_preload(settings)) &&
         !environment.has("SUBMITIT_EXECUTOR");
}

std::optional<bool> word_of_srun(const Environment& environment, const StepId& id) {
  return expectation_of_components(environment.get(kLayoutVariable).value_or(""), id.job, id.step);
}

std::vector<std::string> inert_removals(const Environment& environment) {
  auto names = Leftovers(environment).unchanged(environment);
  if (environment.get(kLayoutVariable)) names.emplace_back(kLayoutVariable);
  add_messengers(names, environment);
  return names;
}

Result<Plan> make_plan(const Facts& facts, const Settings& settings) {
  const auto whole = check_components(facts, settings);
  if (!whole) return fail(whole.error());
  auto rendezvous = make_rendezvous(facts, settings);
  if (!rendezvous) return fail(rendezvous.error());
  auto gpus = plan_gpus(facts, settings);
  if (!gpus) return fail(gpus.error());
  Plan plan;
  plan.rendezvous = std::move(*rendezvous);
  plan.gpus = std::move(*gpus);

  Planner planner(facts);
  add_ranks(planner, facts, plan.gpus && plan.gpus->mode != GpuMode::kIndex);
  add_meeting(planner, plan.rendezvous, settings);
  if (plan.gpus) add_gpus(planner, *plan.gpus, facts);
  add_answers(planner, facts);
  plan.variables = std::move(planner).take();
  const auto added = add_frameworks(plan, facts, settings);
  if (!added) return fail(added.error());

  Planner marks(facts);
  const auto settings_text = write_settings(settings);
  if (!settings_text.empty()) marks.own(kSettingsVariable, settings_text, "settings that are not the default");
  marks.own(kStampVariable, stamp(facts.id), "job.step.restart: marks our values");
  for (auto& variable : std::move(marks).take()) plan.variables.push_back(std::move(variable));
  std::vector<std::size_t> tasks(facts.local_ranks.size());
  std::iota(tasks.begin(), tasks.end(), std::size_t{0});
  // Room for what a task finds out: in the forked child to move all of them would be to copy their memory.
  constexpr std::size_t kOfTasks = 4;
  plan.variables.reserve(plan.variables.size() + kOfTasks);
  renew_exports(plan.variables, tasks);
  plan.removals = removals(plan, facts);
  plan.port_to_claim = claimed_port(plan, facts, settings);
  plan.port_is_users = plan.is_kept("MASTER_PORT");
  for (auto& warning :
       {warn_of_kept(plan, facts.layout, facts.id.launcher), warn_of_mig(plan, facts.layout, settings)}) {
    if (!warning.empty()) plan.warnings.push_back(warning);
  }
  return plan;
}

}  // namespace bootstrap

// The facts about a step: what srun decided and hands to the nodes, and which rank runs where.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_facts.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/settings/settings.h"
#include "core/settings/variables.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// The first field of a decision: a node reads only decisions of its own version, and for its own step. In all versions
// the step is the second field and `asked` the fourth.
constexpr std::uint32_t kFormat = 5;
constexpr std::array<std::string_view, 4> kSetUps{"nothing", "torchrun", "world", "all"};  // by SetUp
constexpr std::string_view kSetUpPrefix = "set_up:";

struct DecisionRecord {
  std::uint32_t format = kFormat;
  std::string step;
  Decision decision;
};

auto fields_of(DecisionRecord& record) {
  auto& decision = record.decision;
  return std::tie(record.format, record.step, decision.set_up, decision.asked, decision.is_observed, decision.salt,
                  decision.unusable_master, decision.is_verbose, decision.endpoint, decision.reason);
}

// Slurm reserves a port for each task of a node, and a few more.
constexpr std::size_t kMostReservedPorts = 4096;

// "12000-12003,12007": up to the first entry that is no port or range.
std::vector<std::uint16_t> read_port_list(std::string_view text) {
  std::vector<std::uint16_t> ports;
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto low = parse_unsigned(item.substr(0, dash), kMaxPort);
    const auto high = dash == std::string_view::npos ? low : parse_unsigned(item.substr(dash + 1), kMaxPort);
    if (!low || *low < kMinPort || !high || *high < *low) break;
    for (auto port = *low; port <= *high && ports.size() < kMostReservedPorts; ++port) {
      ports.push_back(static_cast<std::uint16_t>(port));
    }
  }
  return ports;
}

// Fails with the first task that is not where the layout puts it.
Status check_places(const Layout& layout, const LocalTasks& local) {
  for (const auto rank : local.ranks) {
    if (rank >= layout.size()) {
      return fail(ErrorCode::kMisplaced, cat({"task ", std::to_string(rank), " runs on ", local.host,
                                              ", but the step has only ", std::to_string(layout.size()), " tasks"}));
    }
    if (!local.host.empty() && layout.host_of(rank) != local.host) {
      return fail(ErrorCode::kMisplaced, cat({"task ", std::to_string(rank), " runs on ", local.host,
                                              ", but the layout of the step places it on ", layout.host_of(rank)}));
    }
  }
  return {};
}

// Ranks within a component become ranks of the step. Components of a heterogeneous job differ in their job id, those of
// a heterogeneous step in a plain job only in where their tasks are.
Result<LocalTasks> in_step(const LocalTasks& local, const std::vector<LayoutComponent>& components,
                           const Layout& layout) {
  if (!local.component_job || components.front().job == 0) return local;
  Rank first = 0;
  for (const auto& component : components) {
    auto here = local;
    for (auto& rank : here.ranks) rank += first;
    first += static_cast<Rank>(component.node_of_rank.size());
    const bool fits = here.ranks.empty() || here.ranks.back() < first;
    if (component.job == *local.component_job && fits && check_places(layout, here)) return here;
  }
  return fail(ErrorCode::kMisplaced,
              cat({"the tasks of ", local.host, " are in none of the components that srun set in ", kLayoutVariable}));
}

// True if an order puts the known tasks in their places; makes no layout.
bool fits(const std::vector<NodeIndex>& order, const std::vector<std::string>& nodes, const LocalTasks& local) {
  for (const auto rank : local.ranks) {
    if (rank >= order.size() || (!local.host.empty() && nodes[order[rank]] != local.host)) return false;
  }
  if (!local.local_id) return true;
  const auto rank = local.ranks.front();
  return std::count(order.begin(), order.begin() + rank, order[rank]) == *local.local_id;
}

Status check_order_is_known(const Environment& environment, const StepId& id, const LocalTasks& local) {
  const auto step_size = environment.get("SLURM_STEP_NUM_TASKS").value_or("");
  if (local.component_size && step_size != std::to_string(*local.component_size)) {
    return fail(
        ErrorCode::kMissing,
        cat({"the host of rank 0 is not known: this is one component of a heterogeneous step, and srun did not set ",
             kLayoutVariable, "; load the plugin where srun runs, and use --export=", kExportValue}));
  }
  if (environment.get("SLURM_DISTRIBUTION").value_or("").starts_with("arbitrary")) {
    if (environment.get(kStepTagVariable) == step_tag(id)) {  // see kMaxLayoutInTasks
      return fail(
          ErrorCode::kLimit,
          "the order of ranks is arbitrary and too long for the environment of a task; the variables that the plugin "
          "set are correct");
    }
    return fail(ErrorCode::kMissing,
                cat({"the host of rank 0 is not known: the order of ranks is arbitrary, and srun did not set ",
                     kLayoutVariable, "; load the plugin where srun runs, and start the step without --async"}));
  }
  return {};
}

// Without srun's layout: in block, cyclic and plane order rank 0 is on the first node, and nodes are numbered in list
// order. Returns the one of these three orders that puts the known tasks in their places; guesses no other.
Result<Layout> deal(const Environment& environment, LayoutComponent step, const LocalTasks& local) {
  const auto distribution = environment.get("SLURM_DISTRIBUTION").value_or("");
  const auto plane = parse_unsigned(environment.get("SLURM_DIST_PLANESIZE").value_or(""), kMaxRanks).value_or(1);
  const auto& counts = step.tasks_per_node;
  std::array orders{deal_block(counts), deal_cyclic(counts), deal_plane(counts, static_cast<std::uint32_t>(plane))};
  if (distribution.starts_with("cyclic")) std::swap(orders[0], orders[1]);
  if (distribution.starts_with("plane")) std::swap(orders[0], orders[2]);
  auto* const order =
      std::find_if(orders.begin(), orders.end(), [&](const auto& one) { return fits(one, step.nodes, local); });
  // No order fits: the error is about the most likely one.
  step.node_of_rank = std::move(order == orders.end() ? orders[0] : *order);
  auto layout = Layout::make({std::move(step)});
  if (!layout || order != orders.end()) return layout;
  const auto agrees = check_places(*layout, local);
  if (!agrees) return fail(agrees.error());
  return fail(ErrorCode::kMisplaced, "SLURM_LOCALID is not the local rank of this task in the layout of the step");
}

// Reads SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE, and checks them against the number of tasks. A user with a
// changed srun can write both the environment and what slurmstepd knows. So a node has a limit: 100,000 ranks on 16,384
// nodes take 5 MB and some milliseconds.
Result<LayoutComponent> read_sizes(const Environment& environment, std::uint32_t tasks, bool is_on_node) {
  constexpr std::size_t kMostTasks = 100'000;
  const auto list = environment.require("SLURM_STEP_NODELIST");
  if (!list) return fail(list.error());
  const auto text = environment.require("SLURM_STEP_TASKS_PER_NODE");
  if (!text) return fail(text.error());
  auto counts = parse_tasks_per_node(*text);
  if (!counts) return fail(counts.error());
  if (is_on_node && (tasks > kMostTasks || counts->size() > kMaxNodesOfStep)) {
    return fail(ErrorCode::kLimit, cat({"a step of more than ", std::to_string(kMostTasks), " tasks or ",
                                        std::to_string(kMaxNodesOfStep), " nodes is not supported"}));
  }
  auto nodes = parse_host_list(*list, std::min<std::size_t>(tasks, counts->size()));
  if (!nodes) return fail(nodes.error());
  if (nodes->size() != counts->size()) {
    return fail(ErrorCode::kDisagreement, cat({"SLURM_STEP_NODELIST names ", std::to_string(nodes->size()),
                                               " nodes, SLURM_STEP_TASKS_PER_NODE ", std::to_string(counts->size())}));
  }
  const auto sum = std::accumulate(counts->begin(), counts->end(), std::size_t{0});
  if (sum != tasks) {
    return fail(ErrorCode::kDisagreement, cat({"SLURM_STEP_NUM_TASKS is ", std::to_string(tasks),
                                               ", but SLURM_STEP_TASKS_PER_NODE counts ", std::to_string(sum)}));
  }
  return LayoutComponent{std::move(*nodes), std::move(*counts), {}};
}

// The user can change the size of the step in the environment; slurmstepd has the number of tasks of its component.
Status check_size(std::size_t tasks, std::string_view layout, const LocalTasks& local) {
  if (!local.component_size || !local.component_job) return {};
  const bool has_components = layout.find(';') != std::string_view::npos;
  if (!has_components && tasks != *local.component_size) {
    return fail(ErrorCode::kDisagreement, cat({"SLURM_STEP_NUM_TASKS is ", std::to_string(tasks), ", but Slurm starts ",
                                               counted(*local.component_size, "task")}));
  }
  return {};
}

// Sets the layout of `facts`, and what follows from its text.
Status find_layout(StepFacts& facts, const Environment& environment, const LocalTasks& local) {
  const auto tasks = environment.require_number("SLURM_STEP_NUM_TASKS");
  if (!tasks) return fail(tasks.error());
  const auto text = environment.get(kLayoutVariable);
  const bool is_known = text && layout_is_for(*text, facts.id.job, facts.id.step);
  auto checked = is_known ? check_size(*tasks, *text, local) : check_order_is_known(environment, facts.id, local);
  if (!checked) return checked;
  auto step = read_sizes(environment, *tasks, local.component_size.has_value());
  if (!step) return fail(step.error());
  if (!step->nodes.empty()) facts.first_listed_host = step->nodes.front();
  if (!is_known) {
    auto layout = deal(environment, std::move(*step), local);
    if (!layout) return fail(layout.error());
    facts.layout = std::move(*layout);
    facts.ranks_here = local.ranks;
    return {};
  }
  auto read = read_layout(*text, *step, *tasks);
  if (!read) return fail(read.error());
  auto layout = Layout::make(read->components);
  if (!layout) return fail(layout.error());
  if (layout->size() != *tasks) {
    return fail(ErrorCode::kDisagreement,
                cat({"SLURM_STEP_NUM_TASKS is ", std::to_string(*tasks), ", but the layout of the step has ",
                     std::to_string(layout->size()), " tasks"}));
  }
  const auto here = in_step(local, read->components, *layout);
  if (!here) return fail(here.error());
  if (auto agrees = check_places(*layout, *here); !agrees) return agrees;
  facts.layout = std::move(*layout);
  facts.layout_source = LayoutSource::kStepLayout;
  facts.ranks_here = here->ranks;
  facts.meeting = std::move(read->meeting);
  return {};
}

}  // namespace

std::string verdict(const Decision& decision, std::string_view hint) {
  const auto* what = "SET UP: ";
  if (decision.set_up == SetUp::kNothing) what = "NOT SET UP: ";
  if (decision.set_up == SetUp::kTorchrun) what = "SET UP for torchrun: ";
  return cat({what, decision.reason, hint.empty() ? "" : "; ", hint});
}

std::string_view hint_of(const Decision& decision) {
  if (decision.set_up == SetUp::kNothing || decision.asked != Asked::kUnasked) return {};
  return "use --bootstrap=off to run it without the plugin";
}

std::string write_set_up(SetUp set_up) { return cat({kSetUpPrefix, kSetUps[static_cast<std::size_t>(set_up)]}); }

SetUp read_set_up(std::string_view settings) {
  if (!settings.starts_with(kSetUpPrefix)) return SetUp::kAllSettings;
  const auto word = settings.substr(0, settings.find(' ')).substr(kSetUpPrefix.size());
  const auto* const found = std::find(kSetUps.begin(), kSetUps.end(), word);
  return found == kSetUps.end() ? SetUp::kAllSettings : static_cast<SetUp>(found - kSetUps.begin());
}

std::string write_decision(const StepId& id, const Decision& decision) {
  return write_record(DecisionRecord{.step = to_string(id), .decision = decision});
}

bool asks_strongly(std::string_view decision, std::string_view step) {
  const auto fields = split(decision, '\t');
  return fields.size() > 3 && (step.empty() || fields[1] == step) && fields[3] == write_field(Asked::kStrongly);
}

// The text may come from a user, and goes into slurmd's log and to the user's terminal: a record holds only printable
// text.
std::optional<Decision> read_decision(std::string_view text, const StepId& id) {
  auto read = read_record<DecisionRecord>(text);
  if (!read || read->format != kFormat) return std::nullopt;
  if (read->step != to_string(id) && read->step != to_string({.job = id.job, .step = kPendingStep}))
    return std::nullopt;
  const auto& master = read->decision.unusable_master;
  if (!master.empty() && !is_host_name(master)) return std::nullopt;
  return std::move(read->decision);
}

bool has_gpus(const Environment& environment) { return environment.has("SLURM_STEP_GPUS"); }

Result<StepId> read_step_id(const Environment& environment) {
  const auto job = environment.require_number("SLURM_JOB_ID");
  if (!job) return fail(job.error());
  const auto step = environment.require_number("SLURM_STEP_ID");
  if (!step) return fail(step.error());
  StepId id{.job = *job, .step = *step};
  if (environment.has("SLURM_RESTART_COUNT")) {
    const auto restart = environment.require_number("SLURM_RESTART_COUNT");
    if (!restart) return fail(restart.error());
    id.restart = *restart;
  }
  return id;
}

// On HPE Cray EX the first port is PMI_CONTROL_PORT. Slurm's plugin for Cray's PMI takes it, and sets the variable only
// in the tasks.
std::optional<std::vector<std::uint16_t>> read_reserved_ports(const Environment& environment) {
  const auto reserved = environment.get("SLURM_STEP_RESV_PORTS");
  if (!reserved) return std::nullopt;
  auto ports = read_port_list(*reserved);
  if (ports.empty()) return ports;
  if (environment.get("SLURM_MPI_TYPE") == "cray_shasta") ports.erase(ports.begin());
  std::vector<bool> is_taken(kMaxPort + 1);
  for (const auto port : read_port_list(environment.get("PMI_CONTROL_PORT").value_or(""))) is_taken[port] = true;
  std::erase_if(ports, [&](auto port) { return is_taken[port]; });
  return ports.empty() ? std::nullopt : std::optional(std::move(ports));
}

Result<StepFacts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local) {
  StepFacts facts;
  facts.id = id;
  const auto found = find_layout(facts, environment, local);
  if (!found) return fail(found.error());
  facts.has_gpus = has_gpus(environment);
  facts.gpu_list = read_gpu_list(environment);
  facts.reserved_ports = read_reserved_ports(environment);
  facts.environment = environment;
  return facts;
}

Result<StepFacts> read_task_facts(const Environment& environment, const MpirunContext& around) {
  if (is_mpirun_rank(environment)) return read_mpirun_facts(environment, around);
  const auto id = read_step_id(environment);
  if (!id) return fail(id.error());
  if (!is_normal_step(id->step)) {
    return fail(ErrorCode::kMissing,
                cat({"this process is in the batch or interactive step of job ", std::to_string(id->job),
                     ", which has no ranks; start the program with srun"}));
  }
  const auto rank = environment.require_number("SLURM_PROCID");
  if (!rank) return fail(rank.error());
  LocalTasks local;
  local.host = environment.get("SLURMD_NODENAME").value_or("");
  local.ranks = {*rank};
  local.local_id = environment.number("SLURM_LOCALID");
  // srun sets SLURM_NTASKS to the tasks of the step, and SLURM_NPROCS, the old name, to those of the component. Equal
  // values are of a step without components, or of the job (srun --preserve-env).
  const auto tasks = environment.number("SLURM_NPROCS");
  if (tasks != environment.number("SLURM_NTASKS")) local.component_size = tasks;
  auto facts = read_facts(environment, *id, local);
  if (facts) facts->is_one_task = true;
  return facts;
}

}  // namespace bootstrap

// What is known about a step before anything is decided: gathered by the plugin or read from SLURM_* variables.
// SPDX-License-Identifier: Apache-2.0
#include "core/facts.h"

#include <array>

#include "core/layout_text.h"
#include "core/text.h"

namespace bootstrap {
namespace {

Result<std::string_view> require(const Environment& environment, std::string_view name) {
  const auto value = environment.get(name);
  if (!value) {
    return fail(ErrorCode::kMissing,
                cat({name, " is not set, so this is not a task of a Slurm step; start it with srun"}));
  }
  if (value->size() > Environment::kMaxValue) {
    return fail(ErrorCode::kLimit, cat({name, " is longer than 64 KiB"}));
  }
  return *value;
}

Result<std::uint32_t> require_number(const Environment& environment, std::string_view name) {
  const auto text = require(environment, name);
  if (!text) return fail(text.error());
  const auto number = parse_unsigned(*text, UINT32_MAX);
  if (!number) {
    return fail(ErrorCode::kInvalid, cat({name, "=", quoted(*text), " is not a number"}));
  }
  return static_cast<std::uint32_t>(*number);
}

// First difference between where the tasks are and where the layout puts them.
Status check_places(const Layout& layout, const LocalTasks& local) {
  for (const auto rank : local.ranks) {
    if (rank >= layout.size()) {
      return fail(ErrorCode::kDisagreement, cat({"task ", std::to_string(rank), " is here, but the step has only ",
                                                 std::to_string(layout.size()), " tasks"}));
    }
    if (!local.host.empty() && layout.host_of(rank) != local.host) {
      return fail(ErrorCode::kDisagreement, cat({"task ", std::to_string(rank), " runs on ", local.host,
                                                 ", but the layout of the step puts it on ", layout.host_of(rank)}));
    }
  }
  return {};
}

// Ranks within a component become ranks of the step. Components of a heterogeneous job differ in their job id, those of
// a heterogeneous step in a plain job only in where their tasks are.
Result<LocalTasks> in_step(const LocalTasks& local, const LayoutText& text, const Layout& layout) {
  if (!local.component_job || text.component_jobs.empty()) return local;
  Rank first = 0;
  for (std::size_t i = 0; i < text.component_jobs.size(); ++i) {
    auto here = local;
    for (auto& rank : here.ranks) rank += first;
    first += static_cast<Rank>(text.components[i].node_of_rank.size());
    const bool fits = here.ranks.empty() || here.ranks.back() < first;
    if (text.component_jobs[i] == *local.component_job && fits && check_places(layout, here)) return here;
  }
  return fail(ErrorCode::kDisagreement, cat({"the tasks of ", local.host,
                                             " are in none of the components that srun names in ", kLayoutVariable}));
}

// Without srun's word: in block, cyclic and plane order alike rank 0 is on the first node and nodes are numbered in
// list order, so it is enough to find the one that agrees with the tasks that are here. No other order is guessed.
Result<Layout> deal(const Environment& environment, std::string_view nodes, std::string_view counts,
                    const LocalTasks& local) {
  const auto step_size = environment.get("SLURM_STEP_NUM_TASKS").value_or("");
  if (local.component_size && step_size != std::to_string(*local.component_size)) {
    return fail(ErrorCode::kMissing,
                cat({"this is one component of a heterogeneous step, and srun did not say which host has rank 0; load ",
                     "the plugin where srun runs, too, and name ", kLayoutVariable,
                     " in its --export, as in --export=", kExportValue}));
  }
  const auto distribution = environment.get("SLURM_DISTRIBUTION").value_or("");
  if (distribution.starts_with("arbitrary")) {
    return fail(ErrorCode::kMissing,
                cat({"the order of ranks is arbitrary and srun did not say which host has rank 0 (", kLayoutVariable,
                     " is not set); load the plugin where srun runs too"}));
  }
  auto list = HostList::parse(nodes);
  if (!list) return fail(list.error());
  auto tasks = parse_tasks_per_node(counts);
  if (!tasks) return fail(tasks.error());
  const auto plane = environment.get("SLURM_DIST_PLANESIZE").value_or("");
  const auto plane_size = static_cast<std::uint32_t>(parse_unsigned(plane, kMaxRanks).value_or(1));

  std::array orders{deal_block(*tasks), deal_cyclic(*tasks), deal_plane(*tasks, plane_size)};
  if (distribution.starts_with("cyclic")) std::swap(orders[0], orders[1]);
  if (distribution.starts_with("plane")) std::swap(orders[0], orders[2]);
  Status placed;
  for (auto& order : orders) {
    auto layout = Layout::make({{*list, *tasks, std::move(order)}});
    if (!layout) return layout;
    const auto agrees = check_places(*layout, local);
    if (agrees) return layout;
    if (placed) placed = agrees;  // report the most likely order's disagreement
  }
  return fail(placed.error());
}

struct PlacedTasks {
  Layout layout;
  LayoutSource source;
  std::vector<Rank> ranks;
};

Result<PlacedTasks> read_places(const Environment& environment, const StepId& id, const LocalTasks& local) {
  const auto nodes = require(environment, "SLURM_STEP_NODELIST");
  if (!nodes) return fail(nodes.error());
  const auto counts = require(environment, "SLURM_STEP_TASKS_PER_NODE");
  if (!counts) return fail(counts.error());

  const auto text = environment.get(kLayoutVariable);
  if (!text || !layout_is_for(*text, id.job, id.step)) {
    auto layout = deal(environment, *nodes, *counts, local);
    if (!layout) return fail(layout.error());
    return PlacedTasks{std::move(*layout), LayoutSource::kDistribution, local.ranks};
  }
  const auto read = read_layout(*text, *nodes, *counts);
  if (!read) return fail(read.error());
  auto layout = Layout::make(read->components);
  if (!layout) return fail(layout.error());
  const auto here = in_step(local, *read, *layout);
  if (!here) return fail(here.error());
  const auto agrees = check_places(*layout, *here);
  if (!agrees) return fail(agrees.error());
  return PlacedTasks{std::move(*layout), LayoutSource::kStepLayout, here->ranks};
}

}  // namespace

std::string to_string(const StepId& id) { return cat({std::to_string(id.job), ".", std::to_string(id.step)}); }

std::string stamp(const StepId& id) { return cat({to_string(id), ".", std::to_string(id.restart)}); }

bool has_gpus(const Environment& environment) { return environment.has("SLURM_STEP_GPUS"); }

Result<StepId> read_step_id(const Environment& environment) {
  const auto job = require_number(environment, "SLURM_JOB_ID");
  if (!job) return fail(job.error());
  const auto step = require_number(environment, "SLURM_STEP_ID");
  if (!step) return fail(step.error());
  StepId id{.job = *job, .step = *step};
  if (environment.has("SLURM_RESTART_COUNT")) {
    const auto restart = require_number(environment, "SLURM_RESTART_COUNT");
    if (!restart) return fail(restart.error());
    id.restart = *restart;
  }
  return id;
}

Result<Facts> read_facts(const Environment& environment, const StepId& id, const LocalTasks& local) {
  auto places = read_places(environment, id, local);
  if (!places) return fail(places.error());
  const auto tasks = require_number(environment, "SLURM_STEP_NUM_TASKS");
  if (!tasks) return fail(tasks.error());
  if (*tasks != places->layout.size()) {
    return fail(ErrorCode::kDisagreement,
                cat({"SLURM_STEP_NUM_TASKS is ", std::to_string(*tasks), ", but the layout of the step has ",
                     std::to_string(places->layout.size()), " tasks"}));
  }
  return Facts{.id = id,
               .layout = std::move(places->layout),
               .layout_source = places->source,
               .local_ranks = std::move(places->ranks),
               .has_gpus = has_gpus(environment),
               .environment = environment};
}

Result<Facts> read_task_facts(const Environment& environment) {
  const auto id = read_step_id(environment);
  if (!id) return fail(id.error());
  if (!is_normal_step(id->step)) {
    return fail(ErrorCode::kMissing, cat({"this is the batch or interactive step of job ", std::to_string(id->job),
                                          ", whose processes are no ranks; start the program with srun"}));
  }
  const auto rank = require_number(environment, "SLURM_PROCID");
  if (!rank) return fail(rank.error());
  LocalTasks local{.host = std::string(environment.get("SLURMD_NODENAME").value_or("")),
                   .ranks = {*rank},
                   .component_job = std::nullopt,
                   .component_size = std::nullopt};
  // SLURM_NPROCS is the old name that srun sets to the tasks of the component alone.
  const auto count = parse_unsigned(environment.get("SLURM_NPROCS").value_or(""), kMaxRanks);
  if (count) local.component_size = *count;
  return read_facts(environment, *id, local);
}

}  // namespace bootstrap

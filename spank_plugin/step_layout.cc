// Slurm's own record of which task runs where, asked for by srun.
// SPDX-License-Identifier: Apache-2.0
#include "step_layout.h"

#include <dlfcn.h>
#include <slurm/slurm.h>

#include <memory>
#include <optional>

#include "core/facts.h"

namespace bootstrap {
namespace {

static_assert(kMaxNormalStepId == SLURM_MAX_NORMAL_STEP_ID);
static_assert(kInteractiveStepId == SLURM_INTERACTIVE_STEP && kBatchStepId == SLURM_BATCH_SCRIPT);
static_assert(kExternStepId == SLURM_EXTERN_CONT);

// Looked up in srun's own process, whose libslurm it is: linking to libslurm would load a second copy.
class SlurmApi {
 public:
  SlurmApi() {
    get_ = reinterpret_cast<decltype(get_)>(::dlsym(RTLD_DEFAULT, "slurm_job_step_layout_get"));
    free_ = reinterpret_cast<decltype(free_)>(::dlsym(RTLD_DEFAULT, "slurm_job_step_layout_free"));
  }

  std::optional<ComponentText> layout(slurm_step_id_t id) const {
    if (get_ == nullptr || free_ == nullptr) return std::nullopt;
    const std::unique_ptr<slurm_step_layout_t, decltype(free_)> layout(get_(&id), free_);
    if (layout == nullptr || layout->node_list == nullptr || layout->task_cnt > kMaxRanks) return std::nullopt;
    ComponentText component;
    component.job = id.job_id;
    component.nodes = layout->node_list;
    component.node_of_rank.resize(layout->task_cnt);
    for (std::uint32_t node = 0; node < layout->node_cnt; ++node) {
      component.tasks_per_node.push_back(layout->tasks[node]);
      for (std::uint32_t task = 0; task < layout->tasks[node]; ++task) {
        const auto rank = layout->tids[node][task];
        if (rank >= layout->task_cnt) return std::nullopt;
        component.node_of_rank[rank] = node;
      }
    }
    return component;
  }

 private:
  decltype(&slurm_job_step_layout_get) get_ = nullptr;
  decltype(&slurm_job_step_layout_free) free_ = nullptr;
};

// Collects components until they make up the step; `next` gives the id of the n-th.
template <class Next>
std::vector<ComponentText> collect(const SlurmApi& slurm, std::uint32_t tasks, bool has_gaps, Next next) {
  std::vector<ComponentText> components;
  std::size_t found = 0;
  for (std::uint32_t i = 0; i < kMaxComponents && found < tasks; ++i) {
    auto component = slurm.layout(next(i));
    if (!component && !has_gaps) break;
    if (!component) continue;
    found += component->node_of_rank.size();
    components.push_back(std::move(*component));
  }
  if (found != tasks) components.clear();
  return components;
}

// Slurm 24.11 has one member more than 22.05; what is not named stays 0.
slurm_step_id_t step_id(std::uint32_t job, std::uint32_t component, std::uint32_t step) {
  slurm_step_id_t id{};
  id.job_id = job;
  id.step_het_comp = component;
  id.step_id = step;
  return id;
}

}  // namespace

std::vector<ComponentText> ask_step_layout(const StepTasks& tasks, std::uint32_t job, std::uint32_t leader_job,
                                           std::uint32_t step) {
  const SlurmApi slurm;
  if (tasks.in_component == tasks.in_step) {
    auto whole = slurm.layout(step_id(job, NO_VAL, step));
    if (whole && whole->node_of_rank.size() == tasks.in_step) return {std::move(*whole)};
  }
  // A heterogeneous step of a plain job has one component number for each component, and none is left out. Asked for
  // without a number, slurmctld 22.05 merges them, the last one first, and ranks end up on the wrong nodes.
  auto components = collect(slurm, tasks.in_step, false, [&](std::uint32_t i) { return step_id(job, i, step); });
  if (!components.empty()) return components;
  // A heterogeneous job has one job id for each component; --het-group may leave components out.
  return collect(slurm, tasks.in_step, true, [&](std::uint32_t i) { return step_id(leader_job + i, NO_VAL, step); });
}

}  // namespace bootstrap

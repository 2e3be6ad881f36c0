// Slurm's own record of which task runs where, asked for by srun.
// SPDX-License-Identifier: Apache-2.0
#include "step_layout.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "core/facts.h"
#include "slurm_ids.h"

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
    load_job_ = reinterpret_cast<decltype(load_job_)>(::dlsym(RTLD_DEFAULT, "slurm_load_job"));
    free_jobs_ = reinterpret_cast<decltype(free_jobs_)>(::dlsym(RTLD_DEFAULT, "slurm_free_job_info_msg"));
  }

  bool has_gpus(std::uint32_t job) const {
    job_info_msg_t* message = nullptr;
    if (load_job_ == nullptr || free_jobs_ == nullptr) return false;
    if (load_job_(&message, WholeJob{job}, SHOW_ALL) != 0) return false;
    const std::unique_ptr<job_info_msg_t, decltype(free_jobs_)> jobs(message, free_jobs_);
    for (std::uint32_t i = 0; jobs != nullptr && i < jobs->record_count; ++i) {
      const auto& record = jobs->job_array[i];
      const std::string_view gres = record.gres_total == nullptr ? "" : record.gres_total;
      if (record.job_id == job && gres.find("gpu") != std::string_view::npos) return true;
    }
    return false;
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
  decltype(&slurm_load_job) load_job_ = nullptr;
  decltype(&slurm_free_job_info_msg) free_jobs_ = nullptr;
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

}  // namespace

bool has_gpus(const std::vector<ComponentText>& components) {
  const SlurmApi slurm;
  return std::any_of(components.begin(), components.end(),
                     [&](const ComponentText& component) { return slurm.has_gpus(component.job); });
}

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

// What srun asks slurmctld: the record and the layout of its step, the state of its job, a signal to its tasks.
// SPDX-License-Identifier: Apache-2.0
#include "srun/slurmctld_calls.h"

#include <dlfcn.h>
#include <slurm/slurm.h>

#include <cerrno>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "core/settings/settings.h"
#include "core/step/host_list.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// Slurm 24.11 has one member more than 22.05; what is not named stays 0.
slurm_step_id_t step_id(std::uint32_t job, std::uint32_t component, std::uint32_t step) {
  slurm_step_id_t id{};
  id.job_id = job;
  id.step_het_comp = component;
  id.step_id = step;
  return id;
}

// A job as slurm_load_job takes it: by its number, and by the id of a step since Slurm 26.05.
struct WholeJob {
  std::uint32_t job;
  operator std::uint32_t() const { return job; }
  operator slurm_step_id_t() const { return step_id(job, NO_VAL, NO_VAL); }
};

static_assert(kMaxNormalStepId == SLURM_MAX_NORMAL_STEP_ID);

// slurmctld answers with all steps of the job that it would show, and asks no other cluster.
constexpr std::uint16_t kShown = SHOW_ALL | SHOW_LOCAL;

// By its numbers up to Slurm 24.11, and by the id of a step in 26.05.
template <class Function>
int get_steps(Function get, slurm_step_id_t id, job_step_info_response_msg_t** answer) {
  if constexpr (std::is_invocable_v<Function, slurm_step_id_t*, job_step_info_response_msg_t**, std::uint16_t>) {
    return get(&id, answer, kShown);
  } else {
    return get(0, id.job_id, id.step_id, answer, kShown);
  }
}

std::string text_of(const char* text) { return text == nullptr ? std::string() : text; }

// Looked up in srun's own process, whose libslurm it is: linking to libslurm would load a second copy.
template <class Function>
Function slurm_function(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

std::optional<ComponentText> ask_layout(slurm_step_id_t id) {
  const auto get = slurm_function<decltype(&slurm_job_step_layout_get)>("slurm_job_step_layout_get");
  const auto free = slurm_function<decltype(&slurm_job_step_layout_free)>("slurm_job_step_layout_free");
  if (get == nullptr || free == nullptr) return std::nullopt;
  const std::unique_ptr<slurm_step_layout_t, decltype(free)> layout(get(&id), free);
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

// Slurm numbers the tasks by how many each node has in the end (_init_task_layout in its slurm_step_layout.c), and
// copies the order of nodes from the layout into the record. Only the arbitrary order is in neither.
std::vector<NodeIndex> deal(std::uint32_t distribution, const SrunFacts& srun) {
  const auto order = distribution & SLURM_DIST_NODEMASK;
  if (order == SLURM_DIST_NODEBLOCK) return deal_block(srun.tasks_per_node);
  if (order == SLURM_DIST_NODECYCLIC) return deal_cyclic(srun.tasks_per_node);
  return order == SLURM_DIST_PLANE ? deal_plane(srun.tasks_per_node, srun.plane) : std::vector<NodeIndex>();
}

std::vector<ComponentText> compute_layout(const job_step_info_t& step, const SrunFacts& srun) {
  auto nodes = deal(step.task_dist, srun);
  const auto hosts = parse_host_list(text_of(step.nodes));
  if (nodes.empty() || nodes.size() != step.num_tasks || !hosts || hosts->size() != srun.tasks_per_node.size())
    return {};
  return {ComponentText{.job = step.step_id.job_id,
                        .nodes = step.nodes,
                        .tasks_per_node = srun.tasks_per_node,
                        .node_of_rank = std::move(nodes)}};
}

// Collects components until they make up the step; `next` gives the id of the n-th.
template <class Next>
std::vector<ComponentText> collect(std::uint32_t tasks, bool has_gaps, Next next) {
  std::vector<ComponentText> components;
  std::size_t found = 0;
  for (std::uint32_t i = 0; i < kMaxComponents && found < tasks; ++i) {
    auto component = ask_layout(next(i));
    if (!component && !has_gaps) break;
    if (!component) continue;
    found += component->node_of_rank.size();
    components.push_back(std::move(*component));
  }
  if (found != tasks) components.clear();
  return components;
}

}  // namespace

std::chrono::seconds time_where_limited() {
  constexpr std::uint32_t kDefaultExpiry = 120;
  constexpr std::string_view kExpiry = "cred_expire=";
  const auto* const conf = static_cast<const slurm_conf_t*>(::dlsym(RTLD_DEFAULT, "slurm_conf"));
  if (conf == nullptr || text_of(conf->slurmctld_params).find("rl_enable") == std::string::npos) return {};
  const auto text = text_of(conf->authinfo);
  const auto at = text.find(kExpiry);
  const auto number = at == std::string::npos ? std::string_view() : std::string_view(text).substr(at + kExpiry.size());
  const auto expiry = parse_unsigned<std::uint32_t>(number.substr(0, number.find(',')), kDefaultExpiry);
  return std::chrono::seconds(expiry.value_or(kDefaultExpiry) / 2);
}

std::optional<SlurmctldAnswers> ask_step_record(const StepNumbers& numbers, const SrunFacts& srun,
                                                std::vector<ComponentText>& components) {
  const auto get = slurm_function<decltype(&slurm_get_job_steps)>("slurm_get_job_steps");
  const auto free =
      slurm_function<decltype(&slurm_free_job_step_info_response_msg)>("slurm_free_job_step_info_response_msg");
  const auto id = step_id(numbers.job, NO_VAL, numbers.step);
  job_step_info_response_msg_t* message = nullptr;
  if (get == nullptr || free == nullptr || get_steps(get, id, &message) != 0) return std::nullopt;
  const std::unique_ptr<job_step_info_response_msg_t, decltype(free)> steps(message, free);
  for (std::uint32_t i = 0; steps != nullptr && i < steps->job_step_count; ++i) {
    const auto& step = steps->job_steps[i];
    if (step.step_id.job_id != id.job_id || step.step_id.step_id != id.step_id) continue;
    components = compute_layout(step, srun);
    return SlurmctldAnswers{.request = {.per_node = text_of(step.tres_per_node),
                                        .per_step = text_of(step.tres_per_step),
                                        .per_socket = text_of(step.tres_per_socket),
                                        .per_task = text_of(step.tres_per_task),
                                        .bind = text_of(step.tres_bind)},
                            .partition = text_of(step.partition),
                            .tasks_per_node = {}};
  }
  return std::nullopt;
}

std::vector<std::string> ask_job_nodes(std::uint32_t job) {
  const auto load = slurm_function<decltype(&slurm_load_job)>("slurm_load_job");
  const auto free = slurm_function<decltype(&slurm_free_job_info_msg)>("slurm_free_job_info_msg");
  job_info_msg_t* message = nullptr;
  if (load == nullptr || free == nullptr || load(&message, WholeJob{job}, kShown | SHOW_DETAIL) != 0) return {};
  const std::unique_ptr<job_info_msg_t, decltype(free)> jobs(message, free);
  std::vector<std::string> nodes;
  for (std::uint32_t i = 0; jobs != nullptr && i < jobs->record_count && nodes.empty(); ++i) {
    const auto& record = jobs->job_array[i];
    if (record.job_id != job || record.gres_detail_cnt > kMaxRanks || record.gres_detail_str == nullptr) continue;
    for (std::uint32_t node = 0; node < record.gres_detail_cnt; ++node) {
      nodes.push_back(text_of(record.gres_detail_str[node]));
    }
  }
  return nodes;
}

std::string ask_node_address(const std::string& node) {
  const auto load = slurm_function<decltype(&slurm_load_node_single)>("slurm_load_node_single");
  const auto free = slurm_function<decltype(&slurm_free_node_info_msg)>("slurm_free_node_info_msg");
  node_info_msg_t* message = nullptr;
  auto name = node;  // Slurm does not take a constant
  if (load == nullptr || free == nullptr || load(&message, name.data(), kShown) != 0) return {};
  const std::unique_ptr<node_info_msg_t, decltype(free)> nodes(message, free);
  if (nodes == nullptr || nodes->record_count == 0) return {};
  auto address = text_of(nodes->node_array[0].node_addr);
  return is_host_name(address) ? address : std::string();
}

std::vector<ComponentText> ask_step_layout(const StepNumbers& numbers) {
  if (numbers.tasks_in_component == numbers.tasks) {
    auto whole = ask_layout(step_id(numbers.job, NO_VAL, numbers.step));
    if (whole && whole->node_of_rank.size() == numbers.tasks) return {std::move(*whole)};
  }
  // A heterogeneous step of a plain job has one component number for each component, and none is left out. Asked for
  // without a number, slurmctld 22.05 merges them, the last one first, and ranks end up on the wrong nodes.
  auto components =
      collect(numbers.tasks, false, [&](std::uint32_t i) { return step_id(numbers.job, i, numbers.step); });
  if (!components.empty()) return components;
  // A heterogeneous job has one job id for each component; --het-group may leave components out.
  return collect(numbers.tasks, true,
                 [&](std::uint32_t i) { return step_id(numbers.leader + i, NO_VAL, numbers.step); });
}

namespace {

// A step that ends by itself may take its job with it: such a job is COMPLETED or FAILED.
bool is_ended_by_others(const slurm_job_info_t& job) {
  const auto state = job.job_state & JOB_STATE_BASE;
  const bool ends_by_itself = state == JOB_RUNNING || state == JOB_SUSPENDED || state == JOB_COMPLETE ||
                              state == JOB_FAILED || state == JOB_OOM;
  return job.preempt_time != 0 || !ends_by_itself;  // a preempted job stays RUNNING for its grace time
}

// Releases differ in what they take: job and step as numbers, with flags since 23.02.
template <class Function>
int call_kill(Function kill_step, std::uint32_t job, std::uint32_t step, std::uint16_t signal) {
  if constexpr (std::is_invocable_v<Function, std::uint32_t, std::uint32_t, std::uint16_t>) {
    return kill_step(job, step, signal);
  } else if constexpr (std::is_invocable_v<Function, std::uint32_t, std::uint32_t, std::uint16_t, std::uint16_t>) {
    return kill_step(job, step, signal, 0);
  } else {
    auto id = step_id(job, NO_VAL, step);
    return kill_step(&id, signal, 0);
  }
}

}  // namespace

std::optional<bool> is_job_ended_by_others(std::uint32_t job) {
  const auto load = slurm_function<decltype(&slurm_load_job)>("slurm_load_job");
  const auto free = slurm_function<decltype(&slurm_free_job_info_msg)>("slurm_free_job_info_msg");
  job_info_msg_t* message = nullptr;
  if (load == nullptr || free == nullptr) return false;  // a process without libslurm cannot ask
  if (load(&message, WholeJob{job}, SHOW_ALL) != 0) return std::nullopt;
  const std::unique_ptr<job_info_msg_t, decltype(free)> jobs(message, free);
  for (std::uint32_t i = 0; jobs != nullptr && i < jobs->record_count; ++i) {
    if (jobs->job_array[i].job_id == job && is_ended_by_others(jobs->job_array[i])) return true;
  }
  return false;
}

std::optional<int> signal_step(std::uint32_t job, std::uint32_t step, int signal) {
  const auto kill_step = slurm_function<decltype(&slurm_kill_job_step)>("slurm_kill_job_step");
  if (kill_step == nullptr) return ENOSYS;
  errno = 0;
  if (call_kill(kill_step, job, step, static_cast<std::uint16_t>(signal)) == SLURM_SUCCESS) return std::nullopt;
  // A step that has ended meanwhile has no record any more.
  if (errno == ESLURM_INVALID_JOB_ID || errno == ESLURM_ALREADY_DONE) return std::nullopt;
  return errno;
}

}  // namespace bootstrap

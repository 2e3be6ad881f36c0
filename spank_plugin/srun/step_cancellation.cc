// In srun: whether somebody has ended the job of this step, and a signal to all of its tasks.
// SPDX-License-Identifier: Apache-2.0
#include "srun/step_cancellation.h"

#include <dlfcn.h>

#include <cerrno>
#include <memory>
#include <type_traits>

#include "slurm_api.h"

namespace bootstrap {
namespace {

// Looked up in srun's own process, whose libslurm it is: linking to libslurm would load a second copy.
template <class Function>
Function slurm_function(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

// A step that ends by itself may take its job with it: such a job is COMPLETED or FAILED.
bool is_ended_by_others(const slurm_job_info_t& job) {
  if (job.preempt_time != 0) return true;  // told to end, and RUNNING until its time of grace is over
  switch (job.job_state & JOB_STATE_BASE) {
    case JOB_RUNNING:
    case JOB_SUSPENDED:
    case JOB_COMPLETE:
    case JOB_FAILED:
    case JOB_OOM:
      return false;
    default:
      return true;
  }
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
  if (load == nullptr || free == nullptr) return false;  // a process without libslurm has nobody to ask
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

// The C interface: a handle of the step, the values of this rank, and the last error. Nothing here communicates.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "api/job.h"
#include "core/plan/explain.h"
#include "core/step/step_id.h"
#include "core/util/text.h"
#include "probe/read_environment.h"

namespace bootstrap::api {
namespace {

// Not a std::string: threads that end during exit still use it, after destructors have run.
thread_local char last_error[2048];

// Indexed by ErrorCode.
constexpr std::array kStatuses{BOOTSTRAP_ERROR_INVALID,      BOOTSTRAP_ERROR_MISSING,     BOOTSTRAP_ERROR_DISAGREEMENT,
                               BOOTSTRAP_ERROR_DISAGREEMENT, BOOTSTRAP_ERROR_UNAVAILABLE, BOOTSTRAP_ERROR_UNSUPPORTED,
                               BOOTSTRAP_ERROR_LIMIT,        BOOTSTRAP_ERROR_TIMEOUT};
static_assert(kStatuses.size() == static_cast<std::size_t>(ErrorCode::kLast) + 1);

Result<std::chrono::milliseconds> read_timeout(const Environment& environment, int timeout_ms) {
  if (timeout_ms < 0) return fail(ErrorCode::kInvalid, "bootstrap_options_t.timeout_ms is negative");
  if (timeout_ms > 0) return std::chrono::milliseconds(timeout_ms);
  Settings settings;
  const auto applied = apply_environment(settings, environment, AppliesTo::kProcess);
  if (!applied) return fail(applied.error());
  return std::chrono::seconds(settings.timeout.value);
}

// SLURM_BOOTSTRAP_DEBUG=1: each rank prints whether it is set up, and rank 0 the decisions for all.
void print_decisions(const OwnPlan& task) {
  const auto rank = task.facts.ranks_here.front();
  const auto who = step_prefix(task.facts.id);
  auto text = cat({who, "rank ", std::to_string(rank), ": ", task.verdict, "\n"});
  if (rank == 0) {
    for (const auto& line :
         decision_lines(task.facts, task.step, task.task, task.is_set && task.step.ports.master.has_value()))
      text += cat({who, line, "\n"});
  }
  (void)std::fputs(text.c_str(), stderr);
}

Status open_step(bootstrap_t** job, const bootstrap_options_t* given) {
  const auto options = read_options(given, bootstrap_options_t BOOTSTRAP_OPTIONS_INIT, "bootstrap_options_t");
  if (!options) return fail(options.error());
  if (options->reserved != 0) return fail(ErrorCode::kInvalid, "bootstrap_options_t.reserved is not 0");
  const Environment environment = process_environment();
  const auto timeout = read_timeout(environment, options->timeout_ms);
  if (!timeout) return fail(timeout.error());
  const auto task = read_own_task(environment);
  if (!task) return fail(task.error());
  if (process_settings(environment).debug.value) print_decisions(*task);
  const auto port = parse_unsigned(effective_value(task->task.variables, "MASTER_PORT"), 65535);
  if (!port) return fail(ErrorCode::kInvalid, "MASTER_PORT of this step is not a port; use a number from 1 to 65535");
  auto step = std::make_unique<bootstrap_t>();
  const Rank rank = task->facts.ranks_here.front();
  step->who = about_rank(task->facts.id, rank);
  step->layout = task->facts.layout;
  step->place = step->layout.place(rank);
  step->master_addr = effective_value(task->task.variables, "MASTER_ADDR");
  step->master_port = static_cast<int>(*port);
  const auto device = parse_unsigned(effective_value(task->task.variables, "BOOTSTRAP_GPU"), kMaxGpus);
  if (device && has_our_gpu_list(*task)) step->device = static_cast<int>(*device);
  step->timeout = *timeout;
  step->nccl_library = trusted_settings(environment).nccl_file.value;
  step->exchange = make_exchange({task->facts.id, step->layout, rank, environment});
  *job = step.release();
  return {};
}

int part(const bootstrap_t* job, std::uint32_t Place::*member) noexcept {
  return job == nullptr ? -1 : static_cast<int>(job->place.*member);
}

int count(const bootstrap_t* job, std::size_t (Layout::*member)() const) noexcept {
  return job == nullptr ? -1 : static_cast<int>((job->layout.*member)());
}

}  // namespace

bootstrap_status_t report(bootstrap_status_t status, const char* sentence) noexcept {
  (void)std::snprintf(last_error, sizeof last_error, "bootstrap: %s", sentence);
  return status;
}

bootstrap_status_t report(const Error& error) noexcept {
  const auto status = report(kStatuses[static_cast<std::size_t>(error.code)], error.message.c_str());
  const auto size = ::strnlen(last_error, sizeof last_error);
  if (error.code == ErrorCode::kTimeout && std::getenv("SLURM_JOB_ID") != nullptr) {
    (void)std::snprintf(last_error + size, sizeof last_error - size, "%s",
                        "; slurm-bootstrap status shows where each rank is");
  }
  return status;
}

}  // namespace bootstrap::api

using bootstrap::Layout;
using bootstrap::Place;
using bootstrap::api::count;
using bootstrap::api::part;

extern "C" {

int bootstrap_version(void) { return BOOTSTRAP_VERSION; }

bootstrap_status_t bootstrap_open(bootstrap_t** job, const bootstrap_options_t* options) {
  if (job == nullptr) {
    return bootstrap::api::report(BOOTSTRAP_ERROR_INVALID, "bootstrap_open: the pointer to the handle is NULL");
  }
  *job = nullptr;
  return bootstrap::api::guarded("bootstrap_open", [=] { return bootstrap::api::open_step(job, options); });
}

void bootstrap_close(bootstrap_t* job) {
  const bootstrap::api::NoCancellation none;
  delete job;
}

int bootstrap_rank(const bootstrap_t* job) { return part(job, &Place::rank); }
int bootstrap_size(const bootstrap_t* job) { return count(job, &Layout::size); }
int bootstrap_local_rank(const bootstrap_t* job) { return part(job, &Place::local_rank); }
int bootstrap_local_size(const bootstrap_t* job) { return part(job, &Place::local_size); }
int bootstrap_node_rank(const bootstrap_t* job) { return part(job, &Place::node_rank); }
int bootstrap_node_count(const bootstrap_t* job) { return count(job, &Layout::node_count); }
int bootstrap_cross_rank(const bootstrap_t* job) { return part(job, &Place::cross_rank); }
int bootstrap_cross_size(const bootstrap_t* job) { return part(job, &Place::cross_size); }

int bootstrap_device(const bootstrap_t* job) { return job == nullptr ? -1 : job->device; }

const char* bootstrap_master_addr(const bootstrap_t* job) {
  return job == nullptr ? nullptr : job->master_addr.c_str();
}
int bootstrap_master_port(const bootstrap_t* job) { return job == nullptr ? -1 : job->master_port; }

const char* bootstrap_last_error(void) { return bootstrap::api::last_error; }

}  // extern "C"

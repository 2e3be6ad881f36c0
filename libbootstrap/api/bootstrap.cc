// The C interface: every function is noexcept, checks its arguments and hands over to the core.
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "core/task_plan.h"
#include "core/text.h"
#include "probe/environment.h"

struct bootstrap_job {
  bootstrap::Place place;
  int size = 0;
  int node_count = 0;
  std::string master_addr;
  int master_port = 0;
  int device = -1;
};

namespace {

// Not a std::string: it must be there, and free of destructors, in threads that end during exit.
thread_local char last_error[1024];

void remember(const std::string& message) noexcept {
  (void)std::snprintf(last_error, sizeof last_error, "%s", message.c_str());
}

bootstrap_status_t status_of(bootstrap::ErrorCode code) noexcept {
  switch (code) {
    case bootstrap::ErrorCode::kInvalid:
      return BOOTSTRAP_ERROR_INVALID;
    case bootstrap::ErrorCode::kMissing:
      return BOOTSTRAP_ERROR_MISSING;
    case bootstrap::ErrorCode::kDisagreement:
    case bootstrap::ErrorCode::kMisplaced:
      return BOOTSTRAP_ERROR_DISAGREEMENT;
    case bootstrap::ErrorCode::kUnavailable:
      return BOOTSTRAP_ERROR_UNAVAILABLE;
    case bootstrap::ErrorCode::kUnsupported:
      return BOOTSTRAP_ERROR_UNSUPPORTED;
    case bootstrap::ErrorCode::kLimit:
      return BOOTSTRAP_ERROR_LIMIT;
  }
  return BOOTSTRAP_ERROR_INTERNAL;
}

bootstrap_status_t open_step(bootstrap_t** job) {
  const auto task = bootstrap::make_task_plan(bootstrap::process_environment());
  if (!task) {
    remember(bootstrap::cat({"bootstrap: ", task.error().message}));
    return status_of(task.error().code);
  }
  const auto port = bootstrap::parse_unsigned(effective_value(task->plan, "MASTER_PORT"), 65535);
  if (!port) {
    remember("bootstrap: MASTER_PORT is set for this step, but it is not a port");
    return BOOTSTRAP_ERROR_INVALID;
  }
  auto step = std::make_unique<bootstrap_t>();
  step->place = task->facts.layout.place(task->facts.local_ranks.front());
  step->size = static_cast<int>(task->facts.layout.size());
  step->node_count = static_cast<int>(task->facts.layout.node_count());
  step->master_addr = effective_value(task->plan, "MASTER_ADDR");
  step->master_port = static_cast<int>(*port);
  const auto device = bootstrap::parse_unsigned(effective_value(task->plan, "BOOTSTRAP_GPU"), bootstrap::kMaxGpus);
  if (device) step->device = static_cast<int>(*device);
  *job = step.release();
  return BOOTSTRAP_OK;
}

int part(const bootstrap_t* job, std::uint32_t bootstrap::Place::*member) noexcept {
  return job == nullptr ? -1 : static_cast<int>(job->place.*member);
}

}  // namespace

extern "C" {

int bootstrap_version(void) {
  return BOOTSTRAP_VERSION_MAJOR * 10000 + BOOTSTRAP_VERSION_MINOR * 100 + BOOTSTRAP_VERSION_PATCH;
}

bootstrap_status_t bootstrap_open(bootstrap_t** job, const bootstrap_options_t* options) {
  if (job == nullptr || options != nullptr) {
    remember("bootstrap: bootstrap_open takes the address of a handle and, for now, NULL for the options");
    return BOOTSTRAP_ERROR_INVALID;
  }
  *job = nullptr;
  try {
    return open_step(job);
  } catch (const std::exception& exception) {
    (void)std::snprintf(last_error, sizeof last_error, "bootstrap: bootstrap_open failed: %s", exception.what());
    return BOOTSTRAP_ERROR_INTERNAL;
  }
}

void bootstrap_close(bootstrap_t* job) { delete job; }

int bootstrap_rank(const bootstrap_t* job) { return part(job, &bootstrap::Place::rank); }
int bootstrap_size(const bootstrap_t* job) { return job == nullptr ? -1 : job->size; }
int bootstrap_local_rank(const bootstrap_t* job) { return part(job, &bootstrap::Place::local_rank); }
int bootstrap_local_size(const bootstrap_t* job) { return part(job, &bootstrap::Place::local_size); }
int bootstrap_node_rank(const bootstrap_t* job) { return part(job, &bootstrap::Place::node_rank); }
int bootstrap_node_count(const bootstrap_t* job) { return job == nullptr ? -1 : job->node_count; }
int bootstrap_cross_rank(const bootstrap_t* job) { return part(job, &bootstrap::Place::cross_rank); }
int bootstrap_cross_size(const bootstrap_t* job) { return part(job, &bootstrap::Place::cross_size); }

int bootstrap_device(const bootstrap_t* job) { return job == nullptr ? -1 : job->device; }

const char* bootstrap_master_addr(const bootstrap_t* job) {
  return job == nullptr ? nullptr : job->master_addr.c_str();
}
int bootstrap_master_port(const bootstrap_t* job) { return job == nullptr ? -1 : job->master_port; }

const char* bootstrap_last_error(void) { return last_error; }

}  // extern "C"

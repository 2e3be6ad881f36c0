// What stands behind a handle of the C interface, and how its functions report failure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "bootstrap/bootstrap.h"
#include "comm/exchange.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

struct bootstrap_job {
  std::string who;  // "StepId=12.0 rank 3: ", before each of its errors
  bootstrap::Layout layout;
  bootstrap::Place place;
  std::string master_addr;
  int master_port = 0;
  int device = -1;
  std::chrono::milliseconds timeout{0};
  std::string nccl_library;  // SLURM_BOOTSTRAP_NCCL
  std::unique_ptr<bootstrap::Exchange> exchange;
};

namespace bootstrap::api {

// Keeps the sentence for bootstrap_last_error() of this thread, and gives the status that goes with it.
bootstrap_status_t report(const Error& error) noexcept;
bootstrap_status_t report(bootstrap_status_t status, const char* sentence) noexcept;

// While it exists, pthread_cancel(3) waits: it unwinds a thread by an exception, which must not leave a C function.
class NoCancellation {
 public:
  NoCancellation() noexcept { (void)::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { (void)::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// No exception leaves a C function: what a body throws is a lack of memory, or a bug.
template <class Body>
bootstrap_status_t guarded(const char* function, Body body) noexcept {
  const NoCancellation none;
  try {
    const Status status = body();
    return status ? BOOTSTRAP_OK : report(status.error());
  } catch (const std::exception& exception) {
    return report(BOOTSTRAP_ERROR_INTERNAL, exception.what());
  } catch (...) {
    return report(BOOTSTRAP_ERROR_INTERNAL, function);
  }
}

// The same for a call on a handle. An error of the exchange has the prefix already.
template <class Body>
bootstrap_status_t guarded(const char* function, const bootstrap_t& job, Body body) noexcept {
  return guarded(function, [&]() -> Status {
    auto status = body();
    if (!status && !status.error().message.starts_with(job.who)) status.error().message.insert(0, job.who);
    return status;
  });
}

}  // namespace bootstrap::api

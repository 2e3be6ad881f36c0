// The handle of the C interface, its option structures, and how its functions report errors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "bootstrap/bootstrap.h"
#include "comm/exchange.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"
#include "core/util/text.h"

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

// Stores the message for bootstrap_last_error() of this thread, and returns the status.
bootstrap_status_t report(const Error& error) noexcept;
bootstrap_status_t report(bootstrap_status_t status, const char* sentence) noexcept;

// Delays pthread_cancel(3), which unwinds a thread like an exception, and must not leave a C function.
class NoCancellation {
 public:
  NoCancellation() noexcept { (void)::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { (void)::pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// No exception leaves a C function. A body throws only if it is out of memory, or has a bug.
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
bootstrap_status_t guarded(const char* function, const bootstrap_t* job, Body body) noexcept {
  return guarded(function, [&]() -> Status {
    if (job == nullptr) return fail(ErrorCode::kInvalid, cat({function, ": the handle is NULL"}));
    auto status = body();
    if (!status && !status.error().message.starts_with(job->who)) status.error().message.insert(0, job->who);
    return status;
  });
}

// An option structure of a program that was built with any version of the header. `struct_size`, the first member, is
// its size: members that an older header lacks keep their defaults, and members of a newer header must be zero. NULL
// means the defaults.
template <class Options>
Result<Options> read_options(const Options* given, Options defaults, const char* name) {
  if (given == nullptr) return defaults;
  const std::size_t size = given->struct_size;
  constexpr std::size_t kMost = 4096;
  if (size < sizeof given->struct_size || size > kMost) {
    return fail(ErrorCode::kInvalid, cat({name, ".struct_size is ", std::to_string(size), "; start from ", name,
                                          " = the _INIT macro of bootstrap.h"}));
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(ErrorCode::kUnsupported,
                  cat({name,
                       " has a member that this version of libbootstrap does not know; install a newer "
                       "one, or leave the member zero"}));
    }
  }
  std::memcpy(&defaults, given, std::min(size, sizeof(Options)));
  return defaults;
}

}  // namespace bootstrap::api

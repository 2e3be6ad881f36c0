// One rank's call of ncclCommInitRank and its kin, with an end to the wait.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl_comm_init.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/nccl/cuda_device.h"
#include "comm/process/abandonable_thread.h"
#include "comm/process/secure_wipe.h"
#include "comm/process/sleep_for.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long ncclCommAbort may take; what it waits for looks at the abort flag many times a second.
constexpr milliseconds kAbortTime{1500};
constexpr milliseconds kShortestPause{1};
constexpr milliseconds kLongestPause{20};

// "60 s", "0.5 s".
std::string seconds_since(Deadline start) {
  const auto tenths = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start).count() / 100;
  const auto whole = std::to_string(tenths / 10);
  return tenths >= 100 || tenths % 10 == 0 ? cat({whole, " s"}) : cat({whole, ".", std::to_string(tenths % 10), " s"});
}

// Owned by the caller and by the thread, whichever is there last.
class Init {
 public:
  explicit Init(InitCall call)
      : call_(std::move(call)), roots_(static_cast<int>(call_.ids.size())), start_(steady_clock::now()) {}
  Init(const Init&) = delete;
  Init& operator=(const Init&) = delete;
  ~Init() { wipe(call_.ids); }

  void run();                        // in the thread
  Result<nccl::Comm> take_result();  // in the caller, once it has stopped waiting
  Deadline deadline() const { return call_.nonblocking ? call_.deadline + kAbortTime : call_.deadline; }

 private:
  const char* name() const;
  nccl::ResultCode start(nccl::Comm* comm);
  Result<nccl::Comm> make();
  Result<nccl::Comm> wait_until_ready(nccl::Comm comm) const;
  Error too_late() const;

  InitCall call_;
  int roots_;
  Deadline start_;
  std::mutex mutex_;
  bool is_abandoned_ = false;
  std::optional<Result<nccl::Comm>> result_;
};

const char* Init::name() const {
  if (roots_ > 1) return "ncclCommInitRankScalable";
  return call_.nonblocking ? "ncclCommInitRankConfig" : "ncclCommInitRank";
}

Error Init::too_late() const {
  constexpr std::string_view kLateHint =
      " in the communicator: a rank has not called it, or cannot be reached over the network interface that ";
  return {ErrorCode::kTimeout,
          cat({name(), " has not finished after ", seconds_since(start_), " on ", call_.who, ", which is rank ",
               std::to_string(call_.rank), " of ", std::to_string(call_.ranks), kLateHint, nccl::product(),
               " chose; NCCL_DEBUG=INFO shows the interface, NCCL_SOCKET_IFNAME sets it"})};
}

nccl::ResultCode Init::start(nccl::Comm* comm) {
  nccl::Config config;
  config.blocking = call_.nonblocking ? 0 : 1;
  const auto& nccl = call_.nccl;
  if (roots_ > 1) {
    return nccl.init_rank_scalable(comm, call_.ranks, call_.rank, roots_, call_.ids.data(), &config);
  }
  if (call_.nonblocking) return nccl.init_rank_config(comm, call_.ranks, call_.ids.front(), call_.rank, &config);
  return nccl.init_rank(comm, call_.ranks, call_.ids.front(), call_.rank);
}

// Also where blocking was asked for: NCCL_COMM_BLOCKING=0 in the environment comes first in NCCL.
Result<nccl::Comm> Init::wait_until_ready(nccl::Comm comm) const {
  const auto& nccl = call_.nccl;
  auto pause = kShortestPause;
  while (true) {
    auto state = nccl::kInProgress;
    const auto code = nccl.get_async_error(comm, &state);
    const auto outcome = code != nccl::kSuccess ? code : state;
    if (outcome == nccl::kSuccess) return comm;
    const bool is_late = steady_clock::now() >= call_.deadline;
    if (outcome != nccl::kInProgress || is_late) {
      auto error = outcome == nccl::kInProgress
                       ? too_late()
                       : Error{ErrorCode::kUnavailable, nccl::describe(nccl, name(), outcome, comm)};
      (void)nccl.abort(comm);
      return fail(std::move(error));
    }
    sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

Result<nccl::Comm> Init::make() {
  if (call_.device >= 0) {
    if (const auto status = use_gpu(call_.device); !status) return fail(status.error());
  }
  nccl::Comm comm = nullptr;
  const auto code = start(&comm);
  wipe(call_.ids);  // NCCL has copied them
  if (code == nccl::kSuccess && !call_.nonblocking) return comm;
  if (code == nccl::kSuccess || code == nccl::kInProgress) return wait_until_ready(comm);
  return fail(ErrorCode::kUnavailable, nccl::describe(call_.nccl, name(), code, nullptr));
}

void Init::run() {
  auto result = make();
  const std::lock_guard lock(mutex_);
  if (is_abandoned_ && result) (void)call_.nccl.abort(*result);
  if (!is_abandoned_) result_ = std::move(result);
}

Result<nccl::Comm> Init::take_result() {
  const std::lock_guard lock(mutex_);
  if (result_) return std::move(*result_);
  is_abandoned_ = true;
  return fail(too_late());
}

}  // namespace

Status can_init(const nccl::Functions& nccl, std::size_t ids, bool nonblocking) {
  if (ids > 1 && nccl.init_rank_scalable == nullptr) {
    return fail(ErrorCode::kUnsupported, cat({std::to_string(ids), " roots need ncclCommInitRankScalable of ",
                                              nccl::product(), " 2.23 or newer, but this is ", nccl::product(), " ",
                                              nccl::version_text(nccl.version), " in ", nccl.path}));
  }
  const bool has_config = nccl.init_rank_config != nullptr && nccl.get_async_error != nullptr && nccl.abort != nullptr;
  if (nccl.init_rank == nullptr || (nonblocking && !has_config)) {
    return fail(ErrorCode::kUnsupported, cat({nccl::product(), " in ", nccl.path, " has no ",
                                              nccl.init_rank == nullptr ? "ncclCommInitRank" : "ncclCommInitRankConfig",
                                              "; use ", nccl::product(), " 2.14 or newer"}));
  }
  return {};
}

Result<nccl::Comm> init_communicator(InitCall call) {
  auto init = std::make_shared<Init>(std::move(call));
  AbandonableThread worker;
  if (auto status = worker.start([init] { init->run(); }); !status) return fail(status.error());
  (void)worker.wait_until(init->deadline());
  return init->take_result();
}

}  // namespace bootstrap

// One rank's call of ncclCommInitRank or a variant of it, with a deadline.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/nccl/communicator.h"
#include "comm/nccl/cuda_device.h"
#include "core/step/rank_layout.h"
#include "core/util/text.h"
#include "probe/deadline.h"
#include "probe/secrets.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAbortTime{1500};  // for ncclCommAbort, which ends loops that poll the abort flag
constexpr milliseconds kShortestPoll{1};
constexpr milliseconds kLongestPoll{20};
// A rank that waits in NCCL for this long reports it, for ranks with an earlier deadline. Most communicators are ready
// before, and need no further session with the server.
constexpr milliseconds kLongWait{2000};
constexpr milliseconds kSpread{500};  // from the first to the last rank's end of the round

// "60 s", "0.5 s".
std::string seconds_since(Deadline start) {
  const auto tenths = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start).count() / 100;
  const auto whole = std::to_string(tenths / 10);
  return tenths >= 100 || tenths % 10 == 0 ? cat({whole, " s"}) : cat({whole, ".", std::to_string(tenths % 10), " s"});
}

// Owned by the caller and by the thread that calls NCCL.
class Init {
 public:
  Init(CommunicatorCall call, std::vector<nccl::UniqueId> ids)
      : call_(std::move(call)), ids_(std::move(ids)), roots_(static_cast<int>(ids_.size())) {}
  ~Init() { wipe(ids_); }

  // Runs in the thread that calls NCCL.
  void run() {
    auto result = make();
    const std::lock_guard lock(mutex_);
    if (is_abandoned_ && result) (void)call_.nccl.abort(*result);
    if (!is_abandoned_) result_ = std::move(result);
  }

  // Runs in the caller, once it has stopped waiting.
  Result<nccl::Comm> take_result() {
    const std::lock_guard lock(mutex_);
    if (result_) return std::move(*result_);
    is_abandoned_ = true;
    return fail(too_late());
  }

  // NCCL's call has returned, and the communicator is not ready yet: at the deadline the thread aborts it.
  bool is_polling() const { return is_polling_; }

  const char* name() const {
    if (roots_ > 1) return "ncclCommInitRankScalable";
    return call_.options.nonblocking || !call_.options.config.empty() ? "ncclCommInitRankConfig" : "ncclCommInitRank";
  }

  Error too_late() const {
    return {ErrorCode::kTimeout,
            cat({name(), " has not finished after ", seconds_since(start_), " on ",
                 describe_rank(call_.layout, call_.group.ranks[call_.group.own]), ", which is rank ",
                 std::to_string(rank()), " of ", std::to_string(ranks()), " in the communicator"})};
  }

  // True if the first rank of the communicator cannot bind NCCL_COMM_ID: another host's address, or one in use.
  bool is_without_root(const Error& error) const {
    return outcome_ == nccl::kSystemError && error.message.find("bind") != std::string::npos;
  }

  // True for the errors that NCCL returns after a peer has closed or reset a connection.
  bool has_lost_peer(const Error& error) const {
    return outcome_ == nccl::kRemoteError || (outcome_ == nccl::kSystemError && !is_without_root(error));
  }

 private:
  int rank() const { return static_cast<int>(call_.group.own); }
  int ranks() const { return static_cast<int>(call_.group.ranks.size()); }

  Result<nccl::Comm> make() {
    if (call_.options.device >= 0) {
      if (const auto status = use_gpu(call_.options.device); !status) return fail(status.error());
    }
    nccl::Comm comm = nullptr;
    const auto code = start(&comm);
    wipe(ids_);  // NCCL has copied them
    if (code == nccl::kSuccess && !call_.options.nonblocking) return comm;
    if (code == nccl::kSuccess || code == nccl::kInProgress) return wait_until_ready(comm);
    outcome_ = code;
    return fail(ErrorCode::kUnavailable, nccl::describe(call_.nccl, name(), code, nullptr));
  }

  nccl::ResultCode start(nccl::Comm* comm) {
    nccl::Config plain;
    plain.blocking = call_.options.nonblocking ? 0 : 1;
    void* const config = call_.options.config.empty() ? static_cast<void*>(&plain) : call_.options.config.data();
    const auto& nccl = call_.nccl;
    if (roots_ > 1) {
      return nccl.init_rank_scalable(comm, ranks(), rank(), roots_, ids_.data(), config);
    }
    if (config != &plain || call_.options.nonblocking) {
      return nccl.init_rank_config(comm, ranks(), ids_.front(), rank(), config);
    }
    return nccl.init_rank(comm, ranks(), ids_.front(), rank());
  }

  // Also for a blocking call: NCCL_COMM_BLOCKING=0 in the environment overrides it.
  Result<nccl::Comm> wait_until_ready(nccl::Comm comm) {
    const auto& nccl = call_.nccl;
    is_polling_ = true;
    auto pause = kShortestPoll;
    while (true) {
      auto state = nccl::kInProgress;
      const auto code = nccl.get_async_error(comm, &state);
      const auto outcome = code != nccl::kSuccess ? code : state;
      if (outcome == nccl::kSuccess) return comm;
      if (outcome != nccl::kInProgress || steady_clock::now() >= call_.options.deadline) {
        auto error = outcome == nccl::kInProgress
                         ? too_late()
                         : Error{ErrorCode::kUnavailable, nccl::describe(nccl, name(), outcome, comm)};
        outcome_ = outcome;
        (void)nccl.abort(comm);
        return fail(std::move(error));
      }
      sleep_for(pause);
      pause = std::min(2 * pause, kLongestPoll);
    }
  }

  CommunicatorCall call_;
  std::vector<nccl::UniqueId> ids_;
  int roots_;
  const Deadline start_ = steady_clock::now();
  std::mutex mutex_;
  bool is_abandoned_ = false;
  std::atomic<bool> is_polling_{false};
  std::atomic<nccl::ResultCode> outcome_{nccl::kSuccess};
  std::optional<Result<nccl::Comm>> result_;
};

// The report of a rank that failed. A rank that has not lost a peer comes first.
std::optional<Error> find_failure(const Layout& layout, const RankReports& reports, bool may_have_lost_peer) {
  const auto& failures = reports.failures;
  auto found = std::find_if(failures.begin(), failures.end(), [](const auto& report) { return !report.has_lost_peer; });
  if (found == failures.end() && may_have_lost_peer) found = failures.begin();
  if (found == failures.end()) return std::nullopt;
  return Error{ErrorCode::kUnavailable, cat({describe_rank(layout, found->rank), ": ", found->failure})};
}

std::string describe_missing(const std::string& name, const RankReports& reports) {
  return cat({"; ranks stopped, ended, or are done with ", name,
              ", in which others wait; look for their last messages; ", reports.missing});
}

// For a rank that has waited in the call `name` until its deadline: the message of a rank that failed, or `late` with
// what is known.
Error explain_wait(const CommunicatorCall& call, const std::string& name, Error late) {
  if (call.exchange == nullptr) return late;
  const auto reports = call.exchange->share_reports(std::nullopt, call.group.ranks);
  const auto failure = reports ? find_failure(call.layout, *reports, reports->missing.empty()) : std::nullopt;
  if (failure) return *failure;
  if (!reports) {
    late.message += cat({"; ", reports.error().message});
  } else if (!reports->missing.empty()) {
    late.message += describe_missing(name, *reports);
  } else {
    late.message += cat({"; all ranks of the communicator wait in ", name,
                         ": they cannot reach each other over the network interface that ", nccl::product(),
                         " chose; NCCL_DEBUG=INFO shows the interface, NCCL_SOCKET_IFNAME sets it"});
  }
  return late;
}

// For a rank that fails: stores its report. If it has lost a peer, reads the others' reports once all ranks that wait
// have reported, and returns the message of the rank that failed first, or its own with the missing ranks.
Error report_failure(const CommunicatorCall& call, const std::string& name, Error own, bool has_lost_peer,
                     Deadline all_have_reported) {
  if (call.exchange == nullptr) return own;
  auto reports = call.exchange->share_reports(RankReport{.failure = own.message, .has_lost_peer = has_lost_peer}, {});
  if (!has_lost_peer || !reports) return own;
  sleep_for(all_have_reported - steady_clock::now());
  reports = call.exchange->share_reports(std::nullopt, call.group.ranks);
  if (!reports) return own;
  if (auto failure = find_failure(call.layout, *reports, false)) return *failure;
  if (!reports->missing.empty()) own.message += describe_missing(name, *reports);
  return own;
}

}  // namespace

Status can_init(const nccl::Functions& nccl, std::size_t ids) {
  if (ids < 2 || nccl.init_rank_scalable != nullptr) return {};
  return fail(ErrorCode::kUnsupported, cat({std::to_string(ids), " roots need ncclCommInitRankScalable of ",
                                            nccl::product(), " 2.23 or newer, but this is ", nccl::product(), " ",
                                            nccl::version_text(nccl.version), " in ", nccl.path}));
}

Result<nccl::Comm> init_communicator(CommunicatorCall call, std::vector<nccl::UniqueId> ids) {
  const auto deadline = call.options.deadline;
  const auto init = std::make_shared<Init>(call, std::move(ids));
  const std::string name = init->name();
  std::sort(call.group.ranks.begin(), call.group.ranks.end());  // as reports are asked for
  AbandonableThread worker;
  if (auto status = worker.start([init] { init->run(); }); !status) return fail(status.error());
  const auto start = steady_clock::now();
  const auto patience = std::min<steady_clock::duration>(kLongWait, (deadline - start) / 2);
  if (!worker.wait_until(start + patience) && call.exchange != nullptr) {
    (void)call.exchange->share_reports(RankReport(), {});  // it waits
  }
  std::optional<Error> late;
  if (!worker.wait_until(deadline)) {
    const auto until = steady_clock::now() + kAbortTime;
    late = explain_wait(call, name, init->too_late());
    if (init->is_polling()) (void)worker.wait_until(until);
  }
  auto result = init->take_result();
  if (result) return result;
  auto error = late ? *late : result.error();
  if (error.code == ErrorCode::kTimeout || init->is_without_root(error)) error.message += nccl::fixed_root_hint();
  if (late) return fail(error);
  return fail(
      report_failure(call, name, error, init->has_lost_peer(error), std::min(start + kLongWait + kSpread, deadline)));
}

}  // namespace bootstrap

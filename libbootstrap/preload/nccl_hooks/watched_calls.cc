// Calls that make communicators, from the program's call until the communicator is there: it may be grouped with
// others, and it may be made after the call has come back.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/watched_calls.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/step/message_prefix.h"
#include "core/util/text.h"
#include "preload/nccl_hooks/communicator_key.h"
#include "preload/stderr_message.h"

namespace bootstrap {
namespace {

// Of this thread. Plain data, so that no destructor has to run when it ends.
struct Group {
  int depth;
  std::vector<WatchedCall>* calls;  // null where none has been made
};
constinit thread_local Group group{};

// Calls that have come back, and whose communicators are not there yet. Never deleted: threads use it while the process
// ends. A forked child leaves them alone: their threads are its parent's, and one may have held the lock.
struct Pending {
  const pid_t process = ::getpid();
  std::mutex mutex;
  std::vector<WatchedCall> calls;
};
constinit std::atomic<std::size_t> pending_count = 0;

Pending& pending() {
  static auto* const all = new Pending;
  return *all;
}

std::optional<WatchedCall> take_pending(nccl::Comm comm, nccl::ResultCode state) {
  auto& all = pending();
  if (comm == nullptr || all.process != ::getpid()) return std::nullopt;
  const std::lock_guard lock(all.mutex);
  const auto found = std::find_if(all.calls.begin(), all.calls.end(),
                                  [comm](const auto& call) { return call.comm == comm || call.parent == comm; });
  if (found == all.calls.end()) return std::nullopt;
  if (state == nccl::kInProgress) {
    for (const auto& watch : found->watches) watch->note_question();
    return std::nullopt;
  }
  std::optional<WatchedCall> call(std::move(*found));
  all.calls.erase(found);
  pending_count = all.calls.size();
  return call;
}

void keep_pending(WatchedCall&& call) {
  auto& all = pending();
  if (all.process != ::getpid()) return;
  const std::lock_guard lock(all.mutex);
  all.calls.push_back(std::move(call));
  pending_count = all.calls.size();
}

void tell_time(const WatchedCall& call, std::chrono::nanoseconds time, nccl::ResultCode code) {
  char milliseconds[32];
  (void)std::snprintf(milliseconds, sizeof milliseconds, "%.1f", static_cast<double>(time.count()) * 1e-6);
  const auto of = cat({" of ", std::to_string(call.call.ranks), " ranks",
                       call.roots == 0 ? "" : cat({", ", counted(call.roots, "root")})});
  say(cat({kMessagePrefix, about_rank(call.step->id, call.step->rank), call.call.function, of, ": ", milliseconds,
           " ms", code == nccl::kSuccess ? "" : cat({", result ", std::to_string(code)})}));
}

}  // namespace

void begin_call(WatchedCall& call) {
  call.start = std::chrono::steady_clock::now();
  call.watches.push_back(std::make_unique<HangWatchdog>(*call.step, call.call));
  if (call.of_new_ranks) call.watches.push_back(std::make_unique<HangWatchdog>(*call.step, *call.of_new_ranks));
}

void end_call(WatchedCall&& call, nccl::ResultCode code) {
  const auto time = std::chrono::steady_clock::now() - call.start;
  if (group.depth > 0 && (code == nccl::kSuccess || code == nccl::kInProgress)) {
    if (group.calls == nullptr) group.calls = new std::vector<WatchedCall>;
    group.calls->push_back(std::move(call));
    return;
  }
  if (call.comm == nullptr && call.result != nullptr) call.comm = *call.result;
  if (code == nccl::kSuccess || code == nccl::kInProgress) remember(call.comm, call.topic);
  // Up to NCCL 2.23 the new communicator of a split is not known before its parent is ready.
  if (code == nccl::kInProgress && (call.comm != nullptr || call.parent != nullptr)) {
    for (const auto& watch : call.watches) watch->note_question();
    return keep_pending(std::move(call));
  }
  if (code != nccl::kSuccess && code != nccl::kInProgress) {
    for (const auto& watch : call.watches) watch->fail(describe(call.nccl, call.call.function, code, nullptr));
  }
  call.watches.clear();
  if (call.step->options.timing) tell_time(call, time, code);
}

void enter_group() noexcept { ++group.depth; }

std::vector<WatchedCall> leave_group() {
  if (group.depth > 0) --group.depth;
  if (group.depth > 0 || group.calls == nullptr) return {};
  const std::unique_ptr<std::vector<WatchedCall>> calls(std::exchange(group.calls, nullptr));
  return std::move(*calls);
}

void note_state(nccl::Comm comm, nccl::ResultCode state) noexcept {
  if (pending_count == 0) return;
  try {
    while (auto call = take_pending(comm, state)) end_call(std::move(*call), state);
  } catch (const std::exception&) {
    // Without memory there is no message.
  }
}

void forget(nccl::Comm comm) noexcept {
  forget_topic(comm);
  if (pending_count == 0) return;
  try {
    while (take_pending(comm, nccl::kSuccess)) {
    }
  } catch (const std::exception&) {
  }
}

}  // namespace bootstrap

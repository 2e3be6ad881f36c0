// A thread beside an NCCL call that waits for other ranks: at the deadline it says who has not come, and nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hang_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "comm/process/abandonable_thread.h"
#include "preload/nccl_hooks/roll_call.h"
#include "preload/nccl_hooks/watch_state.h"

namespace bootstrap {

struct HangWatchdog::State : WatchState {
  using WatchState::WatchState;
  AbandonableThread worker;
};

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kAnnounceDelay{5};
constexpr std::chrono::seconds kTimeToClose{2};  // for the end of a session

// Watches whose threads run, for the end of the process. A forked child starts with none: it has no threads.
struct Running {
  std::mutex mutex;
  std::vector<std::shared_ptr<HangWatchdog::State>> states;
  SharedSession session;
  const pid_t process = ::getpid();
};

Running& running() {
  static std::atomic<Running*> current = nullptr;
  auto* all = current.load();
  if (all == nullptr || all->process != ::getpid()) {
    auto* const fresh = new Running;  // never deleted: threads use it while the process ends
    if (current.compare_exchange_strong(all, fresh)) return *fresh;
    delete fresh;
  }
  return *all;
}

// A process that ends inside a PMIx session ends its step: Slurm takes it for a crash.
void end_all() {
  auto& all = running();
  std::vector<std::shared_ptr<HangWatchdog::State>> states;
  {
    const std::lock_guard lock(all.mutex);
    states = all.states;
  }
  for (const auto& state : states) state->end();
  const auto deadline = steady_clock::now() + kTimeToClose;
  for (const auto& state : states) (void)state->worker.wait_until(deadline);
}

std::chrono::milliseconds announce_delay(const HookedStep& step) {
  const auto quarter = std::chrono::duration_cast<std::chrono::milliseconds>(step.options.timeout) / 4;
  return std::min<std::chrono::milliseconds>(kAnnounceDelay, quarter);
}

// A call that is waited for, or has not ended, at the deadline.
void watch(WatchState& state, SharedSession& session) {
  const auto& step = state.step;
  const auto deadline = state.start + step.options.timeout;
  const auto delay = announce_delay(step);
  if (state.is_over_before(state.start + delay) && !state.has_failed()) return;
  auto open = session.join(step, state.has_failed() ? steady_clock::now() + kTimeToClose : deadline);
  std::optional<Error> reason;
  if (open) {
    RollCall roll(state, **open, delay);
    roll.announce();
    if (state.has_failed() || roll.tells_versions()) return;
    const bool is_over = state.is_over_before(deadline);
    if (!is_over || state.has_failed()) roll.announce_end();
    if (is_over) return;
    if (state.is_waited_for()) return roll.call();
    reason = Error{ErrorCode::kUnavailable, "the program has not waited for it before"};
    open = fail(*reason);  // closed: no session may be open while nobody waits
  } else {
    reason = open.error();
    if (reason->code == ErrorCode::kDisagreement) return;  // another process of this task has the session
  }
  if (state.is_over_before(deadline) || state.is_over_before_question() || step.layout.place(step.rank).local_rank != 0)
    return;
  step.warn(describe_lone_hang(step.layout, step.rank, state.call, step.options.timeout, *reason));
}

}  // namespace

HangWatchdog::HangWatchdog(const HookedStep& step, const WaitingCall& call) {
  static const bool is_registered = std::atexit(end_all) == 0;
  auto& all = running();
  const std::lock_guard lock(all.mutex);
  const auto same = std::find_if(all.states.begin(), all.states.end(), [&](const auto& state) {
    return state->call.topic == call.topic && state->join(call);
  });
  if (same != all.states.end()) {
    state_ = *same;
    return;
  }
  state_ = std::make_shared<State>(step, call);
  if (!is_registered) return;
  const auto started = state_->worker.start([state = state_, &all] { watch(*state, all.session); });
  if (started) all.states.push_back(state_);
}

HangWatchdog::~HangWatchdog() {
  if (!state_->leave()) return;  // another call of this process is still in it
  // One that has not ended may still open a session: the end of the process must wait for it.
  if (!state_->worker.wait_until(steady_clock::now() + kTimeToClose)) return;
  auto& all = running();
  const std::lock_guard lock(all.mutex);
  std::erase(all.states, state_);
}

void HangWatchdog::fail(std::string sentence) { state_->fail(std::move(sentence)); }

void HangWatchdog::note_question() { state_->note_question(); }

}  // namespace bootstrap

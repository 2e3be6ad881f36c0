// A thread beside an NCCL call that waits for other ranks: at the deadline it says who has not come, and nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/hang_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <vector>

#include "comm/pmix/rank_presence.h"
#include "comm/process/abandonable_thread.h"
#include "core/util/text.h"
#include "preload/nccl_hooks/session_lock.h"

namespace bootstrap {

struct HangWatchdog::State {
  State(const HookedStep& the_step, const WaitingCall& the_call) : step(the_step), call(the_call) {}

  const HookedStep& step;
  const WaitingCall call;
  const Deadline start = std::chrono::steady_clock::now();
  AbandonableThread worker;

  // True when the call has come back, or the process ends, before that time.
  bool is_over_before(Deadline time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, time, [this] { return is_over_; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
};

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kAnnounceDelay{5};
constexpr std::chrono::seconds kGrace{2};  // for answers at the deadline, and for the end of a session
constexpr Rank kLowest = 16;               // ranks that are asked first, so that all of many ranks need not ask all

// Watches whose threads run, for the end of the process. A forked child starts with none: it has no threads.
struct Running {
  std::mutex mutex;
  std::vector<std::shared_ptr<HangWatchdog::State>> states;
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
  const auto deadline = steady_clock::now() + kGrace;
  for (const auto& state : states) (void)state->worker.wait_until(deadline);
}

struct Roll {
  std::vector<std::optional<std::uint32_t>> came;
  ServerState server = ServerState::kAnswers;
};

Roll ask(RankPresence& attendance, const std::vector<Rank>& ranks) {
  const auto answers = attendance.ask(ranks, steady_clock::now() + kGrace);
  Roll roll{{}, answers.server};
  for (const auto& answer : answers.values) {
    const auto rank = answer ? parse_unsigned(*answer, kMaxRanks) : std::nullopt;
    roll.came.push_back(rank ? std::optional(static_cast<std::uint32_t>(*rank)) : std::nullopt);
  }
  return roll;
}

// The lowest rank that came speaks for all that did; where slurmstepd does not tell who did, several may.
void call_the_roll(HangWatchdog::State& state, RankPresence& attendance) {
  const auto& step = state.step;
  std::vector<Rank> ranks(step.layout.size());
  std::iota(ranks.begin(), ranks.end(), Rank{0});
  const std::vector<Rank> lower(ranks.begin(), ranks.begin() + std::min(step.rank, kLowest));
  Roll roll = ask(attendance, lower);
  const auto has_come = [](const auto& rank) { return rank.has_value(); };
  if (std::any_of(roll.came.begin(), roll.came.end(), has_come)) return;
  if (state.is_over_before(steady_clock::now())) return;  // the process may end, and waits for kGrace alone
  if (roll.server == ServerState::kAnswers) {
    roll = ask(attendance, ranks);
  } else {  // nor will it answer for the others
    roll.came.assign(ranks.size(), std::nullopt);
    roll.came[step.rank] = state.call.rank;
  }
  const auto first = std::find_if(roll.came.begin(), roll.came.end(), has_come);
  if (first - roll.came.begin() != static_cast<std::ptrdiff_t>(step.rank)) return;
  step.warn(describe_hang(step.layout, state.call, step.options.timeout, roll.came, roll.server));
}

void watch(HangWatchdog::State& state) {
  const auto& step = state.step;
  const auto deadline = state.start + step.options.timeout;
  const auto quarter = std::chrono::duration_cast<std::chrono::milliseconds>(step.options.timeout) / 4;
  if (state.is_over_before(state.start + std::min<std::chrono::milliseconds>(kAnnounceDelay, quarter))) return;
  const auto task = parse_unsigned(step.environment.get("SLURM_TASK_PID").value_or(""), INT32_MAX);
  const SessionLock lock(lock_name(step.id, step.rank, static_cast<std::uint32_t>(task.value_or(0))));
  if (!lock.is_held()) return;  // another call, or another process of this task, has it
  const auto topic = cat({"call.", std::to_string(state.call.topic)});
  const auto attendance = RankPresence::announce(step.id, step.layout, step.rank, step.environment, topic,
                                                 std::to_string(state.call.rank), deadline);
  if (state.is_over_before(deadline)) return;
  if (attendance) return call_the_roll(state, **attendance);
  const auto& place = step.layout.place(step.rank);
  if (place.local_rank != 0) return;
  step.warn(describe_lone_hang(step.layout, step.rank, state.call, step.options.timeout, attendance.error()));
}

}  // namespace

HangWatchdog::HangWatchdog(const HookedStep& step, const WaitingCall& call)
    : state_(std::make_shared<State>(step, call)) {
  static const bool is_registered = std::atexit(end_all) == 0;
  if (!is_registered) return;
  auto& all = running();
  const std::lock_guard lock(all.mutex);
  const auto started = state_->worker.start([state = state_] { watch(*state); });
  if (started) all.states.push_back(state_);
}

HangWatchdog::~HangWatchdog() {
  state_->end();
  // One that has not ended may still open a session: the end of the process must wait for it.
  if (!state_->worker.wait_until(steady_clock::now() + kGrace)) return;
  auto& all = running();
  const std::lock_guard lock(all.mutex);
  std::erase(all.states, state_);
}

}  // namespace bootstrap

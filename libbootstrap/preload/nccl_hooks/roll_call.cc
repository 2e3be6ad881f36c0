// What the ranks of a call that waits say to each other over PMIx, and what is made of it.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/roll_call.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/util/text.h"
#include "preload/nccl_hooks/ended_ranks.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeOfAnswers{
    2};  // for answers: the process may end meanwhile, and waits for no longer
constexpr std::chrono::seconds kEndGrace{1};
constexpr Rank kLowest = 16;              // ranks that are asked first, so that all of many ranks need not ask all
constexpr std::size_t kNodesAtOnce = 16;  // whose version is asked for at once

std::uint32_t task_of(const HookedStep& step) {
  const auto task = parse_unsigned(step.environment.get("SLURM_TASK_PID").value_or(""), INT32_MAX);
  return static_cast<std::uint32_t>(task.value_or(0));
}

std::string end_topic(const std::string& topic) { return cat({topic, ".end"}); }

bool waits(const std::optional<CallAttendance>& one) { return one && one->failure.empty(); }

}  // namespace

Result<std::shared_ptr<RankPresence>> SharedSession::join(const HookedStep& step, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (auto open = open_.lock()) return open;
  // PMIx shows the ranks of a node what a rank has put in its first session alone (4.2.2).
  if (was_open_) {
    return fail(ErrorCode::kUnavailable,
                "PMIx shows the other ranks only the first call of a task that took long, and this is a later one");
  }
  auto held = std::make_unique<SessionLock>(lock_name(step.id, step.rank, task_of(step)));
  if (!held->is_held()) {
    return fail(ErrorCode::kDisagreement, "another process of this task has the PMIx session");
  }
  auto opened = RankPresence::open(step.id, step.layout, step.rank, step.environment, deadline);
  if (!opened) return fail(opened.error());
  was_open_ = true;
  // The lock goes when the session is closed.
  std::shared_ptr<RankPresence> session(opened->release(), [held = std::shared_ptr<SessionLock>(std::move(held))](
                                                               RankPresence* closing) { delete closing; });
  open_ = session;
  return session;
}

RollCall::RollCall(WatchState& state, RankPresence& session, milliseconds delay)
    : state_(state), session_(session), delay_(delay), topic_(cat({"call.", std::to_string(state.call.topic)})) {}

std::string RollCall::write() const {
  auto attendance = state_.attendance();
  attendance.ended = ended_ranks(state_.step.layout, state_.step.rank, static_cast<pid_t>(task_of(state_.step)));
  return write_attendance(attendance);
}

void RollCall::announce() { (void)session_.say(topic_, write()); }

void RollCall::announce_end() { (void)session_.say(end_topic(topic_), write()); }

void RollCall::merge(Roll& roll, const std::vector<Rank>& ranks, const RankPresence::Answers& answers) const {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto attendance = answers.values[i] ? read_attendance(*answers.values[i]) : std::nullopt;
    if (attendance) roll.came[ranks[i]] = std::move(attendance);
  }
  roll.server = answers.server;
}

void RollCall::ask(Roll& roll, const std::vector<Rank>& ranks) {
  merge(roll, ranks, session_.ask(topic_, ranks, steady_clock::now() + kTimeOfAnswers));
}

// Who has failed since, and whose tasks have ended: told at the end of a call, and at its deadline.
void RollCall::ask_for_ends(Roll& roll, const std::vector<Rank>& ranks) {
  std::vector<Rank> there;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(there),
               [&](Rank rank) { return waits(roll.came[rank]); });
  if (!there.empty()) merge(roll, there, session_.ask(end_topic(topic_), there, steady_clock::now() + kEndGrace));
}

// A call that began shortly before the deadline announces itself after it.
void RollCall::ask_again(Roll& roll, Deadline until) {
  while (roll.server == ServerState::kAnswers && steady_clock::now() < until) {
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < roll.came.size(); ++rank) {
      if (!roll.came[rank]) missing.push_back(rank);
    }
    if (missing.empty() || state_.is_over_before(steady_clock::now())) return;
    ask(roll, missing);
  }
}

bool RollCall::tells_versions() {
  const auto& layout = state_.step.layout;
  if (state_.step.rank != 0 || layout.node_count() == 1) return false;
  std::vector<Rank> firsts;
  for (std::uint32_t node = 0; node < std::min<std::size_t>(layout.node_count(), kNodesAtOnce); ++node) {
    firsts.push_back(layout.ranks_on(node).front());
  }
  std::sort(firsts.begin(), firsts.end());
  Roll roll{Attendances(layout.size())};
  ask(roll, firsts);
  const auto sentence = describe_versions(layout, roll.came);
  if (!sentence.empty() && !state_.is_over_before(steady_clock::now())) state_.step.warn(sentence);
  return !sentence.empty();
}

// The lowest rank that waits speaks for all that do; where slurmstepd does not tell who does, several may.
void RollCall::call() {
  const auto& step = state_.step;
  const auto asked_until = steady_clock::now() + delay_ + std::chrono::seconds(1);
  std::vector<Rank> ranks(step.layout.size());
  std::iota(ranks.begin(), ranks.end(), Rank{0});
  const std::vector<Rank> lower(ranks.begin(), ranks.begin() + std::min(step.rank, kLowest));
  Roll roll{Attendances(step.layout.size())};
  if (!lower.empty()) {
    ask(roll, lower);
    ask_for_ends(roll, lower);
    if (std::any_of(roll.came.begin(), roll.came.end(), waits)) return;
  }
  if (state_.is_over_before(steady_clock::now())) return;  // the process may end, and waits for kTimeOfAnswers alone
  if (roll.server == ServerState::kAnswers) {
    ask(roll, ranks);
    ask_again(roll, asked_until);
    if (roll.server == ServerState::kAnswers) ask_for_ends(roll, ranks);
  } else {  // nor will it answer for the others
    roll.came.assign(ranks.size(), std::nullopt);
    roll.came[step.rank] = read_attendance(write());
  }
  const auto first = std::find_if(roll.came.begin(), roll.came.end(), waits);
  if (first - roll.came.begin() != static_cast<std::ptrdiff_t>(step.rank)) return;
  if (state_.is_over_before(steady_clock::now())) return;
  const auto sentence = describe_hang(step.layout, state_.call, step.options.timeout, roll.came, roll.server);
  if (!sentence.empty()) step.warn(sentence);
}

}  // namespace bootstrap

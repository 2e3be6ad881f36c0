// What the ranks of a call that waits say to each other over PMIx, and what is made of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/pmix/rank_presence.h"
#include "core/util/result.h"
#include "preload/nccl_hooks/session_lock.h"
#include "preload/nccl_hooks/watch_state.h"

namespace bootstrap {

// The one session of this process, for all of its calls: the first opens it, the last closes it.
class SharedSession {
 public:
  // kDisagreement: another process of this task has one.
  Result<std::shared_ptr<RankPresence>> join(const HookedStep& step, Deadline deadline);

 private:
  std::mutex mutex_;
  std::weak_ptr<RankPresence> open_;
  bool was_open_ = false;
};

class RollCall {
 public:
  // `delay`: so long after it has been called a call announces itself.
  RollCall(WatchState& state, RankPresence& session, std::chrono::milliseconds delay);

  void announce();      // this call waits, or has failed
  void announce_end();  // what is new at the deadline, or when the call has failed

  // Rank 0 looks at once whether a rank of each node has another version of NCCL. True when it has told it.
  bool tells_versions();

  // The lowest rank that waits names those that do not.
  void call();

 private:
  struct Roll {
    Attendances came;
    ServerState server = ServerState::kAnswers;
  };
  std::string write() const;
  void ask(Roll& roll, const std::vector<Rank>& ranks);
  void ask_again(Roll& roll, Deadline until);
  void ask_for_ends(Roll& roll, const std::vector<Rank>& ranks);
  void merge(Roll& roll, const std::vector<Rank>& ranks, const RankPresence::Answers& answers) const;

  WatchState& state_;
  RankPresence& session_;
  const std::chrono::milliseconds delay_;
  const std::string topic_;
};

}  // namespace bootstrap

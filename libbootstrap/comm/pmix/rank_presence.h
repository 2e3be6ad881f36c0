// Who has come to a call that everybody must make, asked without a fence: for calls that wait inside NCCL.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "core/exchange/missing_ranks.h"

namespace bootstrap {

// An open PMIx session in which this rank has said that it is there. A process that ends while one is open ends its
// step (Slurm takes it for a crash), so it is opened only once something has waited for seconds, and closed soon.
class RankPresence {
 public:
  struct Answers {
    // Of the ranks that announced the topic, in the order of the question.
    std::vector<std::optional<std::string>> values;
    // Where it does not answer, who has no value may have announced the topic, too.
    ServerState server = ServerState::kAnswers;
  };

  // Comes back within the deadline. Errors as of Exchange::run.
  static Result<std::unique_ptr<RankPresence>> open(const StepId& id, const Layout& layout, Rank rank,
                                                    const Environment& environment, Deadline deadline);
  ~RankPresence();  // closes the session, in two seconds at most

  // `topic` is the same for all ranks that shall find each other, `value` is what they can read of this one. A topic
  // has one value for ever: other nodes keep the first that they read.
  Status say(const std::string& topic, const std::string& value);

  // Nothing for the ranks that had not announced it when the deadline passed. Comes back earlier when all have, and a
  // quarter of a second later where slurmstepd does not answer.
  Answers ask(const std::string& topic, const std::vector<Rank>& ranks, Deadline deadline);

  RankPresence(const RankPresence&) = delete;
  RankPresence& operator=(const RankPresence&) = delete;

 private:
  struct Opening;
  RankPresence(std::shared_ptr<Opening> opening, bool from_mpirun, Layout layout, Rank rank);

  std::shared_ptr<Opening> opening_;
  bool is_mpiruns_;
  Layout layout_;
  Rank rank_;
  std::mutex mutex_;
  std::map<std::string, std::string> said_;  // by topic
};

}  // namespace bootstrap

// Exchange between threads: like a round of PMIx it succeeds on all ranks or none, has a deadline, and keeps no values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/job.h"
#include "comm/exchange.h"
#include "core/util/text.h"
#include "known_layout.h"

namespace bootstrap {

// The ranks of one step; each takes its Exchange and runs rounds in a thread of its own.
class ExchangeHall {
 public:
  explicit ExchangeHall(Layout layout) : layout_(std::move(layout)), current_(new_round()) {}

  const Layout& layout() const { return layout_; }
  std::unique_ptr<Exchange> exchange_of(Rank rank) { return std::make_unique<Seat>(this, rank); }

  // The number of values that ranks have read, which is the cost at scale.
  std::size_t values_read() const { return values_read_; }

 private:
  struct Meeting {
    std::vector<std::optional<Allgather>> came;
    std::size_t count = 0;
    bool has_failed = false;  // a rank has given up
  };

  class Seat : public Exchange {
   public:
    Seat(ExchangeHall* hall, Rank rank) : hall_(hall), rank_(rank) {}
    Result<RankValues> run(const Allgather& round) override { return hall_->run(rank_, round); }
    Result<RankReports> share_reports(const std::optional<RankReport>& own, const std::vector<Rank>& asked) override {
      if (own) hall_->leave({rank_, own->failure, own->has_lost_peer});
      return hall_->ask(rank_, asked);
    }

   private:
    ExchangeHall* hall_;
    Rank rank_;
  };

  std::shared_ptr<Meeting> new_round() const {
    auto meeting = std::make_shared<Meeting>();
    meeting->came.resize(layout_.size());
    return meeting;
  }

  Result<RankValues> run(Rank rank, const Allgather& round) {
    std::unique_lock lock(mutex_);
    const auto meeting = current_;
    meeting->came[rank] = round;
    if (++meeting->count == layout_.size()) {
      current_ = new_round();
      changed_.notify_all();
    }
    const bool is_whole = changed_.wait_until(lock, round.deadline,
                                              [&] { return meeting->has_failed || meeting->count == layout_.size(); });
    if (!is_whole || meeting->has_failed) {
      meeting->has_failed = true;
      changed_.notify_all();
      return fail(ErrorCode::kTimeout,
                  cat({round.purpose, ": not all ranks came; ", missing_ranks(layout_, missing(*meeting))}));
    }
    return read(rank, round, *meeting);
  }

  void leave(const RankReport& word) {
    const std::lock_guard lock(mutex_);
    words_[word.rank] = word;
  }

  Result<RankReports> ask(Rank self, const std::vector<Rank>& ranks) {
    const std::lock_guard lock(mutex_);
    RankReports words;
    std::vector<Rank> absent;
    for (const Rank rank : ranks) {
      const auto word = words_.find(rank);
      if (word == words_.end() && rank != self) absent.push_back(rank);
      if (word != words_.end() && !word->second.failure.empty()) words.failures.push_back(word->second);
    }
    if (!absent.empty()) words.missing = missing_ranks(layout_, absent);
    return words;
  }

  std::vector<Rank> missing(const Meeting& meeting) const {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < layout_.size(); ++rank) {
      if (!meeting.came[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  Result<RankValues> read(Rank rank, const Allgather& round, const Meeting& meeting) {
    if (round.refusal) return fail(*round.refusal);
    for (const Rank other : round.read) {
      const auto& refusal = meeting.came[other]->refusal;
      if (refusal) return fail(refusal->code, cat({describe_rank(layout_, other), ": ", refusal->message}));
    }
    for (Rank other = 0; other < layout_.size(); ++other) {
      if (meeting.came[other]->purpose == round.purpose) continue;
      return fail(ErrorCode::kDisagreement,
                  cat({describe_rank(layout_, other), " makes '", meeting.came[other]->purpose, "', this one makes '",
                       round.purpose, "'"}));
    }
    RankValues values;
    for (const Rank other : round.read) {
      const bool may_read = meeting.came[other]->is_for_step || layout_.place(other).node == layout_.place(rank).node;
      values.push_back(may_read ? meeting.came[other]->value : "");
    }
    values_read_ += values.size();
    return values;
  }

  const Layout layout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Meeting> current_;
  std::size_t values_read_ = 0;
  std::map<Rank, RankReport> words_;
};

// Runs the calls of all ranks of a step, each in a thread with its own handle.
inline void for_each_rank(const std::vector<std::uint32_t>& ranks_per_node,
                          const std::function<void(bootstrap_t&, Rank)>& call) {
  ExchangeHall hall(layout_of(ranks_per_node));
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < hall.layout().size(); ++rank) {
    threads.emplace_back([&, rank] {
      bootstrap_t job;
      job.layout = hall.layout();
      job.place = job.layout.place(rank);
      job.timeout = std::chrono::seconds(20);
      job.exchange = hall.exchange_of(rank);
      call(job, rank);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace bootstrap

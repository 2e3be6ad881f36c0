// One session of this rank with the PMIx server of its node: opened, used and closed on a worker's thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/pmix/node_sockets.h"
#include "comm/pmix/pmix_library.h"
#include "core/exchange/missing_ranks.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"
#include "probe/secrets.h"

namespace bootstrap {

// The value of a key of one rank.
struct Wanted {
  Rank rank = 0;
  std::string key;
  bool is_remote = false;  // on another node, whose server must be asked when ours does not have it
};

// The time in which a server answers, if it does; for ranks of its own node it needs less than a millisecond.
inline constexpr auto kAnswerTime = std::chrono::milliseconds(250);

// The destructor closes it, if close() has not: a process that ends with an open session ends its step.
class PmixSession {
 public:
  // May block forever, like close() and the destructor of an open session. With mpirun's server the first session of a
  // process keeps the connection, and the later ones share it.
  static Result<PmixSession> open(const PmixServer& server, Rank rank);

  const pmix::Client& client() const { return *client_; }

  // True if MPI, or the program, has a session open, which this one is a part of; it caches what it has read.
  bool is_shared() const { return is_shared_; }
  // True if other code in this process may have closed a session a moment ago.
  bool may_follow_another() const { return client_->may_serve_others() && !is_shared_; }

  Status put(pmix::Scope scope, const std::string& key, std::string_view bytes) const;
  Status commit() const;

  // The values that were there before the deadline, in the order of `wanted`. Asks again while a server has none, or an
  // old one that `accept` refuses.
  template <class Accept>
  std::vector<std::optional<std::string>> read(const std::vector<Wanted>& wanted, Deadline deadline, bool ask_others,
                                               Accept accept) const;

  // Whether Slurm's server on this node answers a question about itself before the deadline. One thread of it serves
  // its ranks and asks other nodes: if slurmstepd has ended on one, it retries for 31 s, and its ranks get no answer.
  ServerState look_for_server(Deadline deadline) const;

  // True once the server has noted the end of this session; else it could take the end of the connection for the loss
  // of a rank that has begun another session (openpmix #3931).
  bool close(Deadline deadline);

  // Ends the session that is kept with mpirun's server, within two seconds. exit(3) does so, too.
  static void end_kept() noexcept;

 private:
  PmixSession(const pmix::Client* client, pmix::Client::Identity self, bool is_shared)
      : client_(client), open_(client), self_(std::move(self)), is_shared_(is_shared) {}

  struct Question {
    std::size_t index;  // in `wanted`
    pmix::Answer answer;
  };
  Question ask(const std::vector<Wanted>& wanted, std::size_t index, bool ask_others) const;
  bool is_connection_lost() const;

  struct Finish {
    void operator()(const pmix::Client* client) const { (void)client->finish(); }
  };

  const pmix::Client* client_;
  std::unique_ptr<const pmix::Client, Finish> open_;
  pmix::Client::Identity self_;
  bool is_shared_;
  std::uint16_t seen_port_ = 0;  // of the server to which a shared session has a connection, if one was found
  ServerConnection connection_;  // of a session that is not shared
};

template <class Accept>
std::vector<std::optional<std::string>> PmixSession::read(const std::vector<Wanted>& wanted, Deadline deadline,
                                                          bool ask_others, Accept accept) const {
  // A question about a rank that never joins stays open forever; the others must not wait for it.
  constexpr auto kPatience = std::chrono::milliseconds(5);
  // Each question is a message to the server, and hundreds of ranks of a node may wait for one late rank.
  constexpr auto kLongestPause = std::chrono::milliseconds(16);
  auto pause = std::chrono::milliseconds(2);
  std::vector<std::optional<std::string>> values(wanted.size());
  std::vector<Question> open;
  for (std::size_t i = 0; i < wanted.size(); ++i) open.push_back(ask(wanted, i, ask_others));
  while (!open.empty()) {
    const auto now = std::chrono::steady_clock::now();
    std::vector<Question> still_open;
    std::vector<std::size_t> again;
    for (auto& question : open) {
      if (!question.answer.wait_until(std::min(deadline, now + kPatience))) {
        still_open.push_back(std::move(question));
        continue;
      }
      auto bytes =
          question.answer.code() == pmix::kSuccess ? std::optional(question.answer.take_bytes()) : std::nullopt;
      if (bytes && accept(wanted[question.index].rank, *bytes)) {
        values[question.index] = std::move(bytes);
      } else {
        if (bytes) wipe(*bytes);  // may be a secret of another round
        again.push_back(question.index);
      }
    }
    open = std::move(still_open);
    if (now >= deadline || (open.empty() && again.empty())) break;
    if (!again.empty()) {
      sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    for (const std::size_t index : again) open.push_back(ask(wanted, index, ask_others));
  }
  return values;
}

}  // namespace bootstrap

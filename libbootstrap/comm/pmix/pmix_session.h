// One connection of this rank to the PMIx server of its node: opened, used and closed on a worker's thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/pmix/pmix_library.h"
#include "comm/pmix/server_connection.h"
#include "comm/process/secure_wipe.h"
#include "comm/process/sleep_for.h"
#include "core/exchange/missing_ranks.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/result.h"

namespace bootstrap {

// Many ranks' values of one key, asked for all at once.
struct Wanted {
  Rank rank = 0;
  std::string key;
  bool is_remote = false;  // on another node, whose server must be asked when ours does not have it
};

// For a server to answer at all; for values of ranks of its own node it needs less than a millisecond.
inline constexpr auto kAnswerTime = std::chrono::milliseconds(250);

// Closed by close(), or by its destructor, whatever happens in between: a process that ends with one open ends its
// step.
class PmixSession {
 public:
  // May block for ever, as may close() and the destructor of one that is open. With mpirun's server the first session
  // of a process keeps the connection, and the later ones share it.
  static Result<PmixSession> open(const PmixServer& server, Rank rank);

  const pmix::Client& client() const { return *client_; }
  const pmix::Client::Identity& self() const { return self_; }

  // MPI, or the program, has a session of its own open, and ours is a part of it: it caches what it has read.
  bool is_shared() const { return is_shared_; }
  // Somebody in this process may have closed a session a moment ago.
  bool may_follow_another() const { return client_->may_serve_others() && !is_shared_; }

  Status put(pmix::Scope scope, const std::string& key, std::string_view bytes) const;
  Status commit() const;

  // Values in the order of `wanted`, those that were there before the deadline; asks again as long as a server says
  // that it has none. `accept` says whether a value is the one that is waited for, or an old one.
  template <class Accept>
  std::vector<std::optional<std::string>> read(const std::vector<Wanted>& wanted, Deadline deadline, bool ask_others,
                                               Accept accept) const;

  // Whether Slurm's server on this node answers, before the deadline, a question that it can answer by itself. It asks
  // another node from the thread that serves its own ranks: where slurmstepd has ended there, it tries for 31 s and
  // answers nobody.
  ServerState look_for_server(Deadline deadline) const;

  // True once the server has taken note, so that it cannot mistake the end of this connection for the loss of a rank
  // that has come back meanwhile (openpmix #3931).
  bool close(Deadline deadline);

  // Ends the session that is kept with mpirun's server, in two seconds at most. So does exit(3).
  static void end_kept() noexcept;

 private:
  PmixSession(const pmix::Client* client, pmix::Client::Identity self, bool is_shared)
      : client_(client), open_(client), self_(std::move(self)), is_shared_(is_shared) {}

  struct Question {
    std::size_t index;  // of what is wanted
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
  std::uint16_t seen_port_ = 0;  // of the server to which a shared session had a connection, where that was seen
  ServerConnection connection_;  // of a session that is not shared
};

template <class Accept>
std::vector<std::optional<std::string>> PmixSession::read(const std::vector<Wanted>& wanted, Deadline deadline,
                                                          bool ask_others, Accept accept) const {
  // A question about a rank that never comes stays open for ever; the others must not wait behind it.
  constexpr auto kPatience = std::chrono::milliseconds(5);
  // Each question is a message to the server, and hundreds of ranks of a node may wait for a late one.
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
        if (bytes) wipe(*bytes);  // of another round, and perhaps a secret of it
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

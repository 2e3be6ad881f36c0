// One session of this rank with the PMIx server of its node.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/pmix/node_sockets.h"
#include "comm/pmix/pmix_library.h"
#include "core/exchange/pmix_environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"

namespace bootstrap {

// The value of a key of one rank.
struct Wanted {
  Rank rank = 0;
  std::string key;
  bool is_remote = false;  // on another node, whose server must be asked when ours does not have it
};

using Values = std::vector<std::optional<std::string>>;

// The server of this node. A server other than Slurm's counts as answering.
enum class ServerState : std::uint8_t {
  kAnswers,
  kSilent,  // it runs, and does not answer
  kEnded,   // its connection is closed
};

// The time in which a server answers, if it does; for ranks of its own node it needs less than a millisecond.
inline constexpr auto kAnswerTime = std::chrono::milliseconds(250);

// The destructor closes it, if close() has not: a process that ends with an open session ends its step.
class PmixSession {
 public:
  // May block forever, like close() and the destructor of an open session. With mpirun's server the first session of a
  // process keeps the connection, and the later ones share it. `may_follow_another`: other code of this rank may have
  // closed a session a moment ago.
  static Result<PmixSession> open(const PmixServer& server, Rank rank, bool may_follow_another);

  // True if MPI, or the program, has a session open that this one is part of. Such a session caches what it has read.
  bool is_shared() const { return is_shared_; }
  bool may_follow_another() const { return may_follow_another_; }

  // A fence after which libpmix's thread itself begins to read `wanted`, which saves one switch between threads. Pass
  // `begun` to read().
  using Questions = std::vector<pmix::SharedAnswer>;
  pmix::SharedAnswer fence(std::vector<Wanted> wanted, const std::shared_ptr<Questions>& begun) const;

  // Returns the values that arrived before the deadline, in the order of `wanted`. Asks again while a server has no
  // value, or one that `accept` refuses.
  using Accept = std::function<bool(Rank rank, const std::string& bytes)>;
  Values read(const std::vector<Wanted>& wanted, Deadline deadline, bool ask_others, const Accept& accept,
              Questions begun = {}) const;

  // Whether Slurm's server on this node answers a question before the deadline. One thread of it serves its ranks and
  // asks other nodes. If slurmstepd has ended on another node, that thread retries for 31 s and answers no rank.
  ServerState look_for_server(Deadline deadline) const;

  // True once the server has noted the end of this session; else it could take the end of the connection for the loss
  // of a rank that has begun another session (openpmix #3931).
  bool close(Deadline deadline);

  // Ends the session that is kept with mpirun's server, within two seconds. exit(3) does so, too.
  static void end_kept() noexcept;

 private:
  struct End {
    void operator()(const pmix::Identity* self) const {
      pmix::finish();
      delete self;
    }
  };

  std::unique_ptr<const pmix::Identity, End> self_;
  bool is_shared_ = false;
  bool may_follow_another_ = false;
  std::uint16_t seen_port_ = 0;  // of the server to which a shared session has a connection, if one was found
  ServerConnection connection_;  // of a session that is not shared
};

}  // namespace bootstrap

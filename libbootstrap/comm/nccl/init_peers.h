// What the ranks of a communicator tell each other while NCCL makes it: that one has failed, and who is still there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/communicator.h"
#include "comm/process/deadline.h"
#include "comm/process/line_socket.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

// Where NCCL's root listens, as its id says; nothing where that has no address.
std::optional<HostAddress> host_of_root(const nccl::UniqueId& id);

// NCCL tells nobody: where one rank fails, the others wait for it in NCCL for ever. So ranks that have waited for a
// moment connect to each other: those of a node to its first one (the leader), and the leaders to the first rank of the
// communicator (the coordinator). The coordinator listens where its NCCL does, so that whoever can reach the root
// reaches it; a leader listens on the node alone. News goes up to the coordinator and down to all. It has no thread:
// all is done by who waits for NCCL.
class InitPeers {
 public:
  InitPeers(const Layout& layout, const Group& group);
  ~InitPeers();
  InitPeers(const InitPeers&) = delete;
  InitPeers& operator=(const InitPeers&) = delete;

  // Before the round: where this rank is a leader it opens its port, and says how to come to it. `own_id` is the
  // coordinator's. Empty where it is none, or cannot listen.
  std::string invite(const nccl::UniqueId& own_id);
  // After it, before fail() and watch(): the id of the coordinator's root, and the invitations of coordinator and
  // leader.
  void meet(const nccl::UniqueId& root, const std::string& of_coordinator, const std::string& of_leader);
  Rank coordinator() const { return coordinator_; }
  Rank leader() const { return leader_; }
  bool is_of_one_node() const { return is_of_one_node_; }

  // So long a rank waits in NCCL before it looks: one that is done in time connects to nobody.
  static constexpr std::chrono::milliseconds kPatience{250};

  // Each is an open file of the coordinator, of 1,024 that a process often has, and NCCL needs many. The nodes behind
  // them hear of a failure at their deadline.
  static constexpr std::size_t kMostLeaders = 512;

  // While NCCL works: why the communicator will not come about. Nothing when it is over here first, or when that is not
  // known at the deadline. `is_over_before` waits for the end of NCCL's call until a time. `nccl_call` is its name, for
  // messages.
  using IsOverBefore = std::function<bool(Deadline)>;
  std::optional<Error> watch(const std::string& nccl_call, Deadline deadline, const IsOverBefore& is_over_before);

  // This rank has failed, and its peers shall hear of it. Comes back with its own error, or with that of the rank whose
  // fault it is where a peer has only gone (`lost_peer`).
  Error fail(Error own, bool lost_peer, const std::string& nccl_call);

 private:
  struct Stranger {
    LineSocket line;
    Deadline since;
  };
  struct Child {
    LineSocket line;
    bool has_answered = false;  // to the roll
    bool has_left = false;
  };

  void join();
  void work();
  void admit();
  void hear_children();
  void hear_child(Child& child, const std::string& said);
  void hear_parent();
  void set_failure(const std::string& reason);
  void set_verdict(const std::string& reason);
  void suspect(const std::string& reason);
  void call_roll();
  void end_roll();
  std::vector<Rank> absent_children() const;
  Error silence_of(std::vector<Rank> absent) const;
  Error end_of(Rank rank) const;
  Error wait_of_all() const;
  void tell_children(const std::string& line);
  void tell_parent(const std::string& line);
  void tell_all();
  void leave();
  bool has_told_all() const;

  bool is_coordinator() const { return self_ == coordinator_; }
  bool is_leader() const { return self_ == leader_; }
  Rank parent_rank() const { return is_leader() ? coordinator_ : leader_; }

  const Layout& layout_;
  Rank self_;
  Rank coordinator_;
  Rank leader_;                 // of this node
  std::vector<Rank> expected_;  // the children that may come
  bool is_of_one_node_ = true;
  bool is_heard_ = true;  // a leader, by the coordinator
  bool is_met_ = false;
  std::string call_;  // NCCL's, for messages
  Deadline start_;    // when the ranks had their ids

  std::optional<LineListener> listener_;
  std::string key_;  // whoever shows it is a rank
  std::vector<Stranger> strangers_;
  std::map<Rank, Child> children_;
  std::string parent_key_;
  HostAddress parent_host_;
  std::uint16_t parent_port_ = 0;  // 0: it cannot be reached
  std::optional<LineSocket> parent_;
  bool has_greeted_ = false;  // the parent
  bool has_parent_left_ = false;

  std::optional<std::string> failure_;  // the communicator will not come about
  std::optional<std::string> verdict_;  // what to say at the deadline
  std::string suspect_;                 // what a rank has said that has lost a peer: not to blame unless all are there
  std::optional<Deadline> roll_time_;   // when it is to be called
  std::optional<Deadline> roll_begin_;
  Deadline::duration answer_time_ = std::chrono::milliseconds(600);  // to the roll; half of it within a node
  std::optional<Deadline> verdict_time_;                             // when the parent should have passed one on
  bool has_roll_ended_ = false;
  std::vector<Rank> absent_;  // as the leaders say
};

}  // namespace bootstrap

// What the ranks of a communicator tell each other while NCCL makes it: that one has failed, and who is still there.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/init_peers.h"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "comm/process/sleep_for.h"
#include "core/step/rank_names.h"
#include "core/util/text.h"
#include "probe/random_bits.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPace{20};          // between two looks
constexpr milliseconds kTimeToCome{1000};  // after its patience, for a child that may be on a busy node
constexpr milliseconds kTimeToSend{500};
constexpr milliseconds kReasonTime{300};  // for who has failed to say so, before who has lost it is believed
constexpr milliseconds kRollTime{1500};   // from the roll to the deadline
constexpr milliseconds kTimeForKey{1000};
constexpr std::size_t kMostStrangers = 64;

// What is said; each is a line, and a space and its text follow where it has one. Up and down:
constexpr std::string_view kHello = "hello";  // up: with key and rank
constexpr std::string_view kFailed = "failed";
constexpr std::string_view kRoll = "roll";
constexpr std::string_view kBye = "bye";  // of a rank that is done or gives up; one that is killed says nothing
// Up:
constexpr std::string_view kLost = "lost";
constexpr std::string_view kHere = "here";  // with those of the node that are not
// Down:
constexpr std::string_view kVerdict = "verdict";

// The text after this word; nothing when it is another line.
std::optional<std::string> text_after(std::string_view word, const std::string& line) {
  if (!line.starts_with(word)) return std::nullopt;
  if (line.size() == word.size()) return "";
  if (line[word.size()] != ' ') return std::nullopt;
  return line.substr(word.size() + 1);
}

// 128 random bits; empty where the kernel has none yet.
std::string new_key() {
  const auto high = random_bits();
  const auto low = random_bits();
  constexpr std::size_t kDigits = 16;
  return high && low ? cat({to_hex(*high, kDigits), to_hex(*low, kDigits)}) : "";
}

}  // namespace

// NCCL's id begins with a number of 8 bytes and the address at which its root listens (2.14 to 2.32).
std::optional<HostAddress> host_of_root(const nccl::UniqueId& id) {
  constexpr std::size_t kAddress = 8;
  return HostAddress::read(std::string_view(id.internal.data(), id.internal.size()).substr(kAddress));
}

InitPeers::InitPeers(const Layout& layout, const Group& group)
    : layout_(layout),
      self_(group.ranks[group.own]),
      coordinator_(group.ranks.front()),
      leader_(self_),
      start_(steady_clock::now()) {
  const auto own_node = layout.place(self_).node;
  std::set<NodeIndex> seen;
  std::vector<Rank> leaders;
  std::vector<Rank> locals;
  for (const Rank rank : group.ranks) {
    const auto node = layout.place(rank).node;
    const bool is_first = seen.insert(node).second;
    if (is_first && node == own_node) leader_ = rank;
    if (is_first && rank != coordinator_) leaders.push_back(rank);
    if (node == own_node && rank != self_) locals.push_back(rank);
  }
  is_of_one_node_ = leaders.empty();
  if (leaders.size() > kMostLeaders) {
    is_heard_ = std::find(leaders.begin() + kMostLeaders, leaders.end(), self_) == leaders.end();
    leaders.resize(kMostLeaders);
  }
  if (is_leader()) expected_ = std::move(locals);
  if (is_coordinator()) expected_.insert(expected_.end(), leaders.begin(), leaders.end());
}

// Without memory for a word the others take this rank for one that has ended.
InitPeers::~InitPeers() {
  try {
    leave();
  } catch (const std::exception&) {
  }
}

std::string InitPeers::invite(const nccl::UniqueId& own_id) {
  if (expected_.empty()) return "";
  const bool is_local = is_of_one_node_ || !is_coordinator();
  const auto host = is_local ? std::optional(HostAddress::loopback()) : host_of_root(own_id);
  key_ = new_key();
  if (host && !key_.empty()) listener_ = LineListener::open(*host);
  return listener_ ? cat({std::to_string(listener_->port()), " ", key_}) : "";
}

void InitPeers::meet(const nccl::UniqueId& root, const std::string& of_coordinator, const std::string& of_leader) {
  start_ = steady_clock::now();
  const bool is_local = is_of_one_node_ || parent_rank() != coordinator_;
  const auto host = is_local ? std::optional(HostAddress::loopback()) : host_of_root(root);
  const auto words = split(is_leader() ? of_coordinator : of_leader, ' ');
  const auto port = parse_unsigned(words.front(), UINT16_MAX);
  is_met_ = true;
  if (is_coordinator() || !is_heard_ || !host || !port || words.size() != 2) return;
  parent_host_ = *host;
  parent_port_ = static_cast<std::uint16_t>(*port);
  parent_key_ = words[1];
}

void InitPeers::join() {
  if (parent_ || parent_port_ == 0) return;
  parent_ = LineSocket::connect(parent_host_, parent_port_);
  parent_->send(cat({kHello, " ", parent_key_, " ", std::to_string(self_)}));
}

void InitPeers::tell_parent(const std::string& line) {
  if (parent_ && !has_parent_left_) parent_->send(line);
}

void InitPeers::tell_children(const std::string& line) {
  for (auto& [rank, child] : children_) {
    if (!child.has_left) child.line.send(line);
  }
}

void InitPeers::set_failure(const std::string& reason) {
  if (failure_) return;
  failure_ = reason;
  tell_parent(cat({kFailed, " ", reason}));
  tell_children(cat({kFailed, " ", reason}));
}

void InitPeers::set_verdict(const std::string& reason) {
  verdict_ = reason;
  tell_children(cat({kVerdict, " ", reason}));
}

// Who has failed says so himself, and is heard first; one that was killed does not answer to the roll.
void InitPeers::suspect(const std::string& reason) {
  if (!suspect_.empty()) return;
  suspect_ = reason;
  tell_parent(cat({kLost, " ", reason}));
  const auto all_are_there = start_ + kPatience + kReasonTime;
  const auto time = std::max(steady_clock::now(), all_are_there) + kReasonTime;
  roll_time_ = std::min(roll_time_.value_or(time), time);
}

// The coordinator calls it for all; other ranks ask the coordinator to.
void InitPeers::call_roll() {
  if (roll_begin_) return;
  roll_begin_ = steady_clock::now();
  tell_children(std::string(kRoll));
}

std::vector<Rank> InitPeers::absent_children() const {
  std::vector<Rank> absent;
  for (const Rank rank : expected_) {
    const auto child = children_.find(rank);
    const bool is_there = child != children_.end() && (child->second.has_answered || child->second.has_left);
    if (!is_there) absent.push_back(rank);
  }
  return absent;
}

// A rank of another node that has never connected may be cut off.
Error InitPeers::silence_of(std::vector<Rank> absent) const {
  std::sort(absent.begin(), absent.end());
  const auto may_be_cut_off = [this](Rank rank) {
    const bool is_child = std::find(expected_.begin(), expected_.end(), rank) != expected_.end();
    const bool was_there = is_child ? children_.count(rank) != 0 : rank != parent_rank() || has_greeted_;
    return !was_there && layout_.place(rank).node != layout_.place(self_).node;
  };
  const auto who = cat({name_ranks(layout_, absent), absent.size() == 1 ? " does" : " do", " not answer: "});
  if (std::any_of(absent.begin(), absent.end(), may_be_cut_off)) {
    return Error{ErrorCode::kTimeout,
                 cat({who, "stopped, ended, done with ", call_,
                      ", or not reachable over the network interface that NCCL chose; look for the last message from "
                      "there, or set NCCL_SOCKET_IFNAME"})};
  }
  return Error{ErrorCode::kTimeout, cat({who, "stopped, ended, or done with ", call_,
                                         ", in which other ranks wait; look for the last message from there"})};
}

Error InitPeers::end_of(Rank rank) const {
  return Error{ErrorCode::kUnavailable, cat({describe_rank(layout_, rank), " ended in ", call_,
                                             ", in which other ranks wait; look for the last message from there"})};
}

Error InitPeers::wait_of_all() const {
  return Error{ErrorCode::kTimeout,
               cat({"all ranks of the communicator wait in ", call_,
                    ": they cannot reach each other over the network interface that ", nccl::product(),
                    " chose; NCCL_DEBUG=INFO shows the interface, NCCL_SOCKET_IFNAME sets it"})};
}

void InitPeers::end_roll() {
  if (!roll_begin_ || has_roll_ended_) return;
  auto absent = absent_children();
  const auto time = is_coordinator() ? answer_time_ : answer_time_ / 2;
  if (!absent.empty() && steady_clock::now() < *roll_begin_ + time) return;
  has_roll_ended_ = true;
  if (!is_coordinator()) {
    std::string answer(kHere);
    for (const Rank rank : absent) answer += cat({" ", std::to_string(rank)});
    return tell_parent(answer);
  }
  absent.insert(absent.end(), absent_.begin(), absent_.end());
  const auto silent = absent.empty() ? "" : silence_of(absent).message;
  if (!absent.empty()) return suspect_.empty() ? set_verdict(silent) : set_failure(cat({silent, "; ", suspect_}));
  if (!suspect_.empty()) return set_failure(suspect_);
  set_verdict(wait_of_all().message);
}

// A connection counts when it shows the key, and the rank is one that belongs here.
void InitPeers::admit() {
  while (listener_ && strangers_.size() < kMostStrangers) {
    auto line = listener_->accept();
    if (!line) break;
    strangers_.push_back({std::move(*line), steady_clock::now()});
  }
  std::vector<Stranger> rest;
  for (auto& stranger : strangers_) {
    const auto lines = stranger.line.receive();
    if (lines.empty()) {
      const bool may_stay = !stranger.line.is_closed() && steady_clock::now() < stranger.since + kTimeForKey;
      if (may_stay) rest.push_back(std::move(stranger));
      continue;
    }
    const auto words = split(lines.front(), ' ');
    const auto number = words.size() == 3 ? parse_unsigned(words[2], layout_.size() - 1) : std::nullopt;
    const auto rank = static_cast<Rank>(number.value_or(0));
    const bool is_child = number && words[0] == kHello && words[1] == key_ &&
                          std::find(expected_.begin(), expected_.end(), rank) != expected_.end();
    if (!is_child) continue;
    // Who comes during the roll is there.
    auto& child =
        children_.insert_or_assign(rank, Child{std::move(stranger.line), roll_begin_.has_value(), false}).first->second;
    child.line.send(kHello);
    if (failure_) child.line.send(cat({kFailed, " ", *failure_}));
    if (verdict_) child.line.send(cat({kVerdict, " ", *verdict_}));
    for (std::size_t i = 1; i < lines.size(); ++i) hear_child(child, lines[i]);
  }
  strangers_ = std::move(rest);
}

void InitPeers::hear_child(Child& child, const std::string& said) {
  if (const auto reason = text_after(kFailed, said)) {
    child.has_left = true;
    set_failure(*reason);
  } else if (const auto lost = text_after(kLost, said)) {
    suspect(*lost);
  } else if (said == kRoll) {
    roll_time_ = std::min(roll_time_.value_or(start_), steady_clock::now());
  } else if (const auto absent = text_after(kHere, said)) {
    child.has_answered = true;
    for (const auto word : split(*absent, ' ')) {
      const auto number = parse_unsigned(word, layout_.size() - 1);
      if (number) absent_.push_back(static_cast<Rank>(*number));
    }
  } else if (said == kBye) {
    child.has_left = true;
  }
}

void InitPeers::hear_children() {
  for (auto& [rank, child] : children_) {
    for (const auto& said : child.line.receive()) hear_child(child, said);
    child.line.flush();
    if (!child.line.is_closed() || child.has_left) continue;
    child.has_left = true;
    set_failure(end_of(rank).message);
  }
}

void InitPeers::hear_parent() {
  if (!parent_ || has_parent_left_) return;
  for (const auto& said : parent_->receive()) {
    if (said == kHello) has_greeted_ = true;
    if (const auto reason = text_after(kFailed, said)) {
      has_parent_left_ = true;
      set_failure(*reason);
    }
    if (const auto verdict = text_after(kVerdict, said)) set_verdict(*verdict);
    if (said == kRoll) call_roll();
    if (said == kBye) has_parent_left_ = true;
  }
  parent_->flush();
  if (!parent_->is_closed() || has_parent_left_) return;
  // One that has not greeted may have been done before we came.
  has_parent_left_ = true;
  if (has_greeted_) set_failure(end_of(parent_rank()).message);
}

void InitPeers::work() {
  admit();
  hear_children();
  hear_parent();
  if (roll_time_ && steady_clock::now() >= *roll_time_ && !roll_begin_) {
    roll_time_.reset();
    if (is_coordinator()) call_roll();
    tell_parent(std::string(kRoll));
  }
  end_roll();
  // Who is not where it listened has ended or is done; a lost peer tells which.
  if (!suspect_.empty() && parent_ && has_parent_left_ && !has_greeted_) {
    set_failure(cat({silence_of({parent_rank()}).message, "; ", suspect_}));
  }
  // For the ranks of this node, which do not see the coordinator.
  const bool is_unanswered = verdict_time_ && steady_clock::now() >= *verdict_time_ && !verdict_ && parent_;
  if (is_unanswered) set_verdict(silence_of({parent_rank()}).message);
}

bool InitPeers::has_told_all() const {
  const auto now = steady_clock::now();
  const bool may_come = listener_ && now < start_ + kPatience + kTimeToCome && children_.size() < expected_.size();
  const bool is_sending = std::any_of(children_.begin(), children_.end(), [](const auto& one) {
    return !one.second.has_left && !one.second.line.has_sent_all();
  });
  return !may_come && !is_sending && (!parent_ || has_parent_left_ || parent_->has_sent_all());
}

void InitPeers::tell_all() {
  const auto until = std::max(steady_clock::now() + kTimeToSend, start_ + kPatience + kTimeToCome);
  while (!has_told_all() && steady_clock::now() < until) {
    sleep_for(kPace);
    work();
  }
}

void InitPeers::leave() {
  tell_parent(std::string(kBye));
  tell_children(std::string(kBye));
  parent_.reset();
  children_.clear();
  strangers_.clear();
  listener_.reset();
}

std::optional<Error> InitPeers::watch(const std::string& nccl_call, Deadline deadline,
                                      const IsOverBefore& is_over_before) {
  call_ = nccl_call;
  join();
  const auto left = std::max(deadline - steady_clock::now(), steady_clock::duration::zero());
  const auto roll = std::min<steady_clock::duration>(kRollTime, left / 2);
  roll_time_ = deadline - roll;
  answer_time_ = std::min<steady_clock::duration>(answer_time_, roll / 2);
  verdict_time_ = deadline - (is_leader() ? roll / 3 : steady_clock::duration::zero());
  // NCCL has its whole time, whoever has not answered.
  for (auto now = steady_clock::now(); !failure_ && now < deadline; now = steady_clock::now()) {
    if (is_over_before(std::min(deadline, now + kPace))) return std::nullopt;
    work();
  }
  if (failure_) {
    tell_all();
    return Error{ErrorCode::kUnavailable, *failure_};
  }
  work();
  return verdict_ ? std::optional(Error{ErrorCode::kTimeout, *verdict_}) : std::nullopt;
}

Error InitPeers::fail(Error own, bool lost_peer, const std::string& nccl_call) {
  if (!is_met_) return own;
  call_ = nccl_call;
  join();
  const auto said = replaced(cat({describe_rank(layout_, self_), ": ", own.message}), "\n", " ");
  if (lost_peer && !verdict_) {
    suspect(said);
    const auto until = roll_time_.value_or(steady_clock::now()) + kRollTime;
    work();
    const auto may_hear = [this] { return is_coordinator() || (parent_ && !has_parent_left_); };
    while (!failure_ && !verdict_ && steady_clock::now() < until && may_hear()) {
      work();
      sleep_for(kPace);
    }
  }
  // At the deadline those that give up are lost to the others.
  if (lost_peer && verdict_ && !failure_) return {ErrorCode::kTimeout, *verdict_};
  set_failure(said);
  tell_all();
  return lost_peer && *failure_ != said ? Error{ErrorCode::kUnavailable, *failure_} : own;
}

}  // namespace bootstrap

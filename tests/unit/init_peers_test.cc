// What ranks hear of each other while NCCL makes their communicator: who failed, who ended, who is silent; and that
// nobody else can say so.
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/init_peers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "comm/process/line_socket.h"
#include "comm/process/sleep_for.h"
#include "core/util/text.h"
#include "exchange_double.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLong{30000};
constexpr milliseconds kShort{1200};

// An id as NCCL makes it, of a root on this host.
nccl::UniqueId id_of_root() {
  nccl::UniqueId id{};
  sockaddr_in root{};
  root.sin_family = AF_INET;
  root.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::memcpy(id.internal.data() + 8, &root, sizeof root);
  return id;
}

// Ranks that have met: `ranks_per_node` of them, and the first of each node has invited the others.
class Met {
 public:
  explicit Met(const std::vector<std::uint32_t>& ranks_per_node) : layout_(layout_of(ranks_per_node)) {
    for (Rank rank = 0; rank < layout_.size(); ++rank) {
      peers_.push_back(std::make_unique<InitPeers>(layout_, world_group(layout_, rank)));
      invitations_.push_back(peers_.back()->invite(id_of_root()));
    }
    for (auto& one : peers_) one->meet(id_of_root(), invitations_[one->coordinator()], invitations_[one->leader()]);
  }

  InitPeers& operator[](Rank rank) { return *peers_[rank]; }
  void drop(Rank rank) { peers_[rank].reset(); }
  const std::string& invitation(Rank rank) const { return invitations_[rank]; }

  // What each of these hears while its NCCL does not come back; "nothing" where it is not told.
  std::vector<std::string> watch(const std::vector<Rank>& ranks, milliseconds timeout) {
    std::vector<std::string> heard(ranks.size());
    std::vector<std::thread> threads;
    const auto deadline = steady_clock::now() + timeout;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        const auto error = peers_[ranks[i]]->watch("ncclCommInitRank", deadline, [](Deadline time) {
          sleep_for(time - steady_clock::now());
          return false;
        });
        heard[i] = error ? error->message : "nothing";
      });
    }
    for (auto& thread : threads) thread.join();
    return heard;
  }

 private:
  Layout layout_;
  std::vector<std::unique_ptr<InitPeers>> peers_;
  std::vector<std::string> invitations_;
};

Error failed() { return {ErrorCode::kUnavailable, "no memory\nat all"}; }

void expect_all(const std::vector<std::string>& heard, const std::string& beginning) {
  for (const auto& text : heard) EXPECT_EQ(text.find(beginning), 0U) << text;
}

TEST(InitPeers, AllHearWhoFailed) {
  for (const Rank failing : {0U, 1U, 2U, 3U}) {
    Met met({2, 2});
    std::vector<Rank> others;
    for (Rank rank = 0; rank < 4; ++rank) {
      if (rank != failing) others.push_back(rank);
    }
    const auto start = steady_clock::now();
    Error own;
    std::thread failure([&] { own = met[failing].fail(failed(), false, "ncclCommInitRank"); });
    const auto heard = met.watch(others, kLong);
    failure.join();
    EXPECT_EQ(own.message, failed().message);
    expect_all(heard, cat({"rank ", std::to_string(failing), " (node00", failing < 2 ? "1" : "2", ", local rank ",
                           std::to_string(failing % 2), "): no memory at all"}));
    EXPECT_LT(steady_clock::now() - start, milliseconds(10000));
  }
}

TEST(InitPeers, TheCoordinatorHearsAsManyNodesAsItMayHaveOpenFiles) {
  const Rank last_heard = InitPeers::kMostLeaders;
  for (const Rank failing : {last_heard, last_heard + 1}) {
    Met met(std::vector<std::uint32_t>(last_heard + 2, 1));
    std::thread failure([&] { (void)met[failing].fail(failed(), false, "ncclCommInitRank"); });
    const auto heard = met.watch({0}, failing == last_heard ? kLong : kShort);
    failure.join();
    const bool is_heard = heard.front().starts_with(cat({"rank ", std::to_string(failing), " "}));
    EXPECT_EQ(is_heard, failing == last_heard) << heard.front();
  }
}

TEST(InitPeers, WhoIsNotHeardByTheCoordinatorSaysNothingOfIt) {
  const Rank last = InitPeers::kMostLeaders + 1;
  Met met(std::vector<std::uint32_t>(last + 1, 1));
  EXPECT_EQ(met.watch({0, last}, kShort).back(), "nothing");
}

TEST(InitPeers, WhoHasLostAPeerSaysWhoFailed) {
  Met met({2, 2});
  Error lost;
  std::thread failure([&] { (void)met[3].fail(failed(), false, "ncclCommInitRank"); });
  std::thread loss([&] { lost = met[1].fail({ErrorCode::kUnavailable, "closed by peer"}, true, "ncclCommInitRank"); });
  expect_all(met.watch({0, 2}, kLong), "rank 3 (node002, local rank 1): no memory at all");
  failure.join();
  loss.join();
  EXPECT_EQ(lost.message, "rank 3 (node002, local rank 1): no memory at all");
}

TEST(InitPeers, WhoHasLostAPeerIsToBlameWhereAllAreThere) {
  Met met({2, 2});
  Error lost;
  std::thread loss([&] {
    lost = met[3].fail({ErrorCode::kUnavailable, "no room in /dev/shm"}, true, "ncclCommInitRank");
  });
  expect_all(met.watch({0, 1, 2}, kLong), "rank 3 (node002, local rank 1): no room in /dev/shm");
  loss.join();
  EXPECT_EQ(lost.message, "no room in /dev/shm");
}

TEST(InitPeers, WhoIsSilentIsNamedAtTheDeadline) {
  for (const Rank silent : {0U, 2U, 3U}) {
    Met met({2, 2});
    std::vector<Rank> others;
    for (Rank rank = 0; rank < 4; ++rank) {
      if (rank != silent) others.push_back(rank);
    }
    const auto heard = met.watch(others, milliseconds(2000));
    // That a node is cut off can be seen from another one alone.
    const auto named = cat({"rank ", std::to_string(silent), silent < 2 ? " (node001" : " (node002", ", local rank ",
                            std::to_string(silent % 2), ") does not answer: stopped, ended, ",
                            silent % 2 == 0 ? "" : "or done with ncclCommInitRank, in which other ranks wait"});
    for (std::size_t i = 0; i < others.size(); ++i) {
      EXPECT_EQ(heard[i].find(named), 0U) << heard[i];
      const bool is_of_one_node = others[i] / 2 == silent / 2;
      const bool may_be_cut_off = heard[i].find("not reachable over the network interface") != std::string::npos;
      EXPECT_EQ(may_be_cut_off, !is_of_one_node && silent % 2 == 0) << silent << ": " << heard[i];
    }
  }
}

TEST(InitPeers, AllThatWaitAreNamedTogether) {
  Met met({2, 2});
  expect_all(met.watch({0, 1, 2, 3}, milliseconds(2000)), "all ranks of the communicator wait in ncclCommInitRank: ");
}

TEST(InitPeers, WhoIsDoneIsNotTakenForOneThatEnded) {
  for (const Rank done : {0U, 1U, 2U}) {
    Met met({2, 2});
    std::thread leaving([&] {
      (void)met[done].watch("ncclCommInitRank", steady_clock::now() + kLong, [start = steady_clock::now()](Deadline) {
        sleep_for(milliseconds(20));
        return steady_clock::now() > start + milliseconds(500);
      });
      met.drop(done);
    });
    const auto heard = met.watch({3}, kShort);
    leaving.join();
    EXPECT_EQ(heard.front().find(" ended in "), std::string::npos) << heard.front();
  }
}

// The words of a rank, from somebody else: what a listener hears with the key, and without.
std::vector<std::string> heard_from_stranger(const std::string& key_or_none) {
  Met met({2});
  const auto words = split(met.invitation(0), ' ');
  const auto key = key_or_none == "right" ? std::string(words[1]) : key_or_none;
  auto stranger = LineSocket::connect(HostAddress::loopback(), static_cast<std::uint16_t>(*parse_unsigned(words[0])));
  stranger.send(cat({"hello ", key, " 1"}));
  stranger.send("failed by a stranger");
  return met.watch({0}, kShort);
}

TEST(InitPeers, AreDeafToWhoeverHasNoKey) {
  EXPECT_EQ(heard_from_stranger("right").front(), "by a stranger") << "control";
  for (const auto* const key : {"", "0123456789abcdef0123456789abcdef", "x\nfailed"}) {
    expect_all(heard_from_stranger(key), "rank 1 (node001, local rank 1) does not answer: ");
  }
}

TEST(InitPeers, SilentStrangersKeepNobodyOut) {
  Met met({2});
  const auto words = split(met.invitation(0), ' ');
  std::vector<LineSocket> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(
        LineSocket::connect(HostAddress::loopback(), static_cast<std::uint16_t>(*parse_unsigned(words[0]))));
  }
  std::thread failure([&] { (void)met[1].fail(failed(), false, "ncclCommInitRank"); });
  expect_all(met.watch({0}, kLong), "rank 1 (node001, local rank 1): no memory at all");
  failure.join();
}

TEST(InitPeers, OfOneRankInviteNobody) {
  const auto layout = layout_of({1, 1});
  InitPeers last(layout, world_group(layout, 1));
  EXPECT_EQ(last.invite(id_of_root()), "") << "no other rank of its node";
  InitPeers first(layout, world_group(layout, 0));
  EXPECT_EQ(first.invite(nccl::UniqueId{}), "") << "an id without an address";
  EXPECT_EQ(first.fail(failed(), false, "ncclCommInitRank").message, failed().message);
}

}  // namespace
}  // namespace bootstrap

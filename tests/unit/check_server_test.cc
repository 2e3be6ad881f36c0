// Rank 0 and its guests over real sockets, in a network of their own: who is heard, who is not, and what is left.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_server.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "own_network.h"
#include "test_socket.h"
#include "tools/check/check_client.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr std::uint16_t kPort = 29500;
constexpr std::uint16_t kSide = 30100;
constexpr std::array<std::uint16_t, 3> kSides{kSide, kSide + 1, kSide + 2};
const std::string kStamp = "12.0.0";

Deadline in(int time) { return Deadline::clock::now() + milliseconds(time); }

CheckReport report_of(Rank rank) {
  CheckReport report;
  report.step_tag = kStamp;
  report.rank = rank;
  return report;
}

// What a rank does: come, report, and hear the verdict. The way it found, if it heard one.
std::optional<CheckVisit> visit(Rank rank, std::string& verdict, const std::string& address = "127.0.0.1",
                                int patience = 5000) {
  auto found = visit_rank_zero({address, kPort, "127.0.0.1", kSides}, {kStamp, rank}, in(patience));
  if (!found) return std::nullopt;
  auto report = report_of(rank);
  add_way(report, *found);
  if (!found->talk.say(FrameKind::kReport, write_report(report), in(1000))) return std::nullopt;
  const auto answer = found->talk.hear(in(5000));
  if (answer && answer->kind == FrameKind::kVerdict) verdict = answer->body;
  return std::move(*found);
}

Descriptor connected() {
  auto connecting = connect_to(resolve("127.0.0.1", kPort, in(1000)).value().front(), in(1000));
  EXPECT_EQ(connecting.error, 0);
  return std::move(connecting.socket);
}

void say(const Descriptor& socket, const std::string& text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

template <class Body>
void with_own_network(Body body) {
  const auto skipped = in_own_network(body);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(CheckServer, HearsAllRanksAndTellsAllOfThem) {
  with_own_network([] {
    auto host = CheckServer::open(kStamp, 4);
    ASSERT_TRUE(host);
    ASSERT_TRUE(host->listen(kPort));
    host->reports()[0] = report_of(0);
    std::vector<std::string> verdicts(4);
    std::vector<std::thread> ranks;
    for (const Rank rank : {1U, 2U, 3U}) {
      ranks.emplace_back([&, rank] {
        const auto way = visit(rank, verdicts[rank]);
        ASSERT_TRUE(way);
        EXPECT_EQ(way->reach, Reach::kReached);
        EXPECT_EQ(way->interface, "lo");
        EXPECT_LT(std::abs(way->clock_offset_us), 1'000'000);
      });
    }
    host->gather_reports(in(5000));
    host->close_doors();
    host->tell(FrameKind::kVerdict, "0");
    for (auto& rank : ranks) rank.join();
    host->part(in(1000));
    for (const Rank rank : {1U, 2U, 3U}) {
      EXPECT_TRUE(host->reports()[rank]);
      EXPECT_EQ(verdicts[rank], "0");
    }
    EXPECT_EQ(host->strangers(), 0U);
    // Nothing is left on the port that keeps a server from it that does not say SO_REUSEADDR.
    EXPECT_EQ(TestSocket(Family::kDual).bind("::", kPort), 0);
  });
}

TEST(CheckServer, ComesBackAtTheDeadlineWithThoseThatCame) {
  with_own_network([] {
    auto host = CheckServer::open(kStamp, 3);
    ASSERT_TRUE(host && host->listen(kPort));
    std::string verdict;
    std::thread rank([&] { (void)visit(1, verdict); });
    const auto begin = Deadline::clock::now();
    host->gather_reports(in(300));
    EXPECT_LT(Deadline::clock::now() - begin, milliseconds(600));
    EXPECT_TRUE(host->reports()[1]);
    EXPECT_FALSE(host->reports()[2]);
    host->tell(FrameKind::kVerdict, "1");
    rank.join();
    EXPECT_EQ(verdict, "1");
  });
}

TEST(CheckServer, WhatOthersSayIsTurnedAway) {
  with_own_network([] {
    auto host = CheckServer::open(kStamp, 4);
    ASSERT_TRUE(host && host->listen(kPort));
    const auto hello = [](const std::string& step_tag, Rank rank) {
      return write_frame(FrameKind::kHello, write_hello({step_tag, rank}));
    };
    const std::vector<std::string> strange{
        "GET / HTTP/1.1\r\n\r\n",
        hello("13.0.0", 1),                                                              // another step
        hello(kStamp, 0),                                                                // rank 0 does not visit itself
        hello(kStamp, 4),                                                                // no such rank
        hello(kStamp, 1) + hello(kStamp, 2),                                             // two ranks in one
        write_frame(FrameKind::kReport, write_report(report_of(1))),                     // without a hello
        hello(kStamp, 1) + write_frame(FrameKind::kReport, "stamp=12.0.0\n"),            // no report
        hello(kStamp, 1) + write_frame(FrameKind::kReport, write_report(report_of(2))),  // of somebody else
        hello(kStamp, 1) + write_frame(FrameKind::kOutcome, write_outcome({})),          // before the report
        hello(kStamp, 1) + write_frame(FrameKind::kVerdict, "0"),                        // not for a guest to say
    };
    std::vector<Descriptor> sockets;
    for (const auto& text : strange) {
      sockets.push_back(connected());
      say(sockets.back(), text);
    }
    host->gather_reports(in(300));
    EXPECT_EQ(host->strangers(), strange.size());
    for (const auto& report : host->reports()) EXPECT_FALSE(report);
    // Control: the same way, a rank is heard.
    sockets.push_back(connected());
    say(sockets.back(), hello(kStamp, 1) + write_frame(FrameKind::kReport, write_report(report_of(1))));
    host->gather_reports(in(300));
    EXPECT_TRUE(host->reports()[1]);
    // And nobody replaces what it said.
    sockets.push_back(connected());
    auto other = report_of(1);
    other.host = "elsewhere";
    say(sockets.back(), hello(kStamp, 1) + write_frame(FrameKind::kReport, write_report(other)));
    host->gather_reports(in(300));
    EXPECT_EQ(host->reports()[1]->host, "");
    EXPECT_EQ(host->strangers(), strange.size() + 1);
  });
}

TEST(CheckServer, ACrowdOfSilentConnectionsKeepsNobodyOut) {
  with_own_network([] {
    auto host = CheckServer::open(kStamp, 2);
    ASSERT_TRUE(host && host->listen(kPort));
    std::vector<Descriptor> crowd;
    for (int i = 0; i < 300; ++i) crowd.push_back(connected());
    std::string verdict;
    std::thread rank([&] { (void)visit(1, verdict); });
    host->gather_reports(in(5000));
    EXPECT_TRUE(host->reports()[1]);
    host->tell(FrameKind::kVerdict, "0");
    rank.join();
    EXPECT_EQ(verdict, "0");
    EXPECT_GE(host->strangers(), 300U - 66U);  // no more than 66 were held at once
  });
}

TEST(CheckServer, ATakenPortIsToldAndTheSideDoorLeadsIn) {
  with_own_network([] {
    TestSocket other(Family::kDual);
    ASSERT_EQ(other.bind("::", kPort), 0);
    ASSERT_EQ(other.listen(), 0);  // accepts, and says nothing
    auto host = CheckServer::open(kStamp, 2);
    ASSERT_TRUE(host);
    const auto listening = host->listen(kPort);
    ASSERT_FALSE(listening);
    EXPECT_EQ(listening.error().message, "another program has it");
    // The first side door is somebody's, too.
    TestSocket taken(Family::kDual);
    taken.reuse_address();
    ASSERT_EQ(taken.bind("::", kSide), 0);
    host->open_side_door(kSides);
    std::string verdict;
    std::thread rank([&] {
      const auto way = visit(1, verdict);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kForeign);
    });
    host->gather_reports(in(8000));
    EXPECT_TRUE(host->reports()[1]);
    host->tell(FrameKind::kVerdict, "1");
    rank.join();
    EXPECT_EQ(verdict, "1");
  });
}

TEST(CheckServer, WhoLooksInTheWrongPlaceSaysSoThroughTheSideDoor) {
  with_own_network([] {
    auto host = CheckServer::open(kStamp, 3);
    ASSERT_TRUE(host && host->listen(kPort));
    host->open_side_door(kSides);
    std::vector<std::string> verdicts(3);
    std::thread lost([&] {
      const auto way = visit(1, verdicts[1], "no-such-host.invalid");
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kNoName);
    });
    std::thread right([&] {
      const auto way = visit(2, verdicts[2]);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kReached);
    });
    host->gather_reports(in(8000));
    EXPECT_TRUE(host->reports()[1] && host->reports()[2]);
    host->tell(FrameKind::kVerdict, "1");
    lost.join();
    right.join();
  });
}

TEST(CheckGuest, WaitsForARankZeroThatStartsLater) {
  with_own_network([] {
    std::string verdict;
    std::thread rank([&] {
      const auto way = visit(1, verdict);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kReached);  // though it was refused at first
    });
    std::this_thread::sleep_for(milliseconds(300));
    auto host = CheckServer::open(kStamp, 2);
    ASSERT_TRUE(host && host->listen(kPort));
    host->open_side_door(kSides);
    host->gather_reports(in(5000));
    EXPECT_TRUE(host->reports()[1]);
    host->tell(FrameKind::kVerdict, "0");
    rank.join();
  });
}

TEST(CheckGuest, GivesUpAtItsDeadline) {
  with_own_network([] {
    const auto begin = Deadline::clock::now();
    const auto found = visit_rank_zero({"127.0.0.1", kPort, "127.0.0.1", kSides}, {kStamp, 1}, in(400));
    const auto took = Deadline::clock::now() - begin;
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().message, "Connection refused (127.0.0.1)");
    EXPECT_LT(took, milliseconds(900));
    EXPECT_GT(took, milliseconds(100));
  });
}

TEST(CheckGuest, ServersThatAnswerSomethingElseAreNotRankZero) {
  with_own_network([] {
    const auto server = listen_on(kPort, true);
    ASSERT_EQ(server.error, 0);
    std::atomic<bool> is_over = false;
    std::thread endless([&] {
      const std::string noise(65536, 'x');  // no end of line, ever
      while (!is_over) {
        const Descriptor client(::accept4(server.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (client.is_open()) (void)::send(client.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
        std::this_thread::sleep_for(milliseconds(5));
      }
    });
    const auto found = visit_rank_zero({"127.0.0.1", kPort, "127.0.0.1", kSides}, {kStamp, 1}, in(1500));
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().message, "it accepts connections and is not rank 0 of this step (127.0.0.1)");
    is_over = true;
    endless.join();
  });
}

TEST(CheckGuest, ARankZeroThatIsStuckIsNotCalledSomebodyElse) {
  with_own_network([] {
    const auto stuck = listen_on(kPort, true);  // the kernel accepts, the process does not go on
    ASSERT_EQ(stuck.error, 0);
    const auto found = visit_rank_zero({"127.0.0.1", kPort, "127.0.0.1", kSides}, {kStamp, 1}, in(500));
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().message, "it accepts connections and says nothing: it is stuck, or not rank 0 (127.0.0.1)");
  });
}

TEST(CheckGuest, OwnWayKnowsItsOwnAddressesFromOthers) {
  with_own_network([] {
    EXPECT_EQ(try_own_way("127.0.0.1", kPort, false, in(500)).reach, Reach::kReached);
    EXPECT_EQ(try_own_way("127.0.0.1", kPort, true, in(500)).reach, Reach::kRefused);  // nobody listens
    EXPECT_EQ(try_own_way("192.0.2.1", kPort, false, in(500)).reach, Reach::kForeign);
    EXPECT_EQ(try_own_way("no-such-host.invalid", kPort, false, in(3000)).reach, Reach::kNoName);
  });
}

TEST(CheckServer, TheLimitOfOpenFilesIsRaisedAndPutBack) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  auto small = before;
  small.rlim_cur = 80;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  {
    const auto host = CheckServer::open(kStamp, 100);
    ASSERT_TRUE(host);
    rlimit now{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
    EXPECT_GE(now.rlim_cur, 164U);
  }
  rlimit after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, 80U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto refused = CheckServer::open(kStamp, before.rlim_max);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("ulimit -n"), std::string::npos);
}

TEST(CheckGuest, SideDoorsAreOutsideOfOtherRanges) {
  for (const std::uint32_t job : {1U, 12U, 4'000'000'000U}) {
    const auto ports = side_doors({.job = job, .step = 3, .restart = 1});
    for (const auto port : ports) EXPECT_TRUE(port >= 30000 && port <= 32767) << port;
    EXPECT_NE(ports[0], ports[1]);
    EXPECT_NE(ports[1], ports[2]);
  }
}

}  // namespace
}  // namespace bootstrap

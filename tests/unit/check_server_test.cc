// Rank 0 and its clients over real sockets, in a network of their own: which reports arrive, and what is left open.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_connection.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "core/util/text.h"
#include "in_child.h"
#include "own_network.h"
#include "probe/deadline.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr std::uint16_t kPort = 29500;
constexpr StepId kStep{.job = 12, .step = 0, .restart = 0};
const std::string kTag = step_tag(kStep);
const auto kSide = side_port(kStep);

Deadline in(int time) { return Deadline::clock::now() + milliseconds(time); }

CheckReport report_of(Rank rank, const std::string& address = "127.0.0.1") {
  CheckReport report;
  report.rank = rank;
  report.address = address;
  report.port = kPort;
  return report;
}

// A rank connects, reports, and receives the verdict. Returns its report, if it reached rank 0.
std::optional<CheckReport> visit(Rank rank, std::string& verdict, const std::string& address = "127.0.0.1") {
  auto report = report_of(rank, address);
  auto client = find_rank_zero(report, kStep, "127.0.0.1", in(5000));
  if (!client || !client->send("report", write_record(report), in(1000))) return std::nullopt;
  const auto answer = client->receive(in(5000));
  if (answer && answer->word == "verdict") verdict = answer->body;
  return report;
}

std::string why_not_found(int patience) {
  auto report = report_of(1);
  const auto found = find_rank_zero(report, kStep, "127.0.0.1", in(patience));
  return found ? "found" : found.error().message;
}

Descriptor connected() {
  auto socket = connect_to(resolve("127.0.0.1", kPort, in(1000)).value().front(), in(1000));
  EXPECT_TRUE(socket.is_open());
  return socket;
}

void send_text(const Descriptor& socket, const std::string& text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Rank 0's own report.
Descriptor reported_as_zero() {
  auto socket = connected();
  send_text(socket, write_line({kTag, 0, "report", write_record(report_of(0))}));
  return socket;
}

// Rank 0 of a step of so many ranks, on its port.
struct ListeningServer : CheckServer {
  explicit ListeningServer(std::size_t ranks) : CheckServer(kTag, ranks) { EXPECT_TRUE(listen(kPort)); }
};

bool is_closed(const Descriptor& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

template <class Body>
void with_own_network(Body body) {
  const auto skipped = in_own_network(body);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(CheckServer, ReceivesAllReportsAndSendsTheVerdict) {
  with_own_network([] {
    ListeningServer server(4);
    std::vector<std::string> verdicts(4);
    std::vector<std::thread> ranks;
    for (const Rank rank : {0U, 1U, 2U, 3U}) {
      ranks.emplace_back([&, rank] {
        const auto way = visit(rank, verdicts[rank]);
        ASSERT_TRUE(way);
        EXPECT_EQ(way->reach, Reach::kReached);
        EXPECT_EQ(way->target, "127.0.0.1");
        EXPECT_EQ(way->interface, "lo");
        EXPECT_LT(way->clock_skew_us, 1'000'000U);
      });
    }
    server.gather_reports(in(5000));
    server.stop_listening();
    server.send_to_all("verdict", "0");
    for (auto& rank : ranks) rank.join();
    server.disconnect(in(1000));
    for (const Rank rank : {0U, 1U, 2U, 3U}) {
      EXPECT_TRUE(server.reports()[rank]);
      EXPECT_EQ(verdicts[rank], "0");
    }
    // A server without SO_REUSEADDR can bind the port now.
    EXPECT_EQ(TestSocket(Family::kDual).bind("::", kPort), 0);
  });
}

// Rank 1 reports its exchange, rank 2 disconnects, and rank 3 sends nothing.
TEST(CheckServer, WaitsForTheExchangeOfRanksThatAreStillConnected) {
  with_own_network([] {
    ListeningServer server(4);
    std::vector<CheckClient> ranks;
    for (const Rank rank : {0U, 1U, 2U, 3U}) {
      ranks.emplace_back(connected(), kTag, rank);
      ASSERT_TRUE(ranks.back().send("report", write_record(report_of(rank)), in(1000)));
    }
    server.gather_reports(in(5000));
    server.send_to_all("exchange", "");
    auto again = report_of(1);
    again.has_exchanged = true;
    for (auto& rank : ranks) {
      const auto answer = rank.receive(in(1000));
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->word, "exchange");
    }
    EXPECT_TRUE(ranks[1].send("report", write_record(again), in(1000)));
    again.rank = 0;
    EXPECT_TRUE(ranks[0].send("report", write_record(again), in(1000)));
    ranks.erase(ranks.begin() + 2);
    const auto begin = Deadline::clock::now();
    server.gather_exchanges(in(300));
    EXPECT_GE(Deadline::clock::now() - begin, milliseconds(300)) << "rank 3 is waited for";
    EXPECT_TRUE(server.reports()[1]->has_exchanged);
    EXPECT_FALSE(server.reports()[2]->has_exchanged);
    ranks.pop_back();
    server.gather_exchanges(in(5000));
    EXPECT_LT(Deadline::clock::now() - begin, milliseconds(3000)) << "no other rank is connected";
  });
}

TEST(CheckServer, OtherLinesAreRejected) {
  with_own_network([] {
    ListeningServer server(4);
    const auto line = [](const std::string& tag, Rank rank, const char* word, const std::string& body = {}) {
      return write_line({tag, rank, word, body});
    };
    const auto report = [](Rank rank) { return write_record(report_of(rank)); };
    const std::vector<std::string> strange{
        "GET / HTTP/1.1\r\n\r\n",
        std::string(kMaxLine + 1, 'x'),                   // no end of line
        line("13.0.0", 1, "clock"),                       // another step
        line(kTag, 4, "clock"),                           // no such rank
        line(kTag, 1, "clock") + line(kTag, 2, "clock"),  // two ranks in one
        line(kTag, 1, "report", "1\t2\t"),                // no report
        line(kTag, 1, "report", report(2)),               // of another rank
        line(kTag, 1, "verdict", "0"),                    // no word of a rank
    };
    std::vector<Descriptor> sockets;
    for (const auto& text : strange) {
      sockets.push_back(connected());
      send_text(sockets.back(), text);
    }
    server.gather_reports(in(300));
    for (const auto& socket : sockets) EXPECT_TRUE(is_closed(socket));
    for (const auto& one : server.reports()) EXPECT_FALSE(one);
    // Control: the same way, a rank's report arrives.
    sockets.push_back(connected());
    send_text(sockets.back(), line(kTag, 1, "report", report(1)));
    server.gather_reports(in(300));
    EXPECT_TRUE(server.reports()[1]);
    // A second report of the same rank does not replace the first.
    sockets.push_back(connected());
    auto other = report_of(1);
    other.host = "elsewhere";
    send_text(sockets.back(), line(kTag, 1, "report", write_record(other)));
    server.gather_reports(in(300));
    EXPECT_EQ(server.reports()[1]->host, "");
    EXPECT_TRUE(is_closed(sockets.back()));
  });
}

TEST(CheckServer, ARankOfAnotherVersionIsNamedAndReceivesTheVerdict) {
  with_own_network([] {
    ListeningServer server(2);
    const auto own = connected();
    send_text(own, write_line({kTag, 0, "clock", std::string(kVersion)}));
    send_text(own, write_line({kTag, 0, "report", write_record(report_of(0))}));
    const auto other = connected();
    send_text(other, write_line({kTag, 1, "clock", "9.0.0"}));
    send_text(other, write_line({kTag, 1, "report", "what only 9.0.0 can read"}));
    const auto begin = Deadline::clock::now();
    server.gather_reports(in(5000));
    EXPECT_LT(Deadline::clock::now() - begin, milliseconds(3000)) << "it is here, and not waited for";
    EXPECT_EQ(server.other_versions(), (std::map<Rank, std::string>{{1, "9.0.0"}}));
    EXPECT_TRUE(server.reports()[0] && !server.reports()[1] && server.missing().empty());
    server.send_to_all("verdict", "1");
    std::string received;
    (void)receive_line(other, received, in(1000));  // the time
    EXPECT_EQ(receive_line(other, received, in(1000)), cat({kTag, " 0 verdict 1"}));
  });
}

TEST(CheckServer, ManySilentConnectionsKeepNoRankOut) {
  with_own_network([] {
    ListeningServer server(2);
    std::vector<Descriptor> crowd;
    for (int i = 0; i < 300; ++i) crowd.push_back(connected());
    const auto zero = reported_as_zero();
    std::string verdict;
    std::thread rank([&] { (void)visit(1, verdict); });
    server.gather_reports(in(5000));
    EXPECT_TRUE(server.reports()[1]);
    server.send_to_all("verdict", "0");
    rank.join();
    EXPECT_EQ(verdict, "0");
    EXPECT_GE(std::count_if(crowd.begin(), crowd.end(), is_closed), 300 - 66) << "no more than 66 were open at once";
  });
}

TEST(CheckServer, ATakenPortIsReportedAndASidePortLeadsIn) {
  with_own_network([] {
    TestSocket other(Family::kDual);
    ASSERT_EQ(other.bind("::", kPort), 0);
    ASSERT_EQ(other.listen(), 0);  // accepts, and sends nothing
    CheckServer server(kTag, 2);
    const auto listening = server.listen(kPort);
    ASSERT_FALSE(listening);
    EXPECT_EQ(listening.error().message, "another program uses it");
    server.listen_aside(kSide);
    std::string verdict;
    std::thread rank([&] {
      const auto way = visit(1, verdict);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kForeign);
    });
    server.gather_reports(in(4000));
    EXPECT_TRUE(server.reports()[1]);
    server.send_to_all("verdict", "1");
    rank.join();
    EXPECT_EQ(verdict, "1");
  });
}

TEST(CheckClient, WaitsForARankZeroThatStartsLater) {
  with_own_network([] {
    std::string verdict;
    std::thread rank([&] {
      const auto way = visit(1, verdict);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kReached);  // although it was refused at first
    });
    std::this_thread::sleep_for(milliseconds(300));
    ListeningServer server(2);
    const auto zero = reported_as_zero();
    server.listen_aside(kSide);
    server.gather_reports(in(5000));
    EXPECT_TRUE(server.reports()[1]);
    server.send_to_all("verdict", "0");
    rank.join();
  });
}

// A program that accepts connections and sends noise, or nothing.
TEST(CheckClient, OtherServersAreNotRankZero) {
  with_own_network([] {
    EXPECT_EQ(why_not_found(400), "Connection refused (127.0.0.1)");
    const auto server = listen_on(kPort, true);
    ASSERT_TRUE(server.is_open());
    for (const auto& noise : {std::string(), std::string(65536, 'x'), write_line({"13.0.0", 0, "clock", "1"}),
                              write_line({kTag, 1, "clock", "1"})}) {
      std::atomic<bool> is_over = false;
      std::thread endless([&] {
        while (!is_over) {
          const Descriptor client(::accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
          if (client.is_open()) (void)::send(client.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
          std::this_thread::sleep_for(milliseconds(5));
        }
      });
      EXPECT_EQ(why_not_found(1500),
                "it accepts connections but does not answer as rank 0 of this step does (127.0.0.1)");
      is_over = true;
      endless.join();
    }
  });
}

TEST(CheckServer, TheLimitOfOpenFilesIsRaisedAndPutBack) {
  in_child([] {
    rlimit limit{.rlim_cur = 80, .rlim_max = 200};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    {
      CheckServer server(kTag, 60);
      EXPECT_TRUE(server.raise_file_limit());
      EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
      EXPECT_GE(limit.rlim_cur, 124U);
    }
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_EQ(limit.rlim_cur, 80U);
    const auto refused = CheckServer(kTag, 100).raise_file_limit();
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("ulimit -n"), std::string::npos);
  });
}

TEST(CheckClient, TheSidePortIsOutsideOfOtherRanges) {
  for (const std::uint32_t job : {1U, 12U, 4'000'000'000U}) {
    const auto port = side_port({.job = job, .step = 3, .restart = 1});
    EXPECT_TRUE(port >= 30000 && port <= 32767) << port;
  }
}

}  // namespace
}  // namespace bootstrap

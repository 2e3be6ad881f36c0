// Rank 0 and its clients over real sockets, in their own network: which reports arrive, and which sockets stay open.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_meeting.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "check_step.h"
#include "core/util/text.h"
#include "in_child.h"
#include "own_network.h"
#include "probe/deadline.h"
#include "step_environment.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr std::uint16_t kPort = 29500;
constexpr StepId kStep{.job = 12, .step = 0, .restart = 0};
const std::string kTag = step_tag(kStep);
constexpr int kAnHour = 3600 * 1000;  // for waits that end earlier

Deadline in(int time) { return Deadline::clock::now() + milliseconds(time); }

CheckReport report_of(Rank rank, const std::string& address = "127.0.0.1") {
  CheckReport report;
  report.rank = rank;
  report.address = address;
  report.port = kPort;
  return report;
}

std::string report_line(Rank rank) { return cat({"report ", write_record(report_of(rank))}); }

// A rank connects, reports, and receives the verdict. Returns its report, if it reached rank 0.
std::optional<CheckReport> visit(Rank rank, std::string& verdict, const std::string& address = "127.0.0.1") {
  auto report = report_of(rank, address);
  auto rank_zero = find_rank_zero(report, kStep, "127.0.0.1", in(5000));
  if (!rank_zero || !rank_zero->send(report_line(rank), in(1000))) return std::nullopt;
  verdict = rank_zero->receive(in(5000)).value_or("");
  return report;
}

std::string why_not_found(int patience) {
  auto report = report_of(1);
  const auto found = find_rank_zero(report, kStep, "127.0.0.1", in(patience));
  return found ? "found" : found.error().message;
}

CheckConnection connected() {
  TestSocket socket(Family::kIpv4);
  EXPECT_EQ(socket.connect("127.0.0.1", kPort), 0);
  return {Descriptor(socket.release())};
}

std::string hello(Rank rank, const std::string& tag = kTag, std::string_view version = kVersion) {
  return cat({"hello ", tag, " ", std::to_string(rank), " ", version});
}

// A rank that sends these lines.
CheckConnection sent(const std::vector<std::string>& lines) {
  auto connection = connected();
  for (const auto& line : lines) EXPECT_TRUE(connection.send(line, in(1000)));
  return connection;
}

// Rank 0 of a step of so many ranks, on its port.
struct ListeningServer {
  explicit ListeningServer(std::uint32_t ranks) : findings(findings_of(ranks)), server(findings) {
    EXPECT_TRUE(server.listen(kPort));
  }
  static CheckFindings findings_of(std::uint32_t ranks) {
    CheckFindings findings;
    findings.id = kStep;
    findings.layout = layout_of({ranks});
    return findings;
  }
  CheckFindings findings;
  CheckServer server;
};

bool is_closed(const CheckConnection& connection) {
  std::array<char, 4096> bytes;
  ssize_t count = 1;
  while (count > 0) count = ::recv(connection.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  return count == 0 || errno == ECONNRESET;
}

TEST(CheckServer, ReceivesAllReportsAndSendsTheVerdict) {
  in_own_network([] {
    ListeningServer zero(4);
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
    zero.server.gather_reports(in(5000));
    zero.server.send_verdict("verdict 0", in(1000));
    for (auto& rank : ranks) rank.join();
    for (const Rank rank : {0U, 1U, 2U, 3U}) {
      EXPECT_TRUE(zero.findings.reports[rank]);
      EXPECT_EQ(verdicts[rank], "verdict 0");
    }
    // A server without SO_REUSEADDR can bind the port now.
    EXPECT_EQ(TestSocket(Family::kDual).bind("::", kPort), 0);
  });
}

// Rank 1 reports its exchange, rank 2 disconnects, and rank 3 sends nothing.
TEST(CheckServer, WaitsForTheExchangeOfRanksThatAreStillConnected) {
  in_own_network([] {
    ListeningServer zero(4);
    std::vector<CheckConnection> ranks;
    for (const Rank rank : {0U, 1U, 2U, 3U}) ranks.push_back(sent({hello(rank), report_line(rank)}));
    zero.server.gather_reports(in(5000));
    for (const Rank rank : {0U, 1U}) {
      auto again = report_of(rank);
      again.has_exchanged = true;
      EXPECT_TRUE(ranks[rank].send(cat({"report ", write_record(again)}), in(1000)));
    }
    ranks.erase(ranks.begin() + 2);
    const auto begin = Deadline::clock::now();
    zero.server.gather_exchanges(in(300));
    EXPECT_GE(Deadline::clock::now() - begin, milliseconds(300)) << "the server waits for rank 3";
    EXPECT_TRUE(zero.findings.reports[1]->has_exchanged);
    EXPECT_FALSE(zero.findings.reports[2]->has_exchanged);
    (void)ranks[1].receive(in(1000));  // the time
    EXPECT_EQ(ranks[1].receive(in(1000)), "exchange");
    ranks.pop_back();
    zero.server.gather_exchanges(in(kAnHour));  // ends, since no other rank is connected
  });
}

TEST(CheckServer, OtherLinesAreRejected) {
  in_own_network([] {
    ListeningServer zero(4);
    const std::vector<std::vector<std::string>> strange{
        {"GET / HTTP/1.1\r\n\r\n"},
        {hello(1, "13.0.0")},         // another step
        {hello(4)},                   // no such rank
        {hello(1), hello(2)},         // two ranks in one
        {report_line(1)},             // of no rank
        {hello(1), "report 1\t2\t"},  // no report
        {hello(1), report_line(2)},   // of another rank
        {hello(1), "verdict 0"},      // no line of a rank
    };
    std::vector<CheckConnection> connections;
    for (const auto& lines : strange) connections.push_back(sent(lines));
    connections.push_back(connected());
    EXPECT_GT(::send(connections.back().socket.get(), std::string(kMaxLine + 1, 'x').data(), kMaxLine + 1, 0), 0);
    zero.server.gather_reports(in(300));
    for (const auto& connection : connections) EXPECT_TRUE(is_closed(connection));
    for (const auto& one : zero.findings.reports) EXPECT_FALSE(one);
    // Control: a rank's report arrives in the same way.
    connections.push_back(sent({hello(1), report_line(1)}));
    zero.server.gather_reports(in(300));
    EXPECT_TRUE(zero.findings.reports[1]);
    // A second report of the same rank does not replace the first.
    auto other = report_of(1);
    other.host = "elsewhere";
    connections.push_back(sent({hello(1), cat({"report ", write_record(other)})}));
    zero.server.gather_reports(in(300));
    EXPECT_EQ(zero.findings.reports[1]->host, "");
    EXPECT_TRUE(is_closed(connections.back()));
  });
}

TEST(CheckServer, ARankOfAnotherVersionIsNamedAndReceivesTheVerdict) {
  in_own_network([] {
    ListeningServer zero(2);
    const auto own = sent({hello(0), report_line(0)});
    auto other = sent({hello(1, kTag, "9.0.0"), "report what only 9.0.0 can read"});
    zero.server.gather_reports(in(kAnHour));  // ends, since all ranks are here
    EXPECT_EQ(zero.findings.other_versions, (std::map<Rank, std::string>{{1, "9.0.0"}}));
    EXPECT_TRUE(zero.findings.reports[0] && !zero.findings.reports[1] && missing_ranks(zero.findings).empty());
    zero.server.send_verdict("verdict 1", in(100));
    (void)other.receive(in(1000));  // the time
    EXPECT_EQ(other.receive(in(1000)), "verdict 1");
  });
}

TEST(CheckServer, ManySilentConnectionsKeepNoRankOut) {
  in_own_network([] {
    ListeningServer zero(2);
    std::vector<CheckConnection> crowd;
    for (int i = 0; i < 300; ++i) crowd.push_back(connected());
    const auto own = sent({hello(0), report_line(0)});
    std::string verdict;
    std::thread rank([&] { (void)visit(1, verdict); });
    zero.server.gather_reports(in(5000));
    EXPECT_TRUE(zero.findings.reports[1]);
    zero.server.send_verdict("verdict 0", in(100));
    rank.join();
    EXPECT_EQ(verdict, "verdict 0");
    EXPECT_GE(std::count_if(crowd.begin(), crowd.end(), is_closed), 300 - 66) << "at most 66 were open at once";
  });
}

// A turn accepts some connections, then reads data of the ranks. It ends at the deadline even if more connections wait.
TEST(CheckServer, ATurnAcceptsALimitedNumberOfConnections) {
  in_own_network([] {
    ListeningServer zero(1);
    std::vector<CheckConnection> crowd;
    for (int i = 0; i < 300; ++i) crowd.push_back(connected());
    zero.server.gather_reports(in(0));
    EXPECT_EQ(std::count_if(crowd.begin(), crowd.end(), is_closed), 0) << "there are more connections than places";
    zero.server.gather_reports(in(300));  // Control: more turns accept all of them
    EXPECT_GE(std::count_if(crowd.begin(), crowd.end(), is_closed), 300 - 65);
  });
}

TEST(CheckServer, TheSidePortMayBeTheStepsPort) {
  in_own_network([] {
    auto findings = ListeningServer::findings_of(2);
    CheckServer server(findings);
    EXPECT_TRUE(server.listen(side_port(kStep)));
    EXPECT_EQ(findings.port_trouble, "");
  });
}

TEST(CheckServer, ATakenPortIsReportedAndASidePortIsUsed) {
  in_own_network([] {
    const auto other = TestSocket::listener(Family::kDual, "::", kPort);  // accepts, and sends nothing
    ListeningServer zero(2);
    EXPECT_EQ(zero.findings.port_trouble, "another program uses it");
    std::string verdict;
    std::thread rank([&] {
      const auto way = visit(1, verdict);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kForeign);
    });
    zero.server.gather_reports(in(4000));
    EXPECT_TRUE(zero.findings.reports[1]);
    zero.server.send_verdict("verdict 1", in(100));
    rank.join();
    EXPECT_EQ(verdict, "verdict 1");
  });
}

TEST(CheckClient, WaitsForARankZeroThatStartsLater) {
  in_own_network([] {
    std::string verdict;
    std::thread rank([&] {
      const auto way = visit(1, verdict);
      ASSERT_TRUE(way);
      EXPECT_EQ(way->reach, Reach::kReached);  // although it was refused at first
    });
    std::this_thread::sleep_for(milliseconds(300));
    ListeningServer zero(2);
    const auto own = sent({hello(0), report_line(0)});
    zero.server.gather_reports(in(5000));
    EXPECT_TRUE(zero.findings.reports[1]);
    zero.server.send_verdict("verdict 0", in(100));
    rank.join();
  });
}

// A program that accepts connections and sends noise, or nothing.
TEST(CheckClient, OtherServersAreNotRankZero) {
  in_own_network([] {
    EXPECT_EQ(why_not_found(400), "Connection refused (127.0.0.1)");
    const auto server = TestSocket::listener(Family::kDual, "::", kPort);
    for (const auto& noise :
         {std::string(), std::string(65536, 'x'), std::string("clock 13.0.0 1\n"), cat({"clock ", kTag, " now\n"})}) {
      std::atomic<bool> is_over = false;
      std::thread endless([&] {
        while (!is_over) (void)server.accept().send(noise.data(), noise.size());
      });
      EXPECT_EQ(why_not_found(1500),
                "it accepts connections but does not answer as rank 0 of this step does (127.0.0.1)");
      is_over = true;
      (void)connected();
      endless.join();
    }
  });
}

TEST(CheckServer, TheLimitOfOpenFilesIsRaisedAndPutBack) {
  in_child([] {
    in_own_network([] {
      rlimit limit{.rlim_cur = 80, .rlim_max = 200};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
      {
        const ListeningServer zero(60);
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
        EXPECT_GE(limit.rlim_cur, 124U);
      }
      EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
      EXPECT_EQ(limit.rlim_cur, 80U);
      auto findings = ListeningServer::findings_of(100);
      EXPECT_NE(error_of(CheckServer(findings).listen(kPort)).message.find("ulimit -n"), std::string::npos);
    });
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

// The server of Horovod's rendezvous: 64 ranks at once, and clients that are slow, wrong, too many or dead.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "horovod_server.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int put(const RunningServer& server, const std::string& path, const std::string& body) {
  return status_of(ask(server, request_text("PUT", path, body)));
}

std::string wait_for(const RunningServer& server, const std::string& path) {
  const auto end = Clock::now() + seconds(60);
  while (Clock::now() < end) {
    const auto answer = ask(server, request_text("GET", path));
    if (status_of(answer) == 200) return body_of(*answer);
    std::this_thread::sleep_for(milliseconds(10));
  }
  return "never came";
}

// What a rank does in one scope, each request with a connection of its own. Returns how often something was wrong.
int meet(const RunningServer& server, const std::string& scope, int rank, int size) {
  int wrong = 0;
  const auto path = "/" + scope + "/";
  for (const std::string prefix : {"rank_", ""}) {
    const auto value = [&](int of) {
      return prefix + std::string(static_cast<std::size_t>(8704), static_cast<char>(of));
    };
    wrong += put(server, path + prefix + std::to_string(rank), value(rank)) != 200 ? 1 : 0;
    for (int other = 0; other < size; ++other) {
      wrong += wait_for(server, path + prefix + std::to_string(other)) != value(other) ? 1 : 0;
    }
  }
  wrong += status_of(ask(server, request_text("DELETE", path + std::to_string(rank)))) != 200 ? 1 : 0;
  return wrong;
}

TEST(RendezvousServer, SixtyFourRanksMeet) {
  constexpr int kRanks = 64;
  constexpr int kOnNode = 8;
  RunningServer server({.ranks = kRanks});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto node = std::to_string(rank / kOnNode);
      const auto local = rank % kOnNode;
      wrong += meet(server, "global", rank, kRanks);
      wrong += meet(server, "local_n" + node, local, kOnNode);
      wrong += meet(server, "cross_" + std::to_string(local), rank / kOnNode, kRanks / kOnNode);
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(status_of(ask(server, request_text("GET", "/global/0"))), 404) << "all have met";
}

TEST(RendezvousServer, SaysWhatIsWrong) {
  RunningServer server;
  EXPECT_EQ(status_of(ask(server, "\x16\x03\x01\r\n\r\n")), 400);
  EXPECT_EQ(status_of(ask(server, std::string(100000, 'x'))), 431);
  EXPECT_EQ(status_of(ask(server, "PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n")),
            501);
  EXPECT_EQ(status_of(ask(server, request_text("GET", "/"))), 400);
  EXPECT_EQ(status_of(ask(server, request_text("GET", "/global/0") + "more")), 404);
  const auto elastic = ask(server, request_text("GET", "/rank_and_size/n1:0"));
  EXPECT_EQ(status_of(elastic), 501);
  EXPECT_NE(elastic.value_or("").find("elastic Horovod needs horovodrun"), std::string::npos);
}

TEST(RendezvousServer, TheAnswerOutrunsABodyThatIsTooLarge) {
  RunningServer server;
  const auto answer = ask(server, request_text("PUT", "/global/0", std::string(8U << 20, 'x')));
  EXPECT_EQ(status_of(answer), 413);
}

TEST(RendezvousServer, ARequestThatIsCutOffIsAnswered) {
  RunningServer server;
  const auto socket = server.connect();
  ASSERT_TRUE(send_all(socket, "PUT /a/b HTTP/1.1\r\nContent-Le"));
  ::shutdown(socket.get(), SHUT_WR);
  EXPECT_EQ(status_of(read_all(socket)), 400);
}

// Sends one byte each `pause`; gives up when the server has answered.
std::optional<std::string> ask_slowly(const RunningServer& server, const std::string& text, milliseconds pause) {
  const auto socket = server.connect();
  for (const char byte : text) {
    pollfd answered{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&answered, 1, static_cast<int>(pause.count())) > 0) break;
    if (!send_all(socket, {&byte, 1})) break;
  }
  return read_all(socket);
}

TEST(RendezvousServer, NobodyWaitsForTheSlow) {
  RunningServer server({.read_deadline = milliseconds(1500)});
  std::vector<std::thread> slow;
  std::atomic<int> timed_out = 0;
  for (int i = 0; i < 20; ++i) {
    slow.emplace_back([&, i] {
      const std::string text = i % 2 == 0 ? request_text("GET", "/global/0") : "";  // the others say nothing at all
      timed_out += status_of(ask_slowly(server, text, milliseconds(100))) == 408 ? 1 : 0;
    });
  }
  const auto began = Clock::now();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(put(server, "/global/0", "x"), 200);
  EXPECT_LT(Clock::now() - began, milliseconds(1500)) << "which is when the slow ones are sent away";
  for (auto& one : slow) one.join();
  EXPECT_EQ(timed_out, 20);
}

TEST(RendezvousServer, WhoIsSlowAndInTimeIsServed) {
  RunningServer server({.read_deadline = seconds(60)});
  EXPECT_EQ(status_of(ask_slowly(server, request_text("GET", "/global/0"), milliseconds(20))), 404);
}

TEST(RendezvousServer, WhoDoesNotReadIsCutOffWithAnError) {
  RunningServer server({.ranks = 200000, .write_deadline = milliseconds(500)});
  const std::string large(32U << 20, 'x');
  ASSERT_EQ(put(server, "/global/0", large), 200);
  const auto socket = server.connect(4096);
  ASSERT_TRUE(send_all(socket, request_text("GET", "/global/0")));
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(read_all(socket), std::nullopt) << "an end of file would pass for a shorter value";
  // Who reads gets all of it, also if it takes longer than a deadline.
  const auto reader = server.connect(4096);
  ASSERT_TRUE(send_all(reader, request_text("GET", "/global/0")));
  EXPECT_TRUE(body_of(read_all(reader).value_or("")) == large);
}

TEST(RendezvousServer, TheDeadLeaveNothingBehind) {
  RunningServer server;
  ASSERT_EQ(put(server, "/global/0", std::string(60000, 'x')), 200);
  const auto before = open_descriptors();
  for (int i = 0; i < 100; ++i) {
    const auto socket = server.connect();
    const auto text = i % 2 == 0 ? request_text("GET", "/global/0") : std::string("PUT /a/b HTTP/1.1\r\nContent-Len");
    ASSERT_TRUE(send_all(socket, text));
    const linger reset{.l_onoff = 1, .l_linger = 0};
    if (i % 3 == 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  EXPECT_EQ(put(server, "/global/1", "x"), 200);
  EXPECT_TRUE(comes_true_within(seconds(2), [&] { return open_descriptors() == before; }));
}

// How long a request takes while 5 clients hold a connection each and say nothing.
Clock::duration time_beside_idle(std::size_t max_connections) {
  RunningServer server({.max_connections = max_connections, .read_deadline = milliseconds(1500)});
  std::vector<Descriptor> idle;
  for (int i = 0; i < 5; ++i) idle.push_back(server.connect());
  std::this_thread::sleep_for(milliseconds(100));
  const auto began = Clock::now();
  EXPECT_EQ(put(server, "/global/0", "x"), 200);
  return Clock::now() - began;
}

TEST(RendezvousServer, MoreThanItsNumberWaitAndAreServed) {
  EXPECT_GT(time_beside_idle(4), milliseconds(1000));
  EXPECT_LT(time_beside_idle(64), milliseconds(1000)) << "the control: there is room";
}

std::string without_end(std::string text) {
  text.pop_back();
  return text;
}

constexpr std::size_t kLargest = 60000;  // about what one value of a small step may have
constexpr int kTooMany = 60;             // of these are more than the 2 MiB that it may have in all

TEST(RendezvousServer, StoresNoMoreThanItMay) {
  RunningServer server({.read_deadline = seconds(20)});
  const std::string large(kLargest, 'x');
  int stored = 0;
  for (int key = 0; key < kTooMany; ++key) {
    stored += put(server, "/global/" + std::to_string(key), large) == 200 ? 1 : 0;
  }
  EXPECT_GT(stored, 30);
  EXPECT_LT(stored, 36);
  EXPECT_EQ(put(server, "/global/59", large), 507);
  // What is being received counts on top of what is stored.
  const auto half = server.connect();
  ASSERT_TRUE(send_all(half, without_end(request_text("PUT", "/global/0", large))));
  EXPECT_EQ(status_of(read_all(half)), 503);
}

TEST(RendezvousServer, ReceivesNoMoreThanItMay) {
  RunningServer server({.read_deadline = seconds(20)});
  const std::string large(kLargest, 'x');
  // Each of these is held until its last byte comes; who is refused lets go of it, so that others may stay.
  std::vector<Descriptor> halves;
  for (int i = 0; i < kTooMany; ++i) {
    halves.push_back(server.connect());
    (void)send_all(halves.back(), without_end(request_text("PUT", "/global/0", large)));
  }
  const auto is_answered = [](const Descriptor& half) {
    pollfd ready{.fd = half.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) > 0;
  };
  const auto answered = [&] { return std::count_if(halves.begin(), halves.end(), is_answered); };
  EXPECT_TRUE(comes_true_within(seconds(10), [&] { return answered() > 20; }));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(answered(), 32);
  for (const auto& half : halves) {
    EXPECT_TRUE(!is_answered(half) || status_of(read_all(half)) == 503);
  }
}

TEST(RendezvousServer, ForgetsWhatTheDeadHadSent) {
  RunningServer server({.read_deadline = seconds(20)});
  const std::string large(kLargest, 'x');
  for (int i = 0; i < 2 * kTooMany; ++i) {  // more than it receives at once, one after the other
    const auto dead = server.connect();
    ASSERT_TRUE(send_all(dead, without_end(request_text("PUT", "/global/0", large))));
    ASSERT_EQ(put(server, "/global/1", "x"), 200);
    const linger reset{.l_onoff = i % 4 == 0 ? 0 : 1, .l_linger = 0};
    ::setsockopt(dead.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  const auto socket = server.connect();
  ASSERT_TRUE(send_all(socket, without_end(request_text("PUT", "/global/0", large))));
  std::this_thread::sleep_for(milliseconds(100));
  ASSERT_TRUE(send_all(socket, "x"));
  EXPECT_EQ(status_of(read_all(socket)), 200);
}

// On loopback each address of 127.0.0.0/8 is a host of its own.
int status_for(const StepHosts& hosts, const char* client) {
  RunningServer server({.hosts = &hosts});
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::inet_pton(AF_INET, client, &own.sin_addr);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  const auto connected = server.connect(std::move(socket));
  EXPECT_TRUE(send_all(connected, request_text("PUT", "/global/0", "x")));
  return status_of(read_all(connected));
}

TEST(RendezvousServer, TurnsAwayWhoIsNoHostOfTheStep) {
  const auto hosts = StepHosts::of({"127.0.0.7", "no-such-host.invalid", "127.0.0.5", ""});
  EXPECT_EQ(status_for(hosts, "127.0.0.5"), 200);
  EXPECT_EQ(status_for(hosts, "127.0.0.7"), 200);
  EXPECT_EQ(status_for(hosts, "127.0.0.1"), 200) << "the server's own address";
  EXPECT_EQ(status_for(hosts, "127.0.0.6"), 403);
  EXPECT_EQ(status_for(StepHosts(), "127.0.0.6"), 200) << "the control: where the hosts are not known";
}

TEST(RendezvousServer, EndsWithTheProcessThatItWatches) {
  for (const bool use_pidfd : {true, false}) {
    RunningServer server({}, use_pidfd);
    const auto idle = server.connect();
    EXPECT_EQ(put(server, "/global/0", "x"), 200);
    std::this_thread::sleep_for(milliseconds(500));
    EXPECT_EQ(put(server, "/global/0", "x"), 200) << "the control: it runs as long as the process does";
    const auto began = Clock::now();
    EXPECT_EQ(server.end(), 0) << "a zombie has ended: nobody has waited for it yet";
    EXPECT_LT(Clock::now() - began, seconds(2));
  }
}

TEST(ProcessWatch, KnowsWhoIsThere) {
  for (const bool use_pidfd : {true, false}) {
    IdleProcess process;
    const auto watch = ProcessWatch::open(process.id(), use_pidfd);
    ASSERT_TRUE(watch);
    EXPECT_EQ(watch->descriptor() >= 0, use_pidfd);
    EXPECT_FALSE(watch->has_ended());
    process.end();
    EXPECT_TRUE(comes_true_within(seconds(5), [&] { return watch->has_ended(); }));
    const auto number = process.id();
    process.reap();
    EXPECT_TRUE(watch->has_ended());
    EXPECT_FALSE(ProcessWatch::open(number, use_pidfd));
    EXPECT_FALSE(ProcessWatch::open(0, use_pidfd));
  }
}

TEST(RendezvousServer, SaysThatItsListenerIsNone) {
  IdleProcess process;
  const auto life = ProcessWatch::open(process.id());
  const Descriptor no_listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(serve(no_listener.get(), {.life = &*life}), 0);
  EXPECT_EQ(serve(-1, {.life = &*life}), EBADF);
}

}  // namespace
}  // namespace bootstrap

// PortClaim on real sockets: whom a held port keeps out, whom it lets in, and what must not refuse a claim.
// SPDX-License-Identifier: Apache-2.0
#include "probe/port_claim.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "own_network.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

// Outside ip_local_port_range, so that nobody gets it by chance between two lines of a test.
std::uint16_t unused_port() {
  constexpr int kFirst = 20000;
  constexpr int kCount = 10000;
  static int next = ::getpid() % kCount;
  for (int tries = 0; tries < kCount; ++tries) {
    const auto port = static_cast<std::uint16_t>(kFirst + next++ % kCount);
    if (TestSocket(Family::kDual).bind("::", port) == 0) return port;
  }
  ADD_FAILURE() << "no unused port";
  return 0;
}

std::string refusal(std::uint16_t port) {
  const auto claim = PortClaim::take(port);
  return claim ? "" : claim.error().message;
}

std::string in_use(std::uint16_t port) {
  return "port " + std::to_string(port) + " cannot be held: it is in use by another program";
}

struct Server {
  Family family;
  const char* address;
};

constexpr Server kServers[] = {
    {Family::kDual, "::"},  {Family::kIpv6, "::"},        {Family::kIpv4, "0.0.0.0"},
    {Family::kDual, "::1"}, {Family::kIpv4, "127.0.0.1"}, {Family::kDual, "::ffff:127.0.0.1"},
};

// What programs write into their logs, so that a failing case names itself.
std::string describe(const Server& server, bool reuses) {
  return std::string(server.address) + (server.family == Family::kIpv6 ? " (IPv6 only)" : "") +
         (reuses ? " with SO_REUSEADDR" : " without SO_REUSEADDR");
}

TEST(PortClaim, RefusesASecondClaim) {
  const auto port = unused_port();
  const auto first = PortClaim::take(port);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->is_held());
  const auto second = PortClaim::take(port);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(second.error().message, in_use(port));
  EXPECT_FALSE(PortClaim::take(port)) << "the refused claim must not have weakened the first";
}

TEST(PortClaim, LetsServersInThatReuseAddresses) {
  for (const auto& server : kServers) {
    const auto port = unused_port();
    const auto claim = PortClaim::take(port);
    ASSERT_TRUE(claim);
    TestSocket listener(server.family);
    listener.reuse_address();
    ASSERT_EQ(listener.bind(server.address, port), 0) << describe(server, true);
    ASSERT_EQ(listener.listen(), 0) << describe(server, true);
    const bool is_ipv4 = std::string_view(server.address).find('.') != std::string_view::npos;
    TestSocket client(is_ipv4 ? Family::kIpv4 : Family::kIpv6);
    EXPECT_EQ(client.connect(is_ipv4 ? "127.0.0.1" : "::1", port), 0) << describe(server, true);
    EXPECT_TRUE(listener.accept().is_open());
    EXPECT_EQ(refusal(port), in_use(port)) << "a claim beside the listener " << describe(server, true);
  }
}

TEST(PortClaim, DualStackServerIsReachedByBothFamilies) {
  const auto port = unused_port();
  const auto claim = PortClaim::take(port);
  ASSERT_TRUE(claim);
  TestSocket listener(Family::kDual);
  listener.reuse_address();
  ASSERT_EQ(listener.bind("::", port), 0);
  ASSERT_EQ(listener.listen(), 0);
  EXPECT_EQ(TestSocket(Family::kIpv4).connect("127.0.0.1", port), 0);
  EXPECT_EQ(TestSocket(Family::kIpv6).connect("::1", port), 0);
}

TEST(PortClaim, NobodyAnswersWhileNobodyListens) {
  const auto port = unused_port();
  const auto claim = PortClaim::take(port);
  ASSERT_TRUE(claim);
  EXPECT_EQ(TestSocket(Family::kIpv4).connect("127.0.0.1", port), ECONNREFUSED);
  EXPECT_EQ(TestSocket(Family::kIpv6).connect("::1", port), ECONNREFUSED);
}

TEST(PortClaim, KeepsServersOutThatDoNotReuseAddresses) {
  for (const auto& server : kServers) {
    const auto port = unused_port();
    const auto claim = PortClaim::take(port);
    ASSERT_TRUE(claim);
    EXPECT_EQ(TestSocket(server.family).bind(server.address, port), EADDRINUSE) << describe(server, false);
  }
}

TEST(PortClaim, IsRefusedWhereSomebodyListens) {
  for (const bool reuses : {false, true}) {
    for (const auto& server : kServers) {
      const auto port = unused_port();
      TestSocket other(server.family);
      if (reuses) other.reuse_address();
      ASSERT_EQ(other.bind(server.address, port), 0);
      ASSERT_EQ(other.listen(), 0);
      EXPECT_EQ(refusal(port), in_use(port)) << describe(server, reuses);
    }
  }
}

TEST(PortClaim, IsRefusedWhereSomebodyHolds) {
  for (const bool reuses : {false, true}) {
    for (const auto& server : kServers) {
      const auto port = unused_port();
      TestSocket other(server.family);
      if (reuses) other.reuse_address();
      ASSERT_EQ(other.bind(server.address, port), 0);
      EXPECT_EQ(refusal(port), in_use(port)) << describe(server, reuses);
    }
  }
}

// A server that closes first keeps the port in TIME_WAIT for 60 s.
void leave_time_wait(std::uint16_t port, Family family, const char* address) {
  TestSocket listener(Family::kDual);
  listener.reuse_address();
  ASSERT_EQ(listener.bind("::", port), 0);
  ASSERT_EQ(listener.listen(), 0);
  TestSocket client(family);
  ASSERT_EQ(client.connect(address, port), 0);
  { ASSERT_TRUE(listener.accept().is_open()); }  // closed here, before the client
  EXPECT_TRUE(client.at_end());
}

TEST(PortClaim, PassesTimeWaitOfAnEarlierServer) {
  for (const auto& [family, address] : {Server{Family::kIpv4, "127.0.0.1"}, Server{Family::kIpv6, "::1"}}) {
    const auto port = unused_port();
    leave_time_wait(port, family, address);
    // Control: this is what a plain exclusive bind makes of it.
    ASSERT_EQ(TestSocket(Family::kDual).bind("::", port), EADDRINUSE);
    const auto claim = PortClaim::take(port);
    ASSERT_TRUE(claim) << address << ": " << claim.error().message;
    ASSERT_EQ(TestSocket(Family::kDual).bind("::", port), EADDRINUSE);

    EXPECT_EQ(refusal(port), in_use(port)) << "a second claim, " << address;
    EXPECT_EQ(TestSocket(Family::kIpv4).bind("127.0.0.1", port), EADDRINUSE);
    TestSocket listener(Family::kDual);
    listener.reuse_address();
    EXPECT_EQ(listener.bind("::", port), 0);
    EXPECT_EQ(listener.listen(), 0);
    EXPECT_EQ(refusal(port), in_use(port)) << "a claim beside the listener, " << address;
  }
}

TEST(PortClaim, RefusesAListenerBesideTimeWait) {
  const auto port = unused_port();
  leave_time_wait(port, Family::kIpv4, "127.0.0.1");
  TestSocket other(Family::kDual);
  other.reuse_address();
  ASSERT_EQ(other.bind("::", port), 0);
  EXPECT_EQ(refusal(port), in_use(port)) << "bound";
  ASSERT_EQ(other.listen(), 0);
  EXPECT_EQ(refusal(port), in_use(port)) << "listening";
}

TEST(PortClaim, GivesThePortBack) {
  const auto port = unused_port();
  auto claim = PortClaim::take(port);
  ASSERT_TRUE(claim);
  claim->release();
  EXPECT_FALSE(claim->is_held());
  EXPECT_EQ(TestSocket(Family::kDual).bind("::", port), 0);
  claim->release();  // once more does nothing
  { ASSERT_TRUE(PortClaim::take(port)); }
  EXPECT_EQ(TestSocket(Family::kDual).bind("::", port), 0) << "the end of its life gives it back, too";
}

TEST(PortClaim, MovesWithItsPort) {
  const auto port = unused_port();
  auto taken = PortClaim::take(port);
  ASSERT_TRUE(taken);
  PortClaim claim(std::move(*taken));
  EXPECT_FALSE(taken->is_held());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_TRUE(claim.is_held());
  taken->release();
  EXPECT_FALSE(PortClaim::take(port)) << "the moved-from claim gave the port away";
  PortClaim kept;
  EXPECT_FALSE(kept.is_held());
  kept = std::move(claim);
  EXPECT_TRUE(kept.is_held());
  EXPECT_FALSE(PortClaim::take(port));
  kept.release();
  EXPECT_TRUE(PortClaim::take(port));
}

std::set<int> open_descriptors() {
  std::set<int> found;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) found.insert(descriptor);
  }
  return found;
}

TEST(PortClaim, IsOneDescriptorThatNoProgramInherits) {
  for (const bool after_time_wait : {false, true}) {
    const auto port = unused_port();
    if (after_time_wait) leave_time_wait(port, Family::kIpv4, "127.0.0.1");
    const auto before = open_descriptors();
    const auto claim = PortClaim::take(port);
    ASSERT_TRUE(claim);
    std::vector<int> added;
    for (const auto descriptor : open_descriptors()) {
      if (!before.contains(descriptor)) added.push_back(descriptor);
    }
    ASSERT_EQ(added.size(), 1U);
    EXPECT_TRUE(::fcntl(added[0], F_GETFD) & FD_CLOEXEC);
    EXPECT_FALSE(PortClaim::take(port));
    EXPECT_EQ(open_descriptors().size(), before.size() + 1) << "a refused claim left a descriptor";
  }
}

// The ports that programs get which leave the choice to the system, until it has no more.
std::set<std::uint16_t> ports_by_bind(Family family, const char* address, bool reuses) {
  std::set<std::uint16_t> ports;
  std::vector<TestSocket> sockets;
  while (true) {
    TestSocket socket(family);
    if (reuses) socket.reuse_address();
    if (socket.bind(address, 0) != 0) return ports;
    socket.listen();  // or SO_REUSEADDR would let the system hand out a port twice
    if (!ports.insert(socket.port()).second) return ports;
    sockets.push_back(std::move(socket));
  }
}

std::set<std::uint16_t> ports_by_connect(Family family, const char* address, std::uint16_t to) {
  std::set<std::uint16_t> ports;
  std::vector<TestSocket> sockets;
  while (true) {
    TestSocket socket(family);
    if (socket.connect(address, to) != 0) return ports;
    ports.insert(socket.port());
    sockets.push_back(std::move(socket));
  }
}

TEST(PortClaim, IsNeverWhatTheSystemChooses) {
  constexpr std::uint16_t kFirst = 30000;
  constexpr std::size_t kCount = 20;
  const auto skipped = in_own_network([] {
    write_sysctl("net/ipv4/ip_local_port_range", "30000 30019");
    TestSocket server(Family::kDual);
    ASSERT_EQ(server.bind("::", 40000), 0);
    ASSERT_EQ(server.listen(), 0);
    const auto storms = [&] {
      return std::vector{
          ports_by_bind(Family::kDual, "::", false),       ports_by_bind(Family::kDual, "::", true),
          ports_by_bind(Family::kIpv4, "0.0.0.0", false),  ports_by_bind(Family::kIpv4, "0.0.0.0", true),
          ports_by_bind(Family::kIpv4, "127.0.0.1", true), ports_by_connect(Family::kIpv4, "127.0.0.1", 40000),
          ports_by_connect(Family::kIpv6, "::1", 40000)};
    };
    // Control: without a claim a storm gets every port.
    for (const auto& ports : storms()) EXPECT_EQ(ports.size(), kCount);
    std::vector<PortClaim> claims;
    std::set<std::uint16_t> others;
    for (std::uint16_t port = kFirst; port < kFirst + kCount; ++port) {
      if (port % 3 == 0) {
        auto claim = PortClaim::take(port);
        ASSERT_TRUE(claim) << claim.error().message;
        claims.push_back(std::move(*claim));
      } else {
        others.insert(port);
      }
    }
    for (const auto& ports : storms()) EXPECT_EQ(ports, others);
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(PortClaim, TellsTheReasonOfTheSystem) {
  const auto skipped = in_own_network([] {
    become_nobody();
    const auto claim = PortClaim::take(80);
    ASSERT_FALSE(claim);
    EXPECT_EQ(claim.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(claim.error().message, "port 80 cannot be held: Permission denied");
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

// The same promises on hosts without IPv6.
void hold_among_ipv4_servers() {
  constexpr std::uint16_t kPort = 20000;
  {
    const auto claim = PortClaim::take(kPort);
    ASSERT_TRUE(claim) << claim.error().message;
    EXPECT_EQ(refusal(kPort), in_use(kPort));
    EXPECT_EQ(TestSocket(Family::kIpv4).bind("0.0.0.0", kPort), EADDRINUSE);
    TestSocket listener(Family::kIpv4);
    listener.reuse_address();
    ASSERT_EQ(listener.bind("0.0.0.0", kPort), 0);
    ASSERT_EQ(listener.listen(), 0);
    EXPECT_EQ(refusal(kPort), in_use(kPort));
    TestSocket client(Family::kIpv4);
    ASSERT_EQ(client.connect("127.0.0.1", kPort), 0);
    { ASSERT_TRUE(listener.accept().is_open()); }
    EXPECT_TRUE(client.at_end());
  }
  ASSERT_EQ(TestSocket(Family::kIpv4).bind("0.0.0.0", kPort), EADDRINUSE) << "there is no TIME_WAIT";
  const auto claim = PortClaim::take(kPort);
  ASSERT_TRUE(claim) << claim.error().message;
  EXPECT_EQ(refusal(kPort), in_use(kPort));
}

TEST(PortClaim, WorksWithIpv6SwitchedOff) {
  const auto skipped = in_own_network([] {
    write_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
    ASSERT_NE(TestSocket(Family::kIpv6).bind("::1", 20001), 0) << "IPv6 is still on";
    hold_among_ipv4_servers();
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(PortClaim, WorksOnAKernelWithoutIpv6) {
  const auto skipped = in_own_network([] {
    refuse_ipv6_sockets();
    ASSERT_FALSE(TestSocket(Family::kIpv6).is_open());
    hold_among_ipv4_servers();
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace bootstrap

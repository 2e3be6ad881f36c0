// PortReservation on real sockets: whom a held port keeps out, whom it lets in, and what must not refuse a reservation.
// SPDX-License-Identifier: Apache-2.0
#include "probe/port_reservation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "port_refusal.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

// Outside ip_local_port_range, so that nobody gets it by chance between two lines of a test.
std::uint16_t unused_port() {
  constexpr int kFirst = 20000;
  constexpr int kCount = 10000;
  static int next = ::getpid() * 64 % kCount;  // not the ports of the next process
  for (int tries = 0; tries < kCount; ++tries) {
    const auto port = static_cast<std::uint16_t>(kFirst + next++ % kCount);
    if (TestSocket(Family::kDual).bind("::", port) == 0) return port;
  }
  ADD_FAILURE() << "no unused port";
  return 0;
}

struct Server {
  Family family;
  const char* address;
};

constexpr Server kServers[] = {
    {Family::kDual, "::"},  {Family::kIpv6, "::"},        {Family::kIpv4, "0.0.0.0"},
    {Family::kDual, "::1"}, {Family::kIpv4, "127.0.0.1"}, {Family::kDual, "::ffff:127.0.0.1"},
};

bool holds_all_of_ipv4(const Server& server) {
  return (server.family == Family::kDual && server.address == std::string_view("::")) ||
         server.address == std::string_view("0.0.0.0");
}

std::string describe(const Server& server, bool reuses) {
  return std::string(server.address) + (server.family == Family::kIpv6 ? " (IPv6 only)" : "") +
         (reuses ? " with SO_REUSEADDR" : " without SO_REUSEADDR");
}

TEST(PortReservation, RefusesASecondClaim) {
  const auto port = unused_port();
  const auto first = PortReservation::take(port);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(first->is_held());
  const auto second = PortReservation::take(port);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(second.error().message, kInUse);
  EXPECT_FALSE(PortReservation::take(port)) << "the refused reservation must not have weakened the first";
}

TEST(PortReservation, LetsServersInThatReuseAddresses) {
  for (const auto& server : kServers) {
    const auto port = unused_port();
    const auto reservation = PortReservation::take(port);
    ASSERT_TRUE(reservation);
    TestSocket listener(server.family);
    listener.reuse_address();
    ASSERT_EQ(listener.bind(server.address, port), 0) << describe(server, true);
    ASSERT_EQ(listener.listen(), 0) << describe(server, true);
    const bool is_ipv4 = std::string_view(server.address).find('.') != std::string_view::npos;
    TestSocket client(is_ipv4 ? Family::kIpv4 : Family::kIpv6);
    EXPECT_EQ(client.connect(is_ipv4 ? "127.0.0.1" : "::1", port), 0) << describe(server, true);
    EXPECT_TRUE(listener.accept().is_open());
    EXPECT_EQ(port_refusal(port), kInUse) << "a reservation beside the listener " << describe(server, true);
  }
}

TEST(PortReservation, DualStackServerIsReachedByBothFamilies) {
  const auto port = unused_port();
  const auto reservation = PortReservation::take(port);
  ASSERT_TRUE(reservation);
  TestSocket listener(Family::kDual);
  listener.reuse_address();
  ASSERT_EQ(listener.bind("::", port), 0);
  ASSERT_EQ(listener.listen(), 0);
  EXPECT_EQ(TestSocket(Family::kIpv4).connect("127.0.0.1", port), 0);
  EXPECT_EQ(TestSocket(Family::kIpv6).connect("::1", port), 0);
}

TEST(PortReservation, NobodyAnswersWhileNobodyListens) {
  const auto port = unused_port();
  const auto reservation = PortReservation::take(port);
  ASSERT_TRUE(reservation);
  EXPECT_EQ(TestSocket(Family::kIpv4).connect("127.0.0.1", port), ECONNREFUSED);
  EXPECT_EQ(TestSocket(Family::kIpv6).connect("::1", port), ECONNREFUSED);
}

TEST(PortReservation, KeepsServersOutThatDoNotReuseAddresses) {
  for (const auto& server : kServers) {
    const auto port = unused_port();
    const auto reservation = PortReservation::take(port);
    ASSERT_TRUE(reservation);
    EXPECT_EQ(TestSocket(server.family).bind(server.address, port), EADDRINUSE) << describe(server, false);
  }
}

TEST(PortReservation, IsRefusedWhereSomebodyListens) {
  for (const bool reuses : {false, true}) {
    for (const auto& server : kServers) {
      const auto port = unused_port();
      TestSocket other(server.family);
      if (reuses) other.reuse_address();
      ASSERT_EQ(other.bind(server.address, port), 0);
      ASSERT_EQ(other.listen(), 0);
      EXPECT_EQ(port_refusal(port), kInUse) << describe(server, reuses);
    }
  }
}

TEST(PortReservation, IsRefusedWhereSomebodyHolds) {
  for (const bool reuses : {false, true}) {
    for (const auto& server : kServers) {
      if (reuses && !holds_all_of_ipv4(server)) continue;
      const auto port = unused_port();
      TestSocket other(server.family);
      if (reuses) other.reuse_address();
      ASSERT_EQ(other.bind(server.address, port), 0);
      EXPECT_EQ(port_refusal(port), kInUse) << describe(server, reuses);
    }
  }
}

// The limit of what can be known: bound to one address with SO_REUSEADDR looks as TIME_WAIT there does. Whoever listens
// first has the port then, and the other is told.
TEST(PortReservation, PassesAHolderOfOneAddressThatReusesIt) {
  for (const auto& server : kServers) {
    if (holds_all_of_ipv4(server)) continue;
    const auto port = unused_port();
    TestSocket other(server.family);
    other.reuse_address();
    ASSERT_EQ(other.bind(server.address, port), 0);
    const auto reservation = PortReservation::take(port);
    ASSERT_TRUE(reservation) << describe(server, true);
    TestSocket listener(Family::kDual);
    listener.reuse_address();
    EXPECT_EQ(listener.bind("::", port), 0);
    EXPECT_EQ(listener.listen(), 0);
    EXPECT_EQ(other.listen(), EADDRINUSE) << describe(server, true);
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

TEST(PortReservation, PassesTimeWaitOfAnEarlierServer) {
  for (const auto& [family, address] : {Server{Family::kIpv4, "127.0.0.1"}, Server{Family::kIpv6, "::1"}}) {
    const auto port = unused_port();
    leave_time_wait(port, family, address);
    // Control: this is what a plain exclusive bind makes of it.
    ASSERT_EQ(TestSocket(Family::kDual).bind("::", port), EADDRINUSE);
    const auto reservation = PortReservation::take(port);
    ASSERT_TRUE(reservation) << address << ": " << reservation.error().message;
    ASSERT_EQ(TestSocket(Family::kDual).bind("::", port), EADDRINUSE);

    EXPECT_EQ(port_refusal(port), kInUse) << "a second reservation, " << address;
    EXPECT_EQ(TestSocket(Family::kIpv4).bind("127.0.0.1", port), EADDRINUSE);
    TestSocket listener(Family::kDual);
    listener.reuse_address();
    EXPECT_EQ(listener.bind("::", port), 0);
    EXPECT_EQ(listener.listen(), 0);
    EXPECT_EQ(port_refusal(port), kInUse) << "a reservation beside the listener, " << address;
  }
}

TEST(PortReservation, RefusesAListenerBesideTimeWait) {
  const auto port = unused_port();
  leave_time_wait(port, Family::kIpv4, "127.0.0.1");
  TestSocket other(Family::kDual);
  other.reuse_address();
  ASSERT_EQ(other.bind("::", port), 0);
  EXPECT_EQ(port_refusal(port), kInUse) << "bound";
  ASSERT_EQ(other.listen(), 0);
  EXPECT_EQ(port_refusal(port), kInUse) << "listening";
}

TEST(PortReservation, GivesThePortBack) {
  const auto port = unused_port();
  auto reservation = PortReservation::take(port);
  ASSERT_TRUE(reservation);
  reservation->release();
  EXPECT_FALSE(reservation->is_held());
  EXPECT_EQ(TestSocket(Family::kDual).bind("::", port), 0);
  reservation->release();  // once more does nothing
  { ASSERT_TRUE(PortReservation::take(port)); }
  EXPECT_EQ(TestSocket(Family::kDual).bind("::", port), 0) << "the end of its life gives it back, too";
}

TEST(PortReservation, MovesWithItsPort) {
  const auto port = unused_port();
  auto taken = PortReservation::take(port);
  ASSERT_TRUE(taken);
  PortReservation reservation(std::move(*taken));
  EXPECT_FALSE(taken->is_held());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_TRUE(reservation.is_held());
  taken->release();
  EXPECT_FALSE(PortReservation::take(port)) << "the moved-from reservation gave the port away";
  PortReservation kept;
  EXPECT_FALSE(kept.is_held());
  kept = std::move(reservation);
  EXPECT_TRUE(kept.is_held());
  EXPECT_FALSE(PortReservation::take(port));
  kept.release();
  EXPECT_TRUE(PortReservation::take(port));
}

std::set<int> open_descriptors() {
  std::set<int> found;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) found.insert(descriptor);
  }
  return found;
}

TEST(PortReservation, IsOneDescriptorThatNoProgramInherits) {
  for (const bool after_time_wait : {false, true}) {
    const auto port = unused_port();
    if (after_time_wait) leave_time_wait(port, Family::kIpv4, "127.0.0.1");
    const auto before = open_descriptors();
    const auto reservation = PortReservation::take(port);
    ASSERT_TRUE(reservation);
    std::vector<int> added;
    for (const auto descriptor : open_descriptors()) {
      if (!before.contains(descriptor)) added.push_back(descriptor);
    }
    ASSERT_EQ(added.size(), 1U);
    EXPECT_TRUE(::fcntl(added[0], F_GETFD) & FD_CLOEXEC);
    EXPECT_FALSE(PortReservation::take(port));
    EXPECT_EQ(open_descriptors().size(), before.size() + 1) << "a refused reservation left a descriptor";
  }
}

}  // namespace
}  // namespace bootstrap

// PortReservation on machines that a test may change: a tiny ephemeral range under a storm, other users, no IPv6.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "own_network.h"
#include "port_refusal.h"
#include "probe/port_reservation.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

struct Storm {
  const char* what;
  Family family;
  const char* address;
  std::uint16_t to;  // 0: binds to a port of the system's choice, else connects
  bool reuses;
};

constexpr Storm kStorms[] = {
    {"bind", Family::kDual, "::", 0, false},
    {"bind with SO_REUSEADDR", Family::kDual, "::", 0, true},
    {"bind of IPv4", Family::kIpv4, "0.0.0.0", 0, false},
    {"bind of one address with SO_REUSEADDR", Family::kIpv4, "127.0.0.1", 0, true},
    {"connect", Family::kIpv4, "127.0.0.1", 40000, false},
    {"connect over IPv6", Family::kIpv6, "::1", 40000, false},
};

// The ports that the system chooses, until it has no more.
std::set<std::uint16_t> chosen_ports(const Storm& storm) {
  std::set<std::uint16_t> ports;
  std::vector<TestSocket> sockets;
  while (sockets.size() < 1000) {
    TestSocket socket(storm.family);
    socket.reset_at_close();
    if (storm.reuses) socket.reuse_address();
    if (storm.to != 0) {
      if (socket.connect(storm.address, storm.to) != 0) break;
    } else if (socket.bind(storm.address, 0) != 0 || socket.listen() != 0) {
      break;  // two that may reuse it are bound to one port, but only one of them listens
    }
    ports.insert(socket.port());
    sockets.push_back(std::move(socket));
  }
  return ports;
}

TEST(PortReservationNetwork, IsNeverWhatTheSystemChooses) {
  const auto skipped = in_own_network([] {
    write_sysctl("net/ipv4/ip_local_port_range", "30000 30019");
    TestSocket server(Family::kDual);
    ASSERT_EQ(server.bind("::", 40000), 0);
    ASSERT_EQ(server.listen(), 0);
    // Control: without a reservation a storm gets every port.
    for (const auto& storm : kStorms) EXPECT_EQ(chosen_ports(storm).size(), 20U) << storm.what;
    std::vector<PortReservation> reservations;
    std::set<std::uint16_t> others;
    for (std::uint16_t port = 30000; port < 30020; ++port) {
      if (port % 3 != 0) {
        others.insert(port);
        continue;
      }
      auto reservation = PortReservation::take(port);
      ASSERT_TRUE(reservation) << reservation.error().message;
      reservations.push_back(std::move(*reservation));
    }
    for (const auto& storm : kStorms) EXPECT_EQ(chosen_ports(storm), others) << storm.what;
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(PortReservationNetwork, TellsTheReasonOfTheSystem) {
  const auto skipped = in_own_network([] {
    become_nobody();
    const auto reservation = PortReservation::take(80);
    ASSERT_FALSE(reservation);
    EXPECT_EQ(reservation.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(reservation.error().message, "the port cannot be reserved: Permission denied");
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

// The same promises on hosts without IPv6.
void hold_among_ipv4_servers() {
  constexpr std::uint16_t kPort = 20000;
  {
    const auto reservation = PortReservation::take(kPort);
    ASSERT_TRUE(reservation) << reservation.error().message;
    EXPECT_EQ(port_refusal(kPort), kInUse);
    EXPECT_EQ(TestSocket(Family::kIpv4).bind("0.0.0.0", kPort), EADDRINUSE);
    TestSocket listener(Family::kIpv4);
    listener.reuse_address();
    ASSERT_EQ(listener.bind("0.0.0.0", kPort), 0);
    ASSERT_EQ(listener.listen(), 0);
    EXPECT_EQ(port_refusal(kPort), kInUse);
    TestSocket client(Family::kIpv4);
    ASSERT_EQ(client.connect("127.0.0.1", kPort), 0);
    { ASSERT_TRUE(listener.accept().is_open()); }
    EXPECT_TRUE(client.at_end());
  }
  ASSERT_EQ(TestSocket(Family::kIpv4).bind("0.0.0.0", kPort), EADDRINUSE) << "there is no TIME_WAIT";
  const auto reservation = PortReservation::take(kPort);
  ASSERT_TRUE(reservation) << reservation.error().message;
  EXPECT_EQ(port_refusal(kPort), kInUse);
}

TEST(PortReservationNetwork, WorksWithIpv6SwitchedOff) {
  const auto skipped = in_own_network([] {
    write_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
    ASSERT_NE(TestSocket(Family::kIpv6).bind("::1", 20001), 0) << "IPv6 is still on";
    hold_among_ipv4_servers();
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(PortReservationNetwork, WorksOnAKernelWithoutIpv6) {
  const auto skipped = in_own_network([] {
    refuse_ipv6_sockets();
    ASSERT_FALSE(TestSocket(Family::kIpv6).is_open());
    hold_among_ipv4_servers();
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

}  // namespace
}  // namespace bootstrap

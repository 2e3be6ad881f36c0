// Reserved ports on real sockets: which servers can bind a reserved port, and which sockets must not prevent a
// reservation; also with few ephemeral ports, as another user and without IPv6.
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

#include "core/plan/plan.h"
#include "core/util/text.h"
#include "own_network.h"
#include "step_environment.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

constexpr const char* kInUse = "the port is already in use by another program";

std::string port_refusal(std::uint16_t port) {
  const auto reservation = reserve_port(port);
  return reservation ? "" : reservation.error().message;
}

// Outside ip_local_port_range, so that no other program gets such a port by chance.
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

TEST(PortReservation, LetsServersInThatReuseAddresses) {
  for (const auto& server : kServers) {
    SCOPED_TRACE(describe(server, true));
    const auto port = unused_port();
    const auto reservation = succeeded(reserve_port(port));
    const bool is_ipv4 = std::string_view(server.address).find('.') != std::string_view::npos;
    const auto* const address = is_ipv4 ? "127.0.0.1" : "::1";
    TestSocket client(is_ipv4 ? Family::kIpv4 : Family::kIpv6);
    EXPECT_EQ(TestSocket(is_ipv4 ? Family::kIpv4 : Family::kIpv6).connect(address, port), ECONNREFUSED)
        << "it is silent";
    const auto listener = TestSocket::listener(server.family, server.address, port, true);
    EXPECT_EQ(client.connect(address, port), 0);
    EXPECT_TRUE(listener.accept().is_open());
    EXPECT_EQ(port_refusal(port), kInUse) << "a reservation beside the listener";
  }
}

TEST(PortReservation, KeepsServersOutThatDoNotReuseAddresses) {
  for (const auto& server : kServers) {
    const auto port = unused_port();
    const auto reservation = succeeded(reserve_port(port));
    EXPECT_EQ(TestSocket(server.family).bind(server.address, port), EADDRINUSE) << describe(server, false);
  }
}

TEST(PortReservation, IsRefusedBesideAnotherSocket) {
  for (const bool reuses : {false, true}) {
    for (const auto& server : kServers) {
      const auto port = unused_port();
      TestSocket other(server.family);
      if (reuses) other.reuse_address();
      ASSERT_EQ(other.bind(server.address, port), 0);
      const bool is_like_time_wait = reuses && !holds_all_of_ipv4(server);
      EXPECT_TRUE(is_like_time_wait || port_refusal(port) == kInUse) << describe(server, reuses);
      ASSERT_EQ(other.listen(), 0);
      EXPECT_EQ(port_refusal(port), kInUse) << "listening " << describe(server, reuses);
    }
  }
}

// A limit of the method: a socket that is bound to one address with SO_REUSEADDR looks like TIME_WAIT. The first
// program that listens then gets the port, and the other one an error.
TEST(PortReservation, PassesAHolderOfOneAddressThatReusesIt) {
  for (const auto& server : kServers) {
    if (holds_all_of_ipv4(server)) continue;
    const auto port = unused_port();
    TestSocket other(server.family);
    other.reuse_address();
    ASSERT_EQ(other.bind(server.address, port), 0);
    const auto reservation = reserve_port(port);
    ASSERT_TRUE(reservation) << describe(server, true);
    const auto listener = TestSocket::listener(Family::kDual, "::", port, true);
    EXPECT_EQ(other.listen(), EADDRINUSE) << describe(server, true);
  }
}

// A server that closes first keeps the port in TIME_WAIT for 60 s.
void leave_time_wait(std::uint16_t port, Family family, const char* address) {
  const auto listener = TestSocket::listener(Family::kDual, "::", port, true);
  TestSocket client(family);
  ASSERT_EQ(client.connect(address, port), 0);
  { ASSERT_TRUE(listener.accept().is_open()); }  // closed here, before the client
  EXPECT_TRUE(client.at_end());
}

TEST(PortReservation, PassesTimeWaitOfAnEarlierServer) {
  for (const auto& [family, address] : {Server{Family::kIpv4, "127.0.0.1"}, Server{Family::kIpv6, "::1"}}) {
    const auto port = unused_port();
    leave_time_wait(port, family, address);
    // Control: a plain exclusive bind fails.
    ASSERT_EQ(TestSocket(Family::kDual).bind("::", port), EADDRINUSE);
    const auto reservation = succeeded(reserve_port(port));
    ASSERT_EQ(TestSocket(Family::kDual).bind("::", port), EADDRINUSE);

    EXPECT_EQ(port_refusal(port), kInUse) << "a second reservation, " << address;
    EXPECT_EQ(TestSocket(Family::kIpv4).bind("127.0.0.1", port), EADDRINUSE);
    const auto listener = TestSocket::listener(Family::kDual, "::", port, true);
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

TEST(PortReservation, EndsWithItsDescriptor) {
  const auto port = unused_port();
  {
    const auto taken = succeeded(reserve_port(port));
    EXPECT_EQ(port_refusal(port), kInUse);
    EXPECT_EQ(port_refusal(port), kInUse) << "the refused reservation weakened the first";
  }
  EXPECT_EQ(TestSocket(Family::kDual).bind("::", port), 0);
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
    const auto reservation = succeeded(reserve_port(port));
    std::vector<int> added;
    for (const auto descriptor : open_descriptors()) {
      if (!before.contains(descriptor)) added.push_back(descriptor);
    }
    ASSERT_EQ(added.size(), 1U);
    EXPECT_TRUE(::fcntl(added[0], F_GETFD) & FD_CLOEXEC);
    EXPECT_FALSE(reserve_port(port));
    EXPECT_EQ(open_descriptors().size(), before.size() + 1) << "a refused reservation left a descriptor";
  }
}

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

// Takes ports of the system's choice until it has no more.
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
      break;  // two sockets with SO_REUSEADDR are bound to one port, but only one of them listens
    }
    ports.insert(socket.port());
    sockets.push_back(std::move(socket));
  }
  return ports;
}

TEST(PortReservationNetwork, IsNeverWhatTheSystemChooses) {
  in_own_network([] {
    write_sysctl("net/ipv4/ip_local_port_range", "30000 30019");
    const auto server = TestSocket::listener(Family::kDual, "::", 40000);
    // Control: without a reservation this takes every port.
    for (const auto& storm : kStorms) EXPECT_EQ(chosen_ports(storm).size(), 20U) << storm.what;
    std::vector<Descriptor> reservations;
    std::set<std::uint16_t> others;
    for (std::uint16_t port = 30000; port < 30020; ++port) {
      if (port % 3 != 0) {
        others.insert(port);
        continue;
      }
      auto reservation = succeeded(reserve_port(port));
      reservations.push_back(std::move(*reservation));
    }
    for (const auto& storm : kStorms) EXPECT_EQ(chosen_ports(storm), others) << storm.what;
  });
}

TEST(PortReservationNetwork, PassesOverPortsOfATaskThatAreInUse) {
  in_own_network([] {
    const auto facts = *read_task_facts(two_by_two());
    Settings settings{.ports = {2, Source::kOption}};
    settings.port_range.value = {20000, 20099};
    const auto plan = plan_step(facts, settings)->ports;
    const auto& candidates = plan.of_tasks.front();
    const auto taken = reserve_port(candidates[0]);
    StepPorts ports;
    const auto found = ports.reserve(plan);
    EXPECT_TRUE(describe_refused_ports(plan, found, facts, settings).empty());
    ASSERT_EQ(found.of_tasks.front(), (std::vector<std::uint16_t>{candidates[1], candidates[2]}));
    for (const auto port : found.of_tasks.front()) EXPECT_EQ(port_refusal(port), kInUse) << port;
    // All other ports are in use.
    std::vector<Descriptor> all;
    for (std::uint16_t port = 20000; port < 20100; ++port) {
      if (auto one = reserve_port(port)) all.push_back(std::move(*one));
    }
    const auto none = ports.reserve(plan);
    EXPECT_TRUE(none.of_tasks.empty());
    const auto refused = describe_refused_ports(plan, none, facts, settings);
    ASSERT_FALSE(refused.empty());
    EXPECT_EQ(refused.back().sentence,
              "--bootstrap-ports=2: too few ports are free for rank 0 on node001; set others with "
              "--bootstrap-port-range or SLURM_BOOTSTRAP_PORT_RANGE");
  });
}

TEST(PortReservationNetwork, ReportsTheReasonOfTheSystem) {
  in_own_network([] {
    become_nobody();
    EXPECT_EQ(error_of(reserve_port(80)),
              (Error{ErrorCode::kUnavailable, "the port cannot be reserved: Permission denied"}));
  });
}

// The same promises on hosts without IPv6.
void hold_among_ipv4_servers() {
  constexpr std::uint16_t kPort = 20000;
  {
    const auto reservation = succeeded(reserve_port(kPort));
    EXPECT_EQ(port_refusal(kPort), kInUse);
    EXPECT_EQ(TestSocket(Family::kIpv4).bind("0.0.0.0", kPort), EADDRINUSE);
    const auto listener = TestSocket::listener(Family::kIpv4, "0.0.0.0", kPort, true);
    EXPECT_EQ(port_refusal(kPort), kInUse);
    TestSocket client(Family::kIpv4);
    ASSERT_EQ(client.connect("127.0.0.1", kPort), 0);
    { ASSERT_TRUE(listener.accept().is_open()); }
    EXPECT_TRUE(client.at_end());
  }
  ASSERT_EQ(TestSocket(Family::kIpv4).bind("0.0.0.0", kPort), EADDRINUSE) << "there is no TIME_WAIT";
  const auto reservation = succeeded(reserve_port(kPort));
  EXPECT_EQ(port_refusal(kPort), kInUse);
}

TEST(PortReservationNetwork, WorksWithoutIpv6) {
  for (const bool is_in_kernel : {true, false}) {
    in_own_network([is_in_kernel] {
      if (is_in_kernel) {
        write_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
        ASSERT_NE(TestSocket(Family::kIpv6).bind("::1", 20001), 0) << "IPv6 is still on";
      } else {
        refuse_ipv6_sockets();
        ASSERT_FALSE(TestSocket(Family::kIpv6).is_open());
      }
      hold_among_ipv4_servers();
    });
  }
}

}  // namespace
}  // namespace bootstrap

// The port of the rendezvous: the first that is free is taken, and none is taken away from others.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/listener.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <array>
#include <cerrno>

#include "own_network.h"
#include "probe/port_claim.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

constexpr std::uint16_t kPort = 20111;
constexpr std::array<std::uint16_t, 1> kOnly{kPort};
constexpr std::array<std::uint16_t, 2> kTwo{kPort, kPort + 1};

// In a network of its own, so that nobody else is on these ports.
void alone(void (*test)()) {
  const auto skipped = in_own_network(test);
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

void expect_refused() {
  const auto listener = open_listener(kOnly);
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(listener.error().message.find("20111"), std::string::npos) << listener.error().message;
  EXPECT_NE(listener.error().message.find("in use"), std::string::npos) << listener.error().message;
}

TEST(RendezvousListener, TakesConnectionsAtOnce) {
  alone([] {
    const auto listener = open_listener(kTwo);
    ASSERT_TRUE(listener);
    EXPECT_EQ(listener->port, kPort);
    EXPECT_NE(::fcntl(listener->socket.get(), F_GETFD) & FD_CLOEXEC, 0);
    for (const auto* address : {"127.0.0.1", "127.9.9.9"}) {
      EXPECT_EQ(TestSocket(Family::kIpv4).connect(address, kPort), 0) << address;
    }
  });
}

TEST(RendezvousListener, TakesTheNextWhereOneIsTaken) {
  alone([] {
    const auto first = open_listener(kOnly);
    ASSERT_TRUE(first);
    expect_refused();
    const auto second = open_listener(kTwo);
    ASSERT_TRUE(second);
    EXPECT_EQ(second->port, kPort + 1);
    EXPECT_FALSE(open_listener({}));
  });
}

TEST(RendezvousListener, ListensOnOneAddressWhereItIsTold) {
  alone([] {
    const auto refused = [](const char* address) { return TestSocket(Family::kIpv4).connect(address, kPort) != 0; };
    {
      const auto listener = open_listener(kOnly, "127.0.0.1");
      ASSERT_TRUE(listener);
      EXPECT_FALSE(refused("127.0.0.1"));
      EXPECT_TRUE(refused("127.9.9.9"));
      const TestSocket thief(Family::kIpv4);
      thief.reuse_address();
      EXPECT_EQ(thief.bind("0.0.0.0", kPort), EADDRINUSE);
    }
    // Not ours, or no address at all: on all of them.
    for (const auto* address : {"192.0.2.1", "::1", "node001"}) {
      const auto listener = open_listener(kOnly, address);
      ASSERT_TRUE(listener) << address;
      EXPECT_FALSE(refused("127.9.9.9")) << address;
    }
  });
}

TEST(RendezvousListener, LeavesServersAlone) {
  alone([] {
    for (const auto* address : {"0.0.0.0", "127.0.0.1"}) {
      const TestSocket server(Family::kIpv4);
      server.reuse_address();
      ASSERT_EQ(server.bind(address, kPort), 0);
      ASSERT_EQ(server.listen(), 0);
      expect_refused();
    }
    const TestSocket dual(Family::kDual);
    dual.reuse_address();
    ASSERT_EQ(dual.bind("::", kPort), 0);
    expect_refused();
  });
}

TEST(RendezvousListener, LeavesClaimsAlone) {
  alone([] {
    const auto claim = PortClaim::take(kPort);
    ASSERT_TRUE(claim);
    expect_refused();
    const TestSocket thief(Family::kIpv4);
    thief.reuse_address();
    EXPECT_EQ(thief.bind("0.0.0.0", kPort), 0) << "the control: SO_REUSEADDR alone would have taken it";
  });
}

TEST(RendezvousListener, PassesConnectionsOfAnEarlierServer) {
  alone([] {
    {
      const auto earlier = open_listener(kOnly);
      ASSERT_TRUE(earlier);
      const TestSocket client(Family::kIpv4);
      ASSERT_EQ(client.connect("127.0.0.1", kPort), 0);
      const Descriptor accepted(::accept(earlier->socket.get(), nullptr, nullptr));
      ::shutdown(accepted.get(), SHUT_RDWR);  // the server closes first, and is left with TIME_WAIT
    }
    const TestSocket exclusive(Family::kIpv4);
    EXPECT_EQ(exclusive.bind("0.0.0.0", kPort), EADDRINUSE) << "the control: there is such a connection";
    const auto listener = open_listener(kOnly);
    ASSERT_TRUE(listener) << listener.error().message;
    EXPECT_EQ(TestSocket(Family::kIpv4).connect("127.0.0.1", kPort), 0);
    // Nobody can take it over, neither with nor without SO_REUSEADDR.
    const TestSocket thief(Family::kIpv4);
    EXPECT_EQ(thief.bind("0.0.0.0", kPort), EADDRINUSE);
    thief.reuse_address();
    EXPECT_EQ(thief.bind("0.0.0.0", kPort), EADDRINUSE);
  });
}

}  // namespace
}  // namespace bootstrap

// Which of a process' connections is the one to the PMIx server of its node, and what is seen when it ends.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/server_connection.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "own_network.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// One that other nodes would reach, as mpirun's own server of Open MPI 5 has it.
constexpr const char* kOuterAddress = "192.0.2.7";

bool give_outer_address() {
  const int control = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "lo:1", sizeof request.ifr_name - 1);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  (void)::inet_pton(AF_INET, kOuterAddress, &address.sin_addr);
  std::memcpy(&request.ifr_addr, &address, sizeof address);
  const bool is_given = ::ioctl(control, SIOCSIFADDR, &request) == 0;
  ::close(control);
  return is_given;
}

void expect_found_until_it_ends(Family family, const char* address) {
  SCOPED_TRACE(address);
  const TestSocket listener(family);
  ASSERT_EQ(listener.bind(address, 0), 0);
  ASSERT_EQ(listener.listen(), 0);
  const auto port = listener.port();
  const TestSocket earlier(family);
  ASSERT_EQ(earlier.connect(address, port), 0);
  const auto before = ServerConnection::list(port).value_or(Sockets{});
  EXPECT_EQ(before.size(), 1U);
  const TestSocket client(family);
  ASSERT_EQ(client.connect(address, port), 0);
  EXPECT_EQ(ServerConnection::list(port)->size(), 2U);
  EXPECT_TRUE(ServerConnection::list(static_cast<std::uint16_t>(port + 1))->empty());

  const auto connection = ServerConnection::find(port, before);
  const auto first = listener.accept();
  EXPECT_FALSE(connection.is_lost());
  {
    const auto second = listener.accept();
    EXPECT_FALSE(connection.is_lost());
    EXPECT_FALSE(connection.wait_closed(steady_clock::now() + milliseconds(20)));  // the server has not closed its end
  }
  EXPECT_TRUE(connection.wait_closed(steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_TRUE(connection.is_lost());
}

TEST(ServerConnection, IsFoundOnEveryAddressOfTheNode) {
  const auto skipped = in_own_network([] {
    ASSERT_TRUE(give_outer_address());
    expect_found_until_it_ends(Family::kIpv4, "127.0.0.1");
    expect_found_until_it_ends(Family::kIpv4, kOuterAddress);
    expect_found_until_it_ends(Family::kIpv6, "::1");
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(ServerConnection, IsNoneToAnotherHost) {
  const auto skipped = in_own_network([] {
    const TestSocket listener(Family::kIpv4);
    ASSERT_EQ(listener.bind("127.0.0.1", 0), 0);
    ASSERT_EQ(listener.listen(), 0);
    const TestSocket client(Family::kIpv4);
    ASSERT_EQ(client.bind("127.0.0.2", 0), 0);  // as from there
    ASSERT_EQ(client.connect("127.0.0.1", listener.port()), 0);
    EXPECT_TRUE(ServerConnection::list(listener.port())->empty());
    const auto none = ServerConnection::find(listener.port(), {});
    EXPECT_FALSE(none.is_lost());
    EXPECT_FALSE(none.wait_closed(steady_clock::now() + std::chrono::seconds(10)));
  });
  if (!skipped.empty()) GTEST_SKIP() << skipped;
}

TEST(ServerConnection, CannotBeToldWithoutADescriptor) {
  EXPECT_TRUE(ServerConnection::list(1).has_value());
  rlimit limits{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limits), 0);
  const rlimit none{0, limits.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto sockets = ServerConnection::list(1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limits), 0);
  EXPECT_FALSE(sockets.has_value());
}

}  // namespace
}  // namespace bootstrap

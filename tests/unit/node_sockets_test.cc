// Sockets on a node: the barrier of its ranks, which releases all or none, and libpmix's connection to the server.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/node_sockets.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "own_network.h"
#include "test_socket.h"

namespace bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Deadline in_an_hour() { return steady_clock::now() + std::chrono::hours(1); }

const std::string kName = "node_sockets_test." + std::to_string(::getpid());

TEST(NodeBarrier, ReleasesAllAtOnce) {
  const auto barrier = NodeBarrier::open(kName);
  ASSERT_FALSE(kName.empty());
  std::atomic<int> released = 0;
  std::atomic<bool> is_early = false;
  std::vector<std::thread> guests;
  for (int i = 0; i < 8; ++i) {
    guests.emplace_back([&, is_last = i == 7] {
      if (is_last) std::this_thread::sleep_for(milliseconds(50));
      if (is_last) is_early = released != 0;
      if (NodeBarrier::wait(kName, in_an_hour())) ++released;
    });
  }
  EXPECT_TRUE(barrier.lead(8, in_an_hour()));
  for (auto& guest : guests) guest.join();
  EXPECT_FALSE(is_early);
  EXPECT_EQ(released, 8);
}

TEST(NodeBarrier, EndsAtTheDeadlineIfOneIsMissing) {
  const auto barrier = NodeBarrier::open(kName);
  const auto late = in_an_hour();
  bool released = true;
  std::thread guest([&] { released = NodeBarrier::wait(kName, late); });
  EXPECT_FALSE(barrier.lead(2, steady_clock::now() + milliseconds(100)));
  guest.join();  // its wait ends with the host's
  EXPECT_FALSE(released);
}

TEST(NodeBarrier, FailsAtOnceWithoutAHost) {
  const auto late = in_an_hour();
  for (const auto& name : {kName, std::string(), std::string(500, 'x')}) {
    EXPECT_FALSE(NodeBarrier::wait(name, late)) << name;
  }
}

// A connection that cannot be accepted stays, and poll(2) reports it again and again. SIGALRM ends a call that hangs,
// and fails the test.
TEST(NodeBarrier, EndsAtOnceWithoutADescriptor) {
  auto barrier = NodeBarrier::open(kName);
  rlimit limits{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limits), 0);
  const int next = Descriptor(::dup(STDOUT_FILENO)).get();
  const rlimit one_more{static_cast<rlim_t>(next) + 1, limits.rlim_max};
  std::atomic<bool> is_limited = false;
  // The thread begins earlier, since the sanitizer opens descriptors for a new thread.
  std::thread guest([&, name = kName] {
    while (!is_limited) std::this_thread::yield();
    EXPECT_FALSE(NodeBarrier::wait(name, in_an_hour()));
  });
  std::this_thread::sleep_for(milliseconds(20));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  is_limited = true;
  (void)::alarm(60);
  EXPECT_FALSE(barrier.lead(1, in_an_hour()));
  (void)::alarm(0);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limits), 0);
  { const auto closed = std::move(barrier); }  // ends the guest's wait
  guest.join();
}

// A connection to a barrier, which comes from the thread's user; -1 where its queue is full.
Descriptor connect_as_stranger(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Descriptor stranger(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(stranger.get(), any, length) == 0 ? std::move(stranger) : Descriptor();
}

bool is_closed_by_other_side(const Descriptor& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

// poll(2) reports the next stranger at once, also after the deadline, so only the clock ends the wait. All strangers
// have connected before: a wait without a clock would accept each of them in turn.
TEST(NodeBarrier, TakesNoStrangerAfterTheDeadline) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const auto barrier = NodeBarrier::open(kName);
  std::vector<Descriptor> strangers;
  std::thread([&] {
    become_nobody();
    for (int i = 0; i < 50; ++i) strangers.push_back(connect_as_stranger(kName));
  }).join();
  EXPECT_FALSE(barrier.lead(1, steady_clock::now()));
  EXPECT_EQ(std::count_if(strangers.begin(), strangers.end(), is_closed_by_other_side), 0);
  // Control: before the deadline they are accepted and closed.
  EXPECT_FALSE(barrier.lead(1, steady_clock::now() + milliseconds(200)));
  EXPECT_EQ(std::count_if(strangers.begin(), strangers.end(), is_closed_by_other_side), 50);
}

// No process accepts connections here, and the queue is full. SIGALRM fails the test.
TEST(NodeBarrier, AGuestDoesNotWaitForAFullQueue) {
  const Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), any, offsetof(sockaddr_un, sun_path)), 0);
  ASSERT_EQ(::listen(listener.get(), 3), 0);
  ASSERT_EQ(::getsockname(listener.get(), any, &length), 0);
  const std::string name(address.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1);
  std::vector<Descriptor> queue;
  do queue.push_back(connect_as_stranger(name));
  while (queue.back().is_open());
  ASSERT_EQ(queue.size(), 5U);
  (void)::alarm(60);
  EXPECT_FALSE(NodeBarrier::wait(name, steady_clock::now() + milliseconds(100)));
  EXPECT_FALSE(NodeBarrier::wait(name, steady_clock::now()));
  (void)::alarm(0);
  // Control: with a place in the queue the guest connects and is released.
  const Descriptor first(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::thread host([&] {
    for (int guest = 0; guest < 4; ++guest) {
      const Descriptor taken(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      (void)::send(taken.get(), "", 1, MSG_NOSIGNAL);
    }
  });
  EXPECT_TRUE(NodeBarrier::wait(name, in_an_hour()));
  host.join();
}

// An address that other nodes reach, as mpirun's server of Open MPI 5 has.
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
  const auto listener = TestSocket::listener(family, address, 0);
  const auto port = listener.port();
  EXPECT_EQ(ServerConnection::count(port), 0U);
  const TestSocket client(family);
  ASSERT_EQ(client.connect(address, port), 0);
  EXPECT_EQ(ServerConnection::count(port), 1U);
  EXPECT_EQ(ServerConnection::count(static_cast<std::uint16_t>(port + 1)), 0U);

  const auto connection = ServerConnection::find(port);
  EXPECT_FALSE(connection.is_lost());
  {
    const auto server = listener.accept();
    EXPECT_FALSE(connection.is_lost());
    EXPECT_FALSE(connection.wait_closed(steady_clock::now() + milliseconds(20)));  // the server has not closed its end
  }
  EXPECT_TRUE(connection.wait_closed(in_an_hour()));
  EXPECT_TRUE(connection.is_lost());
}

TEST(ServerConnection, IsFoundOnEveryAddressOfThisNodeAlone) {
  in_own_network([] {
    ASSERT_TRUE(give_outer_address());
    expect_found_until_it_ends(Family::kIpv4, "127.0.0.1");
    expect_found_until_it_ends(Family::kIpv4, kOuterAddress);
    expect_found_until_it_ends(Family::kIpv6, "::1");
    const auto listener = TestSocket::listener(Family::kIpv4, "127.0.0.1", 0);
    const TestSocket client(Family::kIpv4);
    ASSERT_EQ(client.bind("127.0.0.2", 0), 0);  // as from another host
    ASSERT_EQ(client.connect("127.0.0.1", listener.port()), 0);
    EXPECT_EQ(ServerConnection::count(listener.port()), 0U);
    const auto none = ServerConnection::find(listener.port());
    EXPECT_FALSE(none.is_lost());
    EXPECT_FALSE(none.wait_closed(in_an_hour()));
  });
}

TEST(ServerConnection, IsUnknownWithoutADescriptor) {
  EXPECT_EQ(ServerConnection::count(1), 0U);
  rlimit limits{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limits), 0);
  const rlimit none{0, limits.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto count = ServerConnection::count(1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limits), 0);
  EXPECT_FALSE(count.has_value());
}

}  // namespace
}  // namespace bootstrap

// Lines over TCP: whole ones alone, all that was sent before an end, and no wait for anybody.
// SPDX-License-Identifier: Apache-2.0
#include "comm/process/line_socket.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace bootstrap {
namespace {

using Lines = std::vector<std::string>;

// What comes until the other end is gone, or nothing comes any more.
Lines all_of(LineSocket& socket) {
  Lines lines;
  for (int quiet = 0; quiet < 20 && !socket.is_closed(); ++quiet) {
    for (auto& line : socket.receive()) {
      lines.push_back(std::move(line));
      quiet = 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return lines;
}

LineSocket accepted(LineListener& listener) {
  for (int i = 0; i < 400; ++i) {
    if (auto socket = listener.accept()) return std::move(*socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "nobody came";
  return LineSocket(Descriptor());
}

TEST(LineSocket, BringsLinesAndTheEnd) {
  auto listener = LineListener::open(HostAddress::loopback());
  ASSERT_TRUE(listener);
  auto first = std::make_unique<LineSocket>(LineSocket::connect(HostAddress::loopback(), listener->port()));
  first->send("one");
  first->send("");
  first->send(std::string(5000, 'x'));
  auto second = accepted(*listener);
  EXPECT_EQ(all_of(second), (Lines{"one", "", std::string(5000, 'x')}));
  EXPECT_FALSE(second.is_closed());
  second.send("unread when the other ends");
  first->send("last");
  first.reset();
  EXPECT_EQ(all_of(second), Lines{"last"});
  EXPECT_TRUE(second.is_closed());
}

TEST(LineSocket, IsClosedWhereNobodyListens) {
  std::uint16_t port = 0;
  {
    auto listener = LineListener::open(HostAddress::loopback());
    ASSERT_TRUE(listener);
    port = listener->port();
  }
  auto socket = LineSocket::connect(HostAddress::loopback(), port);
  socket.send("hello");
  EXPECT_EQ(all_of(socket), Lines{});
  EXPECT_TRUE(socket.is_closed());
}

TEST(LineSocket, EndsWhoNeverEndsALine) {
  auto listener = LineListener::open(HostAddress::loopback());
  ASSERT_TRUE(listener);
  auto socket = LineSocket::connect(HostAddress::loopback(), listener->port());
  auto other = accepted(*listener);
  socket.send(std::string(20000, 'x'));
  EXPECT_EQ(all_of(other), Lines{});
  EXPECT_TRUE(other.is_closed());
}

TEST(LineSocket, WaitsForNobodyWhoDoesNotRead) {
  auto listener = LineListener::open(HostAddress::loopback());
  ASSERT_TRUE(listener);
  auto socket = LineSocket::connect(HostAddress::loopback(), listener->port());
  for (int i = 0; i < 20000; ++i) socket.send(std::string(1000, 'x'));
  EXPECT_FALSE(socket.has_sent_all());
}

TEST(HostAddress, IsReadFromBytes) {
  std::string bytes(120, '\0');
  EXPECT_FALSE(HostAddress::read(bytes));
  EXPECT_FALSE(HostAddress::read("short"));
  sockaddr_in host{};
  host.sin_family = AF_INET;
  std::memcpy(bytes.data(), &host, sizeof host);
  EXPECT_FALSE(HostAddress::read(bytes)) << "any host";
  host.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::memcpy(bytes.data(), &host, sizeof host);
  const auto read = HostAddress::read(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->size(), sizeof(sockaddr_in));
  reinterpret_cast<sockaddr_in*>(bytes.data())->sin_family = AF_INET6;
  ASSERT_TRUE(HostAddress::read(bytes));
  EXPECT_EQ(HostAddress::read(bytes)->size(), sizeof(sockaddr_in6));
}

}  // namespace
}  // namespace bootstrap

// A TCP socket for tests: each call answers 0 or errno.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace bootstrap {

enum class Family : std::uint8_t { kIpv4, kIpv6, kDual };  // kDual: AF_INET6 that takes IPv4, too, as PyTorch's is

class TestSocket {
 public:
  explicit TestSocket(Family family) : is_ipv4_(family == Family::kIpv4) {
    descriptor_ = ::socket(is_ipv4_ ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (is_ipv4_) return;
    const int only = family == Family::kIpv6 ? 1 : 0;
    (void)::setsockopt(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  }
  TestSocket(TestSocket&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), is_ipv4_(other.is_ipv4_) {}
  TestSocket& operator=(TestSocket&&) = delete;
  ~TestSocket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  static TestSocket listener(Family family, const char* address, std::uint16_t port, bool reuses = false) {
    TestSocket socket(family);
    if (reuses) socket.reuse_address();
    EXPECT_EQ(socket.bind(address, port), 0) << address;
    EXPECT_EQ(socket.listen(), 0) << address;
    return socket;
  }

  bool is_open() const { return descriptor_ >= 0; }
  int release() { return std::exchange(descriptor_, -1); }

  void reuse_address() const {
    const int on = 1;
    (void)::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }

  // No TIME_WAIT stays behind.
  void reset_at_close() const {
    const linger now{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

  int bind(const char* address, std::uint16_t port) const { return call(::bind, address, port); }
  int connect(const char* address, std::uint16_t port) const { return call(::connect, address, port); }
  int listen() const { return ::listen(descriptor_, 128) == 0 ? 0 : errno; }
  TestSocket accept() const { return TestSocket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC), is_ipv4_); }

  int send(const void* bytes, std::size_t size) const {
    return ::send(descriptor_, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size) ? 0 : errno;
  }

  bool at_end() const {
    char byte = 0;
    return ::recv(descriptor_, &byte, 1, 0) == 0;
  }

  std::uint16_t port() const {
    sockaddr_in6 address{};  // the port of sockaddr_in is at the same place
    socklen_t size = sizeof address;
    (void)::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin6_port);
  }

 private:
  TestSocket(int descriptor, bool is_ipv4) : descriptor_(descriptor), is_ipv4_(is_ipv4) {}

  template <class Call>
  int call(Call what, const char* text, std::uint16_t port) const {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    const auto parsed =
        is_ipv4_ ? ::inet_pton(AF_INET, text, &ipv4.sin_addr) : ::inet_pton(AF_INET6, text, &ipv6.sin6_addr);
    if (parsed != 1) return EINVAL;
    const auto* const address =
        is_ipv4_ ? reinterpret_cast<const sockaddr*>(&ipv4) : reinterpret_cast<const sockaddr*>(&ipv6);
    return what(descriptor_, address, is_ipv4_ ? sizeof ipv4 : sizeof ipv6) == 0 ? 0 : errno;
  }

  int descriptor_ = -1;
  bool is_ipv4_;
};

}  // namespace bootstrap

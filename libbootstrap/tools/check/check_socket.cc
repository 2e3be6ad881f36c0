// TCP for a check: listening, the way to a name, and lines over a connection, each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_socket.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "probe/deadline.h"
#include "probe/port_reservation.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxAddresses = 8;  // of one name; each is tried in turn
constexpr int kTcp = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

std::string text_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  (void)::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

const sockaddr* pointer_to(const sockaddr_storage& storage) { return reinterpret_cast<const sockaddr*>(&storage); }

Result<std::vector<SocketAddress>> look_up(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    return fail(ErrorCode::kUnavailable, code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const auto* entry = list; entry != nullptr && found.size() < kMaxAddresses; entry = entry->ai_next) {
    std::memcpy(&found.emplace_back().storage, entry->ai_addr, entry->ai_addrlen);
    found.back().size = entry->ai_addrlen;
  }
  return found;
}

}  // namespace

std::string SocketAddress::text() const { return text_of(pointer_to(storage), size); }

Result<std::vector<SocketAddress>> resolve(const std::string& name, std::uint16_t port, Deadline deadline) {
  return call_with_deadline<std::vector<SocketAddress>>(
      "the resolver", [name, port] { return look_up(name, port); }, deadline);
}

Descriptor connect_to(const SocketAddress& address, Deadline deadline) {
  Descriptor socket(::socket(address.storage.ss_family, kTcp, 0));
  if (!socket.is_open() || ::connect(socket.get(), pointer_to(address.storage), address.size) == 0) return socket;
  int error = errno;
  socklen_t size = sizeof error;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    if (poll_until(socket.get(), POLLOUT, deadline))
      (void)::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) socket.reset();
  errno = error;
  return socket;
}

Descriptor listen_on(std::uint16_t port, bool like_servers) {
  const int on = 1;
  auto socket = open_socket(SOCK_STREAM | SOCK_NONBLOCK);
  if (like_servers) (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind_everywhere(socket, port) && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

std::string interface_of(const Descriptor& socket) {
  SocketAddress own;
  own.size = sizeof own.storage;
  ifaddrs* list = nullptr;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0) return {};
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != own.storage.ss_family) continue;
    if (text_of(entry->ifa_addr, own.size) == own.text()) return entry->ifa_name;
  }
  return {};
}

bool send_all(const Descriptor& socket, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    const auto count = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (count < 0 && !poll_until(socket.get(), POLLOUT, deadline)) return false;
    text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  return true;
}

std::optional<std::string> take_line(std::string& received) {
  const auto end = received.find('\n');
  if (end == std::string::npos) return std::nullopt;
  auto line = received.substr(0, end);
  received.erase(0, end + 1);
  return line;
}

std::optional<std::string> receive_line(const Descriptor& socket, std::string& received, Deadline deadline) {
  while (true) {
    if (auto line = take_line(received)) return line;
    if (received.size() > kMaxLine || !poll_until(socket.get(), POLLIN, deadline)) return std::nullopt;
    std::array<char, 4096> buffer;
    const auto count = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
    received.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
}

}  // namespace bootstrap

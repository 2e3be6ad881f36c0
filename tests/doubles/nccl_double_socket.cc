// TCP for the NCCL double: each connection begins with a magic number, and a flag ends each wait.
// SPDX-License-Identifier: Apache-2.0
#include "nccl_double_parts.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace nccl_double {
namespace {

constexpr int kLookAtFlag = 20;  // milliseconds between two looks at the abort flag
constexpr int kBacklog = 16384;  // NCCL's
constexpr int kRefusals = 20;
constexpr int kFailsAtStrangers = 21800;
constexpr int kPassesStrangers = 22800;

[[noreturn]] void fail_with_errno(const char* call) {
  throw Trouble{ncclSystemError, std::string("Call to ") + call + " failed : " + std::strerror(errno)};
}

// Every wait of the double; the flag ends it.
short wait_for(int descriptor, short events, const AbortFlag& abort) {
  while (true) {
    if (abort) throw Trouble{ncclInternalError, "aborted"};
    pollfd waited{.fd = descriptor, .events = events, .revents = 0};
    const int ready = ::poll(&waited, 1, kLookAtFlag);
    if (ready < 0 && errno != EINTR) fail_with_errno("poll");
    if (ready > 0) return waited.revents;
  }
}

// The interface that NCCL_SOCKET_IFNAME names, as "lo" or "=lo"; else the first one that is not loopback, if any.
sockaddr_in find_interface() {
  const char* const variable = std::getenv("NCCL_SOCKET_IFNAME");
  std::string_view wanted = variable == nullptr ? "" : variable;
  if (wanted.substr(0, 1) == "=") wanted.remove_prefix(1);
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) fail_with_errno("getifaddrs");
  sockaddr_in address{};
  bool is_loopback = true;
  for (const auto* each = all; each != nullptr && is_loopback; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    if (!wanted.empty() && wanted != each->ifa_name) continue;
    is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    std::memcpy(&address, each->ifa_addr, sizeof address);
  }
  ::freeifaddrs(all);
  if (address.sin_family != AF_INET) {
    throw Trouble{version() < kPassesStrangers ? ncclSystemError : ncclInvalidUsage,
                  "Bootstrap : no socket interface found"};
  }
  address.sin_port = 0;
  return address;
}

int new_socket() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) fail_with_errno("socket");
  const int on = 1;
  (void)::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return descriptor;
}

// Returns if this version of NCCL ignores a connection that is not from a rank; else hangs or fails as it does.
void meet_stranger(bool has_closed, Port port, const AbortFlag& abort) {
  const bool passes = version() >= kPassesStrangers;
  if ((has_closed && version() < kFailsAtStrangers) || (passes && port == Port::kProxy)) hang(abort);
  if (has_closed && !passes) throw Trouble{ncclSystemError, "socketFinalizeAccept: Call to recv failed"};
}

bool is_worth_another_try(int error) {
  return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

}  // namespace

void hang(const AbortFlag& abort) {
  while (!abort) (void)::usleep(kLookAtFlag * 1000);
  throw Trouble{ncclInternalError, "aborted"};
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket Socket::listener() { return listener_at(find_interface()); }

Socket Socket::listener_at(const sockaddr_in& address) {
  Socket socket(new_socket());
  // As NCCL does for a port from the environment: ended connections would block the port for a minute.
  const int on = 1;
  if (address.sin_port != 0) (void)::setsockopt(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail_with_errno("bind");
  }
  if (::listen(socket.descriptor_, kBacklog) != 0) fail_with_errno("listen");
  return socket;
}

sockaddr_in Socket::address() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) fail_with_errno("getsockname");
  return address;
}

Socket Socket::connect(const sockaddr_in& address, Magic magic, const AbortFlag& abort) {
  int refusals = 0;
  while (true) {
    Socket socket(new_socket());
    int error = 0;
    if (::connect(socket.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) error = errno;
    if (error == EINPROGRESS) {
      (void)wait_for(socket.descriptor_, POLLOUT, abort);
      socklen_t size = sizeof error;
      if (::getsockopt(socket.descriptor_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    }
    if (error == 0) {
      socket.send(&magic, sizeof magic, abort);
      return socket;
    }
    errno = error;
    // These older versions give up if the root has ended.
    const bool is_gone = error == ECONNREFUSED && version() >= kFailsAtStrangers && version() < kPassesStrangers;
    if (!is_worth_another_try(error) || (is_gone && ++refusals > kRefusals)) fail_with_errno("connect");
    if (abort) throw Trouble{ncclInternalError, "aborted"};
    (void)::usleep(kLookAtFlag * 1000);
  }
}

Socket Socket::accept(Magic magic, Port port, const AbortFlag& abort) const {
  while (true) {
    (void)wait_for(descriptor_, POLLIN, abort);
    Socket peer(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (peer.descriptor_ < 0) continue;  // it has disconnected
    const int on = 1;
    (void)::setsockopt(peer.descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Magic shown = 0;
    bool has_closed = false;
    try {
      peer.receive(&shown, sizeof shown, abort);
    } catch (const Trouble&) {
      if (abort) throw;
      has_closed = true;
    }
    if (!has_closed && shown == magic) return peer;
    meet_stranger(has_closed, port, abort);
  }
}

void Socket::send(const void* bytes, std::size_t size, const AbortFlag& abort) const {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const auto sent = ::send(descriptor_, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) fail_with_errno("send");
    if (sent < 0) {
      (void)wait_for(descriptor_, POLLOUT, abort);
      continue;
    }
    next += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

void Socket::receive(void* bytes, std::size_t size, const AbortFlag& abort) const {
  auto* next = static_cast<char*>(bytes);
  while (size > 0) {
    const auto received = ::recv(descriptor_, next, size, 0);
    if (received == 0) throw Trouble{ncclRemoteError, "socketProgress: Connection closed by remote peer"};
    if (received < 0 && errno != EAGAIN && errno != EINTR) fail_with_errno("recv");
    if (received < 0) {
      (void)wait_for(descriptor_, POLLIN, abort);
      continue;
    }
    next += received;
    size -= static_cast<std::size_t>(received);
  }
}

void Socket::swap_with(const Socket& other, const void* sent, void* received, std::size_t size,
                       const AbortFlag& abort) const {
  // Small enough for the kernel's buffer, so that the peer cannot delay it.
  constexpr std::size_t kPiece = 16384;
  const auto* out = static_cast<const char*>(sent);
  auto* in = static_cast<char*>(received);
  for (std::size_t at = 0; at < size; at += kPiece) {
    const auto piece = std::min(kPiece, size - at);
    send(out + at, piece, abort);
    other.receive(in + at, piece, abort);
  }
}

}  // namespace nccl_double

// Sockets on this node: a barrier of its ranks, and libpmix's connection to the server.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/node_sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "core/util/text.h"
#include "probe/deadline.h"

namespace bootstrap {
namespace {

// The address of a socket without a file: its name begins with a zero (unix(7), "abstract").
class Address {
 public:
  explicit Address(std::string_view name) : size_(std::min(name.size(), sizeof address_.sun_path - 1)) {
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, name.data(), size_);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t length() const { return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size_); }

 private:
  sockaddr_un address_{};
  std::size_t size_;
};

// Another user's process that guesses the name could make the barrier end too early.
bool is_same_user(int descriptor) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

// For a Unix socket: connect(2) waits while the queue of the other side is full, and any process can fill the queue.
// SO_SNDTIMEO ends this wait, too (unix_stream_connect() in net/unix/af_unix.c); zero would mean no limit.
bool connect_until(int socket, const Address& address, Deadline deadline) {
  do {
    const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - Deadline::clock::now()).count();
    if (left <= 0) return false;
    const timeval limit{.tv_sec = left / 1'000'000, .tv_usec = left % 1'000'000};
    if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0) return false;
    if (::connect(socket, address.get(), address.length()) == 0) return true;
  } while (errno == EINTR);
  return false;
}

}  // namespace

NodeBarrier NodeBarrier::open(const std::string& name) {
  NodeBarrier barrier;
  barrier.descriptor_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int socket = barrier.descriptor_.get();
  const Address address(name);
  if (::bind(socket, address.get(), address.length()) != 0 || ::listen(socket, SOMAXCONN) != 0) return {};
  return barrier;
}

bool NodeBarrier::lead(std::uint32_t others, Deadline deadline) const {
  std::vector<Descriptor> guests;
  bool all = descriptor_.is_open();
  while (all && guests.size() < others) {
    all = poll_until(descriptor_.get(), POLLIN, deadline);
    Descriptor guest(all ? ::accept4(descriptor_.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1);
    // Without a free descriptor the connection stays, and poll(2) returns at once, also after the deadline.
    if (!guest.is_open() && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) all = false;
    if (guest.is_open() && is_same_user(guest.get())) guests.push_back(std::move(guest));
  }
  for (const auto& guest : guests) {
    if (all) (void)::send(guest.get(), "", 1, MSG_NOSIGNAL);
  }
  return all;
}

bool NodeBarrier::wait(const std::string& name, Deadline deadline) {
  const Descriptor descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char released = 1;
  return descriptor.is_open() && connect_until(descriptor.get(), Address(name), deadline) &&
         is_same_user(descriptor.get()) && poll_until(descriptor.get(), POLLIN, deadline) &&
         ::recv(descriptor.get(), &released, 1, 0) == 1;
}

namespace {

// True if both ends are on this node. Most servers use the loopback address, but mpirun from Open MPI 5 on uses one
// that other nodes reach.
bool is_connection_to(int descriptor, std::uint16_t port) {
  union Ends {
    sockaddr any;
    sockaddr_in ipv4;  // the port of sockaddr_in6 is at the same place
    sockaddr_in6 ipv6;
  };
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  Ends own{};
  Ends peer{};
  socklen_t length = sizeof own;
  if (::getsockname(descriptor, &own.any, &length) != 0) return false;
  if (own.any.sa_family != AF_INET && own.any.sa_family != AF_INET6) return false;
  if (::getpeername(descriptor, &peer.any, &length) != 0 || peer.ipv4.sin_port != htons(port)) return false;
  peer.ipv4.sin_port = own.ipv4.sin_port;
  return std::memcmp(&own, &peer, length) == 0;
}

// The descriptors of this process's connections to that port; empty if descriptors cannot be listed, as in a process
// without a free one. The folder lists at least the descriptor that reads it.
std::optional<std::vector<int>> connections(std::uint16_t port) {
  const auto names = FileTree("").names_in("/proc/self/fd");
  if (port == 0 || names.empty()) return std::nullopt;
  std::vector<int> found;
  for (const auto& name : names) {
    const auto number = parse_unsigned<int>(name).value_or(-1);
    if (is_connection_to(number, port)) found.push_back(number);
  }
  return found;
}

int tcp_state(int descriptor) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_state : -1;
}

}  // namespace

std::optional<std::size_t> ServerConnection::count(std::uint16_t server_port) {
  const auto found = connections(server_port);
  return found ? std::optional(found->size()) : std::nullopt;
}

ServerConnection ServerConnection::find(std::uint16_t server_port) {
  ServerConnection connection;
  for (const int one : connections(server_port).value_or(std::vector<int>())) {
    (void)::fcntl(one, F_SETFD, FD_CLOEXEC);
    connection.descriptor_ = Descriptor(::fcntl(one, F_DUPFD_CLOEXEC, 3));
  }
  return connection;
}

bool ServerConnection::is_lost() const {
  return descriptor_.is_open() && tcp_state(descriptor_.get()) != TCP_ESTABLISHED;
}

bool ServerConnection::wait_closed(Deadline deadline) const {
  if (!descriptor_.is_open()) return false;
  // libpmix shuts the socket down before it closes it; otherwise this second descriptor would keep it open.
  if (tcp_state(descriptor_.get()) == TCP_ESTABLISHED) (void)::shutdown(descriptor_.get(), SHUT_WR);
  while (true) {
    const int state = tcp_state(descriptor_.get());
    if (state != TCP_ESTABLISHED && state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    sleep_for(std::chrono::microseconds(100));  // the server needs one turn of its event loop
  }
}

}  // namespace bootstrap

// The TCP connection that libpmix holds to the server of this node: kept from programs, and waited for when it closes.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/server_connection.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/process/sleep_for.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

template <class Address>
std::optional<Address> address_of(int descriptor, int (*ask)(int, sockaddr*, socklen_t*), sa_family_t family) {
  Address address{};
  socklen_t length = sizeof address;
  if (ask(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  sa_family_t found = 0;
  std::memcpy(&found, &address, sizeof found);
  return found == family && length == sizeof address ? std::optional(address) : std::nullopt;
}

// Both ends on this node: most servers are on the loopback address, but mpirun's own, from Open MPI 5 on, is on one
// that other nodes reach.
bool is_connection_to(int descriptor, std::uint16_t port) {
  if (const auto peer = address_of<sockaddr_in>(descriptor, ::getpeername, AF_INET)) {
    const auto own = address_of<sockaddr_in>(descriptor, ::getsockname, AF_INET);
    return own && peer->sin_port == htons(port) && peer->sin_addr.s_addr == own->sin_addr.s_addr;
  }
  if (const auto peer = address_of<sockaddr_in6>(descriptor, ::getpeername, AF_INET6)) {
    const auto own = address_of<sockaddr_in6>(descriptor, ::getsockname, AF_INET6);
    return own && peer->sin6_port == htons(port) &&
           std::memcmp(&peer->sin6_addr, &own->sin6_addr, sizeof own->sin6_addr) == 0;
  }
  return false;
}

// Numbers of descriptors are used again, also by other threads meanwhile; a socket's inode is its own.
template <class Action>
bool for_each_connection(std::uint16_t port, Action action) {
  if (port == 0) return false;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return false;
  while (const dirent* entry = ::readdir(folder)) {
    const auto number = parse_unsigned(entry->d_name, INT32_MAX);
    if (!number || !is_connection_to(static_cast<int>(*number), port)) continue;
    struct stat facts {};
    const int descriptor = static_cast<int>(*number);
    if (::fstat(descriptor, &facts) == 0) action(descriptor, facts.st_ino);
  }
  (void)::closedir(folder);
  return true;
}

int tcp_state(int descriptor) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 ? info.tcpi_state : -1;
}

}  // namespace

std::optional<Sockets> ServerConnection::list(std::uint16_t server_port) {
  Sockets sockets;
  const bool is_told = for_each_connection(server_port, [&](int, ino_t socket) { sockets.push_back(socket); });
  return is_told ? std::optional(std::move(sockets)) : std::nullopt;
}

ServerConnection ServerConnection::find(std::uint16_t server_port, const Sockets& before) {
  int found = -1;
  (void)for_each_connection(server_port, [&](int descriptor, ino_t socket) {
    if (std::find(before.begin(), before.end(), socket) != before.end()) return;
    found = descriptor;
    (void)::fcntl(found, F_SETFD, FD_CLOEXEC);
  });
  return ServerConnection(found < 0 ? -1 : ::fcntl(found, F_DUPFD_CLOEXEC, 3));
}

bool ServerConnection::is_lost() const {
  return descriptor_.is_open() && tcp_state(descriptor_.get()) != TCP_ESTABLISHED;
}

bool ServerConnection::wait_closed(Deadline deadline) const {
  if (!descriptor_.is_open()) return false;
  // libpmix shuts its socket down before it closes it. One that only closes leaves ours, which would keep it open.
  if (tcp_state(descriptor_.get()) == TCP_ESTABLISHED) (void)::shutdown(descriptor_.get(), SHUT_WR);
  while (true) {
    const int state = tcp_state(descriptor_.get());
    if (state != TCP_ESTABLISHED && state != TCP_FIN_WAIT1 && state != TCP_FIN_WAIT2) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    sleep_for(std::chrono::microseconds(100));  // the server needs one turn of its event loop
  }
}

}  // namespace bootstrap

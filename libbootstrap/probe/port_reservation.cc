// Reserves a TCP port so that only a server that sets SO_REUSEADDR, as rendezvous servers do, can listen on it.
// SPDX-License-Identifier: Apache-2.0
#include "probe/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/util/text.h"
#include "probe/file_descriptor.h"

namespace bootstrap {
namespace {

// ::ffff:127.83.66.1.
constexpr in6_addr kQuietIpv6 = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, kQuietAddress >> 24,
                                   kQuietAddress >> 16 & 0xff, kQuietAddress >> 8 & 0xff, kQuietAddress & 0xff}}};

// A TCP socket of either family, so that the same code serves hosts with IPv6 switched off.
class Socket {
 public:
  Socket() {
    descriptor_ = Descriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (descriptor_.is_open()) {
      const int off = 0;  // dual-stack, as the servers are that will bind the port
      (void)::setsockopt(descriptor_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    } else {
      is_ipv6_ = false;
      descriptor_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
  }

  bool is_open() const { return descriptor_.is_open(); }
  int release() { return descriptor_.release(); }

  bool allow_reuse() const {
    const int on = 1;
    return ::setsockopt(descriptor_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
  }

  bool bind_everywhere(std::uint16_t port) const { return bind(port, in6addr_any, INADDR_ANY); }
  bool bind_quiet_address(std::uint16_t port) const { return bind(port, kQuietIpv6, kQuietAddress); }

 private:
  bool bind(std::uint16_t port, const in6_addr& ipv6, std::uint32_t ipv4) const {
    if (is_ipv6_) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_addr = ipv6;
      address.sin6_port = htons(port);
      return ::bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(ipv4);
    address.sin_port = htons(port);
    return ::bind(descriptor_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  Descriptor descriptor_;
  bool is_ipv6_ = true;
};

tl::unexpected<Error> refused(const std::string& name, int error) {
  if (error == EADDRINUSE) {
    return fail(ErrorCode::kUnavailable, cat({name, " is already in use by another program"}));
  }
  return fail(ErrorCode::kUnavailable, cat({name, " cannot be reserved: ", std::strerror(error)}));
}

// The exclusive bind also fails on connections of an earlier server that are in TIME_WAIT for up to 60 s, which do no
// harm: a bind with SO_REUSEADDR passes them. That bind alone would also pass another reservation, so first make sure
// there is none: on an address without traffic, an exclusive bind meets wildcard sockets and nothing else.
Result<int> bind_beside_time_wait(std::uint16_t port, const std::string& name) {
  const Socket probe;
  if (!probe.is_open() || !probe.bind_quiet_address(port) || !probe.allow_reuse()) return refused(name, errno);
  Socket holder;
  if (!holder.is_open() || !holder.allow_reuse() || !holder.bind_everywhere(port)) return refused(name, errno);
  return holder.release();
}

}  // namespace

Result<PortReservation> PortReservation::take(std::uint16_t port, const std::string& name) {
  Socket holder;
  if (!holder.is_open()) return refused(name, errno);
  if (holder.bind_everywhere(port)) {
    // Only now: set before the bind it would let a second reservation through.
    if (!holder.allow_reuse()) return refused(name, errno);
    return PortReservation(holder.release());
  }
  if (errno != EADDRINUSE) return refused(name, errno);
  const auto descriptor = bind_beside_time_wait(port, name);
  if (!descriptor) return fail(descriptor.error());
  return PortReservation(*descriptor);
}

void PortReservation::release() noexcept {
  const int socket = std::exchange(socket_, -1);
  if (socket >= 0 && ::getpid() == owner_) ::close(socket);
}

}  // namespace bootstrap

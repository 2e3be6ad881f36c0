// Opens the socket on which Horovod's ranks will find the key-value server, before that server is started.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#include "core/util/text.h"
#include "probe/port_claim.h"

namespace bootstrap {
namespace {

bool bind_to(const Descriptor& socket, std::uint32_t address, std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(address);
  where.sin_port = htons(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0;
}

Descriptor new_socket() { return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// Beside connections in TIME_WAIT, which the exclusive bind does not pass for 60 s. SO_REUSEADDR passes them, but also
// the claims of other steps (probe/port_claim), so that first the exclusive bind on the quiet address must show that
// there is none. What listens on any address is refused by both.
Descriptor bind_beside_time_wait(std::uint32_t address, std::uint16_t port) {
  const auto probe = new_socket();
  if (!probe.is_open() || !bind_to(probe, kQuietAddress, port)) return {};
  const int on = 1;
  auto socket = new_socket();
  // The probe steps aside for the bind that follows, which it would be in the way of otherwise.
  if (::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return {};
  if (!socket.is_open() || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) return {};
  if (!bind_to(socket, address, port)) return {};
  return socket;
}

// The error is in errno.
Descriptor listen_on(std::uint32_t address, std::uint16_t port) {
  auto socket = new_socket();
  if (!socket.is_open()) return {};
  if (!bind_to(socket, address, port)) {
    if (errno != EADDRINUSE) return {};
    socket = bind_beside_time_wait(address, port);
    if (!socket.is_open()) return {};
  }
  // The kernel cuts the length down to net.core.somaxconn; all ranks may come in the same moment. SO_REUSEADDR comes
  // last: before, others could bind beside us. Our connections get it from us, so that in TIME_WAIT they let the next
  // one pass.
  const int on = 1;
  if (::listen(socket.get(), INT_MAX) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

std::uint32_t address_named(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 ? ntohl(address.s_addr) : INADDR_ANY;
}

}  // namespace

Result<Listener> open_listener(std::span<const std::uint16_t> candidates, const std::string& address) {
  auto where = address_named(address);
  std::string tried;
  std::string reason = "none was given";
  for (const auto port : candidates) {
    auto socket = listen_on(where, port);
    if (!socket.is_open() && errno == EADDRNOTAVAIL) {  // none of ours
      where = INADDR_ANY;
      socket = listen_on(where, port);
    }
    if (socket.is_open()) return Listener{std::move(socket), port};
    reason = errno == EADDRINUSE ? "in use by another program" : std::strerror(errno);
    tried += cat({tried.empty() ? "" : ", ", std::to_string(port)});
  }
  return fail(ErrorCode::kUnavailable, cat({"no port for the rendezvous of Horovod (tried ",
                                            tried.empty() ? "none" : std::string_view(tried), "): ", reason}));
}

}  // namespace bootstrap

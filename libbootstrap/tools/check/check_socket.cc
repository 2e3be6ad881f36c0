// TCP for a check: names into addresses and addresses into connections, each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "comm/process/worker_thread.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxAddresses = 8;  // of one name; each is tried in turn

struct Lookup {
  std::vector<Address> addresses;
  std::string trouble;
};

Lookup look_up(const std::string& name, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  Lookup found;
  if (const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &list); code != 0) {
    found.trouble = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    return found;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const auto* entry = list; entry != nullptr && found.addresses.size() < kMaxAddresses; entry = entry->ai_next) {
    Address address;
    if (entry->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    found.addresses.push_back(address);
  }
  return found;
}

const sockaddr* as_sockaddr(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

template <class Call>
std::optional<Address> name_of(Call call, const Descriptor& socket) {
  Address address;
  address.size = sizeof address.storage;
  if (call(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) return std::nullopt;
  return address;
}

Descriptor bound(std::uint16_t port, bool like_servers, bool ipv6) {
  Descriptor socket(::socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return socket;
  const int on = 1;
  const int off = 0;
  if (ipv6) (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (like_servers) (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  const auto* const address = ipv6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  const bool is_bound = ::bind(socket.get(), address, ipv6 ? sizeof six : sizeof four) == 0;
  if (is_bound && ::listen(socket.get(), SOMAXCONN) == 0) return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

}  // namespace

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN] = "";
  const void* bytes = &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
  auto family = storage.ss_family;
  if (family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    const bool is_mapped = IN6_IS_ADDR_V4MAPPED(&six);
    family = is_mapped ? AF_INET : AF_INET6;
    bytes = is_mapped ? static_cast<const void*>(&six.s6_addr[12]) : &six;
  }
  return ::inet_ntop(family, bytes, buffer, sizeof buffer) == nullptr ? std::string() : std::string(buffer);
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Deadline::clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
}

Result<std::vector<Address>> resolve(const std::string& name, std::uint16_t port, Deadline deadline) {
  const auto lookup = std::make_shared<Lookup>();
  WorkerThread worker;
  const auto started = worker.start([lookup, name, port] { *lookup = look_up(name, port); });
  if (!started) return fail(started.error());
  if (!worker.wait_until(deadline)) return fail(ErrorCode::kTimeout, "the resolver does not answer");
  if (!lookup->trouble.empty()) return fail(ErrorCode::kUnavailable, lookup->trouble);
  return std::move(lookup->addresses);
}

Connecting connect_to(const Address& address, Deadline deadline) {
  Connecting result;
  result.socket = Descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!result.socket.is_open() || (::connect(result.socket.get(), as_sockaddr(address), address.size) != 0)) {
    result.error = errno;
  }
  if (result.error == EINPROGRESS) {
    pollfd wanted{.fd = result.socket.get(), .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof result.error;
    while (::poll(&wanted, 1, milliseconds_until(deadline)) < 0 && errno == EINTR) {
    }
    if (wanted.revents == 0) {
      result.error = ETIMEDOUT;
    } else if (::getsockopt(result.socket.get(), SOL_SOCKET, SO_ERROR, &result.error, &size) != 0) {
      result.error = errno;
    }
  }
  if (result.error != 0) result.socket.reset();
  return result;
}

std::optional<Address> own_address(const Descriptor& socket) { return name_of(::getsockname, socket); }

std::string interface_of(const Address& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const auto* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address one;
    one.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&one.storage, entry->ifa_addr, one.size);
    if (one.text() == address.text()) return entry->ifa_name;
  }
  return {};
}

Listening listen_on(std::uint16_t port, bool like_servers) {
  Listening result;
  result.socket = bound(port, like_servers, true);
  if (!result.socket.is_open() && errno == EAFNOSUPPORT) result.socket = bound(port, like_servers, false);
  if (!result.socket.is_open()) result.error = errno;
  return result;
}

}  // namespace bootstrap

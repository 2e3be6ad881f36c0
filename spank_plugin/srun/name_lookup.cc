// The address of a host name, asked for by srun alone.
// SPDX-License-Identifier: Apache-2.0
#include "srun/name_lookup.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "core/hardware/network.h"

namespace bootstrap {

ResolvedName look_up(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int outcome = ::getaddrinfo(name.c_str(), nullptr, &wanted, &found);
  if (outcome != 0) return {.address = {}, .is_unusable = outcome == EAI_NONAME || outcome == EAI_NODATA};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (; found != nullptr; found = found->ai_next) {
    std::array<char, NI_MAXHOST> text;
    const auto written =
        ::getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    const auto address = written == 0 ? parse_ip_address(text.data()) : std::nullopt;
    if (address && !is_loopback(*address)) return {.address = text.data(), .is_unusable = false};
  }
  return {.address = {}, .is_unusable = true};
}

}  // namespace bootstrap

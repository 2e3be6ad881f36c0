// Which clients the server answers: those whose address is one of the step's hosts.
// SPDX-License-Identifier: Apache-2.0
#include "tools/horovod_server/step_hosts.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string read_to_end(int file) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const auto count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

void add_addresses(std::vector<std::uint32_t>& addresses, const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  for (const auto* entry = found; entry != nullptr; entry = entry->ai_next) {
    sockaddr_in address{};
    if (entry->ai_addrlen != sizeof address) continue;
    std::memcpy(&address, entry->ai_addr, sizeof address);
    addresses.push_back(address.sin_addr.s_addr);
  }
}

}  // namespace

StepHosts StepHosts::of(const std::vector<std::string>& names) {
  StepHosts hosts;
  hosts.is_known_ = true;
  for (const auto& name : names) {
    if (!name.empty()) add_addresses(hosts.addresses_, name);
  }
  std::sort(hosts.addresses_.begin(), hosts.addresses_.end());
  return hosts;
}

StepHosts StepHosts::look_up(int names) {
  const auto text = read_to_end(names);
  std::vector<std::string> all;
  for (const auto name : split(text, '\n')) all.emplace_back(name);
  return of(all);
}

bool StepHosts::admits(const sockaddr_in& client, const sockaddr_in& own) const {
  if (!is_known_ || client.sin_addr.s_addr == own.sin_addr.s_addr) return true;
  return std::binary_search(addresses_.begin(), addresses_.end(), client.sin_addr.s_addr);
}

}  // namespace bootstrap

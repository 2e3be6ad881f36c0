// In srun: hears from the nodes which task failed first, and says so when the step has ended.
// SPDX-License-Identifier: Apache-2.0
#include "failure_ear.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "core/failure.h"
#include "core/text.h"
#include "spank_api.h"

namespace bootstrap {
namespace {

// Both families, where there are two: it is not for us to know which one the nodes use.
int open_socket() {
  const int both = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (both < 0) return ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int off = 0;
  (void)::setsockopt(both, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return both;
}

// bind(2) of the any-address of the socket's family with port 0; the port that it got, or 0.
std::uint16_t bind_anywhere(int socket) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) return 0;
  size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin6_port);  // at the same place in sockaddr_in
}

int ear = -1;
FailureAddress own_address;

}  // namespace

void open_failure_ear() {
  if (ear >= 0) return;
  const int socket = open_socket();
  if (socket < 0) return;
  const auto port = bind_anywhere(socket);
  std::uint64_t mark = 0;
  if (port == 0 || ::getrandom(&mark, sizeof mark, GRND_NONBLOCK) != sizeof mark) {
    ::close(socket);
    return;
  }
  ear = socket;
  own_address = {port, mark};
  ::setenv(std::string(kFailureVariable).c_str(), write_failure_address(own_address).c_str(), 1);
}

void forget_outer_failure_ear() { ::unsetenv(std::string(kFailureVariable).c_str()); }

// In the order of arrival, which for srun is the order in which the tasks failed. A queue that is full keeps its first.
void tell_first_failure() {
  if (ear < 0) return;
  std::array<char, kMaxFailureText + 1> text;
  // Anybody can send to this port, and faster than it is read here.
  constexpr int kMostDatagrams = 1024;
  ssize_t size = 0;
  for (int count = 0; count < kMostDatagrams && (size = ::recv(ear, text.data(), text.size(), 0)) >= 0; ++count) {
    const auto failure = read_failure({text.data(), static_cast<std::size_t>(size)}, own_address.mark);
    if (!failure) continue;
    if (!is_told_to_end(failure->wait_status)) log_error(cat({"bootstrap: ", failure_sentence(*failure)}));
    break;
  }
  ::close(ear);
  ear = -1;
}

}  // namespace bootstrap

// The ranks of one node wait for each other without PMIx, to leave it together.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/node_barrier.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace bootstrap {
namespace {

constexpr std::size_t kNameAt = offsetof(sockaddr_un, sun_path);

bool wait_readable(int descriptor, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wanted{descriptor, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// Another user's process that guesses the name would only make the meeting end too early; still it is none of ours.
bool is_same_user(int descriptor) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace

NodeBarrier::~NodeBarrier() {
  if (descriptor_ >= 0) (void)::close(descriptor_);
}

NodeBarrier NodeBarrier::open() {
  NodeBarrier meeting;
  meeting.descriptor_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (meeting.descriptor_ < 0) return {};
  // An address without a name: the kernel takes one that is free (unix(7), autobind).
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address;
  if (::bind(meeting.descriptor_, reinterpret_cast<const sockaddr*>(&address), kNameAt) != 0 ||
      ::listen(meeting.descriptor_, SOMAXCONN) != 0 ||
      ::getsockname(meeting.descriptor_, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      length <= kNameAt + 1) {
    return {};
  }
  meeting.name_.assign(address.sun_path + 1, length - kNameAt - 1);  // after the zero that marks a name without a file
  return meeting;
}

bool NodeBarrier::lead(std::uint32_t others, Deadline deadline) const {
  std::vector<int> guests;
  bool all = descriptor_ >= 0;
  while (all && guests.size() < others) {
    all = wait_readable(descriptor_, deadline);
    const int guest = all ? ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    if (guest < 0) continue;
    if (is_same_user(guest)) {
      guests.push_back(guest);
    } else {
      (void)::close(guest);
    }
  }
  for (const int guest : guests) {
    if (all) (void)::send(guest, "", 1, MSG_NOSIGNAL);
    (void)::close(guest);
  }
  return all;
}

bool NodeBarrier::wait(const std::string& name, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  char released = 1;
  const bool is_free = ::connect(descriptor, reinterpret_cast<const sockaddr*>(&address),
                                 static_cast<socklen_t>(kNameAt + 1 + name.size())) == 0 &&
                       is_same_user(descriptor) && wait_readable(descriptor, deadline) &&
                       ::recv(descriptor, &released, 1, 0) == 1;
  (void)::close(descriptor);
  return is_free;
}

}  // namespace bootstrap

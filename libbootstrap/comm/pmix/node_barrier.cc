// The ranks of one node wait for each other without PMIx, to leave it together.
// SPDX-License-Identifier: Apache-2.0
#include "comm/pmix/node_barrier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "comm/process/poll_until.h"

namespace bootstrap {
namespace {

constexpr std::size_t kNameAt = offsetof(sockaddr_un, sun_path);

// Another user's process that guesses the name would only make the meeting end too early; still it is none of ours.
bool is_same_user(int descriptor) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace

NodeBarrier NodeBarrier::open() {
  NodeBarrier meeting;
  meeting.descriptor_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int socket = meeting.descriptor_.get();
  if (socket < 0) return {};
  // An address without a name: the kernel takes one that is free (unix(7), autobind).
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), kNameAt) != 0 || ::listen(socket, SOMAXCONN) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 || length <= kNameAt + 1) {
    return {};
  }
  meeting.name_.assign(address.sun_path + 1, length - kNameAt - 1);  // after the zero that marks a name without a file
  return meeting;
}

bool NodeBarrier::lead(std::uint32_t others, Deadline deadline) const {
  std::vector<Descriptor> guests;
  bool all = descriptor_.is_open();
  while (all && guests.size() < others) {
    all = poll_until(descriptor_.get(), POLLIN, deadline);
    Descriptor guest(all ? ::accept4(descriptor_.get(), nullptr, nullptr, SOCK_CLOEXEC) : -1);
    if (guest.is_open() && is_same_user(guest.get())) guests.push_back(std::move(guest));
  }
  for (const auto& guest : guests) {
    if (all) (void)::send(guest.get(), "", 1, MSG_NOSIGNAL);
  }
  return all;
}

bool NodeBarrier::wait(const std::string& name, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const Descriptor descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  char released = 1;
  return descriptor.is_open() &&
         ::connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(kNameAt + 1 + name.size())) == 0 &&
         is_same_user(descriptor.get()) && poll_until(descriptor.get(), POLLIN, deadline) &&
         ::recv(descriptor.get(), &released, 1, 0) == 1;
}

}  // namespace bootstrap

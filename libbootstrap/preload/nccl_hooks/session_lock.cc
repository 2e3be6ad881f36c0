// The one PMIx session that a task may have at a time, locked among all processes of the task.
// SPDX-License-Identifier: Apache-2.0
#include "preload/nccl_hooks/session_lock.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "comm/process/sleep_for.h"
#include "core/util/text.h"
#include "probe/file_descriptor.h"

namespace bootstrap {
namespace {

constexpr int kMostNames = 8;  // one after the other, where strangers hold them

struct SocketName {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit SocketName(std::string_view name) {
    address.sun_family = AF_UNIX;
    const auto size = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), size);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Whoever listens there, told by the kernel. One of ours listens a moment after it has the name.
bool is_own_users(const SocketName& name) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::connect(socket.get(), name.get(), name.length) == 0) {
      return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
    }
    if (errno == EAGAIN) return false;  // its queue is full, as none of ours ever is
    sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Field 28 of proc(5), with 0 for whoever may not see it.
std::string_view stack_of(std::string_view stat) {
  constexpr std::size_t kStack = 28 - 3;  // counted behind the name, which may hold anything
  const auto after_name = stat.rfind(") ");
  if (after_name == std::string_view::npos) return {};
  const auto fields = split(stat.substr(after_name + 2), ' ');
  return fields.size() > kStack && fields[kStack] != "0" ? fields[kStack] : std::string_view();
}

}  // namespace

SessionLock::SessionLock(const std::string& name) {
  for (int attempt = 0; attempt < kMostNames; ++attempt) {
    const SocketName address(cat({name, ".", std::to_string(attempt)}));
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return;
    if (::bind(socket.get(), address.get(), address.length) == 0) {
      (void)::listen(socket.get(), SOMAXCONN);
      socket_ = std::move(socket);
      is_held_ = true;
      return;
    }
    if (errno != EADDRINUSE || is_own_users(address)) return;
  }
  is_held_ = true;  // strangers have all names: whoever wants us silent shall not have it
}

std::string lock_name(const StepId& id, std::uint32_t rank, std::uint32_t task) {
  auto name = cat({"bootstrap.", step_tag(id), ".", std::to_string(rank)});
  char text[1024];
  const Descriptor file(::open(cat({"/proc/", std::to_string(task), "/stat"}).c_str(), O_RDONLY | O_CLOEXEC));
  const auto size = file.is_open() ? ::read(file.get(), text, sizeof text) : 0;
  if (size > 0) name += cat({".", stack_of({text, static_cast<std::size_t>(size)})});
  return name;
}

}  // namespace bootstrap

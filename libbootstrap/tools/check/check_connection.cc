// One connection of a check as a rank other than 0 has it: frames out and in, each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_connection.h"

#include <poll.h>

#include <cerrno>

namespace bootstrap {

bool CheckTalk::wait_for(short events, Deadline deadline) const {
  while (true) {
    pollfd wanted{.fd = socket_.get(), .events = events, .revents = 0};
    const int count = ::poll(&wanted, 1, milliseconds_until(deadline));
    if (count >= 0 || errno != EINTR) return count > 0;
  }
}

bool CheckTalk::say(FrameKind kind, std::string_view body, Deadline deadline) {
  const auto text = write_frame(kind, body);
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto count = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count > 0) {
      rest.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      if (!wait_for(POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::optional<Frame> CheckTalk::hear(Deadline deadline) {
  while (true) {
    std::string_view bytes = unread_;
    auto frame = reader_.take(bytes);
    unread_.erase(0, unread_.size() - bytes.size());
    if (!frame) return std::nullopt;
    if (*frame) return std::move(*frame);
    std::array<char, 4096> buffer;
    const auto count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      unread_.append(buffer.data(), static_cast<std::size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    const bool may_come = count < 0 && errno == EAGAIN;
    if (!may_come || !wait_for(POLLIN, deadline)) return std::nullopt;
  }
}

}  // namespace bootstrap

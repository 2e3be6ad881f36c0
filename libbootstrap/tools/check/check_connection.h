// One connection of a check as a rank other than 0 has it: frames out and in, each within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tools/check/check_frame.h"
#include "tools/check/check_socket.h"

namespace bootstrap {

class CheckTalk {
 public:
  explicit CheckTalk(Descriptor socket) : socket_(std::move(socket)) {}

  bool say(FrameKind kind, std::string_view body, Deadline deadline);
  // Nothing when the other side has ended the connection, does not speak as we do, or the deadline has passed.
  std::optional<Frame> hear(Deadline deadline);

  const Descriptor& socket() const { return socket_; }

 private:
  bool wait_for(short events, Deadline deadline) const;

  Descriptor socket_;
  FrameReader reader_;
  std::string unread_;
};

}  // namespace bootstrap

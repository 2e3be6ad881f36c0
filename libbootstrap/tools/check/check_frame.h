// What the ranks of a check say to each other over TCP, cut into messages. Anybody can connect, so that every byte is
// taken for hostile until it has proved to be of this step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

// In the order in which they are said: rank R to rank 0, and back.
enum class FrameKind : std::uint8_t {
  kHello,     // to rank 0: who I am
  kClock,     // back: what time it is there
  kReport,    // to rank 0: what I found
  kExchange,  // back: everybody is here, now try PMIx
  kOutcome,   // to rank 0: how that went
  kVerdict,   // back: the exit status for all
};

struct Frame {
  FrameKind kind = FrameKind::kHello;
  std::string body;

  bool operator==(const Frame&) const = default;
};

inline constexpr std::size_t kMaxFrameBody = 16384;

// "bootstrap-check hello 8\n12.0.0 3". Precondition: body.size() <= kMaxFrameBody.
std::string write_frame(FrameKind kind, std::string_view body);

// Cuts a stream of bytes into frames. Holds one frame at most, and says no at the first byte that cannot be right.
class FrameReader {
 public:
  // The next frame that `bytes` completes; `bytes` is shortened by what was taken. Nothing: more bytes are needed.
  // After an error nothing that comes is looked at.
  Result<std::optional<Frame>> take(std::string_view& bytes);

 private:
  Status read_head();

  std::string head_;
  std::optional<Frame> frame_;  // its body is not complete yet
  std::size_t length_ = 0;
  bool is_broken_ = false;
};

struct Hello {
  std::string step_tag;  // of the step: step_tag() in step_id.h
  Rank rank = 0;

  bool operator==(const Hello&) const = default;
};

std::string write_hello(const Hello& hello);
Result<Hello> read_hello(std::string_view body);

}  // namespace bootstrap

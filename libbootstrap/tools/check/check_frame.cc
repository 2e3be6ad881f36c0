// What the ranks of a check say to each other over TCP, cut into messages. Anybody can connect, so that every byte is
// taken for hostile until it has proved to be of this step.
// SPDX-License-Identifier: Apache-2.0
#include "tools/check/check_frame.h"

#include <algorithm>
#include <array>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMagic = "bootstrap-check ";
constexpr std::array<std::string_view, 6> kWords{"hello", "clock", "report", "exchange", "outcome", "verdict"};
constexpr std::size_t kMaxHead = 32;  // "bootstrap-check exchange 16384\n"
constexpr std::size_t kMaxStamp = 32;

tl::unexpected<Error> not_ours() { return fail(ErrorCode::kInvalid, "it does not speak as slurm-bootstrap does"); }

}  // namespace

std::string write_frame(FrameKind kind, std::string_view body) {
  return cat({kMagic, kWords[static_cast<std::size_t>(kind)], " ", std::to_string(body.size()), "\n", body});
}

Status FrameReader::read_head() {
  const auto line = std::string_view(head_).substr(0, head_.size() - 1);
  const auto words = split(line, ' ');
  if (words.size() != 3) return not_ours();
  const auto word = std::find(kWords.begin(), kWords.end(), words[1]);
  const auto length = parse_unsigned(words[2], kMaxFrameBody);
  if (word == kWords.end() || !length || std::to_string(*length) != words[2]) return not_ours();
  frame_ = Frame{static_cast<FrameKind>(word - kWords.begin()), {}};
  length_ = static_cast<std::size_t>(*length);
  head_.clear();
  return {};
}

Result<std::optional<Frame>> FrameReader::take(std::string_view& bytes) {
  while (!frame_ && !is_broken_) {
    if (bytes.empty()) return std::nullopt;
    head_ += bytes.front();
    bytes.remove_prefix(1);
    // A server of another kind, or a client of one, shows in its first bytes.
    is_broken_ = head_.size() > kMaxHead || !head_.starts_with(kMagic.substr(0, head_.size()));
    if (!is_broken_ && head_.back() == '\n') is_broken_ = !read_head();
  }
  if (is_broken_) return not_ours();
  const auto count = std::min(bytes.size(), length_ - frame_->body.size());
  frame_->body += bytes.substr(0, count);
  bytes.remove_prefix(count);
  if (frame_->body.size() < length_) return std::nullopt;
  return std::exchange(frame_, std::nullopt);
}

std::string write_hello(const Hello& hello) { return cat({hello.step_tag, " ", std::to_string(hello.rank)}); }

Result<Hello> read_hello(std::string_view body) {
  const auto words = split(body, ' ');
  if (words.size() != 2 || words[0].size() > kMaxStamp) return not_ours();
  const auto rank = parse_unsigned(words[1], kMaxRanks - 1);
  if (!rank || std::to_string(*rank) != words[1]) return not_ours();
  return Hello{std::string(words[0]), static_cast<Rank>(*rank)};
}

}  // namespace bootstrap

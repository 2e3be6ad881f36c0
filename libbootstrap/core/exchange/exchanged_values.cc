// What ranks exchange: tagged values, values as PMI-1 carries them, and which rank makes which unique id.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/exchanged_values.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/step/rank_layout.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMark = "bootstrap1";

std::optional<StepId> parse_stamp(std::string_view text) {
  const bool from_mpirun = text.starts_with(kMpirunPrefix);
  if (from_mpirun) text.remove_prefix(kMpirunPrefix.size());
  const auto parts = split(text, '.');
  if (parts.size() != 3) return {};
  const auto job = parse_unsigned<std::uint32_t>(parts[0]);
  const auto step = parse_unsigned<std::uint32_t>(parts[1]);
  const auto restart = parse_unsigned<std::uint32_t>(parts[2]);
  if (!job || !step || !restart) return {};
  return StepId{*job, *step, *restart, from_mpirun ? Launcher::kMpirun : Launcher::kSlurm};
}

}  // namespace

std::string encode_tagged_value(const CallTag& tag, std::string_view bytes) {
  return cat({kMark, " ", step_tag(tag.id), " ", std::to_string(tag.sequence), " ", tag.purpose, "\n", bytes});
}

std::optional<TaggedValue> decode_tagged_value(std::string_view text) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return {};
  std::string_view head = text.substr(0, end);
  std::string_view words[3];
  for (auto& word : words) {
    const auto space = head.find(' ');
    if (space == std::string_view::npos) return {};
    word = head.substr(0, space);
    head.remove_prefix(space + 1);
  }
  const auto id = parse_stamp(words[1]);
  const auto sequence = parse_unsigned(words[2]);
  if (words[0] != kMark || !id || !sequence) return {};
  return TaggedValue{{*id, *sequence, std::string(head)}, text.substr(end + 1)};
}

std::string describe(const CallTag& tag) {
  return cat({"'", tag.purpose, "' as its call number ", std::to_string(tag.sequence + 1)});
}

Error disagreement(const Layout& layout, Rank rank, const CallTag& others, const CallTag& own) {
  return {ErrorCode::kDisagreement, cat({describe_rank(layout, rank), " calls ", describe(others), ", this rank calls ",
                                         describe(own), ": all ranks must make the same calls in the same order"})};
}

namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kPieceSize = 1000;  // the rest of kMaxPmiValue is for the count in front of the first one
constexpr std::size_t kMaxPieces = 4096;

// Six bits a character, the last ones padded with zero bits. (RFC 4648, section 5, without its padding characters.)
std::string encode(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() * 8 + 5) / 6);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char byte : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (count += 8; count >= 6; count -= 6) text.push_back(kAlphabet[bits >> (count - 6) & 63]);
  }
  if (count > 0) text.push_back(kAlphabet[bits << (6 - count) & 63]);
  return text;
}

bool decode_into(std::string_view text, std::uint32_t& bits, unsigned& count, std::string& bytes) {
  for (const char letter : text) {
    const auto value = kAlphabet.find(letter);
    if (value == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 255));
  }
  return true;
}

}  // namespace

std::vector<std::string> to_pmi_pieces(std::string_view bytes) {
  const std::string text = encode(bytes);
  const std::size_t count = std::max<std::size_t>(1, (text.size() + kPieceSize - 1) / kPieceSize);
  std::vector<std::string> pieces;
  pieces.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto piece = std::string_view(text).substr(i * kPieceSize, kPieceSize);
    pieces.push_back(cat({i == 0 ? cat({std::to_string(count), ":"}) : "", piece}));
  }
  return pieces;
}

std::optional<std::size_t> count_pmi_pieces(std::string_view first) {
  const auto colon = first.find(':');
  if (colon == std::string_view::npos) return {};
  const auto count = parse_unsigned(first.substr(0, colon), kMaxPieces);
  if (!count || *count == 0) return {};
  return *count;
}

std::optional<std::string> from_pmi_pieces(const std::vector<std::string>& pieces) {
  if (pieces.empty() || count_pmi_pieces(pieces.front()) != pieces.size()) return {};
  std::string bytes;
  bytes.reserve(pieces.size() * kPieceSize);
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::string_view piece = pieces[i];
    if (i == 0) piece.remove_prefix(piece.find(':') + 1);
    if (!decode_into(piece, bits, count, bytes)) return {};
  }
  return bytes;
}

// The ranks are cut into `roots` runs of neighbours; the first ranks % roots runs are one longer than the others
// (rootIdFromRank and firstRankFromRoot in NCCL's src/bootstrap.cc; "rankHasRoot" in its documentation).

std::uint32_t root_count(std::uint32_t ranks, std::uint32_t ranks_per_root) {
  const auto per_root = std::max<std::uint32_t>(1, ranks_per_root);
  return std::max<std::uint32_t>(1, ranks / per_root + (ranks % per_root != 0 ? 1 : 0));
}

std::uint32_t rank_of_root(std::uint32_t root, std::uint32_t ranks, std::uint32_t roots) {
  return root * (ranks / roots) + std::min(root, ranks % roots);
}

}  // namespace bootstrap

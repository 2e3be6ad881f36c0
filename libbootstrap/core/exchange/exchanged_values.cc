// What ranks exchange: tagged values, values as PMI-1 carries them, and which rank makes which unique id.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/exchanged_values.h"

#include <algorithm>
#include <utility>

#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
static auto fields_of(CallTag& tag) {
  return std::tie(tag.id.job, tag.id.step, tag.id.restart, tag.id.launcher, tag.sequence, tag.purpose, tag.refusal,
                  tag.code);
}

std::string encode_tagged_value(const CallTag& tag, std::string_view bytes) {
  return cat({write_record(tag), "\n", bytes});
}

std::optional<TaggedValue> decode_tagged_value(std::string_view text) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return {};
  auto tag = read_record<CallTag>(text.substr(0, end));
  if (!tag) return {};
  return TaggedValue{std::move(*tag), text.substr(end + 1)};
}

std::string describe(const CallTag& tag) {
  return cat({"'", tag.purpose, "' as its call number ", std::to_string(tag.sequence + 1)});
}

Error disagreement(const Layout& layout, Rank rank, const CallTag& others, const CallTag& own) {
  if (!others.refusal.empty()) return {others.code, cat({describe_rank(layout, rank), ": ", others.refusal})};
  return {ErrorCode::kDisagreement, cat({describe_rank(layout, rank), " calls ", describe(others), ", this rank calls ",
                                         describe(own), ": all ranks must make the same calls in the same order"})};
}

constexpr std::size_t kPieceSize = 1000;  // even; the rest of kMaxPmiValue is for the count in front of the first one

std::vector<std::string> to_pmi_pieces(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) text += to_hex(static_cast<unsigned char>(byte), 2);
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
  constexpr std::size_t kMaxPieces = 4096;
  const auto count = parse_unsigned(first.substr(0, colon), kMaxPieces);
  if (!count || *count == 0) return {};
  return *count;
}

std::optional<std::string> from_pmi_pieces(const std::vector<std::string>& pieces) {
  if (pieces.empty() || count_pmi_pieces(pieces.front()) != pieces.size()) return {};
  std::string bytes;
  bytes.reserve(pieces.size() * kPieceSize);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::string_view piece = pieces[i];
    if (i == 0) piece.remove_prefix(piece.find(':') + 1);
    for (; !piece.empty(); piece.remove_prefix(std::min<std::size_t>(2, piece.size()))) {
      const auto byte = parse_hex<unsigned char>(piece.substr(0, 2));
      if (!byte || piece.size() < 2) return {};
      bytes.push_back(static_cast<char>(*byte));
    }
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

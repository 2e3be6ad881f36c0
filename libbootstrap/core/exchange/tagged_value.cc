// What one rank puts into the PMIx store in one round: which round it is of, and the bytes that it brings.
// SPDX-License-Identifier: Apache-2.0
#include "core/exchange/tagged_value.h"

#include "core/step/rank_names.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMark = "bootstrap1";

std::optional<StepId> parse_stamp(std::string_view text) {
  const bool from_mpirun = text.starts_with(kMpirunPrefix);
  if (from_mpirun) text.remove_prefix(kMpirunPrefix.size());
  const auto parts = split(text, '.');
  if (parts.size() != 3) return {};
  const auto job = parse_unsigned(parts[0], UINT32_MAX);
  const auto step = parse_unsigned(parts[1], UINT32_MAX);
  const auto restart = parse_unsigned(parts[2], UINT32_MAX);
  if (!job || !step || !restart) return {};
  return StepId{static_cast<std::uint32_t>(*job), static_cast<std::uint32_t>(*step),
                static_cast<std::uint32_t>(*restart), from_mpirun ? Launcher::kMpirun : Launcher::kSlurm};
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

}  // namespace bootstrap

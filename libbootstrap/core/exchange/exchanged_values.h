// What ranks exchange: tagged values, values as PMI-1 carries them, and which rank makes which unique id.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/result.h"

namespace bootstrap {

// Which call of which step a value belongs to.
struct CallTag {
  StepId id;
  std::uint64_t sequence = 0;            // of this process; equal on all ranks since all make the same calls
  std::string purpose;                   // printable
  std::string refusal = {};              // why this rank cannot take part; empty: it can
  ErrorCode code = ErrorCode::kInvalid;  // of the refusal

  bool operator==(const CallTag&) const = default;
};

std::string encode_tagged_value(const CallTag& tag, std::string_view bytes);

struct TaggedValue {
  CallTag tag;
  std::string_view bytes;  // within the text that was decoded
};

std::optional<TaggedValue> decode_tagged_value(std::string_view text);

// "'barrier' as its call number 4".
std::string describe(const CallTag& tag);

// The error if `rank` makes another call than this rank, or refuses the call.
Error disagreement(const Layout& layout, Rank rank, const CallTag& others, const CallTag& own);

inline constexpr std::size_t kMaxPmiValue = 1024;  // PMI_MAX_VAL_LEN of Slurm, with the terminating NUL

// In hexadecimal digits; the first piece begins with the number of pieces: "2:68656c...". Never empty.
std::vector<std::string> to_pmi_pieces(std::string_view bytes);

// Reads the number of pieces from the first one.
std::optional<std::size_t> count_pmi_pieces(std::string_view first);

std::optional<std::string> from_pmi_pieces(const std::vector<std::string>& pieces);

// More ranks on one root make NCCL delay their check-in (NCCL_UID_STAGGER_THRESHOLD), about 0.14 ms for each rank.
inline constexpr std::uint32_t kRanksPerRoot = 256;

// ceil(ranks / ranks_per_root); at least 1.
std::uint32_t root_count(std::uint32_t ranks, std::uint32_t ranks_per_root = kRanksPerRoot);

// The rank that makes id number `root` of `roots` for `ranks` ranks. Preconditions: 1 <= roots <= ranks, root < roots.
std::uint32_t rank_of_root(std::uint32_t root, std::uint32_t ranks, std::uint32_t roots);

}  // namespace bootstrap

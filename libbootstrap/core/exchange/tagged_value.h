// What one rank puts into the PMIx store in one round: which round it is of, and the bytes that it brings.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/result.h"

namespace bootstrap {

// Key names are used again by later rounds: whatever stays in the server is sent with every later fence, and its time
// grew from 4 to 110 ms over 300 rounds of 16 ranks with a key each. So it is the value that says which round it is of.
struct CallTag {
  StepId id;
  std::uint64_t sequence = 0;  // of this process; equal on all ranks since all make the same calls
  std::string purpose;         // without line breaks

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

// `rank` is in another round than this one.
Error disagreement(const Layout& layout, Rank rank, const CallTag& others, const CallTag& own);

}  // namespace bootstrap

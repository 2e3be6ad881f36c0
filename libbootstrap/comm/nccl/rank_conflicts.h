// What a rank says of the communicator that it is about to make, and the sentence where two ranks do not fit together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/nccl/communicator.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

struct RankSpec {
  std::string call;  // "communicator", "unique ids"
  GroupKind kind = GroupKind::kWorld;
  std::uint32_t size = 0;     // ranks of its group; 0: it is in none
  std::uint32_t roots = 0;    // unique ids that it expects
  std::uint32_t members = 0;  // fingerprint of the list of ranks
  int nccl_version = 0;
  std::string gpu;             // as of CurrentGpu::id; empty: unknown, or free to be shared
  std::uint32_t gpu_host = 0;  // ranks with different ones are on different hosts to NCCL
  std::string refusal;         // why it cannot take part; empty: it can

  bool operator==(const RankSpec&) const = default;
};

// A few lines of text; bytes that would break them are replaced.
std::string encode(const RankSpec& spec);
// Nothing when it is not such a text, or one of another version of this library.
std::optional<RankSpec> decode_rank_spec(std::string_view text);

struct MemberSpec {
  Rank rank = 0;
  RankSpec spec;
};

// Whether two ranks make the same call; `is_member`: both are in one communicator, so that it has to be alike, too.
// kDisagreement with both ranks, their hosts and local ranks.
Status compare(const Layout& layout, const MemberSpec& one, const MemberSpec& other, bool is_member);

// The kind in words: "world", "node", "cross", "list".
const char* to_string(GroupKind kind);

}  // namespace bootstrap

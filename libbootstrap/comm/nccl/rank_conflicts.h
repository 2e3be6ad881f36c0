// What a rank sends about its call for a communicator, and the error if two ranks do not fit together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "comm/nccl/communicator.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

struct RankSpec {
  std::string call;  // "communicator", "unique ids"
  GroupKind kind = GroupKind::kWorld;
  std::uint32_t size = 0;     // ranks of its group; 0: no group
  std::uint32_t roots = 0;    // unique ids that it expects
  std::uint32_t members = 0;  // fingerprint of the list of ranks
  int nccl_version = 0;
  std::string gpu;             // as of CurrentGpu::id; empty: unknown, or may be shared
  std::uint32_t gpu_host = 0;  // NCCL takes ranks with different values for different hosts
  std::string refusal;         // why it cannot take part; empty: it can

  bool operator==(const RankSpec&) const = default;
};

inline auto fields_of(RankSpec& spec) {
  return std::tie(spec.call, spec.kind, spec.size, spec.roots, spec.members, spec.nccl_version, spec.gpu, spec.gpu_host,
                  spec.refusal);
}

struct MemberSpec {
  Rank rank = 0;
  RankSpec spec;
};

// Checks that two ranks make the same call, and with `is_member`, that they fit into one communicator. kDisagreement
// with both ranks, their hosts and local ranks.
Status compare(const Layout& layout, const MemberSpec& one, const MemberSpec& other, bool is_member);

// "world", "node", "cross", "list".
const char* to_string(GroupKind kind);

}  // namespace bootstrap

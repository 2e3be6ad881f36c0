// What a rank sends about its call for a communicator, and the error if two ranks do not fit together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

struct RankSpec {
  std::uint32_t roots = 0;    // unique ids that it expects; 0: it is in no group
  std::uint32_t members = 0;  // fingerprint of the list of ranks
  int nccl_version = 0;
  std::string gpu;      // as of CurrentGpu::id; empty: unknown, or may be shared
  std::string refusal;  // why it cannot take part; empty: it can

  bool operator==(const RankSpec&) const = default;
};

inline auto fields_of(RankSpec& spec) {
  return std::tie(spec.roots, spec.members, spec.nccl_version, spec.gpu, spec.refusal);
}

struct MemberSpec {
  Rank rank = 0;
  RankSpec spec;
};

// Checks that two ranks fit into one communicator. kDisagreement with both ranks, their hosts and local ranks.
Status compare(const Layout& layout, const MemberSpec& one, const MemberSpec& other);

}  // namespace bootstrap

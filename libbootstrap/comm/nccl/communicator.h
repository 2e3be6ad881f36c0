// NCCL communicators of a step: unique ids over the exchange, agreement of the ranks, a deadline for every wait.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "comm/exchange.h"
#include "comm/nccl/nccl_library.h"
#include "core/step/rank_layout.h"
#include "core/util/result.h"

namespace bootstrap {

enum class GroupKind : std::uint8_t { kWorld, kNode, kCross, kList };

// The ranks that share a communicator with this one. Every rank of the step takes part in making it, each with its own
// group, or with none.
struct Group {
  GroupKind kind = GroupKind::kWorld;
  std::vector<Rank> ranks;  // ranks of the step in order of rank in the communicator; empty: this rank is in no group
  std::uint32_t own = 0;    // place of this rank in `ranks`
};

Group world_group(const Layout& layout, Rank rank);
Group node_group(const Layout& layout, Rank rank);   // in order of local rank
Group cross_group(const Layout& layout, Rank rank);  // ranks with the same local rank, in order of node rank
// `ranks` may be empty. kInvalid: a rank twice, a rank that is not in the step, or a list without this rank.
Result<Group> list_group(const Layout& layout, Rank rank, std::vector<Rank> ranks);

struct CommunicatorOptions {
  std::uint32_t roots = 0;   // 0: one for each 256 ranks if NCCL can use several, else 1; equal on all ranks
  int device = -1;           // CUDA ordinal to make current; -1: keep the thread's own
  bool nonblocking = false;  // the communicator stays in NCCL's non-blocking mode
  std::string config = {};   // a copy of the caller's ncclConfig_t; empty: there is none
  // Why this rank cannot take part, such as no NCCL on its node. It still joins the round, so that the other ranks fail
  // there and not at the deadline; then it fails with this.
  std::optional<Error> refusal = {};
  Deadline deadline = {};
};

// One call of a rank. All ranks of the step make it together, each with its own group and options.
struct CommunicatorCall {
  Exchange* exchange = nullptr;
  Layout layout = {};
  Group group = {};
  nccl::Functions nccl = {};
  CommunicatorOptions options = {};
};

// The number of roots of the call.
std::uint32_t roots_of(const CommunicatorCall& call);

// The unique ids of the group, in order of root; the caller wipes them. core/exchange/exchanged_values.h names the
// ranks that make them.
Result<std::vector<nccl::UniqueId>> exchange_unique_ids(CommunicatorCall call);

// A communicator of the group; null for a rank that is in no group. The caller owns it (ncclCommDestroy). After a
// failure nothing remains, except a thread that waits in NCCL if NCCL cannot end it.
Result<nccl::Comm> make_communicator(CommunicatorCall call);

// What a rank sends about its call.
struct RankSpec {
  Rank rank = 0;              // not sent: the reader knows it
  std::uint32_t roots = 0;    // unique ids that it expects; 0: it is in no group
  std::uint32_t members = 0;  // fingerprint of the list of ranks
  int nccl_version = 0;
  std::string gpu;      // CurrentGpu::id; empty: unknown, or may be shared
  std::string refusal;  // why it cannot take part; empty: it can

  bool operator==(const RankSpec&) const = default;
};

inline auto fields_of(RankSpec& spec) {
  return std::tie(spec.roots, spec.members, spec.nccl_version, spec.gpu, spec.refusal);
}

// Checks that two ranks fit into one communicator. kDisagreement with both ranks, their hosts and local ranks.
Status compare(const Layout& layout, const RankSpec& one, const RankSpec& other);

// Checks that this copy of NCCL can use so many unique ids. kUnsupported with the version that can.
Status can_init(const nccl::Functions& nccl, std::size_t ids);

// Calls ncclCommInitRank, or a variant of it, in a thread, since NCCL's calls have no deadline; the device of the
// options is made current there. A call that has not returned in time is abandoned, and ends the communicator if it
// returns later. A rank that fails stores its report for the others, and returns. At the deadline the others read the
// reports: kTimeout names the ranks that do not answer, or the call that has not ended; kUnavailable is the message of
// a rank that failed. Without an exchange there are no reports. Wipes the ids. Precondition: can_init().
Result<nccl::Comm> init_communicator(CommunicatorCall call, std::vector<nccl::UniqueId> ids);

}  // namespace bootstrap

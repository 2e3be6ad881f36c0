// What is said of a call that waits: who has not come to it, and who has failed in it, as far as that is known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/exchange/missing_ranks.h"
#include "core/step/rank_layout.h"
#include "preload/nccl_hooks/call_attendance.h"

namespace bootstrap {

// In ncclCommGrow the ranks that were there know each other, and new ones know the unique id alone: two calls of a
// roll. A rank that has both answers in both.
enum class GrowSide : std::uint8_t { kNone, kOld, kNew };

// A call of ncclCommInitRank or one of its kin, in this process.
struct WaitingCall {
  std::string_view function;            // "ncclCommInitRank"
  std::uint32_t ranks = 0;              // of the communicator
  std::uint32_t rank = 0;               // in the communicator
  std::uint32_t topic = 0;              // the same for its members alone
  int version = 0;                      // of NCCL
  std::vector<std::uint32_t> left_out;  // ranks of the communicator that need not call: ncclCommShrink
  GrowSide side = GrowSide::kNone;
  std::uint32_t old_ranks = 0;  // kNew, in a rank that was there: it answers for so many that were
};

using Attendances = std::vector<std::optional<CallAttendance>>;

// `came`: for each rank of the step what it has said of the call, nothing where it has not come. A communicator of all
// ranks is spoken of in ranks of the step, a smaller one in its own, since nobody knows who was to be in it. Where
// the `server` does not answer others may have come. Empty: there is nothing to say.
std::string describe_hang(const Layout& layout, const WaitingCall& call, std::chrono::seconds waited,
                          const Attendances& came, ServerState server);

// Two ranks with different versions of NCCL, which wait for each other for ever; empty where all have one.
std::string describe_versions(const Layout& layout, const Attendances& came);

// The same where PMIx cannot be asked, for `reason`.
std::string describe_lone_hang(const Layout& layout, Rank rank, const WaitingCall& call, std::chrono::seconds waited,
                               const Error& reason);

}  // namespace bootstrap

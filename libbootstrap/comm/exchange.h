// The exchange: ranks of a step pass each other small values, over PMIx or PMI-1, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"

namespace bootstrap {

struct StepRank {
  StepId id;
  Layout layout;
  Rank rank = 0;
  Environment environment;
};

// One round. All ranks of the step take part in every round, in the same order: Slurm's PMIx server ends a step in
// which only some ranks fence (measured with 22.05.8 and PMIx 4.2.2).
struct Allgather {
  std::string purpose;                // equal on all ranks, for messages: "exchange", "barrier", "communicator world"
  std::string value;                  // of this rank; may be empty
  bool is_for_step = true;            // false: only ranks of this node read the value
  std::vector<Rank> read;             // ranks whose value is wanted
  std::optional<Error> refusal = {};  // why this rank cannot take part: it joins, so that all get this error at once
  Deadline deadline;
};

// True if some ranks may not have made the call: from then on ranks may count rounds differently.
inline bool is_given_up(const Error& error) {
  return error.code == ErrorCode::kTimeout || error.code == ErrorCode::kUnavailable;
}

using RankValues = std::vector<std::string>;  // in the order of Allgather::read

// A rank's report after a round, about work outside the exchange, such as making a communicator.
struct RankReport {
  Rank rank = 0;
  std::string failure;         // why it failed; empty: it waits
  bool has_lost_peer = false;  // it failed because of another rank
};

inline auto fields_of(RankReport& report) { return std::tie(report.failure, report.has_lost_peer); }

struct RankReports {
  std::vector<RankReport> failures;  // in order of rank
  std::string missing;               // "missing: rank 5 (...)": ranks without a report; empty: none
};

// Limit of one value in bytes: every node may store all values until the step ends.
inline constexpr std::size_t kMaxContribution = 65536;

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Returns within the deadline and two seconds, whatever the server and the other ranks do. Errors: kMissing (neither
  // PMIx nor PMI-1 in this step), kDisagreement (ranks that make different calls), kTimeout (with the missing ranks, if
  // the engine can find them), kUnavailable, kUnsupported, kLimit.
  virtual Result<RankValues> run(const Allgather& round) = 0;

  // Follows a round that succeeded, and is not collective. Stores this rank's report, if given, and reads the reports
  // of `asked` (ascending, may be empty). Returns within two seconds. kUnsupported over PMI-1.
  virtual Result<RankReports> share_reports(const std::optional<RankReport>& own, const std::vector<Rank>& asked) = 0;
};

// Connects to no server before the first round, and never in a step of one rank. With SLURM_BOOTSTRAP_TIMING=1 it
// prints a line for each round.
std::unique_ptr<Exchange> make_exchange(StepRank self);

// "4.2.2", or why PMIx cannot be used here. Opens the library, and connects to no server.
Result<std::string> pmix_version();

}  // namespace bootstrap

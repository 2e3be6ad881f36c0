// The exchange: ranks of a step pass each other small values, over PMIx or PMI-1, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

// One round. All ranks of the step take part in every round, in the same order: Slurm's PMIx server ends a step in
// which only some ranks fence (measured with 22.05.8 and PMIx 4.2.2).
struct Allgather {
  std::string purpose;                // equal on all ranks, for messages: "exchange", "barrier", "communicator world"
  std::optional<std::string> shared;  // readable in the whole step
  std::string local;                  // readable on this node; may be empty
  std::vector<Rank> read_shared;      // ranks whose `shared` is wanted; each of them must give one in this round
  bool read_local = false;            // the `local` of all ranks of this node is wanted
  Deadline deadline;
};

struct AllgatherResult {
  std::vector<std::string> shared;  // in the order of Allgather::read_shared
  std::vector<std::string> local;   // in order of local rank, with this rank's own; empty if not wanted
};

// What a rank reports after a round, while the ranks do something outside of the exchange, such as make a communicator.
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

// The limit of `shared` and of `local`: every node stores all of it until the step ends.
inline constexpr std::size_t kMaxContribution = 65536;

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Returns within the deadline and two seconds, whatever the server and the other ranks do. Errors: kMissing (neither
  // PMIx nor PMI-1 in this step), kDisagreement (ranks that make different calls), kTimeout (with the missing ranks, if
  // the engine can find them), kUnavailable, kUnsupported, kLimit.
  virtual Result<AllgatherResult> run(const Allgather& round) = 0;

  // After a round that succeeded; not collective. Stores this rank's report and reads those of `asked` (ascending).
  // Either may be empty. Returns within two seconds. kUnsupported over PMI-1.
  virtual Result<RankReports> share_reports(const std::optional<RankReport>& own, const std::vector<Rank>& asked) = 0;
};

// Opens nothing before the first round, and never in a step of one rank. With SLURM_BOOTSTRAP_TIMING=1 it prints a line
// for each round.
std::unique_ptr<Exchange> make_exchange(const StepId& id, const Layout& layout, Rank rank,
                                        const Environment& environment);

// "4.2.2", or why PMIx cannot be used here. Opens the library, and connects to no server.
Result<std::string> pmix_version();

}  // namespace bootstrap

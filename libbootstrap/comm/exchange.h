// What the ranks of a step tell each other: small values, over PMIx or PMI-1, within a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/step/rank_layout.h"
#include "core/step/step_id.h"
#include "core/util/environment.h"
#include "core/util/result.h"
#include "probe/deadline.h"

namespace bootstrap {

// One round. All ranks of the step take part in every round, in the same order: Slurm's PMIx server ends a step in
// which only some of the ranks fence (22.05.8 with PMIx 4.2.2: measured).
struct Allgather {
  std::string purpose;  // the same on all ranks, for messages: "exchange", "barrier", "communicator world"
  std::optional<std::string> shared;  // what the whole step may read
  std::string local;                  // what the ranks of this node may read; may be empty
  std::vector<Rank> read_shared;      // whose `shared` is wanted: each of them must give one in this round
  bool read_local = false;            // whether the `local` of all ranks of this node is wanted
  Deadline deadline;
};

struct AllgatherResult {
  std::vector<std::string> shared;  // in the order of Allgather::read_shared
  std::vector<std::string> local;   // in order of local rank, this one's own included; empty if not wanted
};

// What a rank leaves for the others after a round, while they do something together outside of the exchange, such as
// making a communicator.
struct RankWord {
  Rank rank = 0;
  std::string failure;         // why it failed; empty: it waits
  bool has_lost_peer = false;  // it failed since another rank did
};

struct RankWords {
  std::vector<RankWord> failures;  // in order of rank
  std::string missing;             // "missing: rank 5 (...)": ranks that left no word; empty: all did
};

// At most this many bytes in `shared` and in `local`: all of it travels to every node and stays there until the step
// ends.
inline constexpr std::size_t kMaxContribution = 65536;

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Comes back within the deadline and two seconds, whatever the server and the other ranks do. Errors: kMissing
  // (neither PMIx nor PMI-1 in this step), kDisagreement (ranks that do different things), kTimeout (with the ranks
  // that never came, where the engine can tell), kUnavailable, kUnsupported, kLimit.
  virtual Result<AllgatherResult> run(const Allgather& round) = 0;

  // After a round that succeeded, and not collective: leaves a word of this rank, and asks for those of `asked`
  // (ascending). Either may be empty. Comes back in two seconds. kUnsupported over PMI-1.
  virtual Result<RankWords> pass_word(const std::optional<RankWord>& own, const std::vector<Rank>& asked) = 0;

  // What carries the rounds, for people: "PMIx 4.2.2", "PMI-1". Empty before the first round, and in a step of one
  // rank.
  virtual std::string engine() const = 0;
};

// The real one. Opens nothing until the first round; a step of one rank never does. `layout` and the rest are copied.
// With SLURM_BOOTSTRAP_TIMING=1 it writes a line for each round to standard error.
std::unique_ptr<Exchange> make_exchange(const StepId& id, const Layout& layout, Rank rank,
                                        const Environment& environment);

// "libpmix.so.2 4.2.2", or why PMIx cannot be used here. Opens the library and talks to nobody.
Result<std::string> pmix_version();

}  // namespace bootstrap

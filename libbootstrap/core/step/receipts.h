// Receipts: what a node reports to srun about the set-up of its tasks, and which nodes have not reported.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/step/failure.h"
#include "core/step/rank_layout.h"

namespace bootstrap {

// From slurmstepd to srun, beside the failures of core/step/failure.h. srun of version 1.0.0 reads only failures.
struct NodeReport {
  enum class Kind : std::uint8_t {
    kHello,     // the plugin is on the node, which will start its tasks
    kPassed,    // task_init has run to its end in all tasks of the node
    kNeverSet,  // a task ended in which task_init did not run to its end
    kRefused,   // no task will start; `reason` has the reason
    kLast = kRefused,
  };
  Kind kind = Kind::kHello;
  std::string host;
  std::uint32_t job = 0;         // that of the component
  std::uint32_t slurmstepd = 0;  // its process id: two components of a step may share a node
  std::uint32_t tasks = 0;       // of this slurmstepd
  std::string reason;
};
inline auto fields_of(NodeReport& report) {
  return std::tie(report.kind, report.host, report.job, report.slurmstepd, report.tasks, report.reason);
}

// Which nodes of a step have not confirmed that their tasks got their ranks. Times are milliseconds of any clock that
// does not go back, and begin at 0.
class Receipts {
 public:
  // True if srun knows that this rank's node has started its tasks. A node that still runs a Prolog has not.
  using HasStarted = std::function<bool(Rank)>;

  explicit Receipts(const std::vector<ComponentText>& components);

  // `is_elsewhere`: the report is from another host than srun's own.
  void add(const NodeReport& report, bool is_elsewhere, std::uint64_t now);

  // When look() has something to do. nullopt: all nodes have confirmed, or no further node will be named.
  std::optional<std::uint64_t> next_look() const;

  // Sentences without a full stop about nodes that were not named before. Most looks have none. `is_last`: the step has
  // ended, and all reports were added.
  std::vector<std::string> look(std::uint64_t now, const HasStarted& has_started, bool is_last = false);

  // A note, once, if no other host has reported anything after a minute: UDP may be blocked. Empty at any other time.
  std::string note_silence(std::uint64_t now);

  bool has_passed_elsewhere() const { return passed_elsewhere_at_.has_value(); }

 private:
  struct Node {
    std::string host;
    Rank first_rank = 0;
    std::uint32_t tasks = 0;
    std::uint32_t passed = 0;
    std::vector<std::uint32_t> senders = {};  // whose tasks passed: each reports that twice
    std::optional<std::uint64_t> hello_at;
    std::optional<std::uint64_t> running_at;  // when it was first seen that its tasks run
    bool is_never_set = false;                // a task ended without its rank
    bool is_named = false;

    bool is_settled() const { return is_named || passed >= tasks; }
  };

  std::vector<Node> nodes_;
  std::unordered_map<std::string, std::size_t> by_name_;  // "node001 12", with the component's job
  std::size_t unsettled_ = 0;
  bool has_other_host_ = false;
  bool is_silence_noted_ = false;
  std::optional<std::uint64_t> first_at_;
  std::optional<std::uint64_t> passed_elsewhere_at_;
  std::optional<std::uint64_t> look_at_;
  std::optional<std::uint64_t> gathered_at_;  // nodes whose tasks ended without their ranks are named then, together
};

}  // namespace bootstrap

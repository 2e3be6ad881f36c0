// What the looks at all ranks show together: phases, ranks out of step, and the text of all that.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/status/rank_state.h"

namespace bootstrap {

using Ranks = std::vector<RankState>;             // of the step, ascending
using RankGroup = std::vector<const RankState*>;  // some of them, ascending

// True for ranks in the smaller of two groups that are far apart in their use of CPU; empty: there are no such groups.
std::vector<bool> far_apart(const std::vector<std::uint64_t>& cpu);
// Percent of a core that each rank used or, up to one core, would have used on a node with less work.
std::vector<std::uint64_t> cpu_of(const Ranks& ranks);

// The smallest group first, and in it the lowest rank.
std::vector<RankGroup> group_ranks(const Ranks& ranks);

std::vector<std::uint64_t> numbers_of(const RankGroup& group);

// "0-4,6-7".
std::string list_ranks(const RankGroup& group);

// "node001", "2 nodes".
std::string name_nodes(const RankGroup& group);

// "97 %", "0-98 %".
std::string cpu_range(const RankGroup& group);

// "rank 5 (node002, local rank 1, pid 4711)", "ranks 8-15 (all of node003)", "all 8 ranks".
std::string name_group(const Ranks& ranks, const RankGroup& group);

// Where ranks meet: "MASTER_PORT 26571" of the rank that listens there.
struct MeetingPoint {
  std::string name;
  std::uint64_t port = 0;
  std::string node;
  std::vector<bool> connected;  // in the order of the ranks
  bool is_listened = false;     // a rank listens, and none but that rank is connected
};

struct Finding {
  std::string kind;  // "stopped"
  std::vector<std::uint64_t> ranks;
  std::string sentence;  // that claims no more than was seen
};

struct Judgement {
  Ranks ranks;
  std::vector<Finding> findings;  // the first one is the first line
  std::vector<std::string> also;  // the answer of NCCL's RAS has several lines
  std::size_t nodes = 0;
};

// `tasks`: of the step.
Judgement judge(const StepState& step, std::uint64_t tasks);

// Never empty: the last finding is that the ranks run alike, or that none stands out.
std::vector<Finding> find_out_of_step(const Ranks& ranks, const std::optional<MeetingPoint>& meeting,
                                      const std::vector<std::string>& silent_nodes);

// What else may be wrong: two ranks on one GPU, different libraries of NCCL, several ranks on one core.
std::vector<std::string> notes_on(const Ranks& ranks);

// Since when each look of one `--watch` saw the same.
class SeenSince {
 public:
  // Adds "for at least 12 s" to sentences of the look before, with the same ranks.
  void note(Judgement& judgement, std::chrono::steady_clock::time_point now);

 private:
  std::map<std::string, std::chrono::steady_clock::time_point> since_;
};

// The first line, a table of the ranks, and what else was seen.
std::string status_text(const Judgement& judgement, const std::string& step, bool has_stacks);

// One object of JSON on one line.
std::string status_json(const Judgement& judgement, const std::string& step);

}  // namespace bootstrap

// What the looks at all ranks show together: the phase of each rank, and the ranks that are out of step.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/status/look_step.h"

namespace bootstrap {

enum class Phase : std::uint8_t {
  kEnded,
  kLauncher,     // only a shell or launcher runs
  kNoFramework,  // no framework library is mapped yet
  kBefore,       // before the rendezvous
  kConnected,    // to the rendezvous
  kWorking,      // communicating or computing
  kDiskWait,
  kStopped,
  kZombie,
  kUnknown,  // the process cannot be read, or its node did not answer
};
std::string_view phase_name(Phase phase);  // for --json: "before_rendezvous"
std::string_view phase_text(Phase phase);  // for people: "before the rendezvous"

struct SeenRank {
  RankSight sight;
  Phase phase = Phase::kUnknown;
};

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
  std::string sentence;  // what was seen of them
};

struct Judgement {
  std::vector<SeenRank> ranks;    // ascending
  std::vector<Finding> findings;  // the first one is the first line
  std::vector<std::string> also;
  std::size_t nodes = 0;
};

// `tasks`: of the step.
Judgement judge(const StepSight& sight, std::uint64_t tasks);

// True for ranks in the smaller of two groups that are far apart in their use of CPU; empty: there are no such groups.
std::vector<bool> far_apart(const std::vector<std::uint64_t>& cpu);

}  // namespace bootstrap

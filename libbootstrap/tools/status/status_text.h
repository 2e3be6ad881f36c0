// What `slurm-bootstrap status` prints.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "tools/status/judgement.h"

namespace bootstrap {

// Since when the same was seen in each look of one `--watch`.
class SeenSince {
 public:
  // Adds "for at least 12 s" to sentences that were said before, with the same ranks.
  void note(Judgement& judgement, std::chrono::steady_clock::time_point now);

 private:
  std::map<std::string, std::chrono::steady_clock::time_point> since_;
};

// The first line, a table of the ranks, and what else was seen. Printable ASCII.
std::string status_text(const Judgement& judgement, const std::string& step, bool has_stacks);

// One object of JSON on one line.
std::string status_json(const Judgement& judgement, const std::string& step);

}  // namespace bootstrap

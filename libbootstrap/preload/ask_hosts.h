// Where the ranks of mpirun are, asked before `main` in a process of its own, which the program never notices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/environment.h"
#include "core/result.h"

namespace bootstrap {

// Comes back within ten seconds. A process of its own, since a program may have a getenv(3) of its own that answers
// nothing to libpmix before `main` (bash has), and so that no thread, library or memory of PMIx stays in this one.
Result<std::vector<std::string>> ask_for_hosts();

// In that process, which is this library itself, started as a program: answers and ends it.
[[noreturn]] void answer_where_hosts_are() noexcept;

// "+\nnode001\nnode002\nend\n", or "-\nwhy not\nend\n": what the helper writes, in the words of ask_for_hosts().
std::string write_answer(const Result<std::vector<std::string>>& hosts);
Result<std::vector<std::string>> read_answer(std::string_view text);

}  // namespace bootstrap

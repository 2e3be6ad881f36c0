// The looking step's process on one node: looks at each task of a step, and prints a line of JSON for each rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/status/process_look.h"

namespace bootstrap {

// What the command hands to its looking step as arguments.
struct NodeLook {
  std::string job;  // of the component, in a heterogeneous job
  std::string step;
  std::uint64_t first_rank = 0;  // of the component
  bool asks_ras = false;
  std::string scontrol;  // absolute path; empty: none was found
  std::string py_spy;    // likewise; empty: no stacks are wanted
};

std::vector<std::string> write_node_look(const NodeLook& look);

// Nothing for a command line that is no looking step.
bool is_node_look(int count, const char* const* words);
int serve_as_node_look(int count, const char* const* words);

// The tasks of this step in what `scontrol listpids` prints: PID JOBID STEPID LOCALID GLOBALID.
std::vector<TaskPlace> parse_task_list(std::string_view text, const NodeLook& look, const std::string& node);

}  // namespace bootstrap

// Environments of invented steps, as Slurm would set them, and the facts and plans from them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/util/environment.h"
#include "core/util/result.h"

namespace bootstrap {

// The result of a call that must succeed. If it fails, the test fails in the line of the call, and ends.
template <class Value>
Result<Value> succeeded(Result<Value> result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (result) return result;
  ADD_FAILURE_AT(file, line) << result.error().message;
  throw std::runtime_error(result.error().message);
}

// The error of a call that must fail. If it succeeds, the test fails in the line of the call.
template <class Value>
Error error_of(const Result<Value>& result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!result) return result.error();
  ADD_FAILURE_AT(file, line) << "it has succeeded";
  return {};
}

// The only one of some texts, or none.
inline std::string only(const std::vector<std::string>& texts, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  if (texts.size() == 1) return texts.front();
  ADD_FAILURE_AT(file, line) << texts.size() << " texts";
  return {};
}

inline Environment environment_of(std::initializer_list<std::pair<const char*, std::string>> values) {
  Environment environment;
  for (const auto& [name, value] : values) environment.set(name, value);
  return environment;
}

inline Environment with(Environment environment,
                        std::initializer_list<std::pair<std::string_view, std::string_view>> changes) {
  for (const auto& [name, value] : changes) environment.set(name, value);
  return environment;
}

// Step 12.0: four tasks on two nodes with two GPUs each; the environment of rank `rank`.
inline Environment two_by_two(int rank = 0) {
  return environment_of({{"SLURM_JOB_ID", "12"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NODELIST", "node[001-002]"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_PROCID", std::to_string(rank)},
                         {"SLURMD_NODENAME", rank < 2 ? "node001" : "node002"},
                         {"SLURM_STEP_GPUS", "0,1"},
                         {"CUDA_VISIBLE_DEVICES", "0,1"}});
}

// The same step with other sizes, seen by rank 0 on `host`.
inline Environment step_of(const std::string& nodes, const std::string& tasks_per_node, int tasks,
                           const std::string& host) {
  return with(two_by_two(0), {{"SLURM_STEP_NODELIST", nodes},
                              {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node},
                              {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
                              {"SLURMD_NODENAME", host}});
}

}  // namespace bootstrap

// Slurm as a SPANK plugin sees it: functions of the same names, which read one struct that a test fills.
// SPDX-License-Identifier: Apache-2.0
#pragma once

extern "C" {
#include <slurm/spank.h>
}

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

struct SpankDouble {
  spank_context_t context = S_CTX_REMOTE;
  std::string version[3] = {"22", "05", "8"};
  std::uint32_t job = 12;
  std::uint32_t step = 0;
  std::uint32_t restart = 0;
  std::uint32_t node_id = 0;
  std::uint32_t total_tasks = 4;
  std::vector<std::uint32_t> local_to_global{0, 1};
  std::optional<int> task;                   // set: the hook runs for this local task
  int task_pid = 0;                          // its process, as task_post_fork sees it
  std::vector<std::string> job_environment;  // "NAME=VALUE"
  std::string program = "python3";           // what the step starts
  std::map<std::string, std::string> task_environment;
  std::vector<std::string> errors;              // texts of slurm_error
  std::map<std::string, spank_option> options;  // by name
  std::function<bool(const std::string& call)> fails = [](const std::string&) { return false; };
};

// The struct that the functions read. A test fills it in a child process, which has no state of other tests.
SpankDouble& spank_double();

// The opaque handle for the plugin's hooks.
spank_t the_spank_handle();

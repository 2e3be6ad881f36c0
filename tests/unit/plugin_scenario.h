// Runs the plugin's hooks in a new process, with a double in place of Slurm.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

#include "core/step/step_facts.h"
#include "spank_double.h"
#include "step_environment.h"

namespace bootstrap {

constexpr int kDone = 0;         // the scenario ran to its end
constexpr int kEnded = 1;        // task_init ended the task
constexpr int kUnexpected = 99;  // an expectation failed in the scenario; gtest prints which

struct Outcome {
  int status = -1;      // one of these, or 128 + signal
  std::string printed;  // standard error
};

// The plugin's state lives as long as its process, and task_init may end the process: each scenario has its own.
inline Outcome outcome_in_child(const std::function<void()>& scenario) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const auto child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    scenario();
    ::_exit(testing::Test::HasFailure() ? kUnexpected : kDone);
  }
  ::close(ends[1]);
  Outcome outcome;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    outcome.printed.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

inline void expect_success(const std::function<void()>& scenario) {
  const auto outcome = outcome_in_child(scenario);
  EXPECT_EQ(outcome.status, kDone) << outcome.printed;
}

inline void expect_words(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

inline std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

inline void enter_step(const Environment& environment) {
  auto& slurm = spank_double();
  slurm.job_environment.clear();
  for (const auto& [name, value] : environment.all()) slurm.job_environment.push_back(name + "=" + value);
  const std::string decision(kDecisionVariable);
  if (const auto value = environment.get(decision)) slurm.task_environment[decision] = *value;
  ::setenv("SLURMD_NODENAME", "node001", 1);
}

// The decision as srun passes it, by default of a step that asks.
inline Environment job_environment(const Decision& decision = StepFacts().decision) {
  auto environment = two_by_two();
  environment.unset("SLURM_PROCID");
  environment.unset("SLURMD_NODENAME");
  environment.set(std::string(kDecisionVariable), write_decision({.job = 12, .step = 0}, decision));
  return environment;
}

inline Decision world(Asked asked) {
  return {.set_up = SetUp::kWorld, .asked = asked, .unusable_master = {}, .reason = {}};
}

// Calls a hook with this argument of plugstack.conf.
inline int call(int (*hook)(spank_t, int, char**), std::string argument = {}) {
  char* arguments[] = {argument.data()};
  return hook(the_spank_handle(), argument.empty() ? 0 : 1, arguments);
}

inline void start_node(const std::string& argument = {}) {
  EXPECT_EQ(call(slurm_spank_init, argument), 0);
  EXPECT_EQ(call(slurm_spank_init_post_opt, argument), 0);
  EXPECT_EQ(call(slurm_spank_user_init, argument), 0);
}

// Returns to a task that starts.
inline void start_task(int local, int rank) {
  auto& slurm = spank_double();
  slurm.task = local;
  slurm.task_environment["SLURM_PROCID"] = std::to_string(rank);
  EXPECT_EQ(call(slurm_spank_task_init), 0);
}

inline void run_hooks(int local = 0, int rank = 0) {
  start_node();
  start_task(local, rank);
  EXPECT_EQ(call(slurm_spank_exit), 0);
}

}  // namespace bootstrap

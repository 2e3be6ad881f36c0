// The plugin's hooks in a process of their own, with Slurm played by a double.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "core/step/step_facts.h"
#include "spank_double.h"
#include "step_environment.h"

namespace bootstrap {

struct Outcome {
  int status = -1;      // exit status, or 128 + signal
  std::string printed;  // standard error
};

// The plugin's state lives as long as its process, and task_init may end it: each scenario has a process of its own.
inline Outcome in_child(const std::function<int()>& scenario) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const auto child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::_exit(scenario());
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

// In a scenario: ends it, and prints what was wrong.
#define FAIL_IF(condition)                                         \
  do {                                                             \
    if (condition) {                                               \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 99;                                                   \
    }                                                              \
  } while (false)

inline void expect_success(const std::function<int()>& scenario) {
  const auto outcome = in_child(scenario);
  EXPECT_EQ(outcome.status, 0) << outcome.printed;
}

inline void enter_step(const Environment& environment) {
  auto& slurm = spank_double();
  slurm.job_environment.clear();
  for (const auto& [name, value] : environment.all()) slurm.job_environment.push_back(name + "=" + value);
  const std::string decision(kDecisionVariable);
  if (const auto value = environment.get(decision)) slurm.task_environment[decision] = *value;
  ::setenv("SLURMD_NODENAME", "node001", 1);
}

// As srun hands it over; of a step that asked, if not said otherwise.
inline Environment job_environment(const Decision& decision = StepFacts().decision) {
  auto environment = two_by_two();
  environment.unset("SLURM_PROCID");
  environment.unset("SLURMD_NODENAME");
  environment.set(std::string(kDecisionVariable), write_decision({.job = 12, .step = 0}, decision));
  return environment;
}

inline int start_task(int local, int rank) {
  auto& slurm = spank_double();
  slurm.task = local;
  slurm.task_environment["SLURM_PROCID"] = std::to_string(rank);
  return slurm_spank_task_init(the_spank_handle(), 0, nullptr);
}

inline int run_hooks(int local = 0, int rank = 0) {
  auto* const handle = the_spank_handle();
  FAIL_IF(slurm_spank_init(handle, 0, nullptr) != 0 || slurm_spank_init_post_opt(handle, 0, nullptr) != 0);
  FAIL_IF(slurm_spank_user_init(handle, 0, nullptr) != 0);
  const auto started = start_task(local, rank);
  FAIL_IF(slurm_spank_exit(handle, 0, nullptr) != 0);
  return started;
}

}  // namespace bootstrap

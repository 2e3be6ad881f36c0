// The plugin keeps an error from before task_init until then, and reports it on the node where it happened.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <new>
#include <set>

#include "plugin_scenario.h"

namespace bootstrap {
namespace {

std::string item_call(spank_item_t item) { return "item " + std::to_string(static_cast<int>(item)); }

// Slurm answers this with an error.
void deny(const std::string& call) {
  spank_double().fails = [call](const std::string& asked) { return asked == call; };
}

void run_out_of_memory_in(const std::string& call) {
  spank_double().fails = [call](const std::string& asked) -> bool {
    if (asked == call) throw std::bad_alloc();
    return false;
  };
}

// Slurm gives the option to the first plugin that has it.
TEST(PluginFailures, AStepRunsWithoutAnOptionOfAnotherPlugin) {
  const auto outcome = outcome_in_child([] {
    enter_step(job_environment());
    spank_double().options["bootstrap-port"] = {};
    run_hooks();
  });
  EXPECT_EQ(outcome.status, kDone) << outcome.printed;
  expect_words(outcome.printed, "cannot register the option --bootstrap-port with Slurm: another plugin has it");
}

// Memory runs out in user_init when srun's decision is removed already.
TEST(PluginFailures, AnErrorHalfWayEndsAStepThatAskedAndElseRemovesAll) {
  for (const auto asked : {Asked::kStrongly, Asked::kWeakly, Asked::kUnasked}) {
    auto decision = StepFacts().decision;
    decision.asked = asked;
    const auto outcome = outcome_in_child([&decision] {
      enter_step(with(job_environment(decision), {{"SLURM_BOOTSTRAP_FAILURE", "not for the tasks"}}));
      auto& task = spank_double().task_environment;
      run_out_of_memory_in("unsetenv SLURM_BOOTSTRAP_FAILURE");
      start_node();
      EXPECT_EQ(task.count("SLURM_BOOTSTRAP_DECISION"), 0U);
      deny("nothing");
      start_task(0, 0);
      EXPECT_EQ(task.count("RANK") + task.count("WORLD_SIZE") + task.count("MASTER_ADDR"), 0U);
    });
    EXPECT_EQ(outcome.status, asked == Asked::kStrongly ? kEnded : kDone) << outcome.printed;
  }
}

// plugstack.conf may be wrong on this node alone, which is not that of rank 0.
TEST(PluginFailures, EachNodeReportsItsOwnWrongArgument) {
  const auto outcome = outcome_in_child([] {
    enter_step(job_environment());
    ::setenv("SLURMD_NODENAME", "node002", 1);
    spank_double().node_id = 1;
    spank_double().local_to_global = {2, 3};
    start_node("prot=25000");
    start_task(0, 2);
  });
  EXPECT_EQ(outcome.status, kEnded);
  EXPECT_EQ(count_lines(outcome.printed), 1U) << outcome.printed;
  expect_words(outcome.printed, "argument \"prot=25000\" in plugstack.conf is unknown");
}

// The tasks start whatever fails, with all variables or none.
TEST(PluginFailures, NothingEndsAStepThatDidNotAsk) {
  const std::pair<std::string, bool> calls[] = {{"register bootstrap-port", false},
                                                {"setenv MASTER_PORT", false},
                                                {"setenv RANK", false},
                                                {item_call(S_TASK_ID), false},
                                                {item_call(S_JOB_LOCAL_TASK_COUNT), false},
                                                {item_call(S_JOB_ID), true},
                                                {item_call(S_JOB_ENV), true}};
  for (const auto& [call, is_for_the_log_alone] : calls) {
    const auto outcome = outcome_in_child([&call = call] {
      enter_step(job_environment(world(Asked::kUnasked)));
      deny(call);
      run_hooks();
      for (const auto* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) {
        EXPECT_EQ(spank_double().task_environment.count(name), 0U) << name;
      }
    });
    EXPECT_EQ(outcome.status, kDone) << call << ": " << outcome.printed;
    if (!is_for_the_log_alone) continue;
    EXPECT_EQ(outcome.printed.find("bootstrap: Slurm did not provide"), 0U) << outcome.printed;
    EXPECT_EQ(count_lines(outcome.printed), 1U) << outcome.printed;
  }
}

// Values that cannot be right are replaced before the failure, and MASTER_PORT is kept.
TEST(PluginFailures, AStepThatDidNotAskGetsTheUsersValuesBack) {
  const std::pair<const char*, const char*> users[] = {{"RANK", "7"},
                                                       {"WORLD_SIZE", "1"},
                                                       {"MASTER_ADDR", "localhost"},
                                                       {"MASTER_PORT", "29501"},
                                                       {"CUDA_DEVICE_ORDER", "FASTEST_FIRST"},
                                                       {"SLURM_BOOTSTRAP_PORT", "23456"}};
  const auto outcome = outcome_in_child([&users] {
    auto environment = job_environment(world(Asked::kUnasked));
    auto& task = spank_double().task_environment;
    for (const auto& [name, value] : users) {
      environment.set(name, value);
      task[name] = value;
    }
    enter_step(environment);
    start_node();
    std::set<std::string> calls;
    spank_double().fails = [&](const std::string& call) {
      calls.insert(call);
      return call == "setenv SLURM_BOOTSTRAP_STEP";
    };
    start_task(0, 0);
    for (const auto* name : {"setenv RANK", "setenv WORLD_SIZE", "setenv MASTER_ADDR"})
      EXPECT_TRUE(calls.contains(name));
    for (const auto& [name, value] : users) EXPECT_EQ(task[name], value) << name;
  });
  EXPECT_EQ(outcome.status, kDone) << outcome.printed;
  expect_words(outcome.printed, "the task starts as without the plugin");
}

// No memory in task_init, when some of its variables are set.
TEST(PluginFailures, AnExceptionInATaskEndsOnlyAStepThatAsked) {
  for (const auto asked : {Asked::kUnasked, Asked::kStrongly}) {
    const auto outcome = outcome_in_child([asked] {
      enter_step(job_environment(world(asked)));
      run_out_of_memory_in("setenv LOCAL_RANK");
      run_hooks();
      const auto& task = spank_double().task_environment;
      EXPECT_EQ(task.count("RANK") + task.count("WORLD_SIZE") + task.count("MASTER_ADDR"), 0U);
    });
    EXPECT_EQ(outcome.status, asked == Asked::kUnasked ? kDone : kEnded) << outcome.printed;
    expect_words(outcome.printed, "the plugin failed in task_init");
  }
}

}  // namespace
}  // namespace bootstrap

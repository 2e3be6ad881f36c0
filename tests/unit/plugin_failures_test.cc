// The plugin keeps an error from before task_init until then, and reports it on the node where it happened.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

#include "plugin_scenario.h"

namespace bootstrap {
namespace {

constexpr std::uint32_t kBatchStep = 0xfffffffbU;

// Slurm answers this with an error.
void deny(const std::string& call) {
  spank_double().fails = [call](const std::string& asked) { return asked == call; };
}

void deny_item(spank_item_t item) { deny("item " + std::to_string(static_cast<int>(item))); }

Outcome run_step(const std::function<void()>& arrange) {
  return in_child([&] {
    enter_step(job_environment());
    arrange();
    return run_hooks() == 0 ? 77 : 78;  // task_init ends the child before that, or the task starts
  });
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

// The step would be set up as if the user had not given the option.
TEST(PluginFailures, AnOptionThatSlurmstepdDoesNotKnowEndsTheStep) {
  const auto outcome = run_step([] { deny("register bootstrap-port"); });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.printed.find("the log of slurmd has the reason"), std::string::npos) << outcome.printed;
}

// Slurm gives it to the first plugin; ours continues without it.
TEST(PluginFailures, AnOptionThatAnotherPluginHasEndsNothing) {
  const auto outcome = run_step([] { spank_double().options["bootstrap-port"] = {}; });
  EXPECT_EQ(outcome.status, 77) << outcome.printed;
  EXPECT_NE(outcome.printed.find("cannot register the option --bootstrap-port with Slurm: another plugin has it"),
            std::string::npos);
}

TEST(PluginFailures, UnknownOptionsAreOneSentence) {
  const auto outcome = in_child([] {
    spank_double().context = S_CTX_REMOTE;
    spank_double().fails = [](const std::string& call) { return call.starts_with("register "); };
    return slurm_spank_init(the_spank_handle(), 0, nullptr);
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(count_lines(outcome.printed), 1U) << outcome.printed;
}

// Memory runs out in user_init after some variables are set and srun's decision is removed.
int run_step_without_memory(Asked asked) {
  return in_child([asked] {
           auto decision = StepFacts().decision;
           decision.asked = asked;
           enter_step(job_environment(decision));
           auto* const handle = the_spank_handle();
           slurm_spank_init(handle, 0, nullptr);
           auto& task = spank_double().task_environment;
           spank_double().fails = [](const std::string& call) -> bool {
             if (call == "setenv MASTER_PORT") throw std::bad_alloc();
             return false;
           };
           FAIL_IF(slurm_spank_user_init(handle, 0, nullptr) != 0 || task.count("SLURM_BOOTSTRAP_DECISION") != 0);
           FAIL_IF(task.count("WORLD_SIZE") + task.count("MASTER_ADDR") == 0);
           spank_double().fails = [](const std::string&) { return false; };
           FAIL_IF(start_task(0, 0) != 0);
           return task.count("WORLD_SIZE") + task.count("MASTER_ADDR") == 0 ? 77 : 6;
         })
      .status;
}

TEST(PluginFailures, AnErrorHalfWayEndsAStepThatAskedAndElseRemovesAll) {
  EXPECT_EQ(run_step_without_memory(Asked::kStrongly), 1);
  EXPECT_EQ(run_step_without_memory(Asked::kWeakly), 77);
  EXPECT_EQ(run_step_without_memory(Asked::kUnasked), 77);
}

// plugstack.conf may be wrong on this node alone, which is not that of rank 0.
TEST(PluginFailures, EachNodeReportsItsOwnWrongArgument) {
  const auto outcome = in_child([] {
    enter_step(job_environment());
    ::setenv("SLURMD_NODENAME", "node002", 1);
    spank_double().node_id = 1;
    std::string wrong = "prot=25000";
    char* arguments[] = {wrong.data()};
    auto* const handle = the_spank_handle();
    slurm_spank_init(handle, 1, arguments);
    slurm_spank_user_init(handle, 1, arguments);
    return start_task(0, 2) == 0 ? 77 : 78;
  });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(count_lines(outcome.printed), 1U) << outcome.printed;
  EXPECT_NE(outcome.printed.find("argument \"prot=25000\" in plugstack.conf is unknown"), std::string::npos)
      << outcome.printed;
}

TEST(PluginFailures, NoFailureEndsABatchScript) {
  const auto outcome = run_step([] {
    spank_double().step = kBatchStep;
    deny("register bootstrap-port");
  });
  EXPECT_EQ(outcome.status, 77) << outcome.printed;
}

TEST(PluginFailures, AStepWithoutANumberIsRefused) {
  const auto outcome = run_step([] { deny_item(S_JOB_STEPID); });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.printed.find("the log of slurmd has the reason"), std::string::npos) << outcome.printed;
}

// The tasks of another node ask another slurmstepd, which may succeed.
TEST(PluginFailures, ANodeReportsWhatItsOwnSlurmstepdDoesNotProvide) {
  for (const auto item : {S_JOB_LOCAL_TASK_COUNT, S_JOB_LOCAL_TO_GLOBAL_ID}) {
    const auto outcome = run_step([item] {
      ::setenv("SLURMD_NODENAME", "node002", 1);
      spank_double().node_id = 1;
      spank_double().local_to_global = {2, 3};
      deny_item(item);
    });
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.printed.find("Slurm did not provide"), std::string::npos) << item;
    EXPECT_EQ(count_lines(outcome.printed), 1U) << outcome.printed;
  }
}

TEST(PluginFailures, AnUnknownStepEndsOnlyIfItAsked) {
  for (const auto item : {S_JOB_ID, S_JOB_ENV}) {
    const auto asked = run_step([item] { deny_item(item); });
    EXPECT_EQ(asked.status, 1) << item;
    EXPECT_NE(asked.printed.find("the log of slurmd has the reason"), std::string::npos) << asked.printed;
    const auto unasked = in_child([item] {
      enter_step(
          job_environment({.set_up = SetUp::kWorld, .asked = Asked::kUnasked, .unusable_master = {}, .reason = {}}));
      deny_item(item);
      return run_hooks() == 0 && spank_double().task_environment.count("RANK") == 0 ? 77 : 78;
    });
    EXPECT_EQ(unasked.status, 77) << item << unasked.printed;
    EXPECT_EQ(unasked.printed.find("bootstrap: Slurm did not provide"), 0U)
        << "the log of slurmd alone: " << unasked.printed;
    EXPECT_EQ(count_lines(unasked.printed), 1U) << unasked.printed;
  }
}

// The tasks start whatever fails.
TEST(PluginFailures, NothingEndsAStepThatDidNotAsk) {
  for (const auto& call : std::vector<std::string>{"register bootstrap-port", "setenv MASTER_PORT", "setenv RANK",
                                                   "item " + std::to_string(S_TASK_ID),
                                                   "item " + std::to_string(S_JOB_LOCAL_TASK_COUNT)}) {
    const auto outcome = in_child([&call] {
      enter_step(
          job_environment({.set_up = SetUp::kWorld, .asked = Asked::kUnasked, .unusable_master = {}, .reason = {}}));
      deny(call);
      FAIL_IF(run_hooks() != 0);
      const auto& task = spank_double().task_environment;
      // All variables or none.
      return task.count("WORLD_SIZE") == 0 && task.count("MASTER_ADDR") == 0 ? 77 : 2;
    });
    EXPECT_EQ(outcome.status, 77) << call << ": " << outcome.printed;
  }
}

// No memory in task_init, when some of its variables are set.
TEST(PluginFailures, AnExceptionInATaskEndsOnlyAStepThatAsked) {
  for (const auto asked : {Asked::kUnasked, Asked::kStrongly}) {
    const auto outcome = in_child([asked] {
      enter_step(job_environment({.set_up = SetUp::kWorld, .asked = asked, .unusable_master = {}, .reason = {}}));
      spank_double().fails = [](const std::string& call) -> bool {
        if (call == "setenv LOCAL_RANK") throw std::bad_alloc();
        return false;
      };
      FAIL_IF(run_hooks() != 0);
      const auto& task = spank_double().task_environment;
      return task.count("RANK") + task.count("WORLD_SIZE") + task.count("MASTER_ADDR") == 0 ? 77 : 3;
    });
    EXPECT_EQ(outcome.status, asked == Asked::kUnasked ? 77 : 1) << outcome.printed;
    EXPECT_NE(outcome.printed.find("the plugin failed in task_init"), std::string::npos) << outcome.printed;
  }
}

TEST(PluginFailures, ATaskWithoutItsNumberReportsIt) {
  const auto outcome = run_step([] { deny_item(S_TASK_ID); });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.printed.find("bootstrap: StepId=12.0: Slurm did not provide the number of a task on node001"),
            std::string::npos);
}

}  // namespace
}  // namespace bootstrap

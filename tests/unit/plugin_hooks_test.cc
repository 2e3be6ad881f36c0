// The plugin's hooks with a double of Slurm, for cases that no step on a test cluster can show. The plugin keeps an
// earlier error until task_init, and reports it on the node where it happened.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "core/plan/plan.h"
#include "plan_values.h"
#include "plugin_scenario.h"

namespace bootstrap {
namespace {

// A plugin in front of ours may start the program in its own task_init: that task has none of our variables then.
TEST(PluginHooks, BeforeTaskInitATaskHasNoneOfOurVariables) {
  expect_success([] {
    const auto outer = with(two_by_two(3), {{"SLURM_JOB_ID", "11"}});
    const auto left = applied(plan_of(outer), outer);
    auto environment = with(job_environment(), {{"SLURM_BOOTSTRAP_FAILURE", "not for the tasks"}});
    auto& task = spank_double().task_environment;
    for (const auto* name : {"RANK", "WORLD_SIZE", "SLURM_BOOTSTRAP_STEP", "SLURM_BOOTSTRAP_EXPORTS"}) {
      environment.set(name, *left.get(name));
      task[name] = *left.get(name);
    }
    task["SLURM_BOOTSTRAP_FAILURE"] = "not for the tasks";
    enter_step(environment);
    std::set<std::string> calls;
    spank_double().fails = [&](const std::string& call) { return calls.insert(call), false; };
    start_node();
    EXPECT_TRUE(std::none_of(calls.begin(), calls.end(), [](auto& call) { return call.starts_with("setenv "); }));
    EXPECT_TRUE(task.empty()) << task.begin()->first;
    start_task(1, 1);
    EXPECT_EQ(task.at("RANK") + task.at("WORLD_SIZE") + task.at("MASTER_ADDR"), "14node001");
    EXPECT_EQ(task.count("SLURM_BOOTSTRAP_EXPORTS"), 1U);
  });
}

TEST(PluginHooks, ALongListOfPreloadsIsKept) {
  expect_success([] {
    const std::string users = "/opt/tools/" + std::string(4990, 'x') + ".so";
    enter_step(with(job_environment(), {{"SLURM_BOOTSTRAP_PRELOAD", "on"}, {"LD_PRELOAD", users}}));
    auto& task = spank_double().task_environment;
    task["LD_PRELOAD"] = users;
    start_node("preload_library=/bin/sh");  // owned by root, and readable
    start_task(0, 0);
    EXPECT_EQ(task["LD_PRELOAD"], users + ":/$LIB/../../../../../../../../bin/sh");
  });
}

TEST(PluginHooks, RefuseATaskWithADifferentNumberInSlurm) {
  const auto outcome = outcome_in_child([] {
    enter_step(job_environment());
    start_node();
    start_task(0, 3);
  });
  EXPECT_EQ(outcome.status, kEnded);
  expect_words(outcome.printed, "SLURM_PROCID is 3");
}

TEST(PluginHooks, AContainedUserInitHoldsNoPortAndClosesNothing) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not know two processes with one memory";
#endif
  expect_success([] {
    enter_step(job_environment());
    call(slurm_spank_init);
    // As Slurm 24.05 does with contain_spank: the same memory, other descriptors, another process.
    std::vector<char> stack(1 << 20);
    const auto contained = [](void*) { return call(slurm_spank_user_init); };
    const auto child = ::clone(contained, stack.data() + stack.size(), CLONE_VM | SIGCHLD, nullptr);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    // Slurm may lose the environment that this child wrote, so the plugin does not rely on it.
    auto& task = spank_double().task_environment;
    EXPECT_EQ(task.count("WORLD_SIZE"), 0U);
    const int innocent = ::open("/dev/null", O_RDONLY);  // gets the descriptor number of the reservation
    start_task(0, 0);
    EXPECT_EQ(call(slurm_spank_exit), 0);
    EXPECT_EQ(task.at("RANK") + task.at("WORLD_SIZE"), "04");
    EXPECT_GE(::fcntl(innocent, F_GETFD), 0);
  });
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "(not set)" : value;
}

// srun of this Slurm, before it parses its options.
void begin_srun(const std::string& minor, bool is_asked = true) {
  spank_double().context = S_CTX_LOCAL;
  spank_double().version[0] = minor == "05" ? "22" : minor == "02" ? "23" : "24";
  spank_double().version[1] = minor;
  ::setenv("SLURM_GPUS_PER_TASK", "1", 1);
  if (is_asked) ::setenv("SLURM_BOOTSTRAP", "on", 1);
  call(slurm_spank_init);
}

// srun of 23.02 sets its variables once more from its options.
TEST(PluginHooks, SrunRemovesTheDefaultOnceMoreWhenTheStepExists) {
  expect_success([] {
    begin_srun("02");
    call(slurm_spank_init_post_opt);
    EXPECT_EQ(variable("SLURM_GPU_BIND"), "(not set)");
    ::setenv("SLURM_GPU_BIND", "none", 1);
    call(slurm_spank_local_user_init);
    EXPECT_EQ(variable("SLURM_GPU_BIND"), "(not set)");
    EXPECT_EQ(variable("SLURM_BOOTSTRAP_LAUNCH_DEFAULT"), "SLURM_GPU_BIND=none");
  });
}

TEST(PluginHooks, SrunSetsVariablesThatKeepSlurmFromHidingGpus) {
  const struct {
    const char* name;
    const char* users;  // the user's value, before
    const char* minor;
    bool is_asked;
    std::string during;  // for srun's parser of options, in a step with --gpus-per-task
    std::string after;
  } rows[] = {
      {"SLURM_GPU_BIND", nullptr, "05", true, "none", "(not set)"},
      {"SLURM_GPU_BIND", "closest", "05", true, "closest", "closest"},
      {"SLURM_GPU_BIND", nullptr, "11", true, "(not set)", "(not set)"},
      {"SLURM_GPU_BIND", nullptr, "05", false, "(not set)", "(not set)"},
      {"SLURM_GRES_FLAGS", nullptr, "05", true, "(not set)", "(not set)"},
      {"SLURM_GRES_FLAGS", nullptr, "11", true, "allow-task-sharing", "(not set)"},
      {"SLURM_GRES_FLAGS", "disable-binding", "11", true, "disable-binding,allow-task-sharing", "disable-binding"},
      {"SLURM_GRES_FLAGS", "allow-task-sharing", "11", true, "allow-task-sharing", "allow-task-sharing"},
      {"SLURM_KILL_BAD_EXIT", nullptr, "05", true, "(not set)", "(not set)"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(cat({row.name, " ", row.minor, " ", row.during}));
    expect_success([&row] {
      if (row.users != nullptr) ::setenv(row.name, row.users, 1);
      begin_srun(row.minor, row.is_asked);
      EXPECT_EQ(variable(row.name), row.during);
      call(slurm_spank_init_post_opt);
      EXPECT_EQ(variable(row.name), row.after);
    });
  }
}

// The first value is the variable's when the node begins, the second is what srun records as its own, and a task finds
// the third.
TEST(PluginHooks, NoDefaultOfSrunsReachesTheTasks) {
  const std::string bind = "SLURM_GPU_BIND";
  const std::string flags = "SLURM_GRES_FLAGS";
  const std::string recorded = "SLURM_BOOTSTRAP_LAUNCH_DEFAULT";
  const struct {
    std::string name;
    std::string value;
    std::string entry;
    std::string left;  // empty: not set
  } rows[] = {
      {bind, "none", "SLURM_GPU_BIND=none", ""},
      {bind, "none", "", "none"},  // the user's own value
      {bind, "closest", "SLURM_GPU_BIND=none", "closest"},
      {flags, "allow-task-sharing", "SLURM_GRES_FLAGS=allow-task-sharing", ""},
      {flags, "disable-binding,allow-task-sharing", "SLURM_GRES_FLAGS=allow-task-sharing", "disable-binding"},
      {flags, "disable-binding", "SLURM_GRES_FLAGS=allow-task-sharing", "disable-binding"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(cat({row.value, " ", row.entry}));
    expect_success([&] {
      auto& task = spank_double().task_environment;
      auto environment = with(job_environment(), {{row.name, row.value}});
      task[row.name] = row.value;
      if (!row.entry.empty()) environment.set(recorded, row.entry);
      if (!row.entry.empty()) task[recorded] = row.entry;
      enter_step(environment);
      run_hooks();
      EXPECT_EQ(task.count(recorded), 0U);
      EXPECT_EQ(task.count(row.name), row.left.empty() ? 0U : 1U);
      EXPECT_EQ(task[row.name], row.left);
    });
  }
}

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

// Memory runs out in user_init after srun's decision has been removed.
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

// plugstack.conf may be wrong only on this node, which is not rank 0's node.
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

// The tasks start, whatever fails, with all variables or none.
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

// Memory runs out in task_init when some of its variables are set.
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

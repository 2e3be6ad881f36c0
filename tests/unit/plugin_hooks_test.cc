// The plugin's hooks with a double of Slurm: what reaches the tasks, and where failures are reported.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/plan/step_plan.h"
#include "core/settings/variables.h"
#include "plugin_scenario.h"
#include "probe/port_reservation.h"

namespace bootstrap {
namespace {

TEST(PluginHooks, SetUpATask) {
  expect_success([] {
    enter_step(job_environment());
    FAIL_IF(run_hooks(1, 1) != 0);
    const auto& task = spank_double().task_environment;
    FAIL_IF(task.at("RANK") != "1" || task.at("LOCAL_RANK") != "1" || task.at("MASTER_ADDR") != "node001");
    FAIL_IF(!(task.at("SLURM_BOOTSTRAP_STEP") == "12.0.0" && spank_double().errors.empty()));
    return 0;
  });
}

// spank_setenv is most of the cost of task_init, so common variables of all tasks of the node are set before the fork.
TEST(PluginHooks, CommonVariablesAreSetOnceForAllTasks) {
  expect_success([] {
    auto environment = job_environment();
    environment.set("SLURM_BOOTSTRAP_FAILURE", "not for the tasks");
    enter_step(environment);
    auto* const handle = the_spank_handle();
    slurm_spank_init(handle, 0, nullptr);
    auto& task = spank_double().task_environment;
    task["SLURM_BOOTSTRAP_FAILURE"] = "not for the tasks";
    slurm_spank_user_init(handle, 0, nullptr);
    FAIL_IF(task["WORLD_SIZE"] != "4" || task["MASTER_ADDR"] != "node001");
    for (const auto* name :
         {"RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "SLURM_BOOTSTRAP_EXPORTS", "SLURM_BOOTSTRAP_FAILURE"}) {
      FAIL_IF(task.count(name) != 0);  // each task's own, or Slurm's to write first
    }
    std::set<std::string> calls;
    spank_double().fails = [&](const std::string& call) { return calls.insert(call), false; };
    FAIL_IF(start_task(1, 1) != 0);
    FAIL_IF(calls.count("setenv WORLD_SIZE") != 0 || calls.count("setenv RANK") == 0);
    FAIL_IF(!(task.at("RANK") == "1" && task.count("SLURM_BOOTSTRAP_EXPORTS") == 1));
    return 0;
  });
}

TEST(PluginHooks, ATasksOwnValueReplacesTheCommonOne) {
  expect_success([] {
    auto environment = job_environment();
    environment.set("SLURM_STEP_GPUS", "0,1,2,3");
    environment.set("CUDA_VISIBLE_DEVICES", "0,1,2,3");
    environment.set("SLURM_BOOTSTRAP_GPU_BIND", "narrow:--gpu-bind");
    enter_step(environment);
    auto* const handle = the_spank_handle();
    slurm_spank_init(handle, 0, nullptr);
    slurm_spank_user_init(handle, 0, nullptr);
    auto& task = spank_double().task_environment;
    FAIL_IF(task["LOCAL_WORLD_SIZE"] != "2");
    task["CUDA_VISIBLE_DEVICES"] = "3";  // Slurm's binding leaves this task one GPU: it passes for a node of its own
    FAIL_IF(start_task(1, 1) != 0);
    FAIL_IF(!(task["LOCAL_WORLD_SIZE"] == "1" && task["LOCAL_RANK"] == "0" && task.count("BOOTSTRAP_GPUS") == 0));
    return 0;
  });
}

TEST(PluginHooks, ALongListOfPreloadsIsKept) {
  expect_success([] {
    const std::string users = "/opt/tools/" + std::string(4990, 'x') + ".so";
    auto environment = job_environment();
    environment.set("SLURM_BOOTSTRAP_PRELOAD", "on");
    environment.set("LD_PRELOAD", users);
    enter_step(environment);
    auto& task = spank_double().task_environment;
    task["LD_PRELOAD"] = users;
    std::string library = "preload_library=/bin/sh";  // root's, and readable
    char* arguments[] = {library.data()};
    auto* const handle = the_spank_handle();
    slurm_spank_init(handle, 1, arguments);
    slurm_spank_user_init(handle, 1, arguments);
    FAIL_IF(start_task(0, 0) != 0);
    FAIL_IF(!(task["LD_PRELOAD"] == users + ":/$LIB/../../../../../../../../bin/sh"));
    return 0;
  });
}

TEST(PluginHooks, DoNothingInSpecialStepsAndIfSrunDecidedSo) {
  for (const std::uint32_t step : {0xfffffffaU, 0xfffffffbU, 0xfffffffcU, 0U}) {
    const auto outcome = in_child([step] {
      enter_step(job_environment(step == 0 ? Decision{} : StepFacts().decision));
      spank_double().step = step;
      FAIL_IF(!(run_hooks() == 0 && spank_double().task_environment.count("RANK") == 0));
      return 0;
    });
    EXPECT_EQ(outcome.status, 0) << step << outcome.printed;
  }
}

TEST(PluginHooks, DoNothingInSlurmd) {
  expect_success([] {
    spank_double().context = S_CTX_SLURMD;
    FAIL_IF(!(slurm_spank_init(the_spank_handle(), 0, nullptr) == 0 && spank_double().options.empty()));
    return 0;
  });
}

TEST(PluginHooks, ListedTwiceIsAsListedOnce) {
  expect_success([] {
    enter_step(job_environment());
    auto* const handle = the_spank_handle();
    for (int i = 0; i < 2; ++i) slurm_spank_init(handle, 0, nullptr);
    for (int i = 0; i < 2; ++i) slurm_spank_user_init(handle, 0, nullptr);
    FAIL_IF(!(start_task(0, 0) == 0 && start_task(0, 0) == 0 && spank_double().errors.empty()));
    return 0;
  });
}

// Refusals end the child with 1, print one line, and only from task_init.
void expect_refusal(const std::function<void()>& arrange, const std::string& words) {
  const auto outcome = in_child([&] {
    enter_step(job_environment());
    arrange();
    return run_hooks() == 0 ? 77 : 78;
  });
  EXPECT_EQ(outcome.status, 1) << outcome.printed;
  EXPECT_NE(outcome.printed.find(words), std::string::npos) << outcome.printed;
  EXPECT_EQ(std::count(outcome.printed.begin(), outcome.printed.end(), '\n'), 1) << outcome.printed;
}

TEST(PluginHooks, RefuseContradictions) {
  expect_refusal([] { ::setenv("SLURMD_NODENAME", "node002", 1); }, "task 0 runs on node002");
  expect_refusal(
      [] {
        spank_double().local_to_global = {4, 5};
      },
      "task 4 runs on node001, but the step has only 4 tasks");
  expect_refusal(
      [] {
        auto environment = job_environment();
        environment.set("SLURM_STEP_NUM_TASKS", "5");
        spank_double().total_tasks = 5;
        enter_step(environment);
      },
      "SLURM_STEP_NUM_TASKS is 5");
}

TEST(PluginHooks, RefuseATaskWithADifferentNumberInSlurm) {
  const auto outcome = in_child([] {
    enter_step(job_environment());
    slurm_spank_user_init(the_spank_handle(), 0, nullptr);
    return start_task(0, 3) + 77;
  });
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.printed.find("SLURM_PROCID is 3"), std::string::npos) << outcome.printed;
}

TEST(PluginHooks, RefuseATakenPort) {
  auto reservation = PortReservation::take(20444);
  ASSERT_TRUE(reservation);
  expect_refusal([] {}, "bootstrap: StepId=12.0: MASTER_PORT 20444 on node001 is already in use by another program");
}

TEST(PluginHooks, AUsersPortThatIsTakenIsAWarning) {
  auto reservation = PortReservation::take(23999);
  ASSERT_TRUE(reservation);
  const auto outcome = in_child([] {
    auto environment = job_environment();
    environment.set("MASTER_PORT", "23999");
    enter_step(environment);
    return run_hooks();
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(
      outcome.printed.find("MASTER_PORT 23999 on node001 is already in use by another program; you set this port"),
      std::string::npos)
      << outcome.printed;
}

TEST(PluginHooks, AContainedUserInitHoldsNoPortAndClosesNothing) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not know two processes with one memory";
#endif
  expect_success([] {
    enter_step(job_environment());
    slurm_spank_init(the_spank_handle(), 0, nullptr);
    // As Slurm 24.05 does with contain_spank: the same memory, other descriptors, another process.
    std::vector<char> stack(1 << 20);
    const auto contained = [](void*) { return slurm_spank_user_init(the_spank_handle(), 0, nullptr); };
    const auto child = ::clone(contained, stack.data() + stack.size(), CLONE_VM | SIGCHLD, nullptr);
    int status = 0;
    FAIL_IF(::waitpid(child, &status, 0) != child || status != 0);
    // The environment that this child wrote may be lost with it, so the plugin does not rely on it.
    FAIL_IF(spank_double().task_environment.count("WORLD_SIZE") != 0);
    const int innocent = ::open("/dev/null", O_RDONLY);  // gets the descriptor number of the reservation
    FAIL_IF(start_task(0, 0) != 0 || slurm_spank_exit(the_spank_handle(), 0, nullptr) != 0);
    FAIL_IF(spank_double().task_environment.at("RANK") != "0");
    FAIL_IF(spank_double().task_environment.at("WORLD_SIZE") != "4");
    FAIL_IF(!(::fcntl(innocent, F_GETFD) >= 0));
    return 0;
  });
}

TEST(PluginHooks, AJobSubmittedFromATaskInheritsNothingOfItsStep) {
  expect_success([] {
    const auto plan = make_step_plan(*read_task_facts(two_by_two(0)), {});
    ::clearenv();
    for (const auto& variable : plan->variables) ::setenv(variable.name.c_str(), variable.value(0).c_str(), 1);
    ::setenv("LOCAL_RANK", "mine", 1);
    spank_double().context = S_CTX_ALLOCATOR;
    slurm_spank_init(the_spank_handle(), 0, nullptr);
    slurm_spank_init_post_opt(the_spank_handle(), 0, nullptr);
    const auto left = read_entries(environ, UnknownVariables::kKeep).all();
    // The user's variables, and Slurm's list of GPUs, which would exist without the plugin.
    return left.size() == 2 && left.count("LOCAL_RANK") + left.count("CUDA_VISIBLE_DEVICES") == 2
               ? 0
               : static_cast<int>(left.size()) + 10;
  });
}

TEST(PluginHooks, RefuseIfSlurmRefusesAVariable) {
  expect_refusal([] { spank_double().fails = [](const std::string& call) { return call == "setenv MASTER_PORT"; }; },
                 "cannot set MASTER_PORT: spank_setenv failed");
}

TEST(PluginHooks, NeverFailOutsideTaskInit) {
  for (int denied = 0; denied < 40; ++denied) {
    const auto outcome = in_child([denied] {
      enter_step(job_environment());
      spank_double().fails = [denied](const std::string& call) { return call == "item " + std::to_string(denied); };
      FAIL_IF(run_hooks() != 0);
      FAIL_IF(!(spank_double().task_environment.count("RANK") != 0));
      return 0;  // a task that starts is set up
    });
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 1) << denied << ": " << outcome.status << outcome.printed;
  }
}

TEST(PluginHooks, AWrongOptionStopsTheCommandAndIsIgnoredOnTheNode) {
  expect_success([] {
    spank_double().context = S_CTX_LOCAL;
    slurm_spank_init(the_spank_handle(), 0, nullptr);
    const auto& option = spank_double().options.at("bootstrap-port");
    FAIL_IF(option.cb(option.val, "99", 0) != -1);
    FAIL_IF(option.cb(option.val, nullptr, 0) != -1);
    FAIL_IF(option.cb(option.val, "2345", 0) != 0);
    FAIL_IF(!(option.cb(option.val, "99", 1) == 0));
    return 0;
  });
}

TEST(PluginHooks, ExplainPrintsOnce) {
  const auto outcome = in_child([] {
    enter_step(job_environment());
    slurm_spank_init(the_spank_handle(), 0, nullptr);
    const auto& option = spank_double().options.at("bootstrap");
    option.cb(option.val, "explain", 1);
    slurm_spank_user_init(the_spank_handle(), 0, nullptr);
    return start_task(0, 0) + start_task(1, 1);
  });
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.printed.find("bootstrap: StepId=12.0: SET UP:"), 0U) << outcome.printed;
  EXPECT_EQ(outcome.printed.find("bootstrap: StepId=", 10), std::string::npos);
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "(not set)" : value;
}

// The value of this variable for srun's parser of options, and afterwards, for a step with --gpus-per-task.
std::string launch_default(const char* name, const std::string& minor, const char* users = nullptr,
                           bool is_asked = true) {
  return in_child([&] {
           spank_double().context = S_CTX_LOCAL;
           spank_double().version[0] = minor == "05" ? "22" : "24";
           spank_double().version[1] = minor;
           ::setenv("SLURM_GPUS_PER_TASK", "1", 1);
           if (is_asked) ::setenv("SLURM_BOOTSTRAP", "on", 1);
           if (users != nullptr) ::setenv(name, users, 1);
           slurm_spank_init(the_spank_handle(), 0, nullptr);
           const auto during = variable(name);
           slurm_spank_init_post_opt(the_spank_handle(), 0, nullptr);
           (void)std::fprintf(stderr, "%s, then %s", during.c_str(), variable(name).c_str());
           return 0;
         })
      .printed;
}

// srun of 23.02 sets its variables once more from its options.
TEST(PluginHooks, SrunRemovesTheDefaultOnceMoreWhenTheStepExists) {
  expect_success([] {
    spank_double().context = S_CTX_LOCAL;
    spank_double().version[0] = "23";
    spank_double().version[1] = "02";
    ::setenv("SLURM_GPUS_PER_TASK", "1", 1);
    ::setenv("SLURM_BOOTSTRAP", "on", 1);
    auto* const handle = the_spank_handle();
    slurm_spank_init(handle, 0, nullptr);
    slurm_spank_init_post_opt(handle, 0, nullptr);
    FAIL_IF(variable("SLURM_GPU_BIND") != "(not set)");
    ::setenv("SLURM_GPU_BIND", "none", 1);
    slurm_spank_local_user_init(handle, 0, nullptr);
    FAIL_IF(variable("SLURM_GPU_BIND") != "(not set)");
    FAIL_IF(!(variable("SLURM_BOOTSTRAP_LAUNCH_DEFAULT") == "SLURM_GPU_BIND=none"));
    return 0;
  });
}

// What a task finds in a variable that has `value` when the node begins, if srun records `entry` as its own.
std::string after_user_init(const std::string& name, const std::string& value, const std::string& entry) {
  return in_child([&] {
           auto environment = job_environment();
           environment.set(name, value);
           if (!entry.empty()) environment.set("SLURM_BOOTSTRAP_LAUNCH_DEFAULT", entry);
           enter_step(environment);
           auto& task = spank_double().task_environment;
           task[name] = value;
           if (!entry.empty()) task["SLURM_BOOTSTRAP_LAUNCH_DEFAULT"] = entry;
           FAIL_IF(run_hooks() != 0);
           const bool is_set = task.count(name) != 0;
           const bool is_told = task.count("SLURM_BOOTSTRAP_LAUNCH_DEFAULT") != 0;
           (void)std::fprintf(stderr, "%s%s", is_set ? task[name].c_str() : "(not set)", is_told ? " told" : "");
           return 0;
         })
      .printed;
}

TEST(PluginHooks, NoDefaultOfSrunsReachesTheTasks) {
  const std::string bind = "SLURM_GPU_BIND";
  const std::string flags = "SLURM_GRES_FLAGS";
  EXPECT_EQ(after_user_init(bind, "none", "SLURM_GPU_BIND=none"), "(not set)");
  EXPECT_EQ(after_user_init(bind, "none", ""), "none") << "the user's own word";
  EXPECT_EQ(after_user_init(bind, "closest", "SLURM_GPU_BIND=none"), "closest");
  EXPECT_EQ(after_user_init(flags, "allow-task-sharing", "SLURM_GRES_FLAGS=allow-task-sharing"), "(not set)");
  EXPECT_EQ(after_user_init(flags, "disable-binding,allow-task-sharing", "SLURM_GRES_FLAGS=allow-task-sharing"),
            "disable-binding");
  EXPECT_EQ(after_user_init(flags, "disable-binding", "SLURM_GRES_FLAGS=allow-task-sharing"), "disable-binding");
}

TEST(PluginHooks, SrunSetsVariablesThatKeepSlurmFromHidingGpus) {
  EXPECT_EQ(launch_default("SLURM_GPU_BIND", "05"), "none, then (not set)");
  EXPECT_EQ(launch_default("SLURM_GPU_BIND", "05", "closest"), "closest, then closest");
  EXPECT_EQ(launch_default("SLURM_GPU_BIND", "11"), "(not set), then (not set)");
  EXPECT_EQ(launch_default("SLURM_GRES_FLAGS", "05"), "(not set), then (not set)");
  EXPECT_EQ(launch_default("SLURM_GRES_FLAGS", "11"), "allow-task-sharing, then (not set)");
  EXPECT_EQ(launch_default("SLURM_GRES_FLAGS", "11", "disable-binding"),
            "disable-binding,allow-task-sharing, then disable-binding");
  EXPECT_EQ(launch_default("SLURM_GRES_FLAGS", "11", "allow-task-sharing"),
            "allow-task-sharing, then allow-task-sharing");
  EXPECT_EQ(launch_default("SLURM_KILL_BAD_EXIT", "05"), "(not set), then (not set)");
  EXPECT_EQ(launch_default("SLURM_GPU_BIND", "05", nullptr, false), "(not set), then (not set)") << "nobody asked";
}

}  // namespace
}  // namespace bootstrap

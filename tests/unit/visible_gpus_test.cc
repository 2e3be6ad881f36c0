// What each task sees of the step's GPUs, in every mode and with whatever Slurm leaves it.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/node_gpus.h"

#include <gtest/gtest.h>

#include <set>

#include "core/plan/plan_from_environment.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

using Access = GpuVisibility::Access;

// `tasks` tasks on one node with `gpus` GPUs.
StepFacts one_node(int tasks, const std::string& list, const std::string& ids) {
  auto environment = step_of("node001", std::to_string(tasks), tasks, "node001");
  environment.set("SLURM_STEP_NUM_NODES", "1");
  environment.set("SLURM_STEP_GPUS", ids);
  environment.set("CUDA_VISIBLE_DEVICES", list);
  LocalTasks local;
  local.host = "node001";
  for (int rank = 0; rank < tasks; ++rank) local.ranks.push_back(static_cast<Rank>(rank));
  return *read_facts(environment, {12, 0, 0}, local);
}

std::string numbers(int count, int from = 0) {
  std::string text;
  for (int i = from; i < from + count; ++i) text += (text.empty() ? "" : ",") + std::to_string(i);
  return text;
}

StepFacts one_node(int tasks, int gpus) { return one_node(tasks, numbers(gpus), numbers(gpus)); }

Settings with_mode(GpuMode mode) {
  Settings settings;
  settings.gpu = {mode, Source::kOption};
  return settings;
}

// What CUDA makes of a list of indices that count all GPUs of the node.
std::string device_at(const GpuView& view, std::uint32_t ordinal) {
  std::uint32_t at = 0;
  std::string entry;
  for (const char c : view.list + ",") {
    if (c != ',') {
      entry += c;
    } else if (at++ == ordinal) {
      return entry;
    } else {
      entry.clear();
    }
  }
  return "(none)";
}

TEST(GpuView, SetDeviceOfLocalRankIsDistinctInEveryMode) {
  for (const auto mode : {GpuMode::kIndex, GpuMode::kFirst, GpuMode::kNarrow}) {
    for (int gpus = 1; gpus <= 8; ++gpus) {
      for (int tasks = 1; tasks <= gpus; ++tasks) {
        const auto facts = one_node(tasks, gpus);
        const auto plan = make_step_plan(facts, with_mode(mode));
        ASSERT_TRUE(plan) << plan.error().message;
        std::set<std::string> devices;
        for (std::uint32_t task = 0; task < static_cast<std::uint32_t>(tasks); ++task) {
          const auto view = view_of(*plan->gpus, task);
          const auto local_rank = plan->variables[*plan->find("LOCAL_RANK")].value(task);
          ASSERT_EQ(local_rank, std::to_string(view.own));
          ASSERT_EQ(plan->variables[*plan->find("BOOTSTRAP_GPU")].value(task), local_rank);
          ASSERT_TRUE(devices.insert(device_at(view, view.own)).second) << tasks << " tasks, " << gpus << " GPUs";
          ASSERT_EQ(view.group.size(), static_cast<std::size_t>(gpus / tasks));
        }
        ASSERT_EQ(devices.count("(none)"), 0U);
      }
    }
  }
}

TEST(GpuView, Index) {
  const auto plan = *make_step_plan(one_node(2, 4), {});
  const auto view = view_of(*plan.gpus, 1);
  EXPECT_EQ(view.list, "0,2,1,3");  // groups 0,1 and 2,3; each task's first at its local rank
  EXPECT_EQ(view.own, 1U);
  EXPECT_EQ(write_ordinals(view.group), "1,3");
  EXPECT_EQ(plan.variables[*plan.find("BOOTSTRAP_GPUS")].value(1), "1,3");
  EXPECT_FALSE(view.is_alone);
}

TEST(GpuView, First) {
  const auto plan = *make_step_plan(one_node(4, 4), with_mode(GpuMode::kFirst));
  EXPECT_EQ(view_of(*plan.gpus, 2).list, "2,0,1,3");
  EXPECT_EQ(plan.variables[*plan.find("LOCAL_WORLD_SIZE")].value(2), "1");
  EXPECT_EQ(plan.variables[*plan.find("GROUP_RANK")].value(2), "2");
  EXPECT_EQ(plan.variables[*plan.find("GROUP_WORLD_SIZE")].value(2), "4");
}

TEST(GpuView, Narrow) {
  const auto plan = *make_step_plan(one_node(2, 4), with_mode(GpuMode::kNarrow));
  EXPECT_EQ(view_of(*plan.gpus, 1).list, "2,3");
  EXPECT_EQ(write_ordinals(view_of(*plan.gpus, 1).group), "0,1");
}

TEST(GpuView, Off) {
  const auto plan = *make_step_plan(one_node(2, 2), with_mode(GpuMode::kOff));
  EXPECT_FALSE(plan.gpus);
  for (const auto* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "BOOTSTRAP_GPU"}) EXPECT_FALSE(plan.find(name));
}

TEST(GpuView, TooFewGpusAreRefusedUnlessShared) {
  const auto facts = one_node(3, 2);
  const auto refused = make_step_plan(facts, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMisplaced);
  EXPECT_NE(refused.error().message.find("3 tasks on node001 would share 2 GPUs"), std::string::npos);
  EXPECT_NE(refused.error().message.find("--gres=gpu:3"), std::string::npos);
  Settings settings;
  settings.gpu_share = {true, Source::kOption};
  const auto plan = *make_step_plan(facts, settings);
  EXPECT_EQ(view_of(*plan.gpus, 2).own, 0U);
  EXPECT_EQ(plan.variables[*plan.find("BOOTSTRAP_GPU")].values, (std::vector<std::string>{"0", "1", "0"}));
  EXPECT_TRUE(make_step_plan(facts, with_mode(GpuMode::kOff)));
}

TEST(GpuView, PartsOfGpusAreShared) {
  for (const auto* name : {"SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}) {
    auto facts = one_node(4, 1);
    facts.environment.set(name, "4");
    EXPECT_TRUE(make_step_plan(facts, {})) << name;
  }
}

TEST(GpuView, MigInstancesAreGivenOneByOne) {
  auto plan = *make_step_plan(one_node(2, "MIG-a,MIG-b", "0,1"), {});
  EXPECT_EQ(view_of(*plan.gpus, 1).list, "MIG-b");
  EXPECT_EQ(plan.variables[*plan.find("LOCAL_RANK")].value(1), "0");
  EXPECT_EQ(plan.variables[*plan.find("BOOTSTRAP_GPU_UUIDS")].value(1), "MIG-b");
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_NE(plan.warnings[0].find("NCCL does not connect instances"), std::string::npos);
  EXPECT_TRUE(make_step_plan(one_node(2, "MIG-a,MIG-b", "0,1"), with_mode(GpuMode::kNarrow))->warnings.empty());
  EXPECT_TRUE(make_step_plan(one_node(1, "MIG-a,MIG-b", "0,1"), {})->warnings.empty());
}

TEST(GpuView, IntelsMaskHasNoOrder) {
  auto facts = one_node(2, "0,1,2,3", "0,1,2,3");
  facts.environment.unset("CUDA_VISIBLE_DEVICES");
  facts.environment.set("ZE_AFFINITY_MASK", "0,1,2,3");
  facts.gpu_list = read_gpu_list(facts.environment);
  EXPECT_EQ(view_of(*make_step_plan(facts, {})->gpus, 1).list, "0,1,2,3");
  EXPECT_EQ(view_of(*make_step_plan(facts, with_mode(GpuMode::kNarrow))->gpus, 1).list, "2,3");
  const auto first = make_step_plan(facts, with_mode(GpuMode::kFirst));
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("does not order"), std::string::npos);
}

TEST(GpuView, BelowAListOfTheUsersNothingIsChanged) {
  auto facts = one_node(2, "2,3", "2,3");
  facts.environment.unset("CUDA_VISIBLE_DEVICES");
  facts.environment.set("ROCR_VISIBLE_DEVICES", "2,3");
  facts.environment.set("HIP_VISIBLE_DEVICES", "1,0");
  facts.gpu_list = read_gpu_list(facts.environment);
  const auto plan = make_step_plan(facts, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_FALSE(plan->gpus || plan->find("ROCR_VISIBLE_DEVICES") || plan->find("BOOTSTRAP_GPU"));
  const auto narrow = make_step_plan(facts, with_mode(GpuMode::kNarrow));
  ASSERT_FALSE(narrow);
  EXPECT_EQ(narrow.error().message,
            "--bootstrap-gpu=narrow does not work with your HIP_VISIBLE_DEVICES; unset it, or use index");
  facts.environment.set("HIP_VISIBLE_DEVICES", "0,1");
  facts.gpu_list = read_gpu_list(facts.environment);
  EXPECT_EQ(view_of(*make_step_plan(facts, with_mode(GpuMode::kNarrow))->gpus, 1).list, "3");
}

// A plan for `tasks` tasks and four GPUs, and what a task sees with this left to it.
GpuView seen(int tasks, std::uint32_t task, std::vector<Access> devices, const std::string& list, bool is_users_bind,
             const std::string& all = "0,1,2,3", GpuMode mode = GpuMode::kIndex,
             const std::string& bind = "narrow:--gpu-bind") {
  auto facts = one_node(tasks, all, "0,1,2,3");
  if (is_users_bind) facts.environment.set("SLURM_BOOTSTRAP_GPU_BIND", bind);
  const auto plan = *make_step_plan(facts, with_mode(mode));
  return view_of(*plan.gpus, task, {std::move(devices), list});
}

constexpr auto kYes = Access::kOpen;
constexpr auto kNo = Access::kDenied;
const std::vector<Access> kAllOpen(4, kYes);

TEST(GpuVisibility, WhatSlurmNarrowedIsWidenedAgain) {
  for (const auto* list : {"", "0", "0,1,2,3"}) {
    const auto view = seen(4, 3, kAllOpen, list, false);
    EXPECT_EQ(view.list, "0,1,2,3") << list;
    EXPECT_EQ(view.own, 3U);
    EXPECT_TRUE(view.is_as_planned && view.warning.empty());
  }
  EXPECT_EQ(seen(4, 3, {}, "0", false).list, "0,1,2,3");  // not tried
}

TEST(GpuVisibility, AHiddenPeerIsNamedWithItsCure) {
  const auto view = seen(4, 2, {kNo, kNo, kYes, kNo}, "0", false);
  EXPECT_EQ(view.list, "0");  // counted among what is open
  EXPECT_EQ(view.own, 0U);
  EXPECT_TRUE(view.is_alone && !view.is_as_planned);
  EXPECT_NE(view.warning.find("Slurm hides all but 1 of 4 GPUs"), std::string::npos) << view.warning;
  EXPECT_NE(view.warning.find("--gpu-bind=none"), std::string::npos);
}

TEST(GpuVisibility, TheUsersBindingIsObeyed) {
  const auto single = seen(4, 2, {kNo, kNo, kYes, kNo}, "0", true);
  EXPECT_EQ(single.list, "0");
  EXPECT_NE(single.warning.find("your --gpu-bind hides"), std::string::npos);
  // closest: two tasks see the same two GPUs, and each takes the one that is planned for it.
  EXPECT_EQ(seen(4, 2, {kNo, kNo, kYes, kYes}, "0,1", true).list, "0,1");
  EXPECT_EQ(seen(4, 3, {kNo, kNo, kYes, kYes}, "0,1", true).list, "1,0");
  // What is planned for it is not among what is left.
  EXPECT_EQ(seen(4, 0, {kNo, kNo, kYes, kYes}, "0,1", true).list, "0,1");
  EXPECT_EQ(seen(4, 1, {kNo, kNo, kYes, kYes}, "0,1", true).list, "1,0");
  // Nothing is hidden by devices: the list alone is narrow, and counts all GPUs of the node.
  const auto listed = seen(4, 3, kAllOpen, "2,3", true);
  EXPECT_EQ(listed.list, "3,2");
  EXPECT_TRUE(listed.is_alone && !listed.is_as_planned);
  EXPECT_NE(listed.warning.find("leaves a task 2 of 4 GPUs"), std::string::npos) << listed.warning;
  EXPECT_EQ(seen(4, 3, kAllOpen, "7", true).list, "7");       // not one that we know: as it is
  EXPECT_TRUE(seen(4, 3, kAllOpen, "", true).is_as_planned);  // --gpu-bind=none
}

TEST(GpuVisibility, TheUsersOwnOptionIsNamed) {
  const auto seen_with = [](const std::vector<Access>& devices, const std::string& list, const std::string& option) {
    return seen(4, 2, devices, list, true, "0,1,2,3", GpuMode::kIndex, "narrow:" + option).warning;
  };
  for (const std::string option : {"--gpu-bind", "--tres-bind", "--accel-bind"}) {
    for (const auto& text : {seen_with({kNo, kNo, kYes, kNo}, "0", option), seen_with(kAllOpen, "2,3", option)}) {
      EXPECT_EQ(text.find("your " + option + " "), 0U) << text;
      EXPECT_NE(text.find("without " + option + " each task"), std::string::npos) << text;
    }
  }
  // Whatever else is in the variable is not from srun.
  EXPECT_EQ(seen_with({kNo, kNo, kYes, kNo}, "0", "word").find("Slurm hides"), 0U);
}

TEST(GpuVisibility, ATaskThatIsAloneOnItsNodeCountsAsThoseOfOtherNodesDo) {
  const auto view = seen(1, 0, kAllOpen, "0,1,2,3", true);
  EXPECT_TRUE(view.is_alone && !view.is_as_planned);
  EXPECT_EQ(view.list, "0,1,2,3");
  EXPECT_EQ(view.warning, "");
  EXPECT_FALSE(seen(1, 0, kAllOpen, "0,1,2,3", false).is_alone);
}

TEST(GpuVisibility, UuidsAreNotCountedAnew) {
  const auto view = seen(4, 2, {kNo, kNo, kYes, kNo}, "GPU-c", false, "GPU-a,GPU-b,GPU-c,GPU-d");
  EXPECT_EQ(view.list, "GPU-c");
  EXPECT_EQ(write_uuids(view), "GPU-c");
}

TEST(GpuVisibility, AShortListThatWasAskedForNeedsNoSentenceAndClosedDevicesDo) {
  EXPECT_EQ(seen(4, 2, kAllOpen, "2", true, "0,1,2,3", GpuMode::kNarrow).warning, "");
  EXPECT_NE(seen(4, 2, {kNo, kNo, kYes, kNo}, "0", true, "0,1,2,3", GpuMode::kNarrow).warning, "");
}

TEST(GpuVisibility, TheNumberOfOpenDevicesDecides) {
  // More are open than the step has: nothing is constrained. And a file that is not there tells nothing.
  EXPECT_TRUE(seen(4, 0, {kNo, kYes, kYes, kYes, kYes}, "", false).is_as_planned);
  EXPECT_TRUE(seen(4, 0, {kNo, Access::kUnknown, kYes, kYes}, "", false).is_as_planned);
  EXPECT_TRUE(seen(4, 0, {kNo, kNo, kNo, kNo}, "", false).is_as_planned);
  // The one that is open is none of those that we take for the step's.
  const auto view = seen(4, 2, {kNo, kNo, kNo, kNo, kYes}, "0", false);
  EXPECT_EQ(view.list, "0");
  EXPECT_TRUE(view.is_alone);
}

TEST(GpuVisibility, GuessedFilesAreCountedAmongAllThatAreThere) {
  // Slurm's list is of other files than their numbers say: the step may open 0, 2 and 3.
  auto facts = one_node(3, "0,1,2", "0,1,2");
  facts.device_files = {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"};
  const auto plan = *make_step_plan(facts, {});
  EXPECT_EQ(plan.gpus->devices,
            (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"}));
  EXPECT_TRUE(view_of(*plan.gpus, 1, {{kYes, kNo, kYes, kYes}, "0,1,2"}).is_as_planned);
  EXPECT_FALSE(view_of(*plan.gpus, 1, {{kYes, kNo, kNo, kNo}, "0"}).is_as_planned);
}

TEST(GpuVisibility, CoresAreNearToWhatTheTaskReallyHas) {
  auto facts = one_node(2, "0,1", "0,1");
  facts.topology.gpus.resize(2);
  facts.topology.gpus[0].near = *CpuSet::parse_list("0-3");
  facts.topology.gpus[1].near = *CpuSet::parse_list("4-7");
  const auto plan = *make_step_plan(facts, {});
  EXPECT_EQ(cores_near(*plan.gpus, view_of(*plan.gpus, 0)).to_list(), "0-3");
  EXPECT_EQ(cores_near(*plan.gpus, view_of(*plan.gpus, 0, {{kNo, kYes}, "0"})).to_list(), "4-7");
}

TEST(SetGpuView, RewritesTheTasksPlanAndItsRecord) {
  const auto facts = one_node(4, 4);
  auto plan = *make_step_plan(facts, {});
  const auto before = plan.variables[*plan.find("SLURM_BOOTSTRAP_EXPORTS")].value(2);
  set_gpu_view(plan, 2, 2, view_of(*plan.gpus, 2, {{kNo, kNo, kYes, kNo}, "0"}));
  const auto value = [&](const char* name) { return plan.variables[*plan.find(name)].value(2); };
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(value("LOCAL_RANK"), "0");
  EXPECT_EQ(value("RANK"), "2");
  EXPECT_EQ(value("GROUP_RANK"), "2");
  EXPECT_EQ(value("GROUP_WORLD_SIZE"), "4");
  EXPECT_NE(value("SLURM_BOOTSTRAP_EXPORTS"), before);
}

// The environment of a task as slurmstepd leaves it.
Environment started(const StepFacts& facts, StepPlan plan, std::size_t task, const GpuView* view = nullptr) {
  if (view != nullptr) set_gpu_view(plan, task, facts.local_ranks[task], *view);
  auto environment = facts.environment;
  environment.set("SLURM_PROCID", std::to_string(facts.local_ranks[task]));
  environment.set("SLURM_LOCALID", std::to_string(task));
  for (const auto& variable : plan.variables) {
    if (variable.action != Action::kKept) environment.set(variable.name, variable.value(task));
  }
  return environment;
}

TEST(AdoptGpuView, ATaskSeesWhatItWasGiven) {
  for (const auto mode : {GpuMode::kIndex, GpuMode::kFirst, GpuMode::kNarrow, GpuMode::kOff}) {
    const auto facts = one_node(2, 4);
    auto plan = *make_step_plan(facts, with_mode(mode));
    if (plan.gpus) {
      plan.gpus->order = {3, 1, 2, 0};  // as the tasks' cores may want it
      refresh_gpu_variables(plan, facts);
    }
    const auto environment = started(facts, plan, 1);
    const auto task = read_task_plan(environment);
    ASSERT_TRUE(task) << task.error().message;
    EXPECT_TRUE(task->is_set);
    EXPECT_TRUE(task->differences.empty()) << task->differences.front();
    EXPECT_EQ(effective_value(task->plan, "CUDA_VISIBLE_DEVICES"),
              mode == GpuMode::kOff ? "" : environment.get("CUDA_VISIBLE_DEVICES"));
  }
}

TEST(AdoptGpuView, AlsoWhereSlurmHidPeersAndWhereTheUserChangedIt) {
  const auto facts = one_node(4, 4);
  const auto plan = *make_step_plan(facts, {});
  const auto view = view_of(*plan.gpus, 2, {{kNo, kNo, kYes, kNo}, "0"});
  auto environment = started(facts, plan, 2, &view);
  EXPECT_TRUE(read_task_plan(environment)->differences.empty());
  environment.set("CUDA_VISIBLE_DEVICES", "3");
  const auto changed = read_task_plan(environment);
  ASSERT_FALSE(changed->differences.empty());
  EXPECT_NE(changed->differences.front().find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(AdoptGpuView, ValuesThatTheUserKeptSayNothingOfTheView) {
  auto facts = one_node(4, 4);
  facts.environment.set("WORLD_SIZE", "4");
  facts.environment.set("GROUP_WORLD_SIZE", "1");
  const auto environment = started(facts, *make_step_plan(facts, {}), 1);
  for (const bool is_unset : {false, true}) {
    auto seen = environment;
    if (is_unset) {
      seen.unset("WORLD_SIZE");
      seen.unset("GROUP_WORLD_SIZE");
    }
    const auto task = read_task_plan(seen);
    ASSERT_TRUE(task);
    EXPECT_EQ(effective_value(task->plan, "LOCAL_RANK"), "1");
    EXPECT_EQ(task->differences.size(), is_unset ? 2U : 0U);
  }
}

TEST(ExportRecord, SlurmsListsAreNeverOurs) {
  // A step inside the task that is not set up: its list is Slurm's, though it reads as ours did.
  const auto facts = one_node(2, 2);
  const auto environment = started(facts, *make_step_plan(facts, {}), 0);
  for (const auto& name : inherited_to_unset(environment)) EXPECT_NE(name, "CUDA_VISIBLE_DEVICES");
}

TEST(NeedsTopology, OnlyWhereItCanMatter) {
  EXPECT_TRUE(needs_topology(one_node(2, 2), {}));
  EXPECT_FALSE(needs_topology(one_node(1, 1), {}));
  EXPECT_FALSE(needs_topology(one_node(2, 2), with_mode(GpuMode::kOff)));
  Settings settings;
  settings.cpu_near = {true, Source::kOption};
  EXPECT_TRUE(needs_topology(one_node(1, 1), settings));
}

TEST(GpuBindDefault, DependsOnTheRelease) {
  EXPECT_EQ(gpu_bind_default(22, 5, 8).variable, "SLURM_GPU_BIND");
  EXPECT_EQ(gpu_bind_default(23, 11, 3).value, "none");
  EXPECT_EQ(gpu_bind_default(23, 11, 4).value, "allow-task-sharing");
  EXPECT_EQ(gpu_bind_default(24, 5, 0).option, "--gres-flags=allow-task-sharing");
}

}  // namespace
}  // namespace bootstrap

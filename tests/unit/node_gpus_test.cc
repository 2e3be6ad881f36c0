// The GPUs that each task sees, in every mode and with each restriction by Slurm.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/node_gpus.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "core/util/records.h"
#include "core/util/text.h"
#include "plan_values.h"

namespace bootstrap {
namespace {

using Access = GpuVisibility::Access;

Settings with_mode(GpuMode mode) { return {.gpu = {mode, Source::kOption}}; }

// The devices that CUDA finds with a list of indices of all GPUs of the node.
std::string device_at(const GpuView& view, std::uint32_t ordinal) {
  const auto entries = split(view.list, ',');
  return ordinal < entries.size() ? std::string(entries[ordinal]) : "(none)";
}

TEST(GpuView, SetDeviceOfLocalRankIsDistinctInEveryMode) {
  for (const auto mode : {GpuMode::kIndex, GpuMode::kFirst, GpuMode::kNarrow}) {
    for (int gpus = 1; gpus <= 8; ++gpus) {
      for (int tasks = 1; tasks <= gpus; ++tasks) {
        const auto facts = one_node(tasks, gpus);
        const auto plan = succeeded(make_plan(facts, with_mode(mode)));
        std::set<std::string> devices;
        for (std::uint32_t task = 0; task < static_cast<std::uint32_t>(tasks); ++task) {
          const auto view = view_of(*plan->step.gpus, task);
          const auto of_task = *make_plan(facts, with_mode(mode), task);
          const auto local_rank = value(of_task, "LOCAL_RANK");
          ASSERT_EQ(local_rank, std::to_string(view.group.front()));
          ASSERT_EQ(value(of_task, "BOOTSTRAP_GPU"), local_rank);
          ASSERT_TRUE(devices.insert(device_at(view, view.group.front())).second)
              << tasks << " tasks, " << gpus << " GPUs";
          ASSERT_EQ(view.group.size(), static_cast<std::size_t>(gpus / tasks));
        }
        ASSERT_EQ(devices.count("(none)"), 0U);
      }
    }
  }
}

TEST(GpuView, HasTheListOfEachMode) {
  struct Row {
    GpuMode mode;
    int tasks;
    std::uint32_t task;
    const char* list;
    const char* group;
    std::initializer_list<std::pair<const char*, std::string>> values;
  };
  // kIndex: groups 0,1 and 2,3; each task's first at its local rank.
  for (const auto& row : std::initializer_list<Row>{
           {GpuMode::kIndex, 2, 1, "0,2,1,3", "1,3", {{"BOOTSTRAP_GPU", "1"}, {"BOOTSTRAP_GPUS", "1,3"}}},
           {GpuMode::kFirst,
            4,
            2,
            "2,0,1,3",
            "0",
            {{"LOCAL_WORLD_SIZE", "1"}, {"GROUP_RANK", "2"}, {"GROUP_WORLD_SIZE", "4"}}},
           {GpuMode::kNarrow, 2, 1, "2,3", "0,1", {}}}) {
    const auto plan = *make_plan(one_node(row.tasks, 4), with_mode(row.mode), row.task);
    const auto view = view_of(*plan.step.gpus, row.task);
    EXPECT_EQ(view.list, row.list);
    EXPECT_EQ(join(view.group, ","), row.group);
    expect_values(plan, row.values);
  }
  EXPECT_FALSE(view_of(*make_plan(one_node(2, 4), {})->step.gpus, 1).is_alone);
  const auto off = *make_plan(one_node(2, 2), with_mode(GpuMode::kOff));
  EXPECT_FALSE(off.step.gpus);
  for (const auto* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "BOOTSTRAP_GPU"}) EXPECT_FALSE(off.find(name));
}

TEST(GpuView, TooFewGpusAreRefusedUnlessShared) {
  const auto facts = one_node(3, 2);
  const auto refused = error_of(make_plan(facts, {}));
  EXPECT_EQ(refused.code, ErrorCode::kMisplaced);
  EXPECT_NE(refused.message.find("3 tasks on node001 would share 2 GPUs"), std::string::npos);
  EXPECT_NE(refused.message.find("--gres=gpu:3"), std::string::npos);
  const Settings settings{.gpu_share = {true, Source::kOption}};
  const auto plan = *make_plan(facts, settings);
  EXPECT_EQ(view_of(*plan.step.gpus, 2).group.front(), 0U);
  for (std::size_t task = 0; task < 3; ++task) {
    EXPECT_EQ(value(*make_plan(facts, settings, task), "BOOTSTRAP_GPU"), std::to_string(task % 2));
  }
  EXPECT_TRUE(make_plan(facts, with_mode(GpuMode::kOff)));
}

TEST(GpuView, PartsOfGpusAreShared) {
  for (const auto* name : {"SLURM_SHARDS_ON_NODE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}) {
    auto facts = one_node(4, 1);
    facts.environment.set(name, "4");
    EXPECT_TRUE(make_plan(facts, {})) << name;
  }
}

TEST(GpuView, MigInstancesAreGivenOneByOne) {
  const auto plan = *make_plan(one_node(2, "MIG-a,MIG-b", "0,1"), {}, 1);
  EXPECT_EQ(view_of(*plan.step.gpus, 1).list, "MIG-b");
  EXPECT_EQ(value(plan, "LOCAL_RANK"), "0");
  EXPECT_EQ(value(plan, "BOOTSTRAP_GPU_UUIDS"), "MIG-b");
  EXPECT_NE(only(plan.warnings).find("NCCL does not connect instances"), std::string::npos);
  EXPECT_TRUE(make_plan(one_node(2, "MIG-a,MIG-b", "0,1"), with_mode(GpuMode::kNarrow))->warnings.empty());
  EXPECT_TRUE(make_plan(one_node(1, "MIG-a,MIG-b", "0,1"), {})->warnings.empty());
}

TEST(GpuView, IntelsMaskHasNoOrder) {
  auto facts = one_node(2, "0,1,2,3", "0,1,2,3");
  facts.environment.unset("CUDA_VISIBLE_DEVICES");
  facts.environment.set("ZE_AFFINITY_MASK", "0,1,2,3");
  facts.gpu_list = read_gpu_list(facts.environment);
  EXPECT_EQ(view_of(*make_plan(facts, {})->step.gpus, 1).list, "0,1,2,3");
  EXPECT_EQ(view_of(*make_plan(facts, with_mode(GpuMode::kNarrow))->step.gpus, 1).list, "2,3");
  const auto first = error_of(make_plan(facts, with_mode(GpuMode::kFirst)));
  EXPECT_NE(first.message.find("does not order"), std::string::npos);
}

TEST(GpuView, NothingChangesBelowAListOfTheUsers) {
  auto facts = one_node(2, "2,3", "2,3");
  facts.environment.unset("CUDA_VISIBLE_DEVICES");
  facts.environment.set("ROCR_VISIBLE_DEVICES", "2,3");
  facts.environment.set("HIP_VISIBLE_DEVICES", "1,0");
  facts.gpu_list = read_gpu_list(facts.environment);
  const auto plan = succeeded(make_plan(facts, {}));
  EXPECT_FALSE(plan->step.gpus || plan->find("ROCR_VISIBLE_DEVICES") || plan->find("BOOTSTRAP_GPU"));
  EXPECT_EQ(error_of(make_plan(facts, with_mode(GpuMode::kNarrow))).message,
            "--bootstrap-gpu=narrow does not work with your HIP_VISIBLE_DEVICES; unset it, or use index");
  facts.environment.set("HIP_VISIBLE_DEVICES", "0,1");
  facts.gpu_list = read_gpu_list(facts.environment);
  EXPECT_EQ(view_of(*make_plan(facts, with_mode(GpuMode::kNarrow))->step.gpus, 1).list, "3");
}

constexpr auto kYes = Access::kOpen;
constexpr auto kNo = Access::kDenied;

// The view of a task on four GPUs with these restrictions. `devices`: Y can be opened, N cannot, ? is not known.
GpuView seen(int tasks, std::uint32_t task, std::string_view devices, const std::string& list,
             const std::string& option, const std::string& all = "0,1,2,3", GpuMode mode = GpuMode::kIndex) {
  auto facts = one_node(tasks, all, "0,1,2,3");
  if (!option.empty()) facts.environment.set(kUsersBindVariable, write_record(UsersBind{GpuBind::kNarrow, option}));
  GpuVisibility visibility;
  for (const char c : devices) visibility.devices.push_back(c == 'Y' ? kYes : c == 'N' ? kNo : Access::kUnknown);
  visibility.list = list;
  return view_of(*make_plan(facts, with_mode(mode))->step.gpus, task, visibility);
}

struct Seen {
  int tasks;
  std::uint32_t task;
  std::string_view devices;
  const char* list;    // after Slurm
  std::string option;  // that the user gave to bind GPUs; empty: none
  const char* expected;
  bool is_as_planned;
  const char* warning;  // its beginning; empty: there is none
};

const Seen kSeen[] = {
    // We widen a list that Slurm narrowed, unless the devices cannot be opened.
    {4, 3, "YYYY", "", "", "0,1,2,3", true, ""},
    {4, 3, "YYYY", "0", "", "0,1,2,3", true, ""},
    {4, 3, "YYYY", "0,1,2,3", "", "0,1,2,3", true, ""},
    {4, 3, "", "0", "", "0,1,2,3", true, ""},  // not tried
    {4, 2, "NNYN", "0", "", "0", false, "Slurm hides all but 1 of 4 GPUs of the step from a task"},
    // The user's binding stays. closest: two tasks see the same two GPUs, and each uses the planned one or
    // another.
    {4, 2, "NNYN", "0", "--gpu-bind", "0", false, "your --gpu-bind hides"},
    {4, 2, "NNYN", "0", "--tres-bind", "0", false, "your --tres-bind hides"},
    {4, 2, "NNYY", "0,1", "--gpu-bind", "0,1", false, "your --gpu-bind hides"},
    {4, 3, "NNYY", "0,1", "--gpu-bind", "1,0", false, "your --gpu-bind hides"},
    {4, 0, "NNYY", "0,1", "--gpu-bind", "0,1", false, "your --gpu-bind hides"},
    {4, 1, "NNYY", "0,1", "--gpu-bind", "1,0", false, "your --gpu-bind hides"},
    // No device is hidden: the list alone is narrow, and counts all GPUs of the node.
    {4, 3, "YYYY", "2,3", "--gpu-bind", "3,2", false, "your --gpu-bind leaves a task 2 of 4 GPUs"},
    {4, 3, "YYYY", "2,3", "--accel-bind", "3,2", false, "your --accel-bind leaves a task 2 of 4 GPUs"},
    {4, 3, "YYYY", "7", "--gpu-bind", "7", false, "your --gpu-bind leaves"},  // not one of the step's: it stays
    {4, 3, "YYYY", "", "--gpu-bind", "0,1,2,3", true, ""},                    // --gpu-bind=none
    // A task that is alone on its node is treated like the tasks of other nodes.
    {1, 0, "YYYY", "0,1,2,3", "--gpu-bind", "0,1,2,3", false, ""},
    {1, 0, "YYYY", "0,1,2,3", "", "0,1,2,3", true, ""},
    // The number of open devices decides: if more are open than the step has, Slurm constrains none.
    {4, 0, "NYYYY", "", "", "0,1,2,3", true, ""},
    {4, 0, "N?YY", "", "", "0,1,2,3", true, ""},
    {4, 0, "NNNN", "", "", "0,1,2,3", true, ""},
    {4, 2, "NNNNY", "0", "", "0", false, "Slurm hides all but 1"},
};

TEST(GpuVisibility, ATaskSeesWhatItCanUse) {
  for (const auto& row : kSeen) {
    const auto view = seen(row.tasks, row.task, row.devices, row.list, row.option);
    const testing::Message name = testing::Message() << row.task << " " << row.devices << " " << row.list << row.option;
    EXPECT_EQ(view.list, row.expected) << name;
    EXPECT_EQ(view.is_as_planned, row.is_as_planned) << name;
    EXPECT_EQ(view.is_alone, !row.is_as_planned) << name;
    EXPECT_EQ(view.group.front(), row.is_as_planned ? row.task : 0U) << name;
    EXPECT_EQ(view.warning.substr(0, std::string_view(row.warning).size()), row.warning) << name;
    EXPECT_EQ(view.warning.empty(), *row.warning == '\0') << name << view.warning;
    const auto cure =
        row.option.starts_with("--") ? "without " + row.option + " each task" : std::string("--gpu-bind=none");
    EXPECT_TRUE(view.warning.empty() || view.warning.find(cure) != std::string::npos) << name << view.warning;
  }
}

TEST(GpuVisibility, UuidsAreNotCountedAnew) {
  const auto view = seen(4, 2, "NNYN", "GPU-c", "", "GPU-a,GPU-b,GPU-c,GPU-d");
  EXPECT_EQ(view.list, "GPU-c");
  EXPECT_EQ(view.own_entries, std::vector<std::uint32_t>{2});
}

TEST(GpuVisibility, WarnsOfClosedDevicesAndNotOfARequestedShortList) {
  EXPECT_EQ(seen(4, 2, "YYYY", "2", "--gpu-bind", "0,1,2,3", GpuMode::kNarrow).warning, "");
  EXPECT_NE(seen(4, 2, "NNYN", "0", "--gpu-bind", "0,1,2,3", GpuMode::kNarrow).warning, "");
}

TEST(GpuVisibility, GuessedFilesAreCountedAmongAllThatAreThere) {
  // Slurm's numbers do not match the files' numbers: the step may open 0, 2 and 3.
  auto facts = one_node(3, "0,1,2", "0,1,2");
  facts.device_files = {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"};
  const auto plan = *make_plan(facts, {});
  EXPECT_EQ(plan.step.gpus->devices,
            (std::vector<std::string>{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"}));
  EXPECT_TRUE(view_of(*plan.step.gpus, 1, {{kYes, kNo, kYes, kYes}, "0,1,2"}).is_as_planned);
  EXPECT_FALSE(view_of(*plan.step.gpus, 1, {{kYes, kNo, kNo, kNo}, "0"}).is_as_planned);
}

TEST(GpuVisibility, CoresAreNearToWhatTheTaskReallyHas) {
  auto facts = one_node(2, "0,1", "0,1");
  facts.gpus_of_node.resize(2);
  facts.gpus_of_node[0].near = *CpuSet::parse_list("0-3");
  facts.gpus_of_node[1].near = *CpuSet::parse_list("4-7");
  const auto plan = *make_plan(facts, {});
  EXPECT_EQ(cores_near(*plan.step.gpus, view_of(*plan.step.gpus, 0)).to_list(), "0-3");
  EXPECT_EQ(cores_near(*plan.step.gpus, view_of(*plan.step.gpus, 0, {{kNo, kYes}, "0"})).to_list(), "4-7");
}

// The plan of a task to which Slurm left this view.
WholePlan plan_with_view(const StepFacts& facts, const Settings& settings, std::size_t local_task,
                         const GpuVisibility& visibility) {
  const auto step = *plan_step(facts, settings);
  auto task = assumed_task(step, facts, local_task);
  task.view = view_of(*step.gpus, static_cast<std::uint32_t>(local_task), visibility);
  return plan_of_task(step, facts, settings, task);
}

TEST(TaskPlan, ATaskThatCannotSeeItsPeersIsANodeOfItsOwn) {
  const auto facts = one_node(4, 4);
  const auto plan = plan_with_view(facts, {}, 2, {{kNo, kNo, kYes, kNo}, "0"});
  expect_values(plan, {{"CUDA_VISIBLE_DEVICES", "0"},
                       {"LOCAL_RANK", "0"},
                       {"RANK", "2"},
                       {"GROUP_RANK", "2"},
                       {"GROUP_WORLD_SIZE", "4"}});
  EXPECT_NE(value(plan, "SLURM_BOOTSTRAP_EXPORTS"), value(*make_plan(facts, {}, 2), "SLURM_BOOTSTRAP_EXPORTS"));
}

// The environment of a task as slurmstepd leaves it.
Environment started(const StepFacts& facts, const WholePlan& plan, std::size_t task) {
  return applied(plan, with(facts.environment, {{"SLURM_PROCID", std::to_string(facts.ranks_here[task])},
                                                {"SLURM_LOCALID", std::to_string(task)}}));
}

TEST(OwnPlan, ATaskSeesWhatItWasGiven) {
  for (const auto mode : {GpuMode::kIndex, GpuMode::kFirst, GpuMode::kNarrow, GpuMode::kOff}) {
    const auto facts = one_node(2, 4);
    auto step = *plan_step(facts, with_mode(mode));
    if (step.gpus) step.gpus->order = {3, 1, 2, 0};  // an order that the tasks' cores can cause
    const auto plan = plan_of_task(step, facts, with_mode(mode), assumed_task(step, facts, 1));
    const auto environment = started(facts, plan, 1);
    const auto own = succeeded(read_own_plan(environment));
    EXPECT_TRUE(own->is_set);
    EXPECT_TRUE(own->differences.empty()) << own->differences.front();
    EXPECT_EQ(effective_value(own->task.variables, "CUDA_VISIBLE_DEVICES"),
              mode == GpuMode::kOff ? "" : environment.get("CUDA_VISIBLE_DEVICES"));
  }
}

TEST(OwnPlan, IsRightIfSlurmHidPeersAndFindsWhatTheUserChanged) {
  const auto facts = one_node(4, 4);
  auto environment = started(facts, plan_with_view(facts, {}, 2, {{kNo, kNo, kYes, kNo}, "0"}), 2);
  EXPECT_TRUE(read_own_plan(environment)->differences.empty());
  environment.set("CUDA_VISIBLE_DEVICES", "3");
  const auto changed = read_own_plan(environment);
  ASSERT_FALSE(changed->differences.empty());
  EXPECT_NE(changed->differences.front().find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(OwnPlan, ValuesThatTheUserKeptDoNotChangeTheView) {
  auto facts = one_node(4, 4);
  facts.environment.set("WORLD_SIZE", "4");
  facts.environment.set("GROUP_WORLD_SIZE", "1");
  const auto environment = started(facts, *make_plan(facts, {}, 1), 1);
  for (const bool is_unset : {false, true}) {
    auto seen = environment;
    if (is_unset) {
      seen.unset("WORLD_SIZE");
      seen.unset("GROUP_WORLD_SIZE");
    }
    const auto task = succeeded(read_own_plan(seen));
    EXPECT_EQ(effective_value(task->task.variables, "LOCAL_RANK"), "1");
    EXPECT_EQ(task->differences.size(), is_unset ? 2U : 0U);
  }
}

TEST(ExportRecord, SlurmsListsAreNeverOurs) {
  // A step inside the task that is not set up: its list is Slurm's, although it looks like ours.
  const auto facts = one_node(2, 2);
  const auto environment = started(facts, *make_plan(facts, {}), 0);
  for (const auto& name : inherited_to_unset(environment)) EXPECT_NE(name, "CUDA_VISIBLE_DEVICES");
}

TEST(NeedsGpuPlaces, OnlyIfItCanMatter) {
  EXPECT_TRUE(needs_gpu_places(one_node(2, 2), {}));
  EXPECT_FALSE(needs_gpu_places(one_node(1, 1), {}));
  EXPECT_FALSE(needs_gpu_places(one_node(2, 2), with_mode(GpuMode::kOff)));
  const Settings settings{.cpu_near = {true, Source::kOption}};
  EXPECT_TRUE(needs_gpu_places(one_node(1, 1), settings));
}

TEST(GpuBindDefault, DependsOnTheRelease) {
  EXPECT_EQ(gpu_bind_default(22, 5, 8).variable, "SLURM_GPU_BIND");
  EXPECT_EQ(gpu_bind_default(23, 11, 3).value, "none");
  EXPECT_EQ(gpu_bind_default(23, 11, 4).value, "allow-task-sharing");
  EXPECT_EQ(gpu_bind_default(24, 5, 0).option, "--gres-flags=allow-task-sharing");
}

}  // namespace
}  // namespace bootstrap

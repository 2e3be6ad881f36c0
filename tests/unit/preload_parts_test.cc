// Parts of the preloaded library: its variables, whose GPU is whose, what it says of a call that waits, LD_PRELOAD.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "core/settings/ld_preload_list.h"
#include "preload/nccl_hooks/gpu_ownership.h"
#include "preload/nccl_hooks/hang_report.h"
#include "preload/preload_options.h"
#include "preload/stderr_message.h"
#include "step_environment.h"

namespace bootstrap {
namespace {

Layout layout_of(const Environment& environment) {
  const auto task = read_task_plan(environment);
  EXPECT_TRUE(task.has_value());
  return task->facts.layout;
}

// Step 12.0: ranks 0 and 1 on node001, 2 and 3 on node002.
const Layout& two_nodes() {
  static const auto* const layout = new Layout(layout_of(two_by_two(0)));
  return *layout;
}

TEST(PreloadOptions, WrongValuesArePassedOverWithASentence) {
  const auto options = read_preload_options(environment_of({{"SLURM_BOOTSTRAP_TIMEOUT", "0"},
                                                            {"SLURM_BOOTSTRAP_GUARD", "loud"},
                                                            {"SLURM_BOOTSTRAP_TIMING", "yes"},
                                                            {"SLURM_BOOTSTRAP_MPIRUN", "yes"}}));
  EXPECT_EQ(options.timeout, std::chrono::seconds(60));
  EXPECT_EQ(options.guard, Guard::kWarn);
  EXPECT_FALSE(options.timing);
  EXPECT_EQ(options.asks_mpirun, std::nullopt);
  EXPECT_EQ(options.complaints.size(), 4U);
}

TEST(PreloadOptions, RightValuesAreTaken) {
  const auto options = read_preload_options(environment_of({{"SLURM_BOOTSTRAP_TIMEOUT", "4"},
                                                            {"SLURM_BOOTSTRAP_GUARD", "fix"},
                                                            {"SLURM_BOOTSTRAP_TIMING", "1"},
                                                            {"SLURM_BOOTSTRAP_MPIRUN", "ask"}}));
  EXPECT_EQ(options.timeout, std::chrono::seconds(4));
  EXPECT_EQ(options.guard, Guard::kFix);
  EXPECT_TRUE(options.timing);
  EXPECT_EQ(options.asks_mpirun, true);
  EXPECT_TRUE(options.complaints.empty());
}

TEST(PreloadList, IsAppendedOnceAndLast) {
  constexpr const char* kOurs = "/usr/lib/libbootstrap.so.0";
  EXPECT_EQ(append_preload("", kOurs), kOurs);
  EXPECT_EQ(append_preload("/lib/libasan.so.8", kOurs), "/lib/libasan.so.8:/usr/lib/libbootstrap.so.0");
  EXPECT_EQ(append_preload("a.so b.so", kOurs), "a.so b.so:/usr/lib/libbootstrap.so.0");
  for (const char* const there : {"/usr/lib/libbootstrap.so.0", "/home/me/libbootstrap.so",
                                  "a.so /x/libbootstrap.so.0.1.0", "libbootstrap.so:b.so"}) {
    EXPECT_EQ(append_preload(there, kOurs), there);
  }
  EXPECT_EQ(append_preload("/x/libbootstrapper.so", kOurs), "/x/libbootstrapper.so:/usr/lib/libbootstrap.so.0");
}

TEST(GpuOwnership, AGpuOfAnotherRankIsNamedWithItsOwner) {
  const GpuOwnership own{.ordinals = {1}, .visible = 2, .is_shared_list = true};
  EXPECT_EQ(
      describe_wrong_gpu(two_nodes(), 3, own, 0),
      "rank 3 (node002, local rank 1) is about to use cuda:0, the GPU of rank 2 (node002, local rank 0); its own is "
      "cuda:1: call cudaSetDevice(LOCAL_RANK) before NCCL, or set SLURM_BOOTSTRAP_GUARD=fix");
  EXPECT_EQ(describe_wrong_gpu(two_nodes(), 3, own, 1), "");
}

TEST(GpuOwnership, GroupsAreDealtByTurnsAndTheRestIsNobodys) {
  const GpuOwnership own{.ordinals = {1, 3}, .visible = 5, .is_shared_list = true};
  EXPECT_EQ(describe_wrong_gpu(two_nodes(), 1, own, 3), "");
  EXPECT_NE(describe_wrong_gpu(two_nodes(), 1, own, 2).find("the GPU of rank 0"), std::string::npos);
  EXPECT_NE(describe_wrong_gpu(two_nodes(), 1, own, 4).find("which is not its own"), std::string::npos);
}

TEST(GpuOwnership, APlaceInAListOfItsOwnTellsNothingOfOthers) {
  const GpuOwnership own{.ordinals = {0}, .visible = 2, .is_shared_list = false};
  const auto said = describe_wrong_gpu(two_nodes(), 1, own, 1);
  EXPECT_NE(said.find("cuda:1, which is not its own; its own is cuda:0: call cudaSetDevice(BOOTSTRAP_GPU)"),
            std::string::npos)
      << said;
}

TEST(GpuOwnership, OneProcessMayTakeAllWhereItIsAlone) {
  const GpuOwnership own{.ordinals = {0}, .visible = 2, .is_shared_list = true};
  EXPECT_NE(describe_taken_gpu(two_nodes(), 0, own, {0, 1}).find("cuda:1, the GPU of rank 1"), std::string::npos);
  EXPECT_EQ(describe_taken_gpu(two_nodes(), 0, own, {0}), "");
  const auto alone = layout_of(step_of("node[001-002]", "1(x2)", 2, "node001"));
  EXPECT_EQ(describe_taken_gpu(alone, 0, own, {0, 1}), "");
}

TEST(GpuOwnership, AreThoseOfThePlan) {
  auto environment = two_by_two(1);
  const auto task = read_task_plan(environment);
  ASSERT_TRUE(task);
  const auto own = gpu_ownership(*task);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->ordinals, std::vector<std::uint32_t>{1});
  EXPECT_EQ(own->visible, 2U);
  EXPECT_TRUE(own->is_shared_list);
}

TEST(GpuOwnership, AListThatTheProgramMadeTellsNothing) {
  auto environment = two_by_two(1);
  const auto planned = read_task_plan(environment);
  ASSERT_TRUE(planned);
  for (const auto& variable : planned->plan.variables) environment.set(variable.name, variable.value(0));
  const auto untouched = read_task_plan(environment);
  ASSERT_TRUE(untouched);
  EXPECT_TRUE(has_our_gpu_list(*untouched));
  EXPECT_TRUE(gpu_ownership(*untouched));
  for (const char* const list : {"1", "1,0"}) {
    environment.set("CUDA_VISIBLE_DEVICES", list);
    const auto changed = read_task_plan(environment);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(changed->plan.gpus && has_our_gpu_list(*changed)) << list;
    EXPECT_FALSE(gpu_ownership(*changed)) << list;
  }
}

// A world that nobody asked for: its list of GPUs stays Slurm's, and is in no record of ours.
TEST(GpuOwnership, InAWorldTheListStaysSlurms) {
  auto environment = two_by_two(1);
  const auto step = read_task_plan(environment);
  ASSERT_TRUE(step);
  environment.set("SLURM_BOOTSTRAP_STEP", step_tag(step->facts.id));
  environment.set("SLURM_BOOTSTRAP_SETTINGS", "set_up:world");
  const auto planned = read_task_plan(environment);
  ASSERT_TRUE(planned);
  auto set_up = environment;
  for (const auto& variable : planned->plan.variables) {
    if (variable.action != Action::kKept) set_up.set(variable.name, variable.value(0));
  }
  EXPECT_EQ(set_up.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_VISIBLE_DEVICES"));
  const auto untouched = read_task_plan(set_up);
  ASSERT_TRUE(untouched);
  EXPECT_TRUE(has_our_gpu_list(*untouched));
  const auto own = gpu_ownership(*untouched);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->ordinals, std::vector<std::uint32_t>{1});
  // A list of one, as a program or another plugin makes it.
  auto narrowed = set_up;
  narrowed.set("CUDA_VISIBLE_DEVICES", "1");
  EXPECT_FALSE(gpu_ownership(*read_task_plan(narrowed)));
}

TEST(GpuOwnership, AListThatSlurmNarrowedIsTheTasksOwn) {
  auto environment = two_by_two(1);
  environment.set("SLURM_GPUS_ON_NODE", "2");
  environment.set("CUDA_VISIBLE_DEVICES", "1");
  const auto task = read_task_plan(environment);
  ASSERT_TRUE(task);
  EXPECT_EQ(effective_value(task->plan, "BOOTSTRAP_GPU"), "0");
  EXPECT_EQ(effective_value(task->plan, "LOCAL_RANK"), "0");
  environment.set("SLURM_GPUS_ON_NODE", "1");  // control: one GPU for two tasks
  const auto shared = read_task_plan(environment);
  ASSERT_TRUE(shared);
  EXPECT_EQ(effective_value(shared->plan, "BOOTSTRAP_GPU"), "");
  EXPECT_EQ(effective_value(shared->plan, "LOCAL_RANK"), "1");
}

WaitingCall call_of(std::uint32_t ranks) {
  WaitingCall call;
  call.function = "ncclCommInitRank";
  call.ranks = ranks;
  call.topic = 7;
  return call;
}

constexpr std::chrono::seconds kMinute{60};

// What each rank of the step has said: its rank in the communicator, -1 where it has not come.
Attendances came_as(const std::vector<int>& ranks) {
  Attendances all;
  for (const int rank : ranks) {
    if (rank < 0) {
      all.emplace_back();
    } else {
      all.push_back(CallAttendance{22809, {static_cast<std::uint32_t>(rank)}, {}, {}});
    }
  }
  return all;
}

std::string said(std::uint32_t ranks, const Attendances& came, ServerState server = ServerState::kAnswers) {
  return describe_hang(two_nodes(), call_of(ranks), kMinute, came, server);
}

TEST(AttendanceText, NamesRanksOfTheStepWhereAllAreWanted) {
  EXPECT_EQ(said(4, came_as({0, 1, 2, -1})),
            "rank 3 (node002, local rank 1) has not called ncclCommInitRank after 60 s");
  EXPECT_EQ(said(4, came_as({0, 1, -1, -1})), "ranks 2-3 (all of node002) have not called ncclCommInitRank after 60 s");
}

TEST(AttendanceText, ClaimsNoMoreThanWasHeard) {
  const auto half = came_as({0, 1, -1, -1});
  EXPECT_EQ(said(4, half, ServerState::kSilent),
            "ranks 2-3 (all of node002) have not called ncclCommInitRank after 60 s; some may have: slurmstepd on this "
            "node no longer answers, as happens after it queries a node where all ranks have ended");
  EXPECT_EQ(said(4, half, ServerState::kEnded),
            "ranks 2-3 (all of node002) have not called ncclCommInitRank after 60 s; some may have: slurmstepd on this "
            "node has ended");
  EXPECT_EQ(
      said(3, half, ServerState::kEnded),
      "rank 2 of a communicator of 3 has not called ncclCommInitRank after 60 s; among those that have, 0 is rank 0 "
      "(node001, local rank 0), 1 is rank 1 (node001, local rank 1); some may have: slurmstepd on this node has "
      "ended");
  // Who has called, has called.
  EXPECT_EQ(said(4, came_as({0, 1, 2, 3}), ServerState::kSilent), said(4, came_as({0, 1, 2, 3})));
}

TEST(AttendanceText, NamesRanksOfTheCommunicatorWhereNobodyKnowsWhoIsMeant) {
  EXPECT_EQ(
      said(3, came_as({-1, 2, -1, -1})),
      "ranks 0, 1 of a communicator of 3 have not called ncclCommInitRank after 60 s; among those that have, 2 is rank "
      "1 "
      "(node001, local rank 1)");
}

TEST(AttendanceText, SaysSoWhenAllAreThere) {
  EXPECT_TRUE(said(4, came_as({0, 1, 2, 3}))
                  .starts_with("all 4 ranks have called ncclCommInitRank, and it has not returned after 60 s"));
}

TEST(AttendanceText, NamesAVariableThatGivesNcclItsRoot) {
  ::setenv("NCCL_COMM_ID", "10.0.0.1:4321", 1);
  const auto text = said(4, came_as({0, 1, 2, 3}));
  ::unsetenv("NCCL_COMM_ID");
  EXPECT_TRUE(
      text.ends_with("; NCCL_COMM_ID=10.0.0.1:4321 is in the environment, so that NCCL starts at this address and at "
                     "no other; unset it"))
      << text;
}

TEST(AttendanceText, SaysWhoHasFailedAndWhoHasEnded) {
  auto came = came_as({0, 1, -1, -1});
  came[1]->failure = "ncclCommInitRank failed: unhandled cuda error";
  EXPECT_EQ(said(4, came),
            "ncclCommInitRank has not returned after 60 s: rank 1 (node001, local rank 1): ncclCommInitRank failed: "
            "unhandled cuda error; ranks 2-3 (all of node002) have not called ncclCommInitRank after 60 s");
  came[0]->ended = {1, 3};  // rank 1 has a sentence of its own
  EXPECT_EQ(said(4, came),
            "ncclCommInitRank has not returned after 60 s: rank 1 (node001, local rank 1): ncclCommInitRank failed: "
            "unhandled cuda error; rank 3 (node002, local rank 1) has ended; rank 2 (node002, local rank 0) has not "
            "called ncclCommInitRank after 60 s");
}

TEST(AttendanceText, NamesTwoRanksWithDifferentVersions) {
  auto came = came_as({0, 1, 2, 3});
  EXPECT_EQ(describe_versions(two_nodes(), came), "");
  came[2]->version = came[3]->version = 22304;
  EXPECT_TRUE(
      describe_versions(two_nodes(), came)
          .starts_with("NCCL 2.28.9 on rank 0 (node001, local rank 0) and 2.23.4 on rank 2 (node002, local "
                       "rank 0): different versions make no communicator, and some wait for each other for ever"));
  EXPECT_NE(said(4, came).find("different versions"), std::string::npos);
}

TEST(AttendanceText, SeveralRanksOfOneProcessAreThere) {
  auto came = came_as({0, -1, -1, -1});
  came[0]->ranks = {0, 1};
  EXPECT_TRUE(said(4, came).starts_with("ranks 2, 3 of a communicator of 4 have not called"));
}

TEST(AttendanceText, RanksThatAreLeftOutNeedNotCall) {
  auto call = call_of(4);
  call.left_out = {3};
  EXPECT_TRUE(describe_hang(two_nodes(), call, kMinute, came_as({0, 1, -1, -1}), ServerState::kAnswers)
                  .starts_with("rank 2 of a communicator of 4 has not called"));
}

TEST(AttendanceText, OldRanksAreNamedInTheOldCommunicatorAndNewOnesInTheGrownOne) {
  auto call = call_of(3);
  call.function = "ncclCommGrow";
  call.side = GrowSide::kOld;
  const auto said_of = [&](const Attendances& came) {
    return describe_hang(two_nodes(), call, kMinute, came, ServerState::kAnswers);
  };
  EXPECT_TRUE(said_of(came_as({0, 1, -1, -1})).starts_with("rank 2 of a communicator of 3 has not called"));
  EXPECT_EQ(said_of(came_as({0, 1, 2, -1})), "");
  call.ranks = 5;
  call.side = GrowSide::kNew;
  EXPECT_EQ(said_of(came_as({-1, -1, -1, 3})),
            "no rank of the communicator that is to grow has called ncclCommGrow with the unique id of the new ranks "
            "after 60 s");
  auto came = came_as({-1, 1, -1, 3});
  came[1]->ranks = {1, 0, 2};  // it answers for those that were there
  EXPECT_EQ(said_of(came),
            "rank 4 of a communicator of 5 has not called ncclCommGrow after 60 s; among those that have, 1 is rank 1 "
            "(node001, local rank 1), 3 is rank 3 (node002, local rank 1)");
  call.ranks = 4;
  EXPECT_TRUE(
      said_of(came).starts_with("all new ranks have called ncclCommGrow, and it has not returned after 60 s: a "
                                "rank that was in the communicator has not called it, or"));
}

TEST(CallAttendance, IsReadAsItWasWritten) {
  const CallAttendance one{22809, {0, 1}, {5}, "a sentence with spaces"};
  EXPECT_EQ(read_attendance(write_attendance(one)), one);
  const CallAttendance other{0, {3}, {}, {}};
  EXPECT_EQ(read_attendance(write_attendance(other)), other);
  for (const char* const wrong : {"", "1", "1 -", "1 - - x", "x 1 - ", "1 1,x - "}) {
    EXPECT_FALSE(read_attendance(wrong)) << wrong;
  }
}

TEST(AttendanceText, StaysShort) {
  const auto layout = layout_of(step_of("node[0001-1000]", "8(x1000)", 8000, "node0001"));
  for (const std::uint32_t ranks : {8000U, 7999U}) {
    Attendances came(8000);
    for (Rank rank = 0; rank < 8000; rank += 2) came[rank] = CallAttendance{22809, {rank}, {}, {}};
    EXPECT_LT(describe_hang(layout, call_of(ranks), kMinute, came, ServerState::kSilent).size(), 1000U);
  }
}

// Standard error, replaced for the life of this object.
class StandardError {
 public:
  explicit StandardError(int file) : before_(::dup(STDERR_FILENO)) { ::dup2(file, STDERR_FILENO); }
  ~StandardError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST(Message, ABrokenPipeIsNoSignalAndErrnoStays) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  errno = 77;
  {
    const StandardError broken(ends[1]);
    errno = 77;
    say("nobody reads this");  // the default action of SIGPIPE would end the test
    EXPECT_EQ(errno, 77);
  }
  ::close(ends[1]);
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
}

TEST(Message, IsOneLine) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  {
    const StandardError heard(ends[1]);
    say("one");
  }
  char text[16] = "";
  EXPECT_EQ(::read(ends[0], text, sizeof text), 4);
  EXPECT_STREQ(text, "one\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace bootstrap

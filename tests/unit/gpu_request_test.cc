// Reads a step's request for GPUs.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/activation/activation_rules.h"

namespace bootstrap {
namespace {

TresRequest of(const std::string& per_node, std::string TresRequest::*other = &TresRequest::bind,
               const std::string& value = {}) {
  TresRequest request;
  request.per_node = per_node;
  request.*other = value;
  return request;
}

GpuRequest of_node(const std::string& list, std::uint32_t nodes = 2) { return read_gpu_request(of(list), nodes); }

TEST(GpuRequest, CountsTheGpusOfANode) {
  EXPECT_EQ(of_node("gres:gpu:2").per_node, 2U) << "up to 23.02";
  EXPECT_EQ(of_node("gres/gpu:2").per_node, 2U) << "since 23.11";
  EXPECT_EQ(of_node("gres/gpu=2").per_node, 2U);
  EXPECT_EQ(of_node("gres:gpu").per_node, 1U) << "without a count it is one GPU";
  EXPECT_EQ(of_node("gres:gpu:a100").per_node, 1U);
  EXPECT_EQ(of_node("gres:gpu:a100:4").per_node, 4U);
  EXPECT_EQ(of_node("gres/gpu:a100=4").per_node, 4U);
  EXPECT_EQ(of_node("gres:nic:2,gres:gpu:3").per_node, 3U);
}

TEST(GpuRequest, TheLastOfAKindCountsAndKindsAreAdded) {
  EXPECT_EQ(of_node("gres/gpu:2,gres/gpu:2").per_node, 2U) << "srun's beside the job's";
  EXPECT_EQ(of_node("gres/gpu:4,gres/gpu:2").per_node, 2U);
  EXPECT_EQ(of_node("gres:gpu:a100:2,gres:gpu:v100:1").per_node, 3U);
  EXPECT_FALSE(of_node("gres:gpu:a100:2,gres:gpu:1").per_node) << "one request for a type, and one for any type";
}

TEST(GpuRequest, ARequestWithoutANumberForEachNodeGivesTheReason) {
  const auto why = [](const TresRequest& request, std::uint32_t nodes = 2) {
    const auto found = read_gpu_request(request, nodes);
    EXPECT_FALSE(found.per_node);
    return found.reason;
  };
  EXPECT_EQ(why({}), "the step has no GPUs");
  EXPECT_EQ(why(of("gres:gpu:0")), "the step has no GPUs");
  EXPECT_EQ(why(of("gres:nic:2")), "the step has no GPUs");
  EXPECT_EQ(why(of("gres:gpu:1", &TresRequest::per_task, "gres:gpu:1")),
            "the step has GPUs per task (--gpus-per-task)");
  EXPECT_EQ(why(of("", &TresRequest::per_socket, "gres:gpu:1")), "the step has GPUs per socket (--gpus-per-socket)");
  EXPECT_EQ(why(of("gres:shard:2")), "the step has shares of GPUs (shard, MPS)");
  EXPECT_EQ(why(of("gres:mps:50")), "the step has shares of GPUs (shard, MPS)");
  EXPECT_EQ(why(of("", &TresRequest::per_step, "gres:gpu:4")), "--gpus=N does not say how many GPUs each node gets");
  EXPECT_EQ(why(of("gres:gpu:1g.5gb:2")), "the step has MIG instances");
  EXPECT_EQ(why(of("gres/gpu:nvidia_a100_3g.20gb:2")), "the step has MIG instances");
  EXPECT_EQ(why(of("gres:gpu:a:b:c")), "the step's request for GPUs has an unknown form");
}

TEST(GpuRequest, OfTheWholeStepCountsOnOneNode) {
  const auto step = of("", &TresRequest::per_step, "gres:gpu:4");
  EXPECT_EQ(read_gpu_request(step, 1).per_node, 4U);
  EXPECT_TRUE(read_gpu_request(step, 2).has_gpus);
  const auto both = of("gres:gpu:2", &TresRequest::per_step, "gres:gpu:4");
  EXPECT_EQ(read_gpu_request(both, 2).per_node, 2U) << "#SBATCH --gpus=4 beside --gres";
}

// -G N on several nodes is read from the GPUs of the job's nodes.
TEST(GpuRequest, OfTheWholeStepCountsIfEachNodeOfItsJobHasTheSameNumber) {
  const struct {
    const char* step;
    std::vector<std::string> nodes;
    std::optional<std::uint32_t> per_node;
    std::uint32_t node_count = 2;
  } rows[] = {
      {"gres:gpu:4", {"gpu:2(IDX:0-1)", "gpu:2(IDX:0,3)"}, 2},
      {"gres/gpu:8", {"gpu:a100:4(IDX:0-3)", "gpu:a100:4(IDX:0-3)"}, 4},
      {"gres/gpu:a100:8", {"gpu:a100:4(IDX:0-3),nic:1(IDX:0)", "gpu:a100:4(IDX:0-3)"}, 4},
      {"gres:gpu:4", {"gpu:3(IDX:0-2)", "gpu:1(IDX:0)"}, std::nullopt},
      {"gres:gpu:6", {"gpu:2(IDX:0-1)", "gpu:2(IDX:0-1)", "gpu:2(IDX:0-1)"}, 2, 3},
      {"gres:gpu:5", {"gpu:2(IDX:0-1)", "gpu:1(IDX:0)", "gpu:2(IDX:0-1)"}, std::nullopt, 3},
      {"gres:gpu:2", {"gpu:2(IDX:0-1)", "gpu:2(IDX:0-1)"}, std::nullopt},  // a part of its job
      {"gres:gpu:6", {"gpu:2(IDX:0-1)", "gpu:2(IDX:0-1)", "gpu:2(IDX:0-1)"}, std::nullopt},
      {"gres:gpu:4", {"gpu:1g.5gb:2(IDX:0-1)", "gpu:1g.5gb:2(IDX:0-1)"}, std::nullopt},
      {"gres:gpu:4", {"", ""}, std::nullopt},
      {"gres:gpu:a100:1K", {"", ""}, std::nullopt},
      {"gres:gpu:4", {"gpu:2(IDX:0-1", "gpu:2("}, 2},
  };
  for (const auto& [step, nodes, per_node, node_count] : rows) {
    auto request = of("", &TresRequest::per_step, step);
    request.job_nodes = nodes;
    EXPECT_TRUE(needs_job_nodes(request, node_count));
    const auto found = read_gpu_request(request, node_count);
    EXPECT_EQ(found.per_node, per_node) << step << " " << nodes.front();
    EXPECT_TRUE(found.has_gpus);
    EXPECT_EQ(found.reason.empty(), per_node.has_value());
  }
  EXPECT_FALSE(needs_job_nodes(of("gres:gpu:2", &TresRequest::per_step, "gres:gpu:4"), 2));
  EXPECT_FALSE(needs_job_nodes(of("gres:gpu:1", &TresRequest::per_task, "gres:gpu:1"), 2));
  EXPECT_FALSE(needs_job_nodes(of("", &TresRequest::per_step, "gres:gpu:4"), 1));
}

TEST(GpuRequest, FindsABindingBySlurm) {
  const auto binds = [](const std::string& bind) {
    return !read_gpu_request(of("gres:gpu:2", &TresRequest::bind, bind), 1).per_node;
  };
  EXPECT_TRUE(binds("gpu:single:1"));
  EXPECT_TRUE(binds("gres/gpu:per_task:1"));
  EXPECT_TRUE(binds("gres:gpu:closest"));
  EXPECT_TRUE(binds("gpu:verbose,map_gpu:1,0"));
  EXPECT_TRUE(binds("gres/nic:none+gres/gpu:single:2"));
  EXPECT_FALSE(binds(""));
  EXPECT_FALSE(binds("gpu:none"));
  EXPECT_FALSE(binds("gres/gpu:verbose,none"));
  EXPECT_FALSE(binds("gres/nic:single:1"));
}

}  // namespace
}  // namespace bootstrap

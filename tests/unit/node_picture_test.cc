// The picture of a node as users see it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_gpus/node_picture.h"

#include <gtest/gtest.h>

#include "core/util/text.h"
#include "pictured_node.h"

namespace bootstrap {
namespace {

constexpr std::string_view kEightRanks = R"(Node dgx001, step 12.0: 8 ranks; all 8 GPUs are given to the step

+- Package 0, NUMA node 0 --------------------------------- CPUs 0-55,112-167 -+
|  GPU 0  1b:00.0  H100 80GB HBM3  rank 0 (local 0)  cores 0-13,112-125        |
|  GPU 1  43:00.0  H100 80GB HBM3  rank 1 (local 1)  cores 14-27,126-139       |
|  GPU 2  52:00.0  H100 80GB HBM3  rank 2 (local 2)  cores 28-41,140-153       |
|  GPU 3  61:00.0  H100 80GB HBM3  rank 3 (local 3)  cores 42-55,154-167       |
+- Package 1, NUMA node 1 ------------------------------- CPUs 56-111,168-223 -+
|  GPU 4  9d:00.0  H100 80GB HBM3  rank 4 (local 4)  cores 56-69,168-181       |
|  GPU 5  c3:00.0  H100 80GB HBM3  rank 5 (local 5)  cores 70-83,182-195       |
|  GPU 6  d1:00.0  H100 80GB HBM3  rank 6 (local 6)  cores 84-97,196-209       |
|  GPU 7  df:00.0  H100 80GB HBM3  rank 7 (local 7)  cores 98-111,210-223      |
+------------------------------------------------------------------------------+
)";

TEST(NodePicture, OneGpuForEachRank) {
  EXPECT_EQ(picture_text(dgx_h100_with_8_ranks()), cat({kEightRanks, R"(
Every rank can use all 8 GPUs of the step (peers are visible).

GPU 0 is the device node /dev/nvidia0, GPU 1 /dev/nvidia1, and so on.
)"}));
}

TEST(NodePicture, HiddenPeers) {
  auto picture = dgx_h100_with_8_ranks();
  for (auto& task : picture.tasks) task.sees = task.gpus;
  EXPECT_EQ(picture_text(picture), cat({kEightRanks, R"(
Each rank can use only its own GPU (peers are hidden).

GPU 0 is the device node /dev/nvidia0, GPU 1 /dev/nvidia1, and so on.
GPUs are numbered as in the node; a program counts those it can use from 0.
)"}));
}

TEST(NodePicture, FourGpusForEachRank) {
  auto picture = dgx_h100();
  picture.tasks = {{2, 0, picture.topology.packages[0].cpus, {0, 1, 2, 3}, first(8)},
                   {3, 1, picture.topology.packages[1].cpus, {4, 5, 6, 7}, first(8)}};
  EXPECT_EQ(picture_text(picture), R"(Node dgx001, step 12.0: 2 ranks; all 8 GPUs are given to the step

+- Package 0, NUMA node 0 --------------------------------- CPUs 0-55,112-167 -+
|  GPU 0  1b:00.0  H100 80GB HBM3  rank 2 (local 0)  cores 0-55,112-167        |
|  GPU 1  43:00.0  H100 80GB HBM3  rank 2 (local 0)  cores 0-55,112-167        |
|  GPU 2  52:00.0  H100 80GB HBM3  rank 2 (local 0)  cores 0-55,112-167        |
|  GPU 3  61:00.0  H100 80GB HBM3  rank 2 (local 0)  cores 0-55,112-167        |
+- Package 1, NUMA node 1 ------------------------------- CPUs 56-111,168-223 -+
|  GPU 4  9d:00.0  H100 80GB HBM3  rank 3 (local 1)  cores 56-111,168-223      |
|  GPU 5  c3:00.0  H100 80GB HBM3  rank 3 (local 1)  cores 56-111,168-223      |
|  GPU 6  d1:00.0  H100 80GB HBM3  rank 3 (local 1)  cores 56-111,168-223      |
|  GPU 7  df:00.0  H100 80GB HBM3  rank 3 (local 1)  cores 56-111,168-223      |
+------------------------------------------------------------------------------+

Every rank can use all 8 GPUs of the step (peers are visible).

GPU 0 is the device node /dev/nvidia0, GPU 1 /dev/nvidia1, and so on.
)");
}

TEST(NodePicture, FarUnboundAndPartlyVisible) {
  auto picture = dgx_h100();
  picture.step_gpus = {2, 3, 4};
  picture.tasks = {{0, 0, cpus("60-63"), {2}, {2, 3}},
                   {1, 1, cpus("0-223"), {3}, {2, 3}},
                   {2, 2, cpus("0-1"), {}, {}},
                   {3, 3, cpus("50-60"), {3}, {3}},
                   {4, 4, {}, {}, {2}}};
  EXPECT_EQ(picture_text(picture), R"(Node dgx001, step 12.0: 5 ranks; GPUs 2-4 of 8 are given to the step

+- Package 0, NUMA node 0 --------------------------------- CPUs 0-55,112-167 -+
|  GPU 0  1b:00.0  H100 80GB HBM3  not of this step                            |
|  GPU 1  43:00.0  H100 80GB HBM3  not of this step                            |
|  GPU 2  52:00.0  H100 80GB HBM3  rank 0 (local 0)  far: cores 60-63          |
|  GPU 3  61:00.0  H100 80GB HBM3  rank 1 (local 1)  may run on all cores      |
|                                  rank 3 (local 3)  partly far: cores 50-60   |
|  rank 2 (local 2)  cores 0-1, no GPU of its own                              |
+- Package 1, NUMA node 1 ------------------------------- CPUs 56-111,168-223 -+
|  GPU 4  9d:00.0  H100 80GB HBM3  free                                        |
|  GPU 5  c3:00.0  H100 80GB HBM3  not of this step                            |
|  GPU 6  d1:00.0  H100 80GB HBM3  not of this step                            |
|  GPU 7  df:00.0  H100 80GB HBM3  not of this step                            |
|  rank 0 runs here; its GPU 2 is elsewhere                                    |
+- Not bound to one package ---------------------------------------------------+
|  rank 4 (local 4)  cores not known, no GPU of its own                        |
+------------------------------------------------------------------------------+

Not every rank can use every GPU of the step.

  rank 0: own 2; can use 2-3
  rank 1: own 3; can use 2-3
  rank 2: own none; can use none
  rank 3: own 3; can use 3
  rank 4: own none; can use 2

GPU 0 is the device node /dev/nvidia0, GPU 1 /dev/nvidia1, and so on.
far: the cores of the rank are in another NUMA node or package than the GPU.
partly far: some of its cores are in another NUMA node or package than the GPU.
GPUs are numbered as in the node; a program counts those it can use from 0.
)");
}

// Half of the NUMA nodes have no GPU, and the device nodes are not in the order of the PCI addresses.
TEST(NodePicture, SeveralNumaNodesInAPackage) {
  NodePicture picture;
  picture.host = "a100";
  picture.step = "1.0";
  auto& topology = picture.topology;
  topology.cpus = cpus("0-127");
  topology.packages = {{0, cpus("0-127")}};
  topology.numa_nodes = {{0, 0, cpus("0-31")}, {1, 0, cpus("32-63")}, {2, 0, cpus("64-95")}, {3, 0, cpus("96-127")}};
  topology.gpus = {
      {"0000:07:00.0", GpuVendor::kNvidia, "/dev/nvidia1", "", "NVIDIA A100-SXM4-80GB", cpus("96-127"), 3, 0},
      {"0000:47:00.0", GpuVendor::kNvidia, "/dev/nvidia0", "", "NVIDIA A100-SXM4-80GB", cpus("32-63"), 1, 0}};
  picture.step_gpus = {0, 1};
  picture.tasks = {{0, 0, cpus("96-127"), {0}, {0, 1}}, {1, 1, cpus("32-63"), {1}, {0, 1}}};
  EXPECT_EQ(picture_text(picture), R"(Node a100, step 1.0: 2 ranks; both GPUs are given to the step

+- Package 0 ----------------------------------------------------- CPUs 0-127 -+
|  NUMA node 1  CPUs 32-63                                                     |
|    GPU 1  47:00.0  nvidia0  A100-SXM4-80GB  rank 1 (local 1)  cores 32-63    |
|  NUMA node 3  CPUs 96-127                                                    |
|    GPU 0  07:00.0  nvidia1  A100-SXM4-80GB  rank 0 (local 0)  cores 96-127   |
|  NUMA nodes 0,2: no GPU                                                      |
+------------------------------------------------------------------------------+

Every rank can use both GPUs of the step (peers are visible).
)");
}

TEST(NodePicture, NodesWithoutGpuAndGpusWithoutPlace) {
  auto picture = dgx_h100();
  picture.topology.gpus.clear();
  picture.tasks = {{0, 0, cpus("0-3"), {}, {}}, {1, 1, cpus("0-223"), {}, {}}};
  const auto no_gpu = picture_text(picture);
  EXPECT_TRUE(contains(no_gpu, ": 2 ranks; no GPU in this node\n")) << no_gpu;
  EXPECT_TRUE(contains(no_gpu, "|  rank 0 (local 0)  cores 0-3  ")) << no_gpu;
  EXPECT_TRUE(contains(no_gpu, "|  rank 1 (local 1)  may run on all cores  ")) << no_gpu;
  EXPECT_FALSE(contains(no_gpu, "can use")) << no_gpu;

  picture = dgx_h100_with_8_ranks();
  for (auto& gpu : picture.topology.gpus) gpu.numa = gpu.package = std::nullopt;
  for (auto& gpu : picture.topology.gpus) gpu.near = {};
  const auto no_place = picture_text(picture);
  EXPECT_TRUE(contains(no_place, "+- GPUs whose place is not known ---")) << no_place;
  EXPECT_TRUE(contains(no_place, "rank 7 (local 7)  cores 98-111,210-223 ")) << no_place;
  EXPECT_FALSE(contains(no_place, "far")) << no_place;

  picture = dgx_h100();
  picture.step.clear();
  picture.step_gpus.clear();
  const auto machine = picture_text(picture);
  EXPECT_TRUE(contains(machine, "Node dgx001: 8 GPUs\n")) << machine;
  EXPECT_FALSE(contains(machine, "step")) << machine;
  EXPECT_EQ(picture_text({}), "This node: no GPU in this node\n");
}

// A task whose list of devices differs from that of its neighbours cannot tell what they have.
TEST(NodePicture, SaysWhatIsNotKnown) {
  auto picture = dgx_h100();
  picture.step_gpus = {0, 1};
  picture.tasks = {{0, 0, cpus("0-3"), {0}, {0}}, {1, 1, cpus("4-7"), {}, {}, false}};
  const auto text = picture_text(picture);
  EXPECT_TRUE(contains(text, "|  GPU 1  43:00.0  H100 80GB HBM3  rank not known  ")) << text;
  EXPECT_TRUE(contains(text, "|  rank 1 (local 1)  cores 4-7, its GPU is not known  ")) << text;
  EXPECT_TRUE(contains(text, "\nWhich GPUs some of the ranks can use is not known here.\n")) << text;
  EXPECT_TRUE(contains(text, "\n  rank 1: own not known; can use not known\n")) << text;
}

TEST(NodePicture, InterleavedCpusStayInTheWidth) {
  auto picture = dgx_h100_with_8_ranks();
  CpuSet even;
  for (std::size_t cpu = 0; cpu < 224; cpu += 2) even.add(cpu);
  for (auto& package : picture.topology.packages) package.cpus = even;
  for (auto& task : picture.tasks) task.cpus = even;
  const auto text = picture_text(picture);
  EXPECT_TRUE(contains(text, "CPUs 0,2,4,6,8,...,222 (112 CPUs) -+\n")) << text;
  EXPECT_TRUE(contains(text, "partly far: cores 0,2,4,...,222 ")) << text;
}

TEST(NodePicture, LargeNodesAreCutShort) {
  NodePicture picture;
  for (std::uint32_t index = 0; index < kMaxGpus; ++index) {
    Gpu gpu;
    gpu.pci = "0000:01:00.0";
    picture.topology.gpus.push_back(gpu);
    picture.tasks.push_back({index, index, {}, {index}, {index}});
  }
  const auto groups = picture_text(picture);
  EXPECT_LT(split(groups, '\n').size(), 100U) << groups;
  EXPECT_TRUE(contains(groups, "... and 192 more GPUs: 64-255 ")) << groups;

  picture = dgx_h100();
  for (std::uint32_t rank = 0; rank < 4096; ++rank) {
    picture.tasks.push_back({rank, rank, cpus("0-3"), {rank % 8}, {rank % 8}});
  }
  const auto shared = picture_text(picture);
  EXPECT_LT(split(shared, '\n').size(), 80U) << shared;
  EXPECT_TRUE(contains(shared, "... and 509 more ranks: 24,32,")) << shared;
  picture.tasks[0].sees = first(8);
  const auto mixed = picture_text(picture);
  EXPECT_TRUE(contains(mixed, "\n  rank 0: own 0; can use 0-7\n")) << mixed;
  EXPECT_TRUE(contains(mixed, "\n  ... and 4081 more ranks\n")) << mixed;
}

}  // namespace
}  // namespace bootstrap

// The table of a node as users see it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_gpus/node_view.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/util/text.h"
#include "dgx_node.h"
#include "known_machine.h"

namespace bootstrap {
namespace {

void expect_sound(const NodeView& view) {
  const auto text = node_table(view);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  for (const auto line : split(text, '\n')) {
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char byte) { return byte >= 0x20 && byte < 0x7f; })) << line;
  }
}

TEST(NodeTable, OneGpuForEachRank) {
  EXPECT_EQ(node_table(dgx_h100_with_8_ranks()), R"(Node dgx001, step 12.0: 8 ranks; 8 GPUs, given to the step: all

GPU  PCI      DEVICE   MODEL           NUMA  RANK  LOCAL  CORES OF THE RANK  GPUS IT CAN USE
0    1b:00.0  nvidia0  H100 80GB HBM3  0     0     0      0-13,112-125       0-7
1    43:00.0  nvidia1  H100 80GB HBM3  0     1     1      14-27,126-139      0-7
2    52:00.0  nvidia2  H100 80GB HBM3  0     2     2      28-41,140-153      0-7
3    61:00.0  nvidia3  H100 80GB HBM3  0     3     3      42-55,154-167      0-7
4    9d:00.0  nvidia4  H100 80GB HBM3  1     4     4      56-69,168-181      0-7
5    c3:00.0  nvidia5  H100 80GB HBM3  1     5     5      70-83,182-195      0-7
6    d1:00.0  nvidia6  H100 80GB HBM3  1     6     6      84-97,196-209      0-7
7    df:00.0  nvidia7  H100 80GB HBM3  1     7     7      98-111,210-223     0-7

NUMA node 0: CPUs 0-55,112-167
NUMA node 1: CPUs 56-111,168-223
)");
}

TEST(NodeTable, HiddenPeers) {
  auto view = dgx_h100_with_8_ranks();
  for (auto& rank : view.ranks) rank.usable = rank.gpus;
  const auto text = node_table(view);
  EXPECT_TRUE(contains(text, "0-13,112-125       0\n")) << text;
  EXPECT_TRUE(contains(text, "98-111,210-223     7\n")) << text;
}

TEST(NodeTable, FarUnboundAndPartlyVisible) {
  auto view = dgx_h100();
  view.step_gpus = {2, 3, 4};
  view.ranks = {{0, 0, cpus("60-63"), {2}, {2, 3}},
                {1, 1, cpus("0-223"), {3}, {2, 3}},
                {2, 2, cpus("0-1"), {}, {}},
                {3, 3, cpus("50-60"), {3}, {3}},
                {4, 4, {}, {}, {2}}};
  EXPECT_EQ(node_table(view), R"(Node dgx001, step 12.0: 5 ranks; 8 GPUs, given to the step: 2-4

GPU  PCI      DEVICE   MODEL           NUMA  RANK  LOCAL  CORES OF THE RANK  GPUS IT CAN USE
0    1b:00.0  nvidia0  H100 80GB HBM3  0     not of this step
1    43:00.0  nvidia1  H100 80GB HBM3  0     not of this step
2    52:00.0  nvidia2  H100 80GB HBM3  0     0     0      60-63, far         2-3
3    61:00.0  nvidia3  H100 80GB HBM3  0     1     1      all                2-3
                                             3     3      50-60, far         3
4    9d:00.0  nvidia4  H100 80GB HBM3  1     free
5    c3:00.0  nvidia5  H100 80GB HBM3  1     not of this step
6    d1:00.0  nvidia6  H100 80GB HBM3  1     not of this step
7    df:00.0  nvidia7  H100 80GB HBM3  1     not of this step
                                             2     2      0-1                none
                                             4     4      not known          2

NUMA node 0: CPUs 0-55,112-167
NUMA node 1: CPUs 56-111,168-223
far: the cores of the rank, or some of them, are not those near the GPU.
)");
}

TEST(NodeTable, NodesWithoutGpuAndGpusWithoutPlace) {
  auto view = dgx_h100();
  view.topology.gpus.clear();
  view.ranks = {{0, 0, cpus("0-3"), {}, {}}, {1, 1, cpus("0-223"), {}, {}}};
  const auto no_gpu = node_table(view);
  EXPECT_TRUE(contains(no_gpu, ": 2 ranks; no GPU in this node\n")) << no_gpu;
  EXPECT_TRUE(contains(no_gpu, " 0-3 ")) << no_gpu;
  EXPECT_TRUE(contains(no_gpu, " all ")) << no_gpu;

  view = dgx_h100_with_8_ranks();
  for (auto& gpu : view.topology.gpus) gpu.numa = gpu.package = std::nullopt;
  for (auto& gpu : view.topology.gpus) gpu.near = {};
  const auto no_place = node_table(view);
  EXPECT_TRUE(contains(no_place, "98-111,210-223 ")) << no_place;
  EXPECT_FALSE(contains(no_place, "far")) << no_place;
}

// A task whose list of devices differs from those of its neighbours does not know theirs.
TEST(NodeTable, MarksWhatIsNotKnown) {
  auto view = dgx_h100();
  view.step_gpus = {0, 1};
  view.ranks = {{0, 0, cpus("0-3"), {0}, {0}}, {1, 1, cpus("4-7"), {}, {}, false}};
  const auto text = node_table(view);
  EXPECT_TRUE(contains(text, "rank not known\n")) << text;
  EXPECT_TRUE(contains(text, "not known\n")) << text;
  EXPECT_TRUE(contains(text, "not of this step\n")) << text;
}

TEST(NodeTable, LongTablesAndCellsAreCutShort) {
  auto view = dgx_h100_with_8_ranks();
  CpuSet even;
  for (std::size_t cpu = 0; cpu < 224; cpu += 2) even.add(cpu);
  for (auto& rank : view.ranks) rank.cpus = even;
  EXPECT_TRUE(contains(node_table(view), "0,2,4,6,8,10,12,14,16,18,..., far")) << node_table(view);
  for (std::uint32_t rank = 8; rank < 4096; ++rank) {
    view.ranks.push_back({rank, rank, cpus("0-3"), {rank % 8}, {rank % 8}});
  }
  const auto text = node_table(view);
  EXPECT_LT(split(text, '\n').size(), 140U) << text;
  EXPECT_TRUE(contains(text, "... and 3969 more rows\n")) << text;
}

TEST(NodeTable, HostileNamesAreHarmless) {
  auto view = dgx_h100_with_8_ranks();
  const std::string hostile = "\x1b[2J\n\xc3\xa4\t" + std::string(500, 'x');
  view.host = hostile;
  view.step = hostile;
  view.notes = {hostile, "a plain note"};
  view.topology.gpus[0].pci = hostile;
  view.topology.gpus[1].name = hostile;
  view.topology.gpus[2].device = hostile;
  view.topology.gpus[3].uuid = hostile;
  expect_sound(view);
  EXPECT_TRUE(contains(node_table(view), "\na plain note\n"));
}

TEST(NodeTable, OfKnownMachines) {
  for (const auto& machine : names_of_known_machines()) {
    NodeView view{machine, "1.0", known_machine(machine), {}, {}, {}};
    expect_sound(view);
    for (std::uint32_t gpu = 0; gpu < view.topology.gpus.size(); ++gpu) {
      view.step_gpus.push_back(gpu);
      view.ranks.push_back({gpu, gpu, view.topology.gpus[gpu].near, {gpu}, {gpu}});
    }
    expect_sound(view);
    const auto text = node_table(view);
    EXPECT_FALSE(contains(text, "far") || contains(text, "free")) << text;
  }
}

}  // namespace
}  // namespace bootstrap

// What holds for every table of a node: bytes, and nothing left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/util/text.h"
#include "dgx_node.h"
#include "known_machine.h"
#include "tools/explain_gpus/node_view.h"

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

TEST(AnyNodeTable, HostileNamesAreHarmless) {
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

class RandomNodes : public testing::Test {
 protected:
  std::uint32_t below(std::uint32_t end) { return std::uniform_int_distribution<std::uint32_t>(0, end - 1)(random_); }
  bool one_in(std::uint32_t count) { return below(count) == 0; }

  std::string name() {
    std::string text(below(one_in(10) ? 200 : 24), ' ');
    for (auto& byte : text) byte = static_cast<char>(one_in(4) ? below(256) : 'a' + below(26));
    return text;
  }

  CpuSet some_cpus() {
    CpuSet set;
    const auto stride = 1 + below(3);
    const auto start = below(one_in(20) ? 16000 : 200);
    for (std::uint32_t index = below(40); index > 0; --index) set.add(start + std::size_t{stride} * index);
    return set;
  }

  TopologyIndex place(std::size_t size) {
    if (one_in(5)) return std::nullopt;
    return below(static_cast<std::uint32_t>(size) + (one_in(20) ? 3 : 1));
  }

  std::vector<std::uint32_t> indices(std::uint32_t size) {
    std::vector<std::uint32_t> list(below(4));
    for (auto& index : list) index = below(size + (one_in(20) ? 3 : 1));
    return list;
  }

  // Up to 40 of everything, indices that lead nowhere, numbers up to the largest.
  NodeView any() {
    NodeView view{name(), one_in(5) ? "" : name(), {}, {}, {}, {}};
    auto& topology = view.topology;
    topology.cpus = some_cpus();
    const auto number = [&] { return one_in(20) ? UINT32_MAX : below(300); };
    const auto size = one_in(4) ? 40U : 6U;
    for (auto left = below(size); left > 0; --left) topology.packages.push_back({number(), some_cpus()});
    for (auto left = below(size); left > 0; --left) {
      topology.numa_nodes.push_back({number(), place(topology.packages.size()), some_cpus()});
    }
    const auto gpus = below(size);
    for (std::uint32_t index = 0; index < gpus; ++index) {
      topology.gpus.push_back({one_in(3) ? name() : "0000:01:00.0", GpuVendor::kAmd, one_in(3) ? name() : "", "",
                               name(), some_cpus(), place(topology.numa_nodes.size()),
                               place(topology.packages.size())});
    }
    view.step_gpus = indices(gpus);
    for (auto left = below(size); left > 0; --left) {
      view.ranks.push_back(
          {number(), number(), one_in(6) ? topology.cpus : some_cpus(), indices(gpus), indices(gpus), !one_in(8)});
    }
    for (auto left = below(3); left > 0; --left) view.notes.push_back(name() + " " + name());
    return view;
  }

  std::mt19937 random_{20240501};
};

TEST(AnyNodeTable, OfKnownMachines) {
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

TEST_F(RandomNodes, AreSound) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) expect_sound(any());
}

TEST_F(RandomNodes, MentionEveryGpuAndRank) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    auto view = any();
    if (view.topology.gpus.size() > 6 || view.topology.packages.size() > 6) continue;
    if (view.topology.numa_nodes.size() > 6) continue;
    view.ranks.resize(std::min<std::size_t>(view.ranks.size(), 4));  // a GPU shows as many
    const auto text = node_table(view);
    for (std::size_t gpu = 0; gpu < view.topology.gpus.size(); ++gpu) {
      EXPECT_TRUE(contains(text, cat({"\n", std::to_string(gpu), " "}))) << text;
    }
    for (const auto& rank : view.ranks) {
      EXPECT_TRUE(contains(text, cat({"  ", std::to_string(rank.rank), " "}))) << text;
    }
  }
}

}  // namespace
}  // namespace bootstrap

// What holds for every picture of a node: width, bytes, nothing left out.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/util/text.h"
#include "known_machine.h"
#include "pictured_node.h"
#include "tools/explain_gpus/node_picture.h"

namespace bootstrap {
namespace {

void expect_sound(const NodePicture& picture) {
  const auto text = picture_text(picture);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
  int empty_lines = 0;
  for (const auto line : split(text, '\n')) {
    EXPECT_LE(line.size(), 80U) << line;
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char byte) { return byte >= 0x20 && byte < 0x7f; })) << line;
    empty_lines += line.empty() ? 1 : 0;
    if (empty_lines == 1 && !line.empty() && contains(text, "\n\n+-")) {  // the frame stands between the first two
      EXPECT_EQ(line.size(), 80U) << text;
    }
  }
}

TEST(AnyNodePicture, HostileNamesAreHarmless) {
  auto picture = dgx_h100_with_8_ranks();
  const std::string hostile = "\x1b[2J\n\xc3\xa4\t" + std::string(500, 'x');
  picture.host = hostile;
  picture.step = hostile;
  picture.notes = {hostile, "a plain note"};
  picture.topology.gpus[0].pci = hostile;
  picture.topology.gpus[1].name = hostile;
  picture.topology.gpus[2].device = hostile;
  picture.topology.gpus[3].uuid = hostile;
  expect_sound(picture);
  EXPECT_TRUE(contains(picture_text(picture), "\na plain note\n"));
}

class RandomPictures : public testing::Test {
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
  NodePicture any() {
    NodePicture picture{name(), one_in(5) ? "" : name(), {}, {}, {}, {}};
    auto& topology = picture.topology;
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
    picture.step_gpus = indices(gpus);
    for (auto left = below(size); left > 0; --left) {
      picture.tasks.push_back(
          {number(), number(), one_in(6) ? topology.cpus : some_cpus(), indices(gpus), indices(gpus), !one_in(8)});
    }
    for (auto left = below(3); left > 0; --left) picture.notes.push_back(name() + " " + name());
    return picture;
  }

  std::mt19937 random_{20240501};
};

TEST(AnyNodePicture, OfKnownMachines) {
  for (const auto& machine : names_of_known_machines()) {
    NodePicture picture{machine, "1.0", known_machine(machine), {}, {}, {}};
    expect_sound(picture);
    for (std::uint32_t gpu = 0; gpu < picture.topology.gpus.size(); ++gpu) {
      picture.step_gpus.push_back(gpu);
      picture.tasks.push_back({gpu, gpu, picture.topology.gpus[gpu].near, {gpu}, {gpu}});
    }
    expect_sound(picture);
    const auto text = picture_text(picture);
    EXPECT_FALSE(contains(text, "far") || contains(text, "free")) << text;
  }
}

TEST_F(RandomPictures, AreSound) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) expect_sound(any());
}

TEST_F(RandomPictures, MentionEveryGpuAndRank) {
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    auto picture = any();
    if (picture.topology.gpus.size() > 6 || picture.topology.packages.size() > 6) continue;
    if (picture.topology.numa_nodes.size() > 6) continue;
    picture.tasks.resize(std::min<std::size_t>(picture.tasks.size(), 4));  // a GPU shows as many
    const auto text = picture_text(picture);
    for (std::size_t gpu = 0; gpu < picture.topology.gpus.size(); ++gpu) {
      EXPECT_TRUE(contains(text, cat({"GPU ", std::to_string(gpu), " "}))) << text;
    }
    for (const auto& task : picture.tasks) {
      const auto rank = cat({"rank ", std::to_string(task.rank)});
      EXPECT_TRUE(contains(text, cat({rank, " (local ", std::to_string(task.local_rank), ")"}))) << text;
    }
  }
}

}  // namespace
}  // namespace bootstrap

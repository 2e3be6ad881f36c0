// What holds for every picture of a node: width, bytes, nothing left out, sound XML.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "cli/node_picture.h"
#include "core/text.h"
#include "known_machine.h"
#include "pictured_node.h"

namespace bootstrap {
namespace {

// Why `text` is not well-formed, or nothing: enough of XML for what we write. No entities but the predefined ones.
std::string xml_flaw(std::string_view text) {
  std::vector<std::string> open;
  std::size_t roots = 0;
  while (!text.empty()) {
    const auto tag = text.substr(0, text.find('<'));
    for (auto rest = tag; rest.find('&') != std::string_view::npos;) {
      rest.remove_prefix(rest.find('&'));
      const auto entity = rest.substr(0, rest.find(';') + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;" && entity != "&#39;") {
        return cat({"entity ", entity});
      }
      rest.remove_prefix(1);
    }
    if (open.empty() && !trim(tag).empty() && tag != "\n") return "text outside of the root";
    text.remove_prefix(tag.size());
    if (text.empty()) break;
    const auto end = text.find('>');
    if (end == std::string_view::npos) return "tag without end";
    auto inside = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (inside.find('<') != std::string_view::npos) return "< in a tag";
    if (inside.substr(0, 1) == "?") continue;
    const auto name = std::string(inside.substr(inside[0] == '/', inside.find_first_of(" /", 1) - (inside[0] == '/')));
    if (inside[0] == '/') {
      if (open.empty() || open.back() != name) return cat({"closes ", name});
      open.pop_back();
      continue;
    }
    const bool is_empty = inside.back() == '/';
    if (open.empty() && ++roots > 1) return "two roots";
    if (!is_empty) open.push_back(name);
    auto attributes = inside.substr(name.size(), inside.size() - name.size() - (is_empty ? 1 : 0));
    std::vector<std::string_view> seen;
    while (!trim(attributes).empty()) {
      const auto equals = attributes.find("=\"");
      const auto close = equals == std::string_view::npos ? equals : attributes.find('"', equals + 2);
      if (close == std::string_view::npos || attributes[0] != ' ') return cat({"attributes of ", name});
      seen.push_back(attributes.substr(1, equals - 1));
      if (std::count(seen.begin(), seen.end(), seen.back()) > 1) return cat({"twice ", seen.back()});
      attributes.remove_prefix(close + 1);
    }
  }
  return open.empty() && roots == 1 ? "" : "not closed";
}

TEST(AnyNodePicture, ControlOfTheXmlCheck) {
  EXPECT_EQ(xml_flaw("<?xml version=\"1.0\"?>\n<a b=\"c\"><d/>&lt;</a>\n"), "");
  for (const auto broken : {"<a><b></a>", "<a>&</a>", "<a>&nbsp;</a>", "<a b=c/>", "<a b=\"1\" b=\"2\"/>", "<a/><b/>",
                            "<a", "x<a/>", "<a", "<a b=\"<\"/>", "", "<a></a></a>"}) {
    EXPECT_NE(xml_flaw(broken), "") << broken;
  }
}

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
  const auto svg = picture_svg(picture);
  EXPECT_EQ(xml_flaw(svg), "") << svg;
  EXPECT_TRUE(
      std::all_of(svg.begin(), svg.end(), [](char byte) { return byte == '\n' || (byte >= 0x20 && byte < 0x7f); }));
  EXPECT_EQ(svg.find("<script"), std::string::npos);
}

TEST(AnyNodePicture, HostileNamesAreHarmless) {
  auto picture = dgx_h100_with_8_ranks();
  const std::string hostile = "</text><script>alert(1)</script>&\"'\x1b[2J\n\xc3\xa4]]>" + std::string(500, 'x');
  picture.host = hostile;
  picture.step = hostile;
  picture.notes = {hostile, "a plain note"};
  picture.topology.gpus[0].pci = hostile;
  picture.topology.gpus[1].name = hostile;
  picture.topology.gpus[2].device = hostile;
  picture.topology.gpus[3].uuid = hostile;
  expect_sound(picture);
  EXPECT_TRUE(contains(picture_text(picture), "\na plain note\n"));
  EXPECT_TRUE(contains(picture_svg(picture), ">a plain note</text>"));
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
    const auto svg = picture_svg(picture);
    for (std::size_t gpu = 0; gpu < picture.topology.gpus.size(); ++gpu) {
      EXPECT_TRUE(contains(text, cat({"GPU ", std::to_string(gpu), " "}))) << text;
      EXPECT_TRUE(contains(svg, cat({">GPU ", std::to_string(gpu), "</text>"}))) << svg;
    }
    for (const auto& task : picture.tasks) {
      const auto rank = cat({"rank ", std::to_string(task.rank)});
      EXPECT_TRUE(contains(text, cat({rank, " (local ", std::to_string(task.local_rank), ")"}))) << text;
      EXPECT_TRUE(contains(svg, cat({">", rank, "</text>"}))) << svg;
    }
  }
}

}  // namespace
}  // namespace bootstrap

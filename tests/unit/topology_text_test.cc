// Topologies as text: what is read comes back, and what a line may not say.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/topology.h"

#include <gtest/gtest.h>

#include "core/util/text.h"
#include "known_machine.h"

namespace bootstrap {
namespace {

constexpr std::string_view kSmall = R"(slurm-bootstrap-topology 1
cpus 0-3
package 0 0-1
package 1 2-3
numa 0 0-1
numa 1 2-3
gpu 0000:1b:00.0 nvidia 0-1 /dev/nvidia3 GPU-12-ab NVIDIA H100 80GB
gpu 0000:c1:00.0 amd - - -
end
)";

std::string with(std::string_view lines) { return cat({kTopologyTag, "\ncpus 0-3\n", lines, "end\n"}); }

std::string refusal(std::string_view text) {
  const auto topology = parse_topology_text(text);
  return topology ? "accepted" : topology.error().message;
}

std::string refused_line(std::string_view line) { return refusal(with(cat({line, "\n"}))); }

TEST(TopologyText, SaysWhatItHolds) {
  const auto topology = parse_topology_text(kSmall);
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_EQ(topology->cpus.to_list(), "0-3");
  EXPECT_EQ(topology->packages.at(1).cpus.to_list(), "2-3");
  EXPECT_EQ(topology->numa_nodes.at(1).package, 1U);
  ASSERT_EQ(topology->gpus.size(), 2U);
  const auto& gpu = topology->gpus[0];
  EXPECT_EQ(gpu.near.to_list(), "0-1");
  EXPECT_EQ(gpu.numa, 0U);
  EXPECT_EQ(gpu.device, "/dev/nvidia3");
  EXPECT_EQ(gpu.uuid, "GPU-12-ab");
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB");
  const auto& bare = topology->gpus[1];
  EXPECT_EQ(bare.vendor, GpuVendor::kAmd);
  EXPECT_TRUE(bare.near.empty() && bare.device.empty() && bare.uuid.empty() && bare.name.empty());
  EXPECT_EQ(topology_text(*topology), kSmall);
}

TEST(TopologyText, OfKnownMachinesComesBack) {
  for (const auto& name : names_of_known_machines()) {
    EXPECT_EQ(topology_text(known_machine(name)), text_of_known_machine(name));
  }
}

// What a driver says is not always what a line can hold.
TEST(TopologyText, IsReadWhateverTheDriversTell) {
  Topology topology;
  topology.cpus.add(0);
  topology.gpus = {{"0000:1b:00.0", GpuVendor::kIntel, "/dev/../x", "a b", "x\ny" + std::string(500, 'z'), {}, {}, {}}};
  const auto read = parse_topology_text(topology_text(topology));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->gpus.at(0).device, "");
  EXPECT_EQ(read->gpus.at(0).uuid, "");
  EXPECT_EQ(read->gpus.at(0).name, "x?y" + std::string(125, 'z'));
}

TEST(TopologyText, OfAnotherFormIsRefused) {
  EXPECT_EQ(refusal(""), "line 1: it does not begin with \"slurm-bootstrap-topology 1\"");
  EXPECT_EQ(refusal("slurm-bootstrap-topology 2\nend\n"), refusal(""));
  EXPECT_EQ(refusal("<?xml version=\"1.0\"?>\n"), "line 1: it is XML");
  EXPECT_EQ(refusal("<topology version=\"2.0\">\n"), "line 1: it is XML");
  EXPECT_EQ(refusal("slurm-bootstrap-topology 1\nend\n"), "line 2: the line with the CPUs of the machine is missing");
  EXPECT_EQ(refusal(with("end\n")), "line 3: \"end\" is not expected here");
}

TEST(TopologyText, ALineThatIsWrongIsRefused) {
  EXPECT_EQ(refused_line("gpus 8"), "line 3: \"gpus\" is not expected here");
  EXPECT_EQ(refused_line("cpus 0-3"), "line 3: \"cpus\" is not expected here");
  EXPECT_EQ(refused_line("package x 0"), "line 3: \"x\" is not a number");
  EXPECT_EQ(refused_line("package 0"), "line 3: the list of CPUs is missing");
  EXPECT_NE(refused_line("numa 0 0-").find("line 3: the CPU list \"0-\" is not a list of numbers"), std::string::npos);
  EXPECT_EQ(refused_line("gpu 1b:00.0 nvidia - - -"), "line 3: \"1b:00.0\" is not a PCI address");
  EXPECT_EQ(refused_line("gpu 0000:1b:00.0 matrox - - -"), "line 3: \"matrox\" is not nvidia, amd or intel");
  EXPECT_EQ(refused_line("gpu 0000:1b:00.0 amd"), "line 3: the list of CPUs is missing");
  EXPECT_EQ(refused_line("gpu 0000:1b:00.0 amd - /etc/passwd -"),
            "line 3: \"/etc/passwd\" is not a device such as /dev/nvidia0");
  EXPECT_EQ(refused_line("gpu 0000:1b:00.0 amd - /dev/../x -"),
            "line 3: \"/dev/../x\" is not a device such as /dev/nvidia0");
  EXPECT_EQ(refused_line("gpu 0000:1b:00.0 amd - - GPU-1,GPU-2"), "line 3: \"GPU-1,GPU-2\" is not a UUID");
  EXPECT_EQ(refused_line("gpu 0000:1b:00.0 amd - - - \x1b[2J"), "line 3: \"\\x1b[2J\" is not the model of a GPU");
}

TEST(TopologyText, WhatDoesNotFitTogetherIsRefused) {
  for (const auto* const lines :
       {"package 0 0-1\npackage 1 1-2\n", "numa 0 7\n", "gpu 0:1:0.0 amd - - -\ngpu 0000:01:00.0 amd - - -\n"}) {
    EXPECT_NE(refusal(with(lines)).find("a GPU is listed twice, or the CPUs of a package"), std::string::npos);
  }
}

TEST(TopologyText, IsBounded) {
  std::string gpus;
  for (std::size_t i = 0; i <= kMaxGpus; ++i) gpus += cat({"gpu ", std::to_string(i), ":00:00.0 amd - - -\n"});
  EXPECT_EQ(refusal(with(gpus)), "line 259: there are more than 256 GPUs");
  std::string nodes;
  for (int i = 0; i < 5000; ++i) nodes += "numa 0 0\n";
  EXPECT_EQ(refusal(with(nodes)), "line 4099: there are too many lines of this kind");
  EXPECT_EQ(refusal(std::string(kMaxTopologyText + 1, ' ')), "line 1: it is too large for a topology");
}

// A copy that a full disk cut short would hide GPUs.
TEST(TopologyText, ThatWasCutShortIsRefused) {
  for (std::size_t size = 0; size + 1 < kSmall.size(); ++size) {
    EXPECT_FALSE(parse_topology_text(kSmall.substr(0, size))) << size;
  }
}

}  // namespace
}  // namespace bootstrap

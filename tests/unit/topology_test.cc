// Topologies: which devices and CPUs are near each other, and the text form.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/topology.h"

#include <gtest/gtest.h>

#include "core/util/text.h"
#include "cpu_list.h"
#include "known_machine.h"

namespace bootstrap {
namespace {

FoundGpu found(std::string pci, std::string_view local, GpuVendor vendor = GpuVendor::kNvidia,
               std::uint32_t device_class = 0x0302) {
  FoundGpu gpu{{}, device_class, cpus(local)};
  gpu.gpu.pci = std::move(pci);
  gpu.gpu.vendor = vendor;
  return gpu;
}

// Two packages of two NUMA nodes of two CPUs.
Topology machine(std::vector<FoundGpu> gpus) {
  return make_topology(cpus("0-7"), {{1, cpus("4-7")}, {0, cpus("0-3")}},
                       {{0, {}, cpus("0-1")}, {1, {}, cpus("2-3")}, {3, {}, cpus("6-7")}, {2, {}, cpus("4-5")}},
                       std::move(gpus));
}

std::vector<std::string> addresses(const Topology& topology) {
  std::vector<std::string> pci;
  for (const auto& gpu : topology.gpus) pci.push_back(gpu.pci);
  return pci;
}

TEST(Topology, NumbersAreInOrderAndNodesKnowTheirPackage) {
  const auto topology = machine({});
  EXPECT_EQ(topology.packages[1].cpus, cpus("4-7"));
  ASSERT_EQ(topology.numa_nodes.size(), 4U);
  EXPECT_EQ(topology.numa_nodes[2].cpus, cpus("4-5"));
  EXPECT_EQ(topology.numa_nodes[1].package, 0U);
  EXPECT_EQ(topology.numa_nodes[2].package, 1U);
}

TEST(Topology, AGpuIsNearItsNumaNodeOrItsPackage) {
  const struct {
    const char* what;
    const char* local;
    const char* near;  // empty: not known
    TopologyIndex numa, package;
  } rows[] = {
      {"a node", "2-3", "2-3", 1, 0},
      {"a part of a node means the node", "3", "2-3", 1, 0},
      {"a package may be all that is known", "4-7", "4-7", {}, 1},
      {"parts of two packages", "2-5", "2-5", {}, {}},
      {"the whole machine is no place", "0-7", "", {}, {}},
      {"not known", "", "", {}, {}},
      {"more than the machine has", "0-100", "", {}, {}},
      {"CPUs of another machine", "50", "", {}, {}},
  };
  for (const auto& [what, local, near, numa, package] : rows) {
    const auto gpu = machine({found("0000:01:00.0", local)}).gpus.at(0);
    EXPECT_EQ(gpu.near, cpus(near)) << what;
    EXPECT_EQ(gpu.numa, numa) << what;
    EXPECT_EQ(gpu.package, package) << what;
  }
}

TEST(Topology, AMachineOfOneNodeIsAPlace) {
  const std::vector<NumaNode> whole{{0, {}, cpus("0-3")}};
  const auto one = make_topology(cpus("0-3"), {{0, cpus("0-3")}}, whole, {found("0000:01:00.0", "0-3")}).gpus.at(0);
  EXPECT_EQ(one.near, cpus("0-3"));
  EXPECT_EQ(one.numa, 0U);
  EXPECT_EQ(one.package, 0U);
  // A node over two packages, as EPYC processors with "NPS0" make one.
  const std::vector<Package> packages{{0, cpus("0-1")}, {1, cpus("2-3")}};
  const auto both = make_topology(cpus("0-3"), packages, whole, {found("0000:01:00.0", "0-3")}).gpus.at(0);
  EXPECT_EQ(both.near, cpus("0-3"));
  EXPECT_EQ(both.package, std::nullopt);
}

TEST(Topology, MemoryWithoutCpusIsLeftOut) {
  const auto topology = make_topology(
      cpus("0-3"), {},
      {{0, {}, cpus("0-1")}, {1, {}, cpus("2-3")}, {4, {}, cpus("0-1")}, {5, {}, cpus("0-3")}, {6, {}, {}}},
      {found("0009:01:00.0", "0-1")});
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.gpus.at(0).numa, 0U);
}

TEST(Topology, GpusAreInPciOrderAndOccurOnce) {
  const auto topology = machine({found("0001:00:00.0", "0"), found("0000:c1:00.0", "0"), found("0000:1b:00.1", "0"),
                                 found("0000:1b:00.0", "0"), found("10000:01:00.0", "0"), found("0000:1b:00.0", "4")});
  EXPECT_EQ(addresses(topology), (std::vector<std::string>{"0000:1b:00.0", "0000:1b:00.1", "0000:c1:00.0",
                                                           "0001:00:00.0", "10000:01:00.0"}));
}

TEST(Topology, ConsolesOfAmdAreNoGpusBesideOthers) {
  const auto console = found("0000:01:00.0", "0", GpuVendor::kAmd, 0x0300);
  const auto instinct = found("0000:c1:00.0", "0", GpuVendor::kAmd, 0x0380);
  const auto nvidia = found("0000:02:00.0", "0", GpuVendor::kNvidia, 0x0300);
  EXPECT_EQ(machine({console, nvidia}).gpus.size(), 2U);
  EXPECT_EQ(addresses(machine({console, instinct, nvidia})),
            (std::vector<std::string>{"0000:02:00.0", "0000:c1:00.0"}));
}

TEST(GpuVendor, KnowsGpusForComputing) {
  EXPECT_EQ(gpu_vendor(0x10de, 0x0302), GpuVendor::kNvidia);
  EXPECT_EQ(gpu_vendor(0x10de, 0x0300), GpuVendor::kNvidia);
  EXPECT_EQ(gpu_vendor(0x10de, 0x0680), std::nullopt);  // an NVSwitch
  EXPECT_EQ(gpu_vendor(0x1002, 0x0380), GpuVendor::kAmd);
  EXPECT_EQ(gpu_vendor(0x1002, 0x1200), GpuVendor::kAmd);
  EXPECT_EQ(gpu_vendor(0x1002, 0x0403), std::nullopt);  // its sound device
  EXPECT_EQ(gpu_vendor(0x8086, 0x0380), GpuVendor::kIntel);
  EXPECT_EQ(gpu_vendor(0x8086, 0x0300), std::nullopt);
  EXPECT_EQ(gpu_vendor(0x8086, 0x1200), std::nullopt);
  EXPECT_EQ(gpu_vendor(0x1a03, 0x0300), std::nullopt);  // the console of a server
}

TEST(NormalPci, HasOneForm) {
  EXPECT_EQ(normal_pci("0000:1b:00.0"), "0000:1b:00.0");
  EXPECT_EQ(normal_pci("00000000:1B:00.0"), "0000:1b:00.0");
  EXPECT_EQ(normal_pci("10000:e1:1f.7"), "10000:e1:1f.7");
  for (const auto* const text : {"", "1b:00.0", "0000:1b:00", "0000:1b:20.0", "0000:1b:00.8", "0000:100:00.0", "::.",
                                 "0000:1b:00.0 ", "x:1b:00.0", "0000:1b:00.0:0", "0000:1b:.0"}) {
    EXPECT_EQ(normal_pci(text), std::nullopt) << text;
  }
}

TEST(Topology, GivesTheGpusOfAVendor) {
  const auto topology = machine({found("0000:01:00.0", "0"), found("0000:02:00.0", "4", GpuVendor::kIntel, 0x0380)});
  ASSERT_EQ(gpus_of(topology, GpuVendor::kIntel).size(), 1U);
  EXPECT_EQ(gpus_of(topology, GpuVendor::kIntel)[0].pci, "0000:02:00.0");
  EXPECT_TRUE(gpus_of(topology, GpuVendor::kAmd).empty());
}

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

TEST(TopologyText, IsParsed) {
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

// A driver's text may not fit into a line.
TEST(TopologyText, IsReadWithAnyTextOfTheDrivers) {
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

TEST(TopologyText, ContradictionsAreRefused) {
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

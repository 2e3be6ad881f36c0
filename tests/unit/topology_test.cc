// What makes a topology of what a source tells: order, one owner for each CPU, and a place for each GPU or none.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/topology.h"

#include <gtest/gtest.h>

#include "cpu_list.h"

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

TEST(Topology, AGpuIsNearItsNumaNode) {
  const auto gpu = machine({found("0000:01:00.0", "2-3")}).gpus.at(0);
  EXPECT_EQ(gpu.near, cpus("2-3"));
  EXPECT_EQ(gpu.numa, 1U);
  EXPECT_EQ(gpu.package, 0U);
}

TEST(Topology, APartOfANodeMeansTheNode) {
  EXPECT_EQ(machine({found("0000:01:00.0", "3")}).gpus.at(0).near, cpus("2-3"));
}

TEST(Topology, APackageMayBeAllThatIsTold) {
  const auto gpu = machine({found("0000:01:00.0", "4-7")}).gpus.at(0);
  EXPECT_EQ(gpu.near, cpus("4-7"));
  EXPECT_EQ(gpu.numa, std::nullopt);
  EXPECT_EQ(gpu.package, 1U);
}

TEST(Topology, TheWholeMachineIsNoPlace) {
  for (const auto* const local : {"0-7", "", "0-100", "50"}) {
    const auto gpu = machine({found("0000:01:00.0", local)}).gpus.at(0);
    EXPECT_TRUE(gpu.near.empty()) << local;
    EXPECT_EQ(gpu.package, std::nullopt);
  }
  const auto across = machine({found("0000:01:00.0", "2-5")}).gpus.at(0);
  EXPECT_EQ(across.near, cpus("2-5"));
  EXPECT_EQ(across.package, std::nullopt);
}

TEST(Topology, AMachineOfOneNodeIsAPlace) {
  const auto topology =
      make_topology(cpus("0-3"), {{0, cpus("0-3")}}, {{0, {}, cpus("0-3")}}, {found("0000:01:00.0", "0-3")});
  EXPECT_EQ(topology.gpus.at(0).near, cpus("0-3"));
  EXPECT_EQ(topology.gpus.at(0).numa, 0U);
  EXPECT_EQ(topology.gpus.at(0).package, 0U);
}

// A node over two packages, as EPYC processors with "NPS0" make one.
TEST(Topology, ANodeMayBeInNoPackage) {
  const auto topology = make_topology(cpus("0-3"), {{0, cpus("0-1")}, {1, cpus("2-3")}}, {{0, {}, cpus("0-3")}},
                                      {found("0000:01:00.0", "0-3")});
  EXPECT_EQ(topology.gpus.at(0).near, cpus("0-3"));
  EXPECT_EQ(topology.gpus.at(0).package, std::nullopt);
}

TEST(Topology, MemoryWithoutCpusIsLeftOut) {
  const auto topology = make_topology(
      cpus("0-3"), {},
      {{0, {}, cpus("0-1")}, {1, {}, cpus("2-3")}, {4, {}, cpus("0-1")}, {5, {}, cpus("0-3")}, {6, {}, {}}},
      {found("0009:01:00.0", "0-1")});
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.gpus.at(0).numa, 0U);
}

TEST(Topology, GpusAreInPciOrderAndThereOnce) {
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

}  // namespace
}  // namespace bootstrap

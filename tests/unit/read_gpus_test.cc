// The reader of GPUs, on folders that look like /sys and /proc of known nodes and of broken ones.
// SPDX-License-Identifier: Apache-2.0
#include "probe/read_gpus.h"

#include <gtest/gtest.h>

#include "fake_machine.h"

namespace bootstrap {
namespace {

// Two packages with a NUMA node and an NVIDIA GPU each.
KnownNode small_node() {
  KnownNode node{.cpus = cpus("0-7"), .packages = {{0, cpus("0-3")}, {1, cpus("4-7")}}};
  node.numa_nodes = node.packages;
  for (std::uint32_t i = 0; i < 2; ++i) {
    node.gpus.push_back({.pci = i == 0 ? "0000:1b:00.0" : "0000:c1:00.0",
                         .device = "/dev/nvidia" + std::to_string(1 - i),
                         .uuid = "GPU-" + std::to_string(i),
                         .name = "NVIDIA H100 80GB HBM3",
                         .numa = i,
                         .near = node.packages[i],
                         .package = node.packages[i]});
  }
  return node;
}

std::vector<std::string> addresses(const std::vector<Gpu>& gpus) {
  std::vector<std::string> pci;
  for (const auto& gpu : gpus) pci.push_back(gpu.pci);
  return pci;
}

TEST(ReadGpus, FindsTheGpusOfKnownNodes) {
  for (const auto& [name, node] : known_nodes()) {
    EXPECT_EQ(read_gpus(FakeMachine(node).root()), node.gpus) << name;
  }
  EXPECT_TRUE(read_gpus(FakeMachine().root()).empty()) << "control: an empty machine";
}

TEST(ReadGpus, OldKernelsHaveAnotherName) {
  const FakeMachine machine(small_node());
  for (const auto* const cpu : {"0", "4"}) {
    const auto folder = cat({"/sys/devices/system/cpu/cpu", cpu, "/topology/"});
    machine.remove(folder + "package_cpus_list");
    machine.write(folder + "core_siblings_list", *cpu == '0' ? "0-3\n" : "4-7\n");
  }
  EXPECT_EQ(read_gpus(machine.root()), small_node().gpus);
}

// A NUMA node over two packages, as on EPYC processors with "NPS0"; and unknown packages.
TEST(ReadGpus, APackageMayBeUnknown) {
  const FakeMachine machine(small_node());
  machine.write("/sys/devices/system/node/node0/cpulist", "0-7\n");
  machine.remove("/sys/devices/system/cpu/cpu4");
  const auto gpus = read_gpus(machine.root());
  EXPECT_EQ(gpus.at(0).near, cpus("0-7"));
  EXPECT_EQ(gpus.at(1).near, cpus("4-7"));
  for (const auto& gpu : gpus) EXPECT_TRUE(gpu.package.empty());
}

TEST(ReadGpus, AGpuMayHaveNoPlace) {
  for (const auto* const number : {"-1", "7", "x", ""}) {
    const FakeMachine machine(small_node());
    machine.add_pci_device("0000:1b:00.0", "0x10de", "0x030200", number);
    machine.write("/sys/devices/system/node/node7/cpulist", "\n");  // only memory
    const auto gpu = read_gpus(machine.root()).at(0);
    EXPECT_TRUE(gpu.near.empty() && !gpu.numa) << number;
    EXPECT_EQ(gpu.device, "/dev/nvidia1");
  }
}

TEST(ReadGpus, ADriverMayLeaveValuesOut) {
  const FakeMachine machine(small_node());
  machine.add_information({.pci = "0000:1b:00.0"});  // no minor number, UUID of question marks
  const auto found = read_gpus(machine.root()).at(0);
  EXPECT_EQ(found.device, "");
  EXPECT_EQ(found.uuid, "");
  EXPECT_EQ(found.near, cpus("0-3"));
}

TEST(ReadGpus, AGpuThatIsExcludedDoesNotCount) {
  const FakeMachine machine(small_node());
  machine.add_information(small_node().gpus[0], "GPU Excluded:\t Yes\n");
  EXPECT_EQ(read_gpus(machine.root()).size(), 1U);
  machine.add_information(small_node().gpus[0], "GPU Excluded:\t No\n");
  EXPECT_EQ(read_gpus(machine.root()), small_node().gpus);
}

TEST(ReadGpus, AreInPciOrder) {
  const FakeMachine machine;
  for (const auto* const pci : {"10000:01:00.0", "0001:00:00.0", "0000:c1:00.0", "0000:1b:00.1", "0000:1b:00.0"})
    machine.add_information({.pci = pci});
  EXPECT_EQ(
      addresses(read_gpus(machine.root())),
      (std::vector<std::string>{"0000:1b:00.0", "0000:1b:00.1", "0000:c1:00.0", "0001:00:00.0", "10000:01:00.0"}));
}

TEST(ReadGpus, RenderNodesAreThoseOfAmdAndIntel) {
  const struct {
    const char* what;
    std::vector<std::array<const char*, 3>> devices;  // address, vendor, class
    std::vector<std::string> found;
  } rows[] = {
      {"NVIDIA's own", {{"0000:1b:00.0", "0x10de", "0x030200"}}, {}},
      {"Instinct, up to MI250 and from MI300", {{"0000:c1:00.0", "0x1002", "0x038000"}}, {"0000:c1:00.0"}},
      {"Instinct from MI300", {{"0000:c1:00.0", "0x1002", "0x120000"}}, {"0000:c1:00.0"}},
      {"Radeon alone", {{"0000:c1:00.0", "0x1002", "0x030000"}}, {"0000:c1:00.0"}},
      {"a console beside Instinct",
       {{"0000:02:00.0", "0x1002", "0x030000"}, {"0000:c1:00.0", "0x1002", "0x038000"}},
       {"0000:c1:00.0"}},
      {"Intel Max", {{"0000:3a:00.0", "0x8086", "0x038000"}}, {"0000:3a:00.0"}},
      {"part of an Intel processor", {{"0000:00:02.0", "0x8086", "0x030000"}}, {}},
      {"the console of a server", {{"0000:03:00.0", "0x1a03", "0x030000"}}, {}},
      {"a partition of AMD", {{"amdgpu_xcp_1", "0x1002", "0x038000"}}, {}},
  };
  for (const auto& [what, devices, found] : rows) {
    const FakeMachine machine;
    int number = 128;
    for (const auto& [pci, vendor, device_class] : devices) {
      machine.add_pci_device(pci, vendor, device_class, "-1");
      machine.link(cat({"/sys/class/drm/renderD", std::to_string(number++), "/device"}), cat({"../../../", pci}));
      machine.link(cat({"/sys/class/drm/card", std::to_string(number), "/device"}), cat({"../../../", pci}));
    }
    EXPECT_EQ(addresses(read_gpus(machine.root())), found) << what;
  }
}

TEST(ReadGpus, FilesOfAnotherFormDoNoHarm) {
  const FakeMachine machine(small_node());
  machine.write("/sys/devices/system/node/node0/cpulist", std::string(200000, '1'));
  machine.write("/sys/devices/system/node/node1/cpulist", "4-\n");
  machine.write("/proc/driver/nvidia/gpus/0000:1b:00.0/information",
                cat({"Model: x\nDevice Minor: ../../x\n:\n", std::string(100000, ':')}));
  machine.write("/proc/driver/nvidia/gpus/evil/information", "Model: x\n");
  const auto gpus = read_gpus(machine.root());
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].device, "");
  for (const auto& gpu : gpus) EXPECT_TRUE(gpu.near.empty());
}

}  // namespace
}  // namespace bootstrap

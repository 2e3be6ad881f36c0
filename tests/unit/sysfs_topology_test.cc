// The reader of /sys and /proc, on folders that look like those of known machines and of broken ones.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cpu_list.h"
#include "fake_machine.h"
#include "known_machine.h"

namespace bootstrap {
namespace {

// Two packages with a NUMA node and an NVIDIA GPU each.
Topology small_machine() {
  Topology topology;
  topology.cpus = cpus("0-7");
  topology.packages = {{0, cpus("0-3")}, {1, cpus("4-7")}};
  topology.numa_nodes = {{0, 0, cpus("0-3")}, {1, 1, cpus("4-7")}};
  for (std::uint32_t i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.pci = i == 0 ? "0000:1b:00.0" : "0000:c1:00.0";
    gpu.device = "/dev/nvidia" + std::to_string(1 - i);
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.name = "NVIDIA H100 80GB HBM3";
    gpu.near = topology.numa_nodes[i].cpus;
    gpu.numa = gpu.package = i;
    topology.gpus.push_back(gpu);
  }
  return topology;
}

class SysfsOfKnownMachine : public testing::TestWithParam<std::string> {};

// Two readers that share only the last step find the same machine.
TEST_P(SysfsOfKnownMachine, EqualsTheMachineOfTheFile) {
  const auto topology = known_machine(GetParam());
  EXPECT_FALSE(topology.numa_nodes.empty());
  EXPECT_EQ(read_sysfs_topology(FakeMachine(topology).root()), topology);
}

INSTANTIATE_TEST_SUITE_P(Machines, SysfsOfKnownMachine, testing::ValuesIn(names_of_known_machines()),
                         [](const auto& machine) {
                           std::string name = machine.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(SysfsTopology, ThisMachineHasCpus) {
  EXPECT_EQ(read_sysfs_topology(FakeMachine().root()), Topology()) << "control: an empty machine";
  const auto topology = read_sysfs_topology();
  EXPECT_FALSE(topology.cpus.empty());
  EXPECT_FALSE(topology.numa_nodes.empty());
  for (const auto& node : topology.numa_nodes) EXPECT_TRUE(node.cpus.is_within(topology.cpus));
}

TEST(SysfsTopology, OldKernelsHaveOtherNames) {
  const auto topology = small_machine();
  const FakeMachine machine(topology);
  machine.remove("/sys/devices/system/node/has_cpu");
  for (const auto cpu : topology.cpus.members()) {
    const auto folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    machine.remove(folder + "package_cpus_list");
    machine.write(folder + "core_siblings_list", cpu < 4 ? "0-3\n" : "4-7\n");
  }
  EXPECT_EQ(read_sysfs_topology(machine.root()), topology);
}

TEST(SysfsTopology, PackagesMayHaveNoNumberOrBeUnknown) {
  const FakeMachine machine(small_machine());
  machine.write("/sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1\n");
  machine.write("/sys/devices/system/cpu/cpu4/topology/physical_package_id", "-1\n");
  EXPECT_EQ(read_sysfs_topology(machine.root()), small_machine());
  machine.remove("/sys/devices/system/cpu/cpu0");
  const auto topology = read_sysfs_topology(machine.root());
  EXPECT_TRUE(topology.packages.empty());
  EXPECT_EQ(topology.gpus.at(1).near, cpus("4-7"));
  EXPECT_EQ(topology.gpus.at(1).package, std::nullopt);
}

TEST(SysfsTopology, AKernelWithoutNumaHasOneNode) {
  const FakeMachine machine(small_machine());
  machine.remove("/sys/devices/system/node");
  const auto topology = read_sysfs_topology(machine.root());
  ASSERT_EQ(topology.numa_nodes.size(), 1U);
  EXPECT_EQ(topology.numa_nodes[0].cpus, cpus("0-7"));
  EXPECT_EQ(topology.numa_nodes[0].package, std::nullopt);
}

// Firmware may not provide a device's place: numa_node is -1, and all CPUs are local.
TEST(SysfsTopology, AGpuMayHaveNoPlace) {
  const FakeMachine machine(small_machine());
  machine.add_pci_device("0000:1b:00.0", "0x10de", "0x030200", "-1", cpus("0-7"));
  const auto topology = read_sysfs_topology(machine.root());
  EXPECT_TRUE(topology.gpus.at(0).near.empty());
  EXPECT_EQ(topology.gpus.at(0).device, "/dev/nvidia1");
  machine.add_pci_device("0000:1b:00.0", "0x10de", "0x030200", "-1", cpus("4-7"));
  EXPECT_EQ(read_sysfs_topology(machine.root()).gpus.at(0).numa, 1U) << "by its CPUs";
  machine.remove("/sys/bus");
  EXPECT_TRUE(read_sysfs_topology(machine.root()).gpus.at(1).near.empty());
}

TEST(SysfsTopology, ADriverMayLeaveValuesOut) {
  const FakeMachine machine(small_machine());
  Gpu gpu;
  gpu.pci = "0000:1b:00.0";
  machine.add_information(gpu);  // no minor number, UUID of question marks
  const auto found = read_sysfs_topology(machine.root()).gpus.at(0);
  EXPECT_EQ(found.device, "");
  EXPECT_EQ(found.uuid, "");
  EXPECT_EQ(found.near, cpus("0-3"));
}

TEST(SysfsTopology, AGpuThatIsExcludedDoesNotCount) {
  const FakeMachine machine(small_machine());
  machine.add_information(small_machine().gpus[0], "GPU Excluded:\t Yes\n");
  ASSERT_EQ(read_sysfs_topology(machine.root()).gpus.size(), 1U);
  machine.add_information(small_machine().gpus[0], "GPU Excluded:\t No\n");
  EXPECT_EQ(read_sysfs_topology(machine.root()), small_machine());
}

TEST(SysfsTopology, WithoutADriverGpusAreReadFromTheBus) {
  const FakeMachine machine(small_machine());
  machine.remove("/proc");
  machine.add_pci_device("0000:c4:00.0", "0x10de", "0x068000", "1", cpus("4-7"));  // an NVSwitch
  machine.add_pci_device("0000:03:00.0", "0x1a03", "0x030000", "0", cpus("0-3"));  // a console
  const auto topology = read_sysfs_topology(machine.root());
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[1].near, cpus("4-7"));
  EXPECT_EQ(topology.gpus[1].device, "");
}

TEST(SysfsTopology, RenderNodesOfOthersAreNoGpus) {
  const FakeMachine machine(small_machine());
  machine.link("/sys/class/drm/renderD128/device", "../../../0000:1b:00.0");  // NVIDIA's own
  machine.add_pci_device("0000:00:02.0", "0x8086", "0x030000", "0", cpus("0-3"));
  machine.link("/sys/class/drm/renderD129/device", "../../../0000:00:02.0");
  machine.link("/sys/class/drm/renderD130/device", "../../../amdgpu_xcp_1");
  machine.link("/sys/class/drm/card0/device", "../../../0000:00:02.0");
  EXPECT_EQ(read_sysfs_topology(machine.root()), small_machine());
}

TEST(SysfsTopology, HostileFilesDoNoHarm) {
  const FakeMachine machine(small_machine());
  machine.write("/sys/devices/system/node/node0/cpulist", std::string(200000, '1'));
  machine.write("/sys/devices/system/node/node1/cpulist", "4-\n");
  machine.write("/proc/driver/nvidia/gpus/0000:1b:00.0/information",
                cat({"Model: \x1b[2J\nDevice Minor: ../../x\nGPU UUID: a,b\n:\n", std::string(100000, ':')}));
  machine.write("/proc/driver/nvidia/gpus/../evil/information", "Model: x\n");
  const auto topology = read_sysfs_topology(machine.root());
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[0].name, "?[2J");
  EXPECT_EQ(topology.gpus[0].device, "");
  EXPECT_EQ(topology.gpus[0].uuid, "");
  ASSERT_EQ(topology.numa_nodes.size(), 1U);
  EXPECT_EQ(topology.numa_nodes[0].cpus, cpus("0-7"));
}

}  // namespace
}  // namespace bootstrap

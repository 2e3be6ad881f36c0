// hwloc and this project find the same places of GPUs: in a folder like /sys, and in the real /sys.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "fake_machine.h"
#include "probe/read_gpus.h"

namespace bootstrap {
namespace {

// Before hwloc is first used: its plugins talk to X servers and start OpenCL.
const bool kHasNoPlugins = ::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1) == 0;

// What is compared, as text: by PCI address of each GPU the CPUs that are near, and those of its package.
using Seen = std::map<std::string, std::pair<std::string, std::string>>;

Seen seen_by_us(const std::vector<Gpu>& gpus) {
  Seen seen;
  for (const auto& gpu : gpus) seen[gpu.pci] = {gpu.near.to_list(), gpu.package.to_list()};
  return seen;
}

std::string list_of(hwloc_const_bitmap_t cpus) {
  char text[4096];
  (void)hwloc_bitmap_list_snprintf(text, sizeof text, cpus);
  return text;
}

bool is_gpu(const hwloc_obj_t device) {
  const auto& pci = device->attr->pcidev;
  return pci.vendor_id == 0x10de ? pci.class_id >> 8 == 0x03 : pci.vendor_id == 0x1002 && pci.class_id == 0x0380;
}

// Uses only hwloc's own functions and bitmaps.
Seen seen_by_hwloc(hwloc_topology_t topology) {
  Seen seen;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    if (!is_gpu(device)) continue;
    const auto& pci = device->attr->pcidev;
    char address[32];
    (void)std::snprintf(address, sizeof address, "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.func);
    auto* const around = hwloc_get_non_io_ancestor_obj(topology, device);
    if (around->type == HWLOC_OBJ_MACHINE) {
      seen[address] = {};
      continue;
    }
    const auto* package = around;
    while (package != nullptr && package->type != HWLOC_OBJ_PACKAGE) package = package->parent;
    seen[address] = {list_of(around->cpuset), package == nullptr ? "" : list_of(package->cpuset)};
  }
  return seen;
}

// The machine in a folder, or this one, as lstopo reads it.
class HwlocOf {
 public:
  explicit HwlocOf(const std::string& root) {
    EXPECT_TRUE(kHasNoPlugins);
    EXPECT_EQ(root.empty() ? ::unsetenv("HWLOC_FSROOT") : ::setenv("HWLOC_FSROOT", root.c_str(), 1), 0);
    EXPECT_EQ(hwloc_topology_init(&topology_), 0);
    EXPECT_EQ(hwloc_topology_set_io_types_filter(topology_, HWLOC_TYPE_FILTER_KEEP_ALL), 0);
    EXPECT_EQ(hwloc_topology_load(topology_), 0);
    hwloc_topology_check(topology_);
  }
  HwlocOf(const HwlocOf&) = delete;
  HwlocOf& operator=(const HwlocOf&) = delete;
  ~HwlocOf() { hwloc_topology_destroy(topology_); }
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
};

// "00000001,ffffffff", as sysfs writes masks.
std::string mask_of(const CpuSet& cpus) {
  std::string text;
  for (std::size_t group = 16; group-- > 0;) {
    CpuSet bits;
    for (std::size_t cpu = group * 32; cpu < group * 32 + 32; ++cpu) bits.add(cpu);
    unsigned mask = 0;
    for (const auto cpu : (cpus & bits).members()) mask |= 1U << cpu % 32;
    char digits[16];
    (void)std::snprintf(digits, sizeof digits, "%08x", mask);
    text += cat({text.empty() ? "" : ",", digits});
  }
  return text + "\n";
}

void add_memory(const FakeMachine& machine, std::uint32_t node, const CpuSet& cpus) {
  const auto number = std::to_string(node);
  machine.write("/sys/devices/system/node/node" + number + "/cpumap", mask_of(cpus));
  machine.write("/sys/devices/system/node/node" + number + "/meminfo", "Node " + number + " MemTotal: 1048576 kB\n");
}

// The files that only hwloc reads.
void add_what_hwloc_reads(const FakeMachine& machine, const KnownNode& node) {
  const std::string cpu_folder = "/sys/devices/system/cpu/";
  for (const auto* const name : {"possible", "present"}) machine.write(cpu_folder + name, node.cpus.to_list() + "\n");
  for (const auto& [number, package] : node.packages) {
    for (const auto cpu : package.members()) {
      const auto folder = cpu_folder + "cpu" + std::to_string(cpu) + "/topology/";
      CpuSet alone;
      alone.add(cpu);
      machine.write(folder + "physical_package_id", std::to_string(number) + "\n");
      machine.write(folder + "package_cpus", mask_of(package));
      machine.write(folder + "core_siblings", mask_of(package));
      machine.write(folder + "core_cpus", mask_of(alone));
      machine.write(folder + "thread_siblings", mask_of(alone));
      machine.write(folder + "core_id", std::to_string(cpu) + "\n");
    }
  }
  std::vector<std::uint32_t> nodes;
  for (const auto& [number, cpus] : node.numa_nodes) {
    nodes.push_back(number);
    add_memory(machine, number, cpus);
  }
  machine.write("/sys/devices/system/node/online", write_ranges(nodes) + "\n");
  for (const auto& gpu : node.gpus) {
    const auto folder = "/sys/bus/pci/devices/" + gpu.pci + "/";
    for (const auto* const name : {"device", "subsystem_vendor", "subsystem_device"})
      machine.write(folder + name, "0x1\n");
    machine.write(folder + "local_cpus", mask_of(gpu.near.empty() ? node.cpus : gpu.near));
    machine.write(folder + "config", std::string(64, '\0'));
  }
}

TEST(GpuPlaces, OfKnownNodesAreTheSame) {
  for (const auto& name : names_of_known_nodes()) {
    const auto node = known_node(name);
    const FakeMachine machine(node);
    add_what_hwloc_reads(machine, node);
    EXPECT_EQ(seen_by_hwloc(HwlocOf(machine.root()).get()), seen_by_us(read_gpus(machine.root()))) << name;
  }
}

// Linux gives no place for GPU memory that is a node without CPUs, so hwloc puts it anywhere.
TEST(GpuPlaces, WithMemoryNodesAreTheSame) {
  const auto node = known_node("gh200-quad");
  const FakeMachine machine(node);
  add_what_hwloc_reads(machine, node);
  machine.write("/sys/devices/system/node/online", "0-4,12,20,28\n");
  for (const std::uint32_t memory : {4U, 12U, 20U, 28U}) {
    machine.write("/sys/devices/system/node/node" + std::to_string(memory) + "/cpulist", "\n");
    add_memory(machine, memory, CpuSet());
  }
  const HwlocOf hwloc(machine.root());
  EXPECT_EQ(hwloc_get_nbobjs_by_type(hwloc.get(), HWLOC_OBJ_NUMANODE), 8);
  EXPECT_EQ(seen_by_hwloc(hwloc.get()), seen_by_us(read_gpus(machine.root())));
}

// The comparison itself: it must notice a GPU at the wrong node, and a CPU in the wrong package.
TEST(Control, DifferencesAreNoticed) {
  const auto known = known_node("dgx-1");
  const FakeMachine machine(known);
  add_what_hwloc_reads(machine, known);
  const auto by_hwloc = seen_by_hwloc(HwlocOf(machine.root()).get());
  EXPECT_EQ(by_hwloc.size(), 8U);
  auto gpus = known.gpus;
  EXPECT_EQ(seen_by_us(gpus), by_hwloc);
  std::swap(gpus[0].near, gpus[7].near);
  EXPECT_NE(seen_by_us(gpus), by_hwloc);
  gpus = known.gpus;
  gpus[0].package.add(20);
  EXPECT_NE(seen_by_us(gpus), by_hwloc);
}

// The same with the real /sys, if this machine has GPUs.
TEST(GpuPlaces, OfThisMachineAreTheSame) {
  const auto by_hwloc = seen_by_hwloc(HwlocOf("").get());
  std::size_t common = 0;
  for (const auto& [pci, place] : seen_by_us(read_gpus())) {
    const auto found = by_hwloc.find(pci);
    if (found == by_hwloc.end()) continue;  // hwloc counts by class, we by driver
    EXPECT_EQ(found->second, place) << pci;
    ++common;
  }
  if (common == 0) GTEST_SKIP() << "no GPU that both find";
}

}  // namespace
}  // namespace bootstrap

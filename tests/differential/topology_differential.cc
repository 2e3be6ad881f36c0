// hwloc and this project find the same machine: in a folder like /sys, in hwloc's XML, and in the real /sys.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "core/hardware/topology.h"
#include "fake_machine.h"
#include "known_machine.h"
#include "probe/node_topology.h"

namespace bootstrap {
namespace {

// Before hwloc is first used: its plugins talk to X servers and start OpenCL.
const bool kHasNoPlugins = ::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1) == 0;

// What is compared, as text: CPUs by package and node number, and by PCI address of each GPU the CPUs that are near.
struct Seen {
  std::map<unsigned, std::string> packages;
  std::map<unsigned, std::string> numa_nodes;
  std::map<std::string, std::string> gpus;

  bool operator==(const Seen&) const = default;
};

void PrintTo(const Seen& seen, std::ostream* out) {
  for (const auto& [number, cpus] : seen.packages) *out << "package " << number << ": " << cpus << "\n";
  for (const auto& [number, cpus] : seen.numa_nodes) *out << "node " << number << ": " << cpus << "\n";
  for (const auto& [pci, cpus] : seen.gpus) *out << pci << ": " << cpus << "\n";
}

Seen seen_by_us(const Topology& topology) {
  Seen seen;
  for (const auto& package : topology.packages) seen.packages[package.number] = package.cpus.to_list();
  for (const auto& node : topology.numa_nodes) seen.numa_nodes[node.number] = node.cpus.to_list();
  for (const auto& gpu : topology.gpus) seen.gpus[gpu.pci] = gpu.near.to_list();
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

// Uses only hwloc's own functions and bitmaps. Memory without CPUs is recognised by its number: on GH200 it is above
// those of the processors, which share its CPUs.
Seen seen_by_hwloc(hwloc_topology_t topology) {
  Seen seen;
  for (hwloc_obj_t package = nullptr; (package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, package));) {
    seen.packages[package->os_index] = list_of(package->cpuset);
  }
  std::set<std::string> sets;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));) {
    const auto cpus = list_of(node->cpuset);
    if (sets.insert(cpus).second) seen.numa_nodes[node->os_index] = cpus;
  }
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device));) {
    if (!is_gpu(device)) continue;
    const auto& pci = device->attr->pcidev;
    char address[32];
    (void)std::snprintf(address, sizeof address, "%04x:%02x:%02x.%x", pci.domain, pci.bus, pci.dev, pci.func);
    const auto* const around = hwloc_get_non_io_ancestor_obj(topology, device);
    const auto is_everywhere = around->type == HWLOC_OBJ_MACHINE && seen.numa_nodes.size() > 1;
    seen.gpus[address] = is_everywhere ? "" : list_of(around->cpuset);
  }
  return seen;
}

// The machine in a folder, as lstopo reads it.
class HwlocOf {
 public:
  explicit HwlocOf(const FakeMachine& machine) {
    EXPECT_TRUE(kHasNoPlugins);
    EXPECT_EQ(::setenv("HWLOC_FSROOT", machine.root().c_str(), 1), 0);
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
    unsigned bits = 0;
    for (unsigned i = 0; i < 32; ++i) bits |= static_cast<unsigned>(cpus.has(group * 32 + i)) << i;
    char digits[16];
    (void)std::snprintf(digits, sizeof digits, "%08x", bits);
    text += cat({text.empty() ? "" : ",", digits});
  }
  return text + "\n";
}

// The files that only hwloc reads.
void add_what_hwloc_reads(const FakeMachine& machine, const Topology& topology) {
  const std::string cpu_folder = "/sys/devices/system/cpu/";
  for (const auto* const name : {"possible", "present"})
    machine.write(cpu_folder + name, topology.cpus.to_list() + "\n");
  for (const auto& package : topology.packages) {
    for (const auto cpu : package.cpus.members()) {
      const auto folder = cpu_folder + "cpu" + std::to_string(cpu) + "/topology/";
      CpuSet alone;
      alone.add(cpu);
      machine.write(folder + "package_cpus", mask_of(package.cpus));
      machine.write(folder + "core_siblings", mask_of(package.cpus));
      machine.write(folder + "core_cpus", mask_of(alone));
      machine.write(folder + "thread_siblings", mask_of(alone));
      machine.write(folder + "core_id", std::to_string(cpu) + "\n");
    }
  }
  for (const auto& node : topology.numa_nodes) {
    const auto number = std::to_string(node.number);
    machine.write("/sys/devices/system/node/node" + number + "/cpumap", mask_of(node.cpus));
    machine.write("/sys/devices/system/node/node" + number + "/meminfo", "Node " + number + " MemTotal: 1048576 kB\n");
  }
  for (const auto& gpu : topology.gpus) {
    const auto folder = "/sys/bus/pci/devices/" + gpu.pci + "/";
    for (const auto* const name : {"device", "subsystem_vendor", "subsystem_device"})
      machine.write(folder + name, "0x1\n");
    machine.write(folder + "local_cpus", mask_of(gpu.near.empty() ? topology.cpus : gpu.near));
    machine.write(folder + "config", std::string(64, '\0'));
  }
}

class Machines : public testing::TestWithParam<std::string> {};

TEST_P(Machines, OfAFolderAreTheSame) {
  const auto topology = known_machine(GetParam());
  const FakeMachine machine(topology);
  add_what_hwloc_reads(machine, topology);
  EXPECT_EQ(seen_by_hwloc(HwlocOf(machine).get()), seen_by_us(topology));
  EXPECT_EQ(read_sysfs_topology(machine.root()), topology);
  const auto found = hwloc_topology_of_machine(machine.root());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, topology);
}

// As lstopo writes it, but without plugins, which find all but the places of GPUs.
TEST_P(Machines, OfXmlAreTheSame) {
  auto topology = known_machine(GetParam());
  const FakeMachine machine(topology);
  add_what_hwloc_reads(machine, topology);
  for (auto& gpu : topology.gpus) gpu.device = gpu.uuid = gpu.name = "";
  const auto xml = machine.root() + "/lstopo.xml";
  ASSERT_EQ(hwloc_topology_export_xml(HwlocOf(machine).get(), xml.c_str(), 0), 0);
  const auto found = hwloc_topology_of_xml(xml);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(topology_text(*found), topology_text(topology));
}

// What lstopo's plugins for GPUs add. A console and an NVSwitch are no GPUs.
TEST(Xml, HasModelsUuidsAndRenderNodes) {
  const auto found = hwloc_topology_of_xml(TEST_DATA_DIR "/topologies/lstopo.xml");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(topology_text(*found), R"(slurm-bootstrap-topology 1
cpus 0-1
package 0 0
package 1 1
numa 0 0
numa 1 1
gpu 0000:02:00.0 nvidia 0 - GPU-702e86b1-0533-56fd-860d-c55863e01d8a NVIDIA H100 80GB HBM3
gpu 0000:82:00.0 amd 1 /dev/dri/renderD128 -
end
)");
}

// Linux gives no place for GPU memory that is a node without CPUs, so hwloc puts it anywhere.
TEST(Machine, OfGpusWithMemoryNodesIsTheSame) {
  const auto topology = known_machine("gh200-quad");
  const FakeMachine machine(topology);
  add_what_hwloc_reads(machine, topology);
  machine.write("/sys/devices/system/node/online", "0-4,12,20,28\n");
  for (const auto* const node : {"4", "12", "20", "28"}) {
    const auto folder = "/sys/devices/system/node/node" + std::string(node);
    machine.write(folder + "/cpulist", "\n");
    machine.write(folder + "/cpumap", mask_of(CpuSet()));
    machine.write(folder + "/meminfo", cat({"Node ", node, " MemTotal: 100663296 kB\n"}));
  }
  const auto found = hwloc_topology_of_machine(machine.root());
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(hwloc_get_nbobjs_by_type(HwlocOf(machine).get(), HWLOC_OBJ_NUMANODE), 8);
  EXPECT_EQ(*found, topology);
  EXPECT_EQ(read_sysfs_topology(machine.root()), topology);
}

INSTANTIATE_TEST_SUITE_P(Known, Machines, testing::ValuesIn(names_of_known_machines()), [](const auto& machine) {
  std::string name = machine.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The comparison itself: it must notice a GPU at the wrong node, and a CPU in the wrong package.
TEST(Control, DifferencesAreNoticed) {
  const auto known = known_machine("dgx-1");
  const FakeMachine machine(known);
  add_what_hwloc_reads(machine, known);
  const auto by_hwloc = seen_by_hwloc(HwlocOf(machine).get());
  EXPECT_EQ(by_hwloc.gpus.size(), 8U);
  auto topology = known;
  std::swap(topology.gpus[0].near, topology.gpus[7].near);
  EXPECT_NE(seen_by_us(topology), by_hwloc);
  topology = known;
  topology.packages[0].cpus.add(20);
  EXPECT_NE(seen_by_us(topology), by_hwloc);
}

// The same with the real /sys, if this machine has something to compare.
TEST(ThisMachine, IsTheSame) {
  (void)::unsetenv("HWLOC_FSROOT");
  const auto found = hwloc_topology_of_machine();
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(*found, read_sysfs_topology());
}

}  // namespace
}  // namespace bootstrap

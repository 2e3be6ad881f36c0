// This project finds the same places of GPUs as hwloc: in a folder like /sys, and in the real /sys.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "core/hardware/near_cores.h"
#include "core/util/records.h"
#include "fake_machine.h"
#include "probe/read_gpus.h"

namespace bootstrap {
namespace {

// Set before the first use of hwloc: its plugins connect to X servers and start OpenCL, and "x86" reads this machine.
const bool kHasNoPlugins =
    ::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1) == 0 && ::setenv("HWLOC_COMPONENTS", "-x86", 1) == 0;

// The compared values as text, by the PCI address of each GPU: the CPUs near it, and the CPUs of its package.
using Seen = std::map<std::string, std::pair<std::string, std::string>>;

Seen seen_by_us(const std::vector<Gpu>& gpus) {
  Seen seen;
  for (const auto& gpu : gpus) seen[gpu.pci] = {(gpu.l3.empty() ? gpu.near : gpu.l3).to_list(), gpu.package.to_list()};
  return seen;
}

std::string list_of(hwloc_const_bitmap_t cpus) {
  char text[4096];
  (void)hwloc_bitmap_list_snprintf(text, sizeof text, cpus);
  return text;
}

bool is_gpu(const hwloc_obj_t device) {
  const auto& pci = device->attr->pcidev;
  return pci.vendor_id == 0x10de ? pci.class_id >> 8 == 0x03 : pci.class_id == 0x0380;
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
    if (around->type == HWLOC_OBJ_MACHINE && hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) > 1) {
      seen[address] = {};
      continue;
    }
    const auto* package = around;
    while (package != nullptr && package->type != HWLOC_OBJ_PACKAGE) package = package->parent;
    const auto near = list_of(around->cpuset);
    seen[address] = {near, package == nullptr ? near : list_of(package->cpuset)};
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

void add_pci_files(const FakeMachine& machine, const std::string& pci, const CpuSet& near,
                   std::string config = std::string(64, '\0')) {
  const auto folder = "/sys/bus/pci/devices/" + pci + "/";
  for (const auto* const name : {"device", "subsystem_vendor", "subsystem_device"})
    machine.write(folder + name, "0x1\n");
  machine.write(folder + "local_cpus", mask_of(near));
  machine.write(folder + "config", config);
}

void add_caches(const FakeMachine& machine, const KnownNode& node) {
  for (const auto& l3 : node.l3) {
    for (const auto cpu : l3.members()) {
      const auto folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
      machine.write(folder + "shared_cpu_map", mask_of(l3));
      machine.write(folder + "level", "3\n");
      machine.write(folder + "type", "Unified\n");
      machine.write(folder + "size", "32768K\n");
    }
  }
}

// InfiniBand, or the network alone, by its name.
void add_card(const FakeMachine& machine, const KnownCard& card) {
  machine.add_pci_device(card.pci, "0x15b3", "0x020000", "-1");
  add_pci_files(machine, card.pci, card.near);
  const auto kind = card.name.starts_with("mlx5") ? "/sys/class/infiniband/" : "/sys/class/net/";
  machine.write("/sys/devices/pci/" + card.pci + "/vendor", "");
  machine.link(kind + card.name + "/device", "../../../devices/pci/" + card.pci);
}

// A bridge in front of these buses of a domain, "0000:18-1b", on the bus before them.
void add_switch(const FakeMachine& machine, const KnownNode& node, const std::string& range) {
  const auto first = std::stoi(range.substr(5, 2), nullptr, 16), last = std::stoi(range.substr(8, 2), nullptr, 16);
  std::string config(64, '\0');
  config[0x0e] = 1;  // header of a bridge (PCI-to-PCI bridge specification)
  config[0x18] = static_cast<char>(first - 1), config[0x19] = static_cast<char>(first);
  config[0x1a] = static_cast<char>(last);
  CpuSet near = node.cpus;
  for (const auto& gpu : node.gpus) {
    const auto bus = std::stoi(gpu.pci.substr(5, 2), nullptr, 16);
    if (gpu.pci.substr(0, 4) == range.substr(0, 4) && first <= bus && bus <= last) near = gpu.near;
  }
  const auto pci = cat({range.substr(0, 5), to_hex(static_cast<std::uint64_t>(first - 1), 2), ":1f.0"});
  machine.add_pci_device(pci, "0x1000", "0x060400", "-1");
  add_pci_files(machine, pci, near, config);
}

// The files that only hwloc reads.
void add_what_hwloc_reads(const FakeMachine& machine, const KnownNode& node) {
  const std::string cpu_folder = "/sys/devices/system/cpu/";
  for (const auto* const name : {"possible", "present"}) machine.write(cpu_folder + name, node.cpus.to_list() + "\n");
  for (const auto& [number, package] : node.packages) {
    for (const auto cpu : package.members()) {
      const auto folder = cpu_folder + "cpu" + std::to_string(cpu) + "/topology/";
      const auto core = node.core_of(cpu);
      machine.write(folder + "physical_package_id", std::to_string(number) + "\n");
      machine.write(folder + "package_cpus", mask_of(package));
      machine.write(folder + "core_siblings", mask_of(package));
      machine.write(folder + "core_cpus", mask_of(core));
      machine.write(folder + "thread_siblings", mask_of(core));
      machine.write(folder + "core_id", std::to_string(core.first()) + "\n");
    }
  }
  std::vector<std::uint32_t> nodes;
  for (const auto& [number, cpus] : node.numa_nodes) {
    nodes.push_back(number);
    add_memory(machine, number, cpus);
  }
  machine.write("/sys/devices/system/node/online", write_ranges(nodes) + "\n");
  for (const auto& gpu : node.gpus) add_pci_files(machine, gpu.pci, gpu.near.empty() ? node.cpus : gpu.near);
  add_caches(machine, node);
  for (const auto& card : node.cards) add_card(machine, card);
  for (const auto& one : node.switches) add_switch(machine, node, one);
}

TEST(GpuPlaces, AreThoseOfHwlocOnKnownNodes) {
  for (const auto& [name, node] : known_nodes()) {
    const FakeMachine machine(node);
    add_what_hwloc_reads(machine, node);
    EXPECT_EQ(seen_by_hwloc(HwlocOf(machine.root()).get()), seen_by_us(read_gpus(machine.root()))) << name;
  }
}

// A container may hide the name of the board: then hwloc and we know only the NUMA node.
TEST(GpuPlaces, AreThoseOfHwlocWithoutTheNameOfTheBoard) {
  const auto node = known_node("eight-gpu-two-per-numa");
  const FakeMachine machine(node);
  add_what_hwloc_reads(machine, node);
  machine.remove("/sys/class/dmi");
  const auto ours = seen_by_us(read_gpus(machine.root()));
  EXPECT_EQ(seen_by_hwloc(HwlocOf(machine.root()).get()), ours);
  EXPECT_EQ(ours.at("0000:d1:00.0").first, "0-15,64-79");
}

std::string output_of(const std::string& line) {
  std::string text;
  auto* const program = ::popen(line.c_str(), "r");
  for (char part[4096]; std::fgets(part, sizeof part, program) != nullptr;) text += part;
  return ::pclose(program) == 0 ? text : "failed";
}

// `near --topology` finds the table's values and mapping of a known node in hwloc's file of that node.
TEST(NearRows, AreThoseOfTheTableOnKnownNodes) {
  for (const auto& [name, node] : known_nodes()) {
    if (node.gpus.empty()) continue;
    const FakeMachine machine(node);
    add_what_hwloc_reads(machine, node);
    const char* const kept = std::getenv("KNOWN_NODES_XML");  // a folder that keeps the files, to try them by hand
    const auto file = cat({kept == nullptr ? machine.root() : std::string(kept), "/", name, ".xml"});
    ASSERT_EQ(hwloc_topology_export_xml(HwlocOf(machine.root()).get(), file.c_str(), 0), 0);
    for (const std::size_t tasks : {1U, 2U, 4U, 8U}) {
      NearRequest request{.cores = node.cores(), .places = {}, .allowed = node.cpus, .is_exclusive = true};
      for (const auto& group : groups_of_gpus(node.gpus, tasks)) request.places.push_back(place_of(group));
      std::string expected, found;
      for (const auto& task : find_near_cores(request, node.package_list())) expected += task.cpus.to_list() + "\n";
      const auto table = output_of(cat({NEAR_PROGRAM, " table e ", file, " ", std::to_string(tasks)}));
      std::map<std::size_t, std::string> cores;  // by rank: the table begins with the rank that is farthest
      for (std::istringstream lines(table); std::getline(lines, found);) {
        std::size_t rank = 0;
        std::string second;
        if (std::istringstream(found) >> rank >> second && second != "of") cores[rank] = second == "-" ? "" : second;
      }
      found.clear();
      for (const auto& [rank, list] : cores) found += list + "\n";
      EXPECT_EQ(found, expected) << name << " " << tasks << table;
    }
  }
}

// Linux reports no place for GPU memory that is a node without CPUs, so hwloc may put it anywhere.
TEST(GpuPlaces, AreThoseOfHwlocWithMemoryNodes) {
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

// The comparison itself must notice a GPU at the wrong node, and a CPU in the wrong package.
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
TEST(GpuPlaces, AreThoseOfHwlocOnThisMachine) {
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

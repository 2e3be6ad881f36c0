// A machine as hwloc sees it: cores, NUMA nodes, GPUs and cards, and the memory policy of this process.
// SPDX-License-Identifier: Apache-2.0
#include "tools/near/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>

#include "core/util/text.h"

namespace bootstrap {
namespace {

CpuSet set_of(hwloc_const_bitmap_t bitmap) {
  CpuSet set;
  for (int cpu = -1; (cpu = hwloc_bitmap_next(bitmap, cpu)) >= 0 && cpu < static_cast<int>(CpuSet::kMaxCpus);) {
    set.add(static_cast<std::size_t>(cpu));
  }
  return set;
}

std::vector<CpuSet> sets_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::vector<CpuSet> sets;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    sets.push_back(set_of(object->cpuset));
  }
  return sets;
}

CpuSet first_within(const CpuSet& part, const std::vector<CpuSet>& wholes) {
  const auto whole = std::find_if(wholes.begin(), wholes.end(), [&](auto& one) { return part.is_within(one); });
  return whole == wholes.end() ? CpuSet() : *whole;
}

std::optional<GpuVendor> gpu_vendor(const decltype(hwloc_obj_attr_u::pcidev)& pci) {
  constexpr unsigned kDisplay = 0x0380;  // PCI code and ID specification; 0x0300 and 0x0302: VGA and 3D controllers
  if (pci.vendor_id == 0x10de && pci.class_id >> 8 == 0x03) return GpuVendor::kNvidia;
  if (pci.vendor_id == 0x1002 && pci.class_id == kDisplay) return GpuVendor::kAmd;
  if (pci.vendor_id == 0x8086 && pci.class_id == kDisplay) return GpuVendor::kIntel;
  return std::nullopt;
}

std::vector<hwloc_obj_t> ancestors_of(hwloc_obj_t object) {
  std::vector<hwloc_obj_t> ancestors;
  for (; object != nullptr; object = object->parent) ancestors.push_back(object);
  return ancestors;
}

bool is_openfabrics(hwloc_obj_t card) { return card->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS; }

}  // namespace

Result<NodeTopology> NodeTopology::load(const std::string& file) {
  // What the user's programs are meant to see of the machine is not what this one is to see, and a plugin of hwloc may
  // talk to an X server or start OpenCL. Only the own process has x86's own look at each CPU in turn.
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with("HWLOC_")) kept.emplace_back(*entry);
  }
  for (const auto& entry : kept) (void)::unsetenv(entry.substr(0, entry.find('=')).c_str());
  (void)::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1);
  (void)::setenv("HWLOC_COMPONENTS", "-x86", 1);
  hwloc_topology_t topology = nullptr;
  bool is_loaded = hwloc_topology_init(&topology) == 0;
  NodeTopology node(topology);
  is_loaded = is_loaded && (file.empty() || hwloc_topology_set_xml(topology, file.c_str()) == 0) &&
              hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
              hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
              hwloc_topology_load(topology) == 0;
  const int reason = errno;
  for (const auto* const name : {"HWLOC_PLUGINS_PATH", "HWLOC_COMPONENTS"}) (void)::unsetenv(name);
  for (const auto& entry : kept) {
    const auto equals = entry.find('=');
    (void)::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
  if (is_loaded) return node;
  return fail(ErrorCode::kUnavailable, cat({"hwloc cannot read ", file.empty() ? "this machine" : file, ": ",
                                            std::strerror(reason)}));
}

NodeTopology::~NodeTopology() {
  if (topology_ != nullptr) hwloc_topology_destroy(topology_);
}

CpuSet NodeTopology::cpus() const { return set_of(hwloc_topology_get_topology_cpuset(topology_)); }

CoreMap NodeTopology::core_map() const {
  CoreMap map{sets_of(topology_, HWLOC_OBJ_CORE), sets_of(topology_, HWLOC_OBJ_PACKAGE)};
  if (map.cores.empty()) map.cores = sets_of(topology_, HWLOC_OBJ_PU);
  if (map.packages.empty()) map.packages = {cpus()};
  return map;
}

// A node without CPUs (memory of a GPU, HBM) has those of another in hwloc, or all, and a higher number.
std::map<std::uint32_t, CpuSet> NodeTopology::numa_nodes() const {
  std::map<std::uint32_t, CpuSet> all, nodes;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    all[node->os_index] = set_of(node->cpuset);
  }
  CpuSet seen;
  for (const auto& [number, cpus] : all) {
    if ((cpus & seen).empty() && !cpus.empty()) nodes[number] = cpus;
    seen = seen | cpus;
  }
  return nodes;
}

std::vector<Gpu> NodeTopology::gpus() const {
  std::vector<CpuSet> nodes;
  for (const auto& [number, cpus] : numa_nodes()) nodes.push_back(cpus);
  std::vector<Gpu> gpus;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology_, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    const auto vendor = gpu_vendor(pci);
    if (!vendor) continue;
    Gpu gpu{.pci = cat({to_hex(pci.domain, 4), ":", to_hex(pci.bus, 2), ":", to_hex(pci.dev, 2), ".",
                        to_hex(pci.func)}),
            .vendor = *vendor};
    const auto around = set_of(hwloc_get_non_io_ancestor_obj(topology_, device)->cpuset);
    gpu.near = first_within(around, nodes);
    if (gpu.near != around) gpu.l3 = gpu.near.empty() ? CpuSet() : around;
    if (gpu.near.empty() && around != cpus()) gpu.near = around;
    if (!gpu.near.empty()) gpu.package = first_within(gpu.near, core_map().packages);
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& one, const Gpu& other) { return one.pci < other.pci; });
  return gpus;
}

std::vector<std::uint32_t> NodeTopology::memory_of(const CpuSet& cpus) const {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, of_node] : numa_nodes()) {
    if (!(of_node & cpus).empty()) numbers.push_back(number);
  }
  return numbers;
}

Status NodeTopology::prefer_memory_of(const CpuSet& cpus) const {
  auto* const nodes = hwloc_bitmap_alloc();
  for (const auto number : memory_of(cpus)) hwloc_bitmap_set(nodes, number);
  const auto flags = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;  // never STRICT: that would end programs
  const int done = hwloc_set_membind(topology_, nodes, HWLOC_MEMBIND_BIND, flags);
  const int reason = errno;
  hwloc_bitmap_free(nodes);
  if (done == 0) return {};
  return fail(ErrorCode::kUnavailable, cat({"cannot prefer the memory near the cores: ", std::strerror(reason)}));
}

std::vector<std::string> NodeTopology::cards_near(const std::vector<Gpu>& gpus) const {
  std::vector<hwloc_obj_t> cards;
  for (hwloc_obj_t card = nullptr; (card = hwloc_get_next_osdev(topology_, card)) != nullptr;) {
    const auto type = card->attr->osdev.type;
    if (type == HWLOC_OBJ_OSDEV_OPENFABRICS || type == HWLOC_OBJ_OSDEV_NETWORK) cards.push_back(card);
  }
  if (std::any_of(cards.begin(), cards.end(), is_openfabrics)) std::erase_if(cards, std::not_fn(is_openfabrics));
  std::vector<std::string> names;
  for (const auto& gpu : gpus) {
    const auto* const device = hwloc_get_pcidev_by_busidstring(topology_, gpu.pci.c_str());
    if (device == nullptr) continue;
    const auto around = ancestors_of(device->parent);
    auto nearest = around.end();
    std::vector<std::string> found;
    for (auto* const card : cards) {
      const auto of_card = ancestors_of(card);
      const auto common = std::find_first_of(around.begin(), around.end(), of_card.begin(), of_card.end());
      if (common > nearest || memory_of(set_of(hwloc_get_non_io_ancestor_obj(topology_, *common)->cpuset)).size() > 1)
        continue;
      if (common < nearest) found.clear();
      nearest = common;
      found.emplace_back(cat({card->name, is_openfabrics(card) ? ":1" : ""}));
    }
    for (auto& name : found) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace bootstrap

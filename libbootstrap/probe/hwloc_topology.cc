// The topology of a machine by hwloc.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {
namespace {

using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

tl::unexpected<Error> refuse(std::string_view what) {
  return fail(ErrorCode::kUnavailable, cat({"hwloc cannot ", what, ": ", std::strerror(errno)}));
}

// A topology file serves all jobs, so it includes CPUs that this process may not use, as in a cgroup. OS devices hold
// the UUIDs and render nodes of an XML file.
bool choose_objects(hwloc_topology_t topology) {
  const auto flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                     HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
  return hwloc_topology_set_flags(topology, flags) == 0 &&
         hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0;
}

CpuSet to_cpus(hwloc_const_bitmap_t set) {
  CpuSet cpus;
  const auto end = static_cast<int>(CpuSet::kMaxCpus);
  for (auto cpu = hwloc_bitmap_first(set); cpu >= 0 && cpu < end; cpu = hwloc_bitmap_next(set, cpu)) {
    cpus.add(static_cast<std::size_t>(cpu));
  }
  return cpus;
}

template <class Part>
std::vector<Part> parts_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::vector<Part> parts;
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;) {
    // Some virtual machines have no numbers.
    const auto count = static_cast<std::uint32_t>(parts.size());
    auto& part = parts.emplace_back();
    part.number = object->os_index == HWLOC_UNKNOWN_INDEX ? count : object->os_index;
    part.cpus = to_cpus(object->cpuset);
  }
  return parts;
}

std::string pci_address(const decltype(hwloc_obj_attr_u::pcidev)& device) {
  return cat(
      {to_hex(device.domain, 4), ":", to_hex(device.bus, 2), ":", to_hex(device.dev, 2), ".", to_hex(device.func)});
}

// From the notes of lstopo's libraries, such as NVML, at the PCI device and its OS devices.
void add_noted(Gpu& gpu, hwloc_obj_t device) {
  const auto add = [](std::string& to, hwloc_obj_t from, const char* name) {
    const auto* const value = hwloc_obj_get_info_by_name(from, name);
    if (value != nullptr && to.empty()) to = value;
  };
  for (auto* part = device->io_first_child; part != nullptr; part = part->next_sibling) {
    add(gpu.uuid, part, "NVIDIAUUID");
    add(gpu.name, part, "GPUModel");
    const std::string name = part->name == nullptr ? "" : part->name;
    if (gpu.vendor != GpuVendor::kNvidia && name.starts_with("renderD")) gpu.device = "/dev/dri/" + name;
  }
  add(gpu.name, device, "PCIDevice");
}

std::vector<FoundGpu> find_gpus(hwloc_topology_t topology, const std::vector<Gpu>& by_driver) {
  std::vector<FoundGpu> gpus;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    const auto vendor = gpu_vendor(pci.vendor_id, pci.class_id);
    if (!vendor) continue;
    auto& found = gpus.emplace_back();
    found.device_class = pci.class_id;
    found.local = to_cpus(hwloc_get_non_io_ancestor_obj(topology, device)->cpuset);
    found.gpu.pci = pci_address(pci);
    found.gpu.vendor = *vendor;
    const auto is_same = [&found](const Gpu& gpu) { return gpu.pci == found.gpu.pci; };
    const auto same = std::find_if(by_driver.begin(), by_driver.end(), is_same);
    if (same == by_driver.end()) {
      add_noted(found.gpu, device);
    } else {
      found.gpu.device = same->device;
      found.gpu.uuid = same->uuid;
      found.gpu.name = same->name;
    }
  }
  return gpus;
}

// This machine, if `xml` is empty.
Result<Topology> load(const std::string& xml, const std::vector<Gpu>& by_driver) {
  // No plugins: Debian's connect to an X server and start OpenCL. hwloc finds PCI devices and reads XML without them.
  // It reads this variable at its first use; an empty path would mean the default.
  (void)::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1);
  hwloc_topology_t created = nullptr;
  if (hwloc_topology_init(&created) != 0) return refuse("start");
  const HwlocTopology topology(created, hwloc_topology_destroy);
  if (!xml.empty() && hwloc_topology_set_xml(created, xml.c_str()) != 0)
    return refuse(cat({"read ", quoted(xml, 256)}));
  if (!choose_objects(created) || hwloc_topology_load(created) != 0) {
    return refuse(xml.empty() ? "detect the topology" : cat({"read ", quoted(xml, 256), " as lstopo's XML"}));
  }
  return make_topology(to_cpus(hwloc_get_root_obj(created)->cpuset), parts_of<Package>(created, HWLOC_OBJ_PACKAGE),
                       parts_of<NumaNode>(created, HWLOC_OBJ_NUMANODE), find_gpus(created, by_driver));
}

}  // namespace

Result<Topology> hwloc_topology_of_machine(const std::string& root) {
  if (!root.empty()) (void)::setenv("HWLOC_FSROOT", root.c_str(), 1);
  return load("", read_sysfs_topology(root).gpus);
}

Result<Topology> hwloc_topology_of_xml(const std::string& path) { return load(path, {}); }

}  // namespace bootstrap

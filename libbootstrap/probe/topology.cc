// The topology of this machine as hwloc finds it, in hwloc's XML. For the command alone: never in slurmstepd.
// SPDX-License-Identifier: Apache-2.0
#include "probe/topology.h"

#include <hwloc.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "core/text.h"
#include "core/topology.h"
#include "core/topology_xml.h"
#include "probe/sysfs_topology.h"

namespace bootstrap {
namespace {

using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

tl::unexpected<Error> refuse(std::string_view what) {
  return fail(ErrorCode::kUnavailable, cat({"hwloc cannot ", what, " the topology: ", std::strerror(errno)}));
}

// hwloc reads these when it is first used.
void prepare_environment(const std::string& root) {
  // No plugins: those of Debian connect to an X server and start OpenCL. PCI devices are found without them, too, and
  // XML is written without them. An empty path would mean the usual one.
  (void)::setenv("HWLOC_PLUGINS_PATH", "/dev/null", 1);
  (void)::setenv("HWLOC_XML_EXPORT_SUPPORT", "0", 1);
  if (!root.empty()) (void)::setenv("HWLOC_FSROOT", root.c_str(), 1);
}

// A file serves all jobs, so what this process may not use, as in a cgroup, is part of it. Caches, cores, disks, their
// sizes and network addresses are not: nobody reads them.
bool choose_objects(hwloc_topology_t topology) {
  const auto flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                     HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
  return hwloc_topology_set_flags(topology, flags) == 0 &&
         hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) == 0 &&
         hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0;
}

std::string pci_address(const decltype(hwloc_obj_attr_u::pcidev)& device) {
  std::array<char, 32> text;
  (void)std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%01x", device.domain, device.bus, device.dev,
                      device.func);
  return text.data();
}

void add_info(hwloc_obj_t object, std::string_view name, const std::string& value) {
  if (!value.empty()) (void)hwloc_obj_add_info(object, std::string(name).c_str(), value.c_str());
}

void add_infos(hwloc_topology_t topology, const Topology& told_by_drivers) {
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_pcidev(topology, object)) != nullptr;) {
    const auto address = pci_address(object->attr->pcidev);
    for (const auto& gpu : told_by_drivers.gpus) {
      if (gpu.pci != address) continue;
      add_info(object, "GPUModel", gpu.name);
      add_info(object, kDeviceInfo, gpu.device);
      add_info(object, kUuidInfo, gpu.uuid);
    }
  }
}

Result<std::string> to_xml(hwloc_topology_t topology) {
  char* buffer = nullptr;
  int size = 0;
  if (hwloc_topology_export_xmlbuffer(topology, &buffer, &size, 0) != 0) return refuse("write");
  std::string text(buffer);
  hwloc_free_xmlbuffer(topology, buffer);
  return text;
}

}  // namespace

Result<std::string> export_topology_xml(const std::string& root) {
  prepare_environment(root);
  hwloc_topology_t created = nullptr;
  if (hwloc_topology_init(&created) != 0) return refuse("begin");
  const HwlocTopology topology(created, hwloc_topology_destroy);
  if (!choose_objects(topology.get()) || hwloc_topology_load(topology.get()) != 0) return refuse("find out");
  add_infos(topology.get(), read_sysfs_topology(root));
  auto text = to_xml(topology.get());
  if (!text) return text;
  // Nobody would look at a file that our own reader refuses until the jobs that need it run.
  if (const auto read = parse_topology_xml(*text); !read) return fail(read.error());
  return text;
}

}  // namespace bootstrap

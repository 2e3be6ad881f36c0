// Which CPUs each GPU of a node is near to: packages, NUMA nodes and GPUs, and nothing else of a machine.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/topology.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

// Classes of the PCI code and ID assignment specification: base class 03 display, base class 12 accelerator.
constexpr std::uint32_t kVga = 0x0300;
constexpr std::uint32_t k3d = 0x0302;            // NVIDIA's data center GPUs
constexpr std::uint32_t kOtherDisplay = 0x0380;  // AMD Instinct to MI250, Intel Data Center GPU Max
constexpr std::uint32_t kAccelerator = 0x1200;   // AMD Instinct from MI300

constexpr std::size_t kMaxUuid = 128;

using PciAddress = std::array<std::uint32_t, 4>;  // domain, bus, device, function

std::optional<PciAddress> parse_pci(std::string_view text) {
  const auto colons = split(text.substr(0, 32), ':');
  if (colons.size() != 3) return std::nullopt;
  const auto dot = colons[2].find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto domain = parse_hex(colons[0], UINT32_MAX);  // above 16 bits for devices behind Intel VMD and on Hyper-V
  const auto bus = parse_hex(colons[1], 0xff);
  const auto device = parse_hex(colons[2].substr(0, dot), 0x1f);
  const auto function = parse_hex(colons[2].substr(dot + 1), 7);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return PciAddress{static_cast<std::uint32_t>(*domain), static_cast<std::uint32_t>(*bus),
                    static_cast<std::uint32_t>(*device), static_cast<std::uint32_t>(*function)};
}

// Finds the one set that holds other CPUs, in a few steps however many sets there are.
class Owners {
 public:
  // Answers false, and does nothing, when one of the CPUs has an owner already.
  bool add(const CpuSet& cpus, std::uint32_t owner) {
    if (!(taken_ & cpus).empty()) return false;
    taken_ = taken_ | cpus;
    for (const auto cpu : cpus.members()) {
      if (cpu >= owner_.size()) owner_.resize(cpu + 1);
      owner_[cpu] = owner;
    }
    return true;
  }

  template <class Part>
  TopologyIndex holder_of(const CpuSet& cpus, const std::vector<Part>& parts) const {
    if (cpus.empty() || !cpus.is_within(taken_)) return std::nullopt;
    const auto owner = owner_[cpus.members().front()];
    return cpus.is_within(parts[owner].cpus) ? TopologyIndex(owner) : std::nullopt;
  }

 private:
  CpuSet taken_;
  std::vector<std::uint32_t> owner_;
};

template <class Part>
Owners owners_of(const std::vector<Part>& parts) {
  Owners owners;
  for (std::uint32_t i = 0; i < parts.size(); ++i) owners.add(parts[i].cpus, i);
  return owners;
}

// Linux counts each CPU to one NUMA node, but hwloc gives memory without CPUs (of a GPU, HBM, CXL) the CPUs around it.
// Such a node has a higher number than that of those CPUs, or more CPUs.
template <class Part>
void keep_disjoint(std::vector<Part>& parts, const CpuSet& machine) {
  std::vector<std::pair<std::size_t, Part>> sized;
  for (auto& part : parts) {
    part.cpus = part.cpus & machine;
    if (!part.cpus.empty()) sized.emplace_back(part.cpus.count(), std::move(part));
  }
  const auto is_smaller = [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.number) < std::pair(b.first, b.second.number);
  };
  std::stable_sort(sized.begin(), sized.end(), is_smaller);
  parts.clear();
  Owners owners;
  for (auto& [size, part] : sized) {
    if (owners.add(part.cpus, 0)) parts.push_back(std::move(part));
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.number < b.number; });
}

void place(Gpu& gpu, const CpuSet& local, const Topology& topology, const Owners& packages, const Owners& numa_nodes) {
  gpu.numa = numa_nodes.holder_of(local, topology.numa_nodes);
  if (gpu.numa) {
    gpu.near = topology.numa_nodes[*gpu.numa].cpus;
    gpu.package = topology.numa_nodes[*gpu.numa].package;
  } else if (local != topology.cpus) {
    gpu.near = local;
    gpu.package = packages.holder_of(local, topology.packages);
  }
}

std::vector<FoundGpu> in_order(std::vector<FoundGpu> gpus) {
  const auto is_vga_of_amd = [](const FoundGpu& found) {
    return found.gpu.vendor == GpuVendor::kAmd && found.device_class == kVga;
  };
  const auto is_compute_of_amd = [&](const FoundGpu& found) {
    return found.gpu.vendor == GpuVendor::kAmd && !is_vga_of_amd(found);
  };
  if (std::any_of(gpus.begin(), gpus.end(), is_compute_of_amd)) {
    gpus.erase(std::remove_if(gpus.begin(), gpus.end(), is_vga_of_amd), gpus.end());
  }
  const auto address = [](const FoundGpu& found) { return parse_pci(found.gpu.pci); };
  std::stable_sort(gpus.begin(), gpus.end(), [&](const auto& a, const auto& b) { return address(a) < address(b); });
  const auto is_same = [&](const auto& a, const auto& b) { return address(a) == address(b); };
  gpus.erase(std::unique(gpus.begin(), gpus.end(), is_same), gpus.end());
  return gpus;
}

}  // namespace

Topology make_topology(CpuSet cpus, std::vector<Package> packages, std::vector<NumaNode> numa_nodes,
                       std::vector<FoundGpu> gpus) {
  Topology topology{std::move(cpus), std::move(packages), std::move(numa_nodes), {}};
  keep_disjoint(topology.packages, topology.cpus);
  keep_disjoint(topology.numa_nodes, topology.cpus);
  const auto package_owners = owners_of(topology.packages);
  const auto numa_owners = owners_of(topology.numa_nodes);
  for (auto& node : topology.numa_nodes) node.package = package_owners.holder_of(node.cpus, topology.packages);
  for (auto& found : in_order(std::move(gpus))) {
    place(found.gpu, found.local & topology.cpus, topology, package_owners, numa_owners);
    topology.gpus.push_back(std::move(found.gpu));
  }
  return topology;
}

std::optional<GpuVendor> gpu_vendor(std::uint32_t vendor, std::uint32_t device_class) {
  const auto is_vga = device_class == kVga;
  const auto is_display = is_vga || device_class == k3d || device_class == kOtherDisplay;
  if (vendor == 0x10de && is_display) return GpuVendor::kNvidia;
  if (vendor == 0x1002 && (is_display || device_class == kAccelerator)) return GpuVendor::kAmd;
  // A VGA device of Intel is part of a processor, its accelerators are FPGAs and NPUs.
  if (vendor == 0x8086 && is_display && !is_vga) return GpuVendor::kIntel;
  return std::nullopt;
}

std::optional<std::string> normal_pci(std::string_view address) {
  const auto pci = parse_pci(address);
  if (!pci) return std::nullopt;
  const auto& [domain, bus, device, function] = *pci;
  return cat({to_hex(domain, 4), ":", to_hex(bus, 2), ":", to_hex(device, 2), ".", to_hex(function)});
}

bool is_gpu_uuid(std::string_view text) {
  const auto is_allowed = [](char c) { return is_alphanumeric(c) || c == '-'; };
  return !text.empty() && text.size() <= kMaxUuid && std::all_of(text.begin(), text.end(), is_allowed);
}

std::vector<Gpu> gpus_of(const Topology& topology, GpuVendor vendor) {
  std::vector<Gpu> gpus;
  std::copy_if(topology.gpus.begin(), topology.gpus.end(), std::back_inserter(gpus),
               [vendor](const Gpu& gpu) { return gpu.vendor == vendor; });
  return gpus;
}

}  // namespace bootstrap

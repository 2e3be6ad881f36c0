// Which CPUs each GPU of a node is near to: made from a source, or read from lines of text in a file.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/topology.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

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
  const auto domain = parse_hex<std::uint32_t>(colons[0]);  // above 16 bits behind Intel VMD and on Hyper-V
  const auto bus = parse_hex<std::uint32_t>(colons[1], 0xff);
  const auto device = parse_hex<std::uint32_t>(colons[2].substr(0, dot), 0x1f);
  const auto function = parse_hex<std::uint32_t>(colons[2].substr(dot + 1), 7);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return PciAddress{*domain, *bus, *device, *function};
}

// The one part that holds all of these CPUs; the parts are disjoint.
template <class Part>
TopologyIndex holder_of(const CpuSet& cpus, const std::vector<Part>& parts) {
  if (cpus.empty()) return std::nullopt;
  const auto first = cpus.members().front();
  for (std::uint32_t i = 0; i < parts.size(); ++i) {
    if (parts[i].cpus.has(first)) return cpus.is_within(parts[i].cpus) ? TopologyIndex(i) : std::nullopt;
  }
  return std::nullopt;
}

// Linux counts each CPU to one NUMA node, but hwloc gives memory without CPUs (of a GPU, HBM, CXL) the CPUs around it.
// Such a node has a higher number than that of those CPUs, or more CPUs.
template <class Part>
void keep_disjoint(std::vector<Part>& parts, const CpuSet& machine) {
  for (auto& part : parts) part.cpus = part.cpus & machine;
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.cpus.count(), a.number) < std::pair(b.cpus.count(), b.number);
  });
  CpuSet taken;
  std::vector<Part> disjoint;
  for (auto& part : parts) {
    if (part.cpus.empty() || !(taken & part.cpus).empty()) continue;
    taken = taken | part.cpus;
    disjoint.push_back(std::move(part));
  }
  parts = std::move(disjoint);
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.number < b.number; });
}

void place(Gpu& gpu, const CpuSet& local, const Topology& topology) {
  gpu.numa = holder_of(local, topology.numa_nodes);
  if (gpu.numa) {
    gpu.near = topology.numa_nodes[*gpu.numa].cpus;
    gpu.package = topology.numa_nodes[*gpu.numa].package;
  } else if (local != topology.cpus) {
    gpu.near = local;
    gpu.package = holder_of(local, topology.packages);
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
  for (auto& node : topology.numa_nodes) node.package = holder_of(node.cpus, topology.packages);
  for (auto& found : in_order(std::move(gpus))) {
    place(found.gpu, found.local & topology.cpus, topology);
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

namespace {

constexpr std::size_t kMaxParts = 4096;  // packages, or NUMA nodes, of which Linux has at most 1024
constexpr std::size_t kMaxName = 128;    // of the device node and the model
constexpr std::string_view kNotKnown = "-";
constexpr std::array<std::string_view, 3> kVendors = {"nvidia", "amd", "intel"};  // in the order of GpuVendor

// It is tried in each task.
bool is_device(std::string_view text) {
  const auto is_allowed = [](char c) { return is_gpu_uuid({&c, 1}) || c == '/' || c == '_' || c == '.'; };
  return text.starts_with("/dev/") && text.size() <= kMaxName && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), is_allowed);
}

// What stands before the first `separator`, which goes, too.
std::string_view take(std::string_view& rest, char separator) {
  const auto end = std::min(rest.find(separator), rest.size());
  const auto taken = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return taken;
}

class TopologyReader {
 public:
  Result<Topology> run(std::string_view text) && {
    if (text.size() > kMaxTopologyText) return refuse("it is too large for a topology", ErrorCode::kLimit);
    const bool is_xml = text.starts_with("<?xml") || text.starts_with("<topology");
    if (take(text, '\n') != kTopologyTag) {
      return refuse(is_xml ? "it is XML" : cat({"it does not begin with ", quoted(kTopologyTag)}));
    }
    while (!text.empty()) {
      ++line_;
      auto fields = take(text, '\n');
      if (fields == "end" && text.empty()) return std::move(*this).finish();
      const auto kind = take(fields, ' ');
      if (auto status = read_line(kind, fields); !status) return fail(status.error());
    }
    return refuse("its last line is missing", ErrorCode::kMissing);
  }

 private:
  Result<Topology> finish() && {
    if (cpus_.empty()) return refuse("the line with the CPUs of the machine is missing", ErrorCode::kMissing);
    const std::array sizes = {packages_.size(), numa_nodes_.size(), gpus_.size()};
    auto topology = make_topology(std::move(cpus_), std::move(packages_), std::move(numa_nodes_), std::move(gpus_));
    if (sizes == std::array{topology.packages.size(), topology.numa_nodes.size(), topology.gpus.size()})
      return topology;
    return refuse(
        "a GPU is listed twice, or the CPUs of a package or NUMA node are not the machine's or belong to another one");
  }

  Status read_line(std::string_view kind, std::string_view fields) {
    if (kind == "cpus" && cpus_.empty()) return read_cpus(fields, cpus_);
    if (kind == "package") return read_part(fields, packages_);
    if (kind == "numa") return read_part(fields, numa_nodes_);
    if (kind == "gpu") return read_gpu(fields);
    return refuse(cat({quoted(kind), " is not expected here"}));
  }

  template <class Part>
  Status read_part(std::string_view fields, std::vector<Part>& parts) {
    if (parts.size() == kMaxParts) return refuse("there are too many lines of this kind", ErrorCode::kLimit);
    const auto word = take(fields, ' ');
    const auto number = parse_unsigned<std::uint32_t>(word);
    if (!number) return refuse(cat({quoted(word), " is not a number"}));
    auto& part = parts.emplace_back();
    part.number = *number;
    return read_cpus(fields, part.cpus);
  }

  Status read_gpu(std::string_view fields) {
    if (gpus_.size() == kMaxGpus) {
      return refuse(cat({"there are more than ", std::to_string(kMaxGpus), " GPUs"}), ErrorCode::kLimit);
    }
    auto& [gpu, device_class, local] = gpus_.emplace_back();
    const auto pci = take(fields, ' ');
    const auto address = normal_pci(pci);
    if (!address) return refuse(cat({quoted(pci), " is not a PCI address"}));
    gpu.pci = *address;
    const auto vendor = take(fields, ' ');
    const auto* const known = std::find(kVendors.begin(), kVendors.end(), vendor);
    if (known == kVendors.end()) return refuse(cat({quoted(vendor), " is not nvidia, amd or intel"}));
    gpu.vendor = static_cast<GpuVendor>(known - kVendors.begin());
    const auto near = take(fields, ' ');
    if (auto status = near == kNotKnown ? Status() : read_cpus(near, local); !status) return status;
    const auto device = take(fields, ' ');
    if (device != kNotKnown && !is_device(device))
      return refuse(cat({quoted(device), " is not a device such as /dev/nvidia0"}));
    if (device != kNotKnown) gpu.device = device;
    const auto uuid = take(fields, ' ');
    if (!is_gpu_uuid(uuid)) return refuse(cat({quoted(uuid), " is not a UUID"}));
    if (uuid != kNotKnown) gpu.uuid = uuid;
    if (gpu_model(fields) != fields) return refuse(cat({quoted(fields), " is not the model of a GPU"}));
    gpu.name = fields;
    return {};
  }

  Status read_cpus(std::string_view word, CpuSet& cpus) const {
    auto read = CpuSet::parse_list(word);
    if (!read) return refuse(read.error().message, read.error().code);
    if (read->empty()) return refuse("the list of CPUs is missing");
    cpus = std::move(*read);
    return {};
  }

  tl::unexpected<Error> refuse(std::string_view why, ErrorCode code = ErrorCode::kInvalid) const {
    return fail(code, cat({"line ", std::to_string(line_), ": ", why}));
  }

  std::size_t line_ = 1;
  CpuSet cpus_;
  std::vector<Package> packages_;
  std::vector<NumaNode> numa_nodes_;
  std::vector<FoundGpu> gpus_;
};

}  // namespace

std::string gpu_model(std::string_view name) {
  std::string text(name.substr(0, kMaxName));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !is_printable(c); }, '?');
  return text;
}

std::string topology_text(const Topology& topology) {
  auto text = cat({kTopologyTag, "\ncpus ", topology.cpus.to_list(), "\n"});
  const auto add_parts = [&text](std::string_view kind, const auto& parts) {
    for (const auto& part : parts) text += cat({kind, std::to_string(part.number), " ", part.cpus.to_list(), "\n"});
  };
  add_parts("package ", topology.packages);
  add_parts("numa ", topology.numa_nodes);
  for (const auto& gpu : topology.gpus) {
    text += cat({"gpu ", gpu.pci, " ", kVendors[static_cast<std::size_t>(gpu.vendor)], " ",
                 gpu.near.empty() ? kNotKnown : gpu.near.to_list(), " ", is_device(gpu.device) ? gpu.device : kNotKnown,
                 " ", is_gpu_uuid(gpu.uuid) ? gpu.uuid : kNotKnown, gpu.name.empty() ? "" : " ", gpu_model(gpu.name),
                 "\n"});
  }
  return text + "end\n";
}

Result<Topology> parse_topology_text(std::string_view text) { return TopologyReader().run(text); }

}  // namespace bootstrap

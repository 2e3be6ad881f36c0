// Reads a topology from the XML that hwloc writes (version 2 of its format) and `slurm-bootstrap topology` with it.
// SPDX-License-Identifier: Apache-2.0
#include "core/topology_xml.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "core/text.h"
#include "core/xml.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxParts = 4096;  // packages, or NUMA nodes, of which Linux has at most 1024
constexpr std::size_t kMaxName = 128;    // of what is kept of a GPU's own texts

enum class Kind { kOther, kMachine, kPackage, kNumaNode, kPciDevice, kOsDevice };

Kind kind_of(std::string_view type) {
  if (type == "Machine") return Kind::kMachine;
  if (type == "Package") return Kind::kPackage;
  if (type == "NUMANode") return Kind::kNumaNode;
  if (type == "PCIDev") return Kind::kPciDevice;
  if (type == "OSDev") return Kind::kOsDevice;
  return Kind::kOther;
}

// An element that is open.
struct Frame {
  std::string_view cpuset;         // its own, or of the nearest one around it that has one
  std::optional<std::size_t> gpu;  // the GPU that `info` elements in it are about
};

std::optional<std::uint32_t> parse_hex(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() != 4) return std::nullopt;
  return value;
}

// "0302 [10de:2330] [10de:16c1] a1": class, vendor and device, the same of the board, revision.
struct PciType {
  std::uint32_t device_class = 0;
  std::uint32_t vendor = 0;
};

std::optional<PciType> parse_pci_type(std::string_view text) {
  if (text.size() < 16 || text.substr(4, 2) != " [" || text[10] != ':' || text[15] != ']') return std::nullopt;
  const auto device_class = parse_hex(text.substr(0, 4));
  const auto vendor = parse_hex(text.substr(6, 4));
  if (!device_class || !vendor) return std::nullopt;
  return PciType{*device_class, *vendor};
}

class TopologyReader {
 public:
  explicit TopologyReader(std::string_view text) : xml_(text) {}

  Result<Topology> run() && {
    for (;;) {
      const auto event = xml_.next();
      if (!event) return fail(event.error());
      if (*event == XmlReader::Event::kEnd) break;
      if (*event == XmlReader::Event::kClose) {
        frames_.pop_back();
      } else if (auto status = open(); !status) {
        return fail(status.error());
      }
    }
    if (cpus_.empty()) return fail(ErrorCode::kMissing, "it tells of no machine with CPUs");
    return make_topology(std::move(cpus_), std::move(packages_), std::move(numa_nodes_), std::move(gpus_));
  }

 private:
  Status open() {
    if (frames_.empty()) {
      frames_.push_back({});
      return check_root();
    }
    auto frame = Frame{frames_.back().cpuset, std::nullopt};
    auto status = Status();
    if (xml_.name() == "object") {
      status = read_object(frame);
    } else if (xml_.name() == "info" && frames_.back().gpu) {
      status = read_info(gpus_[*frames_.back().gpu].gpu);
    }
    frames_.push_back(frame);
    return status;
  }

  Status check_root() const {
    if (xml_.name() != "topology") return refuse("the outermost element is not <topology>, as hwloc writes it");
    // Version 1 puts NUMA nodes around packages, version 3 may do anything.
    if (xml_.attribute("version").starts_with("2.")) return {};
    return refuse("it is not version 2 of hwloc's format; write it again with hwloc 2", ErrorCode::kUnsupported);
  }

  Status read_object(Frame& frame) {
    const auto kind = kind_of(xml_.attribute("type"));
    if (const auto cpuset = xml_.attribute("cpuset"); !cpuset.empty()) frame.cpuset = cpuset;
    switch (kind) {
      case Kind::kMachine:
        return read_machine(frame);
      case Kind::kPackage:
        return read_part(frame, packages_);
      case Kind::kNumaNode:
        return read_part(frame, numa_nodes_);
      case Kind::kPciDevice:
        return read_pci_device(frame);
      case Kind::kOsDevice:  // what NVML, CUDA and others know about the PCI device around it
        frame.gpu = frames_.back().gpu;
        return {};
      case Kind::kOther:
        break;
    }
    return {};
  }

  Status read_machine(const Frame& frame) {
    if (frames_.size() > 1) return refuse("there is a machine inside another object");
    if (!cpus_.empty()) return refuse("there is a second machine");
    auto cpus = read_cpuset(frame);
    if (!cpus) return fail(cpus.error());
    cpus_ = std::move(*cpus);
    return {};
  }

  template <class Part>
  Status read_part(const Frame& frame, std::vector<Part>& parts) {
    if (parts.size() == kMaxParts) {
      return refuse(cat({"there are more than ", std::to_string(kMaxParts), " objects of this type"}),
                    ErrorCode::kLimit);
    }
    auto cpus = read_cpuset(frame);
    if (!cpus) return fail(cpus.error());
    // hwloc leaves the number away where Linux gives none, as in some virtual machines.
    const auto text = xml_.attribute("os_index");
    const auto number = text.empty() ? parts.size() : parse_unsigned(text, UINT32_MAX);
    if (!number) return refuse(cat({"os_index ", quoted(text), " is not a number"}));
    parts.push_back({});
    parts.back().number = static_cast<std::uint32_t>(*number);
    parts.back().cpus = std::move(*cpus);
    return {};
  }

  Status read_pci_device(Frame& frame) {
    const auto type = parse_pci_type(xml_.attribute("pci_type"));
    if (!type) return refuse(cat({"pci_type ", quoted(xml_.attribute("pci_type")), " is not as hwloc writes it"}));
    const auto vendor = gpu_vendor(type->vendor, type->device_class);
    if (!vendor) return {};
    const auto pci = normal_pci(xml_.attribute("pci_busid"));
    if (!pci) return refuse(cat({"pci_busid ", quoted(xml_.attribute("pci_busid")), " is not a PCI address"}));
    if (gpus_.size() == kMaxGpus) {
      return refuse(cat({"there are more than ", std::to_string(kMaxGpus), " GPUs"}), ErrorCode::kLimit);
    }
    auto local = read_cpuset(frame);
    if (!local) return fail(local.error());
    frame.gpu = gpus_.size();
    gpus_.push_back({{}, type->device_class, std::move(*local)});
    gpus_.back().gpu.pci = *pci;
    gpus_.back().gpu.vendor = *vendor;
    return {};
  }

  Result<CpuSet> read_cpuset(const Frame& frame) const {
    if (frame.cpuset.empty()) return CpuSet();
    auto cpus = CpuSet::parse_mask(frame.cpuset);
    if (!cpus) return refuse(cpus.error().message, cpus.error().code);
    return cpus;
  }

  // The device node is tried in each task and the UUID compared with Slurm's, so they are what they should be or
  // nothing.
  Status read_info(Gpu& gpu) const {
    const auto name = xml_.attribute("name");
    const auto raw = xml_.attribute("value");
    if (name == kDeviceInfo) {
      if (!is_device(raw)) return refuse(cat({kDeviceInfo, " ", quoted(raw), " is not a path like /dev/nvidia0"}));
      gpu.device = raw;
    } else if (name == kUuidInfo) {
      if (!is_gpu_uuid(raw)) return refuse(cat({kUuidInfo, " ", quoted(raw), " is not a UUID"}));
      gpu.uuid = raw;
    } else if (name == "NVIDIAUUID" && gpu.uuid.empty() && is_gpu_uuid(raw)) {
      gpu.uuid = raw;
    } else if (name == "GPUModel" || (name == "PCIDevice" && gpu.name.empty())) {
      gpu.name = xml_value(raw.substr(0, kMaxName));
    }
    return {};
  }

  static bool is_device(std::string_view text) {
    const auto is_allowed = [](char c) { return is_gpu_uuid({&c, 1}) || c == '/' || c == '_' || c == '.'; };
    return text.starts_with("/dev/") && text.size() <= kMaxName && text.find("..") == std::string_view::npos &&
           std::all_of(text.begin(), text.end(), is_allowed);
  }

  tl::unexpected<Error> refuse(std::string_view why, ErrorCode code = ErrorCode::kInvalid) const {
    return fail(code, cat({"line ", std::to_string(xml_.line()), ": ", why}));
  }

  XmlReader xml_;
  std::vector<Frame> frames_;
  CpuSet cpus_;
  std::vector<Package> packages_;
  std::vector<NumaNode> numa_nodes_;
  std::vector<FoundGpu> gpus_;
};

}  // namespace

Result<Topology> parse_topology_xml(std::string_view text) {
  if (text.size() > kMaxTopologyText) {
    return fail(ErrorCode::kLimit,
                cat({"the topology is larger than ", std::to_string(kMaxTopologyText >> 20), " MiB"}));
  }
  auto topology = TopologyReader(text).run();
  if (!topology) return fail(topology.error().code, cat({"the topology cannot be read: ", topology.error().message}));
  return topology;
}

}  // namespace bootstrap

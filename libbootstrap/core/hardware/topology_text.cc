// A topology as the lines of text that `slurm-bootstrap topology` writes and slurmstepd reads.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/topology_text.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/util/text.h"

namespace bootstrap {
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
    const auto number = parse_unsigned(word, UINT32_MAX);
    if (!number) return refuse(cat({quoted(word), " is not a number"}));
    auto& part = parts.emplace_back();
    part.number = static_cast<std::uint32_t>(*number);
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

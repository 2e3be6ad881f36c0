// The topology of this machine from /sys and /proc, without a library: for slurmstepd, at every start of a step.
// SPDX-License-Identifier: Apache-2.0
#include "probe/node_topology.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/hardware/topology.h"
#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

constexpr std::size_t kMaxNumaNodes = 1024;  // CONFIG_NODES_SHIFT of Linux is at most 10

// "0x10de"; 0 if there is no number.
std::uint32_t read_hex(std::string_view text) {
  return static_cast<std::uint32_t>(text.starts_with("0x") ? parse_hex(text.substr(2), UINT32_MAX).value_or(0) : 0);
}

std::vector<NumaNode> read_numa_nodes(const FileTree& tree) {
  // Nodes without CPUs are in `online` only; a machine of four GH200 has 32 of them.
  const std::string folder = "/sys/devices/system/node/";
  auto numbers = tree.read_cpus(folder + "has_cpu");
  if (numbers.empty()) numbers = tree.read_cpus(folder + "online");
  std::vector<NumaNode> nodes;
  for (const auto number : numbers.members()) {
    if (nodes.size() == kMaxNumaNodes) break;
    NumaNode node;
    node.number = static_cast<std::uint32_t>(number);
    node.cpus = tree.read_cpus(cat({folder, "node", std::to_string(number), "/cpulist"}));
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

// Reads the package of one CPU of each package.
std::vector<Package> read_packages(const FileTree& tree, const CpuSet& cpus) {
  std::vector<Package> packages;
  for (auto rest = cpus; !rest.empty();) {
    const auto cpu = rest.members().front();
    const auto folder = cat({"/sys/devices/system/cpu/cpu", std::to_string(cpu), "/topology/"});
    Package package;
    package.cpus = tree.read_cpus(folder + "package_cpus_list");
    if (package.cpus.empty()) package.cpus = tree.read_cpus(folder + "core_siblings_list");  // before Linux 5.3
    if (!package.cpus.has(cpu)) break;  // the files cannot be trusted
    // -1 if the firmware gives no number, as in some virtual machines.
    const auto number = parse_unsigned(tree.read(folder + "physical_package_id"), UINT32_MAX);
    package.number = static_cast<std::uint32_t>(number.value_or(packages.size()));
    rest = rest - package.cpus;
    packages.push_back(std::move(package));
  }
  return packages;
}

class GpuFinder {
 public:
  GpuFinder(const FileTree& tree, const CpuSet& cpus, const std::vector<NumaNode>& nodes)
      : tree_(tree), cpus_(cpus), nodes_(nodes) {}

  std::vector<FoundGpu> run() && {
    find_by_driver_of_nvidia();
    find_by_render_nodes();
    // The bus has hundreds of devices, so it is read only if no driver has a GPU.
    if (found_.empty()) find_on_bus();
    return std::move(found_);
  }

 private:
  void find_by_driver_of_nvidia() {
    const std::string folder = "/proc/driver/nvidia/gpus/";
    for (const auto& name : tree_.names_in(folder)) {
      const auto pci = normal_pci(name);
      if (!pci || known_.count(*pci) != 0) continue;
      Gpu gpu;
      const auto text = tree_.read(cat({folder, name, "/information"}));
      if (read_information(text, gpu)) add(*pci, std::move(gpu), 0x0302);
    }
  }

  // Lines such as "Model: \t\t NVIDIA H100". Returns false for a GPU that the administrator excluded
  // (NVreg_ExcludedGpus): CUDA and Slurm do not count it.
  static bool read_information(std::string_view text, Gpu& gpu) {
    for (const auto line : split(text, '\n')) {
      const auto colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      const auto name = line.substr(0, colon);
      const auto value = trim(line.substr(colon + 1));
      if (name == "GPU Excluded" && value == "Yes") return false;
      if (name == "GPU UUID" && is_gpu_uuid(value)) gpu.uuid = value;
      if (name == "Model") gpu.name = gpu_model(value);
      const auto minor = name == "Device Minor" ? parse_unsigned(value, 65535) : std::nullopt;
      if (minor) gpu.device = cat({"/dev/nvidia", std::to_string(*minor)});
    }
    return true;
  }

  // AMD and Intel. Of a GPU with several render nodes (AMD's partitions) only the first part belongs to a PCI device.
  void find_by_render_nodes() {
    for (const auto& name : tree_.names_in("/sys/class/drm")) {
      if (!name.starts_with("renderD")) continue;
      const auto pci = normal_pci(tree_.link_name(cat({"/sys/class/drm/", name, "/device"})));
      if (!pci || known_.count(*pci) != 0) continue;
      const auto [vendor, device_class] = identify(*pci);
      if (!vendor || vendor == GpuVendor::kNvidia) continue;
      Gpu gpu;
      gpu.vendor = *vendor;
      gpu.device = cat({"/dev/dri/", name});
      add(*pci, std::move(gpu), device_class);
    }
  }

  void find_on_bus() {
    for (const auto& name : tree_.names_in("/sys/bus/pci/devices")) {
      const auto pci = normal_pci(name);
      const auto [vendor, device_class] = pci ? identify(*pci) : std::pair<std::optional<GpuVendor>, std::uint32_t>();
      if (vendor != GpuVendor::kNvidia) continue;
      add(*pci, Gpu(), device_class);
    }
  }

  std::pair<std::optional<GpuVendor>, std::uint32_t> identify(std::string_view pci) const {
    const auto vendor = read_hex(tree_.read(device_file(pci, "vendor")));
    if (vendor != 0x10de && vendor != 0x1002 && vendor != 0x8086) return {};
    const auto device_class = read_hex(tree_.read(device_file(pci, "class"))) >> 8;  // without programming interface
    return {gpu_vendor(vendor, device_class), device_class};
  }

  void add(const std::string& pci, Gpu gpu, std::uint32_t device_class) {
    known_.insert(pci);
    if (found_.size() == kMaxGpus) return;
    gpu.pci = pci;
    found_.push_back({std::move(gpu), device_class, local_cpus(pci)});
  }

  CpuSet local_cpus(std::string_view pci) const {
    const auto number = parse_unsigned(tree_.read(device_file(pci, "numa_node")), UINT32_MAX);  // "-1": unknown
    const auto is_it = [number](const NumaNode& node) { return node.number == number; };
    const auto node = std::find_if(nodes_.begin(), nodes_.end(), is_it);
    if (node != nodes_.end()) return node->cpus;
    const auto local = tree_.read_cpus(device_file(pci, "local_cpulist"));
    return local.empty() ? cpus_ : local;
  }

  static std::string device_file(std::string_view pci, std::string_view name) {
    return cat({"/sys/bus/pci/devices/", pci, "/", name});
  }

  const FileTree& tree_;
  const CpuSet& cpus_;
  const std::vector<NumaNode>& nodes_;
  std::set<std::string> known_;
  std::vector<FoundGpu> found_;
};

}  // namespace

Topology read_sysfs_topology(const std::string& root) {
  const FileTree tree(root);
  auto cpus = tree.read_cpus("/sys/devices/system/cpu/online");
  auto nodes = read_numa_nodes(tree);
  if (cpus.empty()) {
    for (const auto& node : nodes) cpus = cpus | node.cpus;
  }
  // A kernel without NUMA: one node, as with hwloc.
  if (nodes.empty() && !cpus.empty()) nodes.push_back({0, std::nullopt, cpus});
  auto packages = read_packages(tree, cpus);
  auto gpus = GpuFinder(tree, cpus, nodes).run();
  return make_topology(std::move(cpus), std::move(packages), std::move(nodes), std::move(gpus));
}

}  // namespace bootstrap

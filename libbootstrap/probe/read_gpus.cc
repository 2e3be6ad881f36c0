// The GPUs of this node and the CPUs near them, from /sys and /proc.
// SPDX-License-Identifier: Apache-2.0
#include "probe/read_gpus.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/util/text.h"
#include "probe/files.h"

namespace bootstrap {
namespace {

std::string read_of_device(const FileTree& tree, std::string_view pci, std::string_view name) {
  return tree.read(cat({"/sys/bus/pci/devices/", pci, "/", name}));
}

// Firmware may not give a place: numa_node is -1 then.
void add_place(Gpu& gpu, const FileTree& tree) {
  const auto number = parse_unsigned<std::uint32_t>(read_of_device(tree, gpu.pci, "numa_node"));
  if (!number) return;
  const auto near = tree.read_cpus(cat({"/sys/devices/system/node/node", std::to_string(*number), "/cpulist"}));
  if (near.empty()) return;
  gpu.numa = number;
  gpu.near = near;
  const auto folder = cat({"/sys/devices/system/cpu/cpu", std::to_string(near.first()), "/topology/"});
  auto package = tree.read_cpus(folder + "package_cpus_list");
  if (package.empty()) package = tree.read_cpus(folder + "core_siblings_list");  // before Linux 5.3
  if (near.is_within(package)) gpu.package = package;
}

// Frontier and LUMI: a GPU is at one L3 cache of its NUMA node, which the firmware does not report. The order is that
// of their user guides, and hwloc has the same since 2.8.
void add_l3_of_ex235a(Gpu& gpu, const FileTree& tree) {
  constexpr std::array<std::string_view, 8> kBuses{"d1", "d6", "c9", "ce", "d9", "de", "c1", "c6"};
  const auto* const bus = std::find(kBuses.begin(), kBuses.end(), gpu.pci.substr(gpu.pci.find(':') + 1, 2));
  if (bus == kBuses.end()) return;
  const auto cpu = std::to_string(8 * (bus - kBuses.begin()));
  gpu.l3 = tree.read_cpus(cat({"/sys/devices/system/cpu/cpu", cpu, "/cache/index3/shared_cpu_list"})) & gpu.near;
}

// Lines of NVIDIA's driver such as "Model: \t\t NVIDIA H100". Returns false for a GPU that the administrator excluded
// (NVreg_ExcludedGpus): CUDA and Slurm do not count it.
bool read_information(std::string_view text, Gpu& gpu) {
  for (const auto line : split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const auto name = line.substr(0, colon);
    const auto value = trim(line.substr(colon + 1));
    if (name == "GPU Excluded" && value == "Yes") return false;
    // The driver writes question marks for a UUID that it does not know yet.
    if (name == "GPU UUID" && value.find('?') == std::string_view::npos) gpu.uuid = value;
    if (name == "Model") gpu.name = value;
    const auto minor = name == "Device Minor" ? parse_unsigned(value, 65535) : std::nullopt;
    if (minor) gpu.device = cat({"/dev/nvidia", std::to_string(*minor)});
  }
  return true;
}

void add_gpus_of_nvidia(std::vector<Gpu>& gpus, const FileTree& tree) {
  const std::string folder = "/proc/driver/nvidia/gpus/";
  for (const auto& name : tree.names_in(folder)) {
    const auto pci = normal_pci(name);
    if (!pci) continue;
    Gpu gpu{.pci = *pci};
    if (read_information(tree.read(cat({folder, name, "/information"})), gpu)) gpus.push_back(std::move(gpu));
  }
}

// AMD and Intel, whose files are render nodes. A VGA device of Intel is part of a processor; that of AMD is the console
// of some servers, and counts if there is no other GPU of AMD. Of AMD's partitions of a GPU only the first has
// a PCI address.
void add_gpus_of_others(std::vector<Gpu>& gpus, const FileTree& tree) {
  std::vector<Gpu> vga_of_amd;
  for (const auto& name : tree.names_in("/sys/class/drm")) {
    if (!name.starts_with("renderD")) continue;
    const auto pci = normal_pci(tree.link_name(cat({"/sys/class/drm/", name, "/device"})));
    if (!pci) continue;
    const auto vendor = read_of_device(tree, *pci, "vendor");
    const auto is_amd = vendor == "0x1002";
    const auto is_vga = read_of_device(tree, *pci, "class").starts_with("0x0300");  // PCI code and ID specification
    if (!is_amd && (vendor != "0x8086" || is_vga)) continue;
    auto& found = is_amd && is_vga ? vga_of_amd : gpus;
    found.push_back(
        {.pci = *pci, .vendor = is_amd ? GpuVendor::kAmd : GpuVendor::kIntel, .device = "/dev/dri/" + name});
  }
  if (gpus_of(gpus, GpuVendor::kAmd).empty()) gpus.insert(gpus.end(), vga_of_amd.begin(), vga_of_amd.end());
}

}  // namespace

std::vector<Gpu> read_gpus(const std::string& root) {
  const FileTree tree(root);
  std::vector<Gpu> gpus;
  add_gpus_of_nvidia(gpus, tree);
  add_gpus_of_others(gpus, tree);
  gpus.resize(std::min(gpus.size(), kMaxGpus));
  // All addresses have one form, and only their domains differ in length.
  std::sort(gpus.begin(), gpus.end(), [](const Gpu& one, const Gpu& other) {
    return std::tuple(one.pci.size(), std::string_view(one.pci)) <
           std::tuple(other.pci.size(), std::string_view(other.pci));
  });
  const bool has_amd = !gpus_of(gpus, GpuVendor::kAmd).empty();
  const bool is_ex235a = has_amd && tree.read("/sys/class/dmi/id/board_name") == "HPE CRAY EX235A";
  for (auto& gpu : gpus) {
    add_place(gpu, tree);
    if (is_ex235a) add_l3_of_ex235a(gpu, tree);
  }
  return gpus;
}

}  // namespace bootstrap

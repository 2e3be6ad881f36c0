// The GPUs of a node, and those that Slurm gave to a step as the environment lists them.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_list.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::string_view kMig = "MIG-";
constexpr std::string_view kGpu = "GPU-";
constexpr std::size_t kMaxEntry = 128;

// Letters, digits and what UUIDs of MIG instances consist of ("MIG-GPU-5c89852c-.../7/0").
bool is_entry(std::string_view entry) {
  return !entry.empty() && entry.size() <= kMaxEntry && std::all_of(entry.begin(), entry.end(), [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '/' || c == '.';
  });
}

bool is_index(std::string_view entry) { return parse_unsigned(entry, kMaxGpus - 1).has_value(); }

// Returns nullopt unless each entry is valid and none occurs twice.
std::optional<std::vector<std::string>> read_entries(std::string_view text) {
  std::vector<std::string> entries;
  for (const auto entry : split(text, ',')) {
    const bool is_new = std::find(entries.begin(), entries.end(), entry) == entries.end();
    if (!is_entry(entry) || !is_new || entries.size() == kMaxGpus) return std::nullopt;
    if (!is_index(entry) && !entry.starts_with(kGpu) && !entry.starts_with(kMig)) return std::nullopt;
    entries.emplace_back(entry);
  }
  return entries;
}

// Slurm numbers from 0 inside the step if a device cgroup hides the other GPUs, else across the node. The list may
// have been reordered since; SLURM_STEP_GPUS has not.
std::vector<std::uint32_t> read_ids(const Environment& environment, const std::vector<std::string>& entries) {
  std::vector<std::uint32_t> step;
  for (const auto text : split(environment.get("SLURM_STEP_GPUS").value_or(""), ',')) {
    const auto id = parse_unsigned<std::uint32_t>(text, kMaxGpus - 1);
    if (!id || step.size() == kMaxGpus) return {};
    step.push_back(*id);
  }
  std::vector<std::uint32_t> values;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    // UUIDs are in the order of SLURM_STEP_GPUS, or were reordered; then find_gpus() goes by the UUID.
    values.push_back(parse_unsigned<std::uint32_t>(entries[i], kMaxGpus - 1).value_or(i));
  }
  const bool is_of_node = is_index(entries.front()) && std::all_of(values.begin(), values.end(), [&](auto value) {
                            return std::find(step.begin(), step.end(), value) != step.end();
                          });
  if (is_of_node) return values;
  for (auto& value : values) {
    if (value >= step.size()) return {};
    value = step[value];
  }
  return values;
}

const GpuListKind* kind_of(const Environment& environment) {
  const auto* const found = std::find_if(kGpuListKinds.begin(), kGpuListKinds.end(),
                                         [&](const GpuListKind& kind) { return environment.has(kind.variable); });
  return found == kGpuListKinds.end() ? nullptr : found;
}

}  // namespace

std::string_view gpu_uuid(std::string_view entry) {
  if (entry.starts_with(kMig)) entry.remove_prefix(kMig.size());
  return entry.substr(0, entry.find('/'));
}

std::vector<Gpu> gpus_of(const std::vector<Gpu>& gpus, GpuVendor vendor) {
  std::vector<Gpu> found;
  std::copy_if(gpus.begin(), gpus.end(), std::back_inserter(found), [&](auto& gpu) { return gpu.vendor == vendor; });
  return found;
}

std::optional<std::string> normal_pci(std::string_view address) {
  const auto colons = split(address.substr(0, 32), ':');
  if (colons.size() != 3) return std::nullopt;
  const auto dot = colons[2].find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto domain = parse_hex<std::uint32_t>(colons[0]);  // above 16 bits behind Intel VMD and on Hyper-V
  const auto bus = parse_hex(colons[1], 0xff);
  const auto device = parse_hex(colons[2].substr(0, dot), 0x1f);
  const auto function = parse_hex(colons[2].substr(dot + 1), 7);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return cat({to_hex(*domain, 4), ":", to_hex(*bus, 2), ":", to_hex(*device, 2), ".", to_hex(*function)});
}

std::string GpuList::text() const { return join(entries, ","); }

bool has_users_hip_list(const Environment& environment) {
  const auto users = environment.get("HIP_VISIBLE_DEVICES");
  const auto* const kind = kind_of(environment);
  if (!users || kind == nullptr || kind->vendor != GpuVendor::kAmd) return false;
  const auto shown = split(*users, ',');
  const auto count = split(*environment.get(kind->variable), ',').size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= shown.size() || shown[i] != std::to_string(i)) return true;
  }
  return false;
}

std::optional<GpuList> read_gpu_list(const Environment& environment) {
  if (!environment.has("SLURM_STEP_GPUS")) return std::nullopt;
  return read_visible_gpus(environment);
}

GpuList all_gpus(std::size_t count) {
  GpuList list;
  list.kind = kGpuListKinds.data();
  for (std::size_t i = 0; i < std::min<std::size_t>(count, kMaxGpus); ++i) list.entries.push_back(std::to_string(i));
  list.is_assumed = true;
  return list;
}

std::optional<GpuList> read_visible_gpus(const Environment& environment) {
  const auto* const kind = kind_of(environment);
  if (kind == nullptr || has_users_hip_list(environment)) return std::nullopt;
  auto entries = read_entries(*environment.get(kind->variable));
  if (!entries) return std::nullopt;
  GpuList list;
  list.kind = kind;
  list.entries = std::move(*entries);
  list.ids = read_ids(environment, list.entries);
  for (const auto& entry : list.entries) {
    list.has_uuids = list.has_uuids || !is_index(entry);
    list.has_mig = list.has_mig || entry.starts_with(kMig);
  }
  return list;
}

std::vector<Gpu> find_gpus(const GpuList& list, const std::vector<Gpu>& of_node) {
  const auto all = gpus_of(of_node, list.kind->vendor);
  std::vector<Gpu> found;
  for (std::size_t i = 0; i < list.entries.size(); ++i) {
    Gpu gpu;
    gpu.vendor = list.kind->vendor;
    if (is_index(list.entries[i])) {
      // Slurm counts GPUs in the order of their PCI addresses, not of their device nodes
      // (common_gres_set_env() in its src/plugins/gres/common).
      if (i < list.ids.size() && list.ids[i] < all.size()) gpu = all[list.ids[i]];
    } else {
      const auto uuid = gpu_uuid(list.entries[i]);
      const auto match = std::find_if(all.begin(), all.end(), [&](const Gpu& one) { return one.uuid == uuid; });
      if (match != all.end()) gpu = *match;
    }
    found.push_back(std::move(gpu));
  }
  return found;
}

std::string device_of(const GpuList& list, const Gpu& gpu, std::size_t entry) {
  if (list.has_mig) return {};  // MIG instances have files of their own
  if (!gpu.device.empty()) return gpu.device;
  // Without a driver's answer: NVIDIA's device nodes are numbered in this order on all but a few machines, and a
  // guessed file that does not exist has no effect.
  if (list.kind->vendor != GpuVendor::kNvidia || entry >= list.ids.size()) return {};
  return cat({"/dev/nvidia", std::to_string(list.ids[entry])});
}

}  // namespace bootstrap

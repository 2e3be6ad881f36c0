// The GPUs of a node, those that Slurm gave to a step as the environment lists them, and which task gets which.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_list.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
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

// Nothing unless each entry is valid, all are of the same kind, and none occurs twice.
std::optional<std::vector<std::string>> read_entries(std::string_view text) {
  std::vector<std::string> entries;
  std::set<std::string_view> seen;
  for (const auto entry : split(text, ',')) {
    if (!is_entry(entry) || !seen.insert(entry).second || entries.size() == kMaxGpus) return std::nullopt;
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
    // UUIDs are in the order of SLURM_STEP_GPUS unless they were reordered; a UUID names its GPU then.
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
  if (list.has_mig) return {};  // opened through files of its own
  if (!gpu.device.empty()) return gpu.device;
  // Without a driver's answer: NVIDIA's device nodes are numbered in this order on all but a few machines, and a
  // guessed file that does not exist has no effect.
  if (list.kind->vendor != GpuVendor::kNvidia || entry >= list.ids.size()) return {};
  return cat({"/dev/nvidia", std::to_string(list.ids[entry])});
}

std::uint32_t distance(const CpuSet& task, const Gpu& gpu) {
  const auto cores = task.count();
  if (cores == 0) return kNear;
  if (gpu.near.empty()) return kFar;
  const auto near = (task & gpu.near).count();
  const auto in_package = (task & (gpu.package | gpu.near)).count();
  const auto in_l3 = gpu.l3.empty() ? near : (task & gpu.l3).count();
  const auto sum = (near - in_l3) * kSameNode + (in_package - near) * kSamePackage + (cores - in_package) * kFar;
  return static_cast<std::uint32_t>(sum / cores);
}

namespace {

using Order = std::vector<std::uint32_t>;

// Where the search begins, and where a GPU stays if nothing is gained: position p has the GPU that this names.
Order preferred_order(std::size_t tasks, const Order& neighbours) {
  const auto gpus = neighbours.size();
  Order order(gpus);
  std::iota(order.begin(), order.end(), 0U);
  if (tasks >= gpus) return order;
  const auto group = gpus / tasks;
  const auto used = static_cast<std::ptrdiff_t>(group * tasks);
  for (std::size_t at = 0; at < group * tasks; ++at) order[(at % group) * tasks + at / group] = neighbours[at];
  std::copy(neighbours.begin() + used, neighbours.end(), order.begin() + used);
  return order;
}

using Cost = std::pair<std::int64_t, std::int64_t>;

// What two positions add to the cost of an order: the distances of the tasks that use them, and then how far apart
// their groups stand among the neighbours; `place` is that of each GPU among them.
Cost cost_of(const Order& order, std::array<std::size_t, 2> positions, const Distances& distances, const Order& place) {
  const auto tasks = distances.size();
  const auto gpus = order.size();
  const auto used = tasks > gpus ? gpus : gpus / tasks * tasks;
  Cost cost;
  for (const auto position : positions) {
    if (position >= used) continue;
    for (auto task = position % tasks; task < tasks; task += gpus) cost.first += distances[task][order[position]];
    auto least = place[order[position]];
    auto most = least;
    for (auto other = position % tasks; other < used; other += tasks) {
      least = std::min(least, place[order[other]]);
      most = std::max(most, place[order[other]]);
    }
    cost.second += most - least;
  }
  return cost;
}

// Exchanges the two GPUs with which the order gains most. False: it gains with none.
bool exchange_best(Order& order, const Distances& distances, const Order& place) {
  Cost best;
  std::array<std::size_t, 2> pair{};
  for (std::size_t one = 0; one < order.size(); ++one) {
    for (auto other = one + 1; other < order.size(); ++other) {
      const auto before = cost_of(order, {one, other}, distances, place);
      std::swap(order[one], order[other]);
      const auto after = cost_of(order, {one, other}, distances, place);
      std::swap(order[one], order[other]);
      const Cost gain(before.first - after.first, before.second - after.second);
      if (gain > best) best = gain, pair = {one, other};
    }
  }
  std::swap(order[pair[0]], order[pair[1]]);
  return best > Cost();
}

}  // namespace

std::vector<std::uint32_t> assign_gpus(const Distances& distances, const std::vector<std::uint32_t>& neighbours) {
  const auto tasks = distances.size();
  const auto gpus = neighbours.size();
  if (tasks == 0 || gpus == 0) return neighbours;
  Order place(gpus);
  for (std::uint32_t at = 0; at < gpus; ++at) place[neighbours[at]] = at;
  auto order = preferred_order(tasks, neighbours);
  // As a rule, each GPU moves once or never; the limits are for slurmstepd, which must not wait. Only a list that a
  // user wrote is longer.
  constexpr std::size_t kMostSearched = 64;
  for (std::size_t round = 0; gpus <= kMostSearched && round < gpus && exchange_best(order, distances, place);) ++round;
  for (std::uint32_t task = 0; task < tasks && tasks < gpus; ++task) {
    const auto positions = positions_of(task, tasks, gpus);
    Order group;
    for (const auto position : positions) group.push_back(order[position]);
    // Within a group all orders cost the same: the nearest first, then as the neighbours stand.
    std::sort(group.begin(), group.end(), [&](std::uint32_t one, std::uint32_t other) {
      return std::pair(distances[task][one], place[one]) < std::pair(distances[task][other], place[other]);
    });
    for (std::size_t i = 0; i < positions.size(); ++i) order[positions[i]] = group[i];
  }
  return order;
}

std::vector<std::uint32_t> by_locality(const std::vector<Gpu>& gpus) {
  // Packages and NUMA nodes count in the order in which they are first met.
  const auto first_in = [&](CpuSet Gpu::*part, std::uint32_t gpu) {
    return std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& one) { return one.*part == gpus[gpu].*part; });
  };
  const auto key = [&](std::uint32_t gpu) {
    return std::pair(first_in(&Gpu::package, gpu), first_in(&Gpu::near, gpu));
  };
  Order order(gpus.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto one, auto other) { return key(one) < key(other); });
  return order;
}

std::vector<std::uint32_t> positions_of(std::uint32_t task, std::size_t tasks, std::size_t gpus) {
  std::vector<std::uint32_t> positions;
  if (gpus == 0) return positions;
  if (tasks > gpus) return {static_cast<std::uint32_t>(task % gpus)};
  const auto used = gpus / tasks * tasks;
  for (std::size_t position = task; position < used; position += tasks) {
    positions.push_back(static_cast<std::uint32_t>(position));
  }
  return positions;
}

}  // namespace bootstrap

// The GPUs that Slurm gave to a step on this node, as the environment lists them, and which task gets which.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_list.h"

#include <algorithm>
#include <cstddef>
#include <limits>
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

// MIG instances carry the UUID of their GPU in the form up to driver 470: "MIG-GPU-<uuid>/<instance>/<instance>".
std::string_view gpu_uuid(std::string_view entry) {
  if (entry.starts_with(kMig)) entry.remove_prefix(kMig.size());
  return entry.substr(0, entry.find('/'));
}

}  // namespace

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

std::vector<Gpu> find_gpus(const GpuList& list, const Topology& topology) {
  const auto all = gpus_of(topology, list.kind->vendor);
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
  // Without a topology: NVIDIA's device nodes are numbered in this order on all but a few machines, and a guessed file
  // that does not exist has no effect.
  if (list.kind->vendor != GpuVendor::kNvidia || entry >= list.ids.size()) return {};
  return cat({"/dev/nvidia", std::to_string(list.ids[entry])});
}

namespace {

using Cost = std::int64_t;
using CostMatrix = std::vector<std::vector<Cost>>;

// The cheapest way to give each row a column of its own, O(n^3): the Hungarian method with potentials (Kuhn and
// Munkres, in the form of Jonker and Volgenant). Returns the column of each row. In here rows and columns count from 1.
std::vector<std::uint32_t> cheapest_columns(const CostMatrix& cost) {
  constexpr auto kUnreached = std::numeric_limits<Cost>::max() / 4;
  const auto size = cost.size();
  std::vector<Cost> row_potential(size + 1);
  std::vector<Cost> column_potential(size + 1);
  std::vector<std::size_t> row_of(size + 1);  // of each column; 0: none
  std::vector<std::size_t> before(size + 1);  // the column from which each one is reached
  for (std::size_t row = 1; row <= size; ++row) {
    std::vector<Cost> distance(size + 1, kUnreached);
    std::vector<bool> is_done(size + 1);
    std::size_t column = 0;
    for (row_of[0] = row; row_of[column] != 0;) {
      const auto from = row_of[column];
      is_done[column] = true;
      std::size_t nearest = 0;
      for (std::size_t to = 1; to <= size; ++to) {
        if (is_done[to]) continue;
        const auto reduced = cost[from - 1][to - 1] - row_potential[from] - column_potential[to];
        if (reduced < distance[to]) distance[to] = reduced, before[to] = column;
        if (nearest == 0 || distance[to] < distance[nearest]) nearest = to;
      }
      const auto change = distance[nearest];
      for (std::size_t to = 0; to <= size; ++to) {
        if (is_done[to]) row_potential[row_of[to]] += change, column_potential[to] -= change;
        if (!is_done[to]) distance[to] -= change;
      }
      column = nearest;
    }
    for (; column != 0; column = before[column]) row_of[column] = row_of[before[column]];
  }
  std::vector<std::uint32_t> columns(size);
  for (std::size_t column = 1; column <= size; ++column) {
    columns[row_of[column] - 1] = static_cast<std::uint32_t>(column - 1);
  }
  return columns;
}

// The order in which ties are broken: position p gets the GPU that this names.
std::vector<std::uint32_t> preferred_order(std::size_t tasks, const std::vector<std::uint32_t>& neighbours) {
  const auto gpus = neighbours.size();
  std::vector<std::uint32_t> order(gpus);
  std::iota(order.begin(), order.end(), 0U);
  if (tasks >= gpus) return order;
  const auto group = gpus / tasks;
  for (std::size_t at = 0; at < group * tasks; ++at) order[(at % group) * tasks + at / group] = neighbours[at];
  std::copy(neighbours.begin() + static_cast<std::ptrdiff_t>(group * tasks), neighbours.end(),
            order.begin() + static_cast<std::ptrdiff_t>(group * tasks));
  return order;
}

CostMatrix cost_matrix(const Distances& distances, const std::vector<std::uint32_t>& preferred) {
  const auto tasks = distances.size();
  const auto gpus = preferred.size();
  // Each weight is above all that the terms after it can add up to. The last one is a square, so that GPUs that must
  // move do so without overtaking each other.
  const auto per_move = static_cast<Cost>(gpus * gpus * gpus + 1);
  const auto per_distance = per_move * static_cast<Cost>(gpus + 1);
  std::vector<std::vector<std::uint32_t>> tasks_at(gpus);  // whose own or group GPU stands at each position
  for (std::uint32_t task = 0; task < tasks; ++task) {
    for (const auto position : positions_of(task, tasks, gpus)) tasks_at[position].push_back(task);
  }
  std::vector<std::size_t> home(gpus);  // where each GPU would stand if all were equal
  for (std::size_t position = 0; position < gpus; ++position) home[preferred[position]] = position;

  CostMatrix cost(gpus, std::vector<Cost>(gpus, 0));
  for (std::size_t position = 0; position < gpus; ++position) {
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      auto& entry = cost[position][gpu];
      for (const auto task : tasks_at[position]) entry += per_distance * static_cast<Cost>(distances[task][gpu]);
      const bool stays = tasks_at[home[gpu]] == tasks_at[position];
      if (!stays) entry += per_move;
      const auto moved = static_cast<Cost>(home[gpu]) - static_cast<Cost>(position);
      entry += moved * moved;
    }
  }
  return cost;
}

using Group = std::vector<std::uint32_t>;  // GPUs of one task

std::vector<Group> groups_of(const std::vector<std::uint32_t>& order, std::size_t tasks) {
  std::vector<Group> groups(tasks);
  for (std::uint32_t task = 0; task < tasks; ++task) {
    for (const auto position : positions_of(task, tasks, order.size())) groups[task].push_back(order[position]);
  }
  return groups;
}

// How far apart the GPUs of a group stand among the neighbours.
std::uint32_t spread(const Group& group, const std::vector<std::uint32_t>& rank) {
  std::uint32_t least = UINT32_MAX;
  std::uint32_t most = 0;
  for (const auto gpu : group) {
    least = std::min(least, rank[gpu]);
    most = std::max(most, rank[gpu]);
  }
  return most - least;
}

// Whether the two groups, at the same distances in all, are closer together with one GPU of each exchanged; they are
// exchanged then.
bool exchange(std::vector<Group>& groups, std::size_t one, std::size_t other, const Distances& distances,
              const std::vector<std::uint32_t>& rank) {
  const auto before = spread(groups[one], rank) + spread(groups[other], rank);
  for (auto& mine : groups[one]) {
    for (auto& theirs : groups[other]) {
      if (distances[one][mine] + distances[other][theirs] != distances[one][theirs] + distances[other][mine]) continue;
      std::swap(mine, theirs);
      if (spread(groups[one], rank) + spread(groups[other], rank) < before) return true;
      std::swap(mine, theirs);
    }
  }
  return false;
}

// A task that is not bound, or is bound to cores of several places, may get any GPUs: it gets neighbours.
// Ends, since the sum of the spreads falls with every exchange.
void compact(std::vector<Group>& groups, const Distances& distances, const std::vector<std::uint32_t>& rank) {
  for (bool is_better = true; is_better;) {
    is_better = false;
    for (std::size_t one = 0; one < groups.size(); ++one) {
      for (auto other = one + 1; other < groups.size(); ++other) {
        is_better = exchange(groups, one, other, distances, rank) || is_better;
      }
    }
  }
}

}  // namespace

std::uint32_t distance(const CpuSet& task, const Gpu& gpu, const Topology& topology) {
  const auto cores = task.count();
  if (cores == 0) return kNear;
  if (gpu.near.empty()) return kFar;
  const auto near = (task & gpu.near).count();
  const auto in_package = gpu.package && *gpu.package < topology.packages.size()
                              ? (task & (topology.packages[*gpu.package].cpus | gpu.near)).count()
                              : near;
  const auto sum = (in_package - near) * kSamePackage + (cores - in_package) * kFar;
  return static_cast<std::uint32_t>(sum / cores);
}

std::vector<std::uint32_t> assign_gpus(const Distances& distances, const std::vector<std::uint32_t>& neighbours) {
  const auto tasks = distances.size();
  const auto gpus = neighbours.size();
  if (tasks == 0 || gpus == 0) return neighbours;
  const auto preferred = preferred_order(tasks, neighbours);
  auto order = cheapest_columns(cost_matrix(distances, preferred));
  if (tasks >= gpus) return order;

  std::vector<std::uint32_t> rank(gpus);
  for (std::uint32_t at = 0; at < gpus; ++at) rank[neighbours[at]] = at;
  auto groups = groups_of(order, tasks);
  compact(groups, distances, rank);
  for (std::uint32_t task = 0; task < tasks; ++task) {
    // Within a group all orders cost the same: the nearest first, then as the neighbours stand.
    std::sort(groups[task].begin(), groups[task].end(), [&](std::uint32_t one, std::uint32_t other) {
      return std::pair(distances[task][one], rank[one]) < std::pair(distances[task][other], rank[other]);
    });
    const auto positions = positions_of(task, tasks, gpus);
    for (std::size_t i = 0; i < positions.size(); ++i) order[positions[i]] = groups[task][i];
  }
  return order;
}

std::vector<std::uint32_t> by_locality(const std::vector<Gpu>& gpus) {
  // Packages and NUMA nodes count in the order in which they are first met.
  std::vector<TopologyIndex> packages;
  std::vector<TopologyIndex> numa_nodes;
  const auto place_in = [](std::vector<TopologyIndex>& met, TopologyIndex index) {
    const auto found = std::find(met.begin(), met.end(), index);
    if (found != met.end()) return static_cast<std::size_t>(found - met.begin());
    met.push_back(index);
    return met.size() - 1;
  };
  std::vector<std::pair<std::size_t, std::size_t>> keys;
  keys.reserve(gpus.size());
  for (const auto& gpu : gpus) keys.emplace_back(place_in(packages, gpu.package), place_in(numa_nodes, gpu.numa));
  std::vector<std::uint32_t> order(gpus.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t one, std::uint32_t other) { return keys[one] < keys[other]; });
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

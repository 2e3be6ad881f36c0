// Which GPU belongs to which task of a node: numbers in, numbers out.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_assignment.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace bootstrap {
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

// Tasks whose own or group GPU stands at `position`.
template <class Visit>
void for_each_task_at(std::size_t position, std::size_t tasks, std::size_t gpus, Visit visit) {
  if (tasks <= gpus) {
    if (position < gpus / tasks * tasks) visit(position % tasks);
    return;
  }
  for (auto task = position; task < tasks; task += gpus) visit(task);
}

// Positions that stay with a task for as long as they have the same owner.
std::size_t owner_of(std::size_t position, std::size_t tasks, std::size_t gpus) {
  if (tasks >= gpus) return position;
  return position < gpus / tasks * tasks ? position % tasks : tasks;
}

CostMatrix cost_matrix(const Distances& distances, const std::vector<std::uint32_t>& preferred) {
  const auto tasks = distances.size();
  const auto gpus = preferred.size();
  // Each weight is above all that the terms after it can add up to. The last one is a square, so that GPUs that must
  // move do so without overtaking each other.
  const auto per_move = static_cast<Cost>(gpus * gpus * gpus + 1);
  const auto per_distance = per_move * static_cast<Cost>(gpus + 1);
  std::vector<std::size_t> home(gpus);  // where each GPU would stand if all were equal
  for (std::size_t position = 0; position < gpus; ++position) home[preferred[position]] = position;

  CostMatrix cost(gpus, std::vector<Cost>(gpus, 0));
  for (std::size_t position = 0; position < gpus; ++position) {
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      auto& entry = cost[position][gpu];
      for_each_task_at(position, tasks, gpus,
                       [&](std::size_t task) { entry += per_distance * static_cast<Cost>(distances[task][gpu]); });
      const bool stays = owner_of(home[gpu], tasks, gpus) == owner_of(position, tasks, gpus);
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

// Tasks that are not bound, or to cores of several places, do not say which GPUs they want: those are to be neighbours.
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

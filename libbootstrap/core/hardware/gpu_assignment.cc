// Which task gets which GPU of its node.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/gpu_assignment.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace bootstrap {

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

// The order with which the search begins, and which stays if nothing is gained.
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

// What two positions add to the cost of an order: first the distances of the tasks that use them, then how far apart
// the GPUs of a group are in `neighbours`. `place`: of each GPU in `neighbours`.
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

// Exchanges the two GPUs with which the order gains most. Returns false if no exchange gains.
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
  // As a rule, each GPU moves at most once. The limits are for slurmstepd, which must not wait. Only a list that a user
  // wrote has more GPUs.
  constexpr std::size_t kMostSearched = 64;
  for (std::size_t round = 0; gpus <= kMostSearched && round < gpus && exchange_best(order, distances, place);) ++round;
  for (std::uint32_t task = 0; task < tasks && tasks < gpus; ++task) {
    const auto positions = positions_of(task, tasks, gpus);
    Order group;
    for (const auto position : positions) group.push_back(order[position]);
    // Within a group all orders cost the same: the nearest first, then in the order of `neighbours`.
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

// The cores near its GPUs for each task of a node, and how near the cores are that a task has.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/near_cores.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/util/text.h"

namespace bootstrap {
namespace {

bool overlap(const CpuSet& one, const CpuSet& other) { return !(one & other).empty(); }

// The packages that a place is in.
CpuSet package_of(const CoreMap& map, const CpuSet& place) {
  CpuSet around;
  for (const auto& package : map.packages) {
    if (overlap(package, place)) around = around | package;
  }
  return around;
}

std::vector<NearCores> share(const CoreMap& map, const NearRequest& request, const std::vector<CpuSet>& near) {
  std::vector<NearCores> found;
  for (const auto& own : near) {
    NearCores& task = found.emplace_back(NearCores{own, false});
    const auto sharing =
        std::count_if(near.begin(), near.end(), [&](const CpuSet& other) { return overlap(own, other); });
    const auto needed = static_cast<std::uint64_t>(sharing) * request.cpus_per_task;
    if (own.empty() || own.count() >= needed) continue;
    task.cpus = package_of(map, own) & request.allowed;
    if (task.cpus.count() < needed) task.cpus = request.allowed;
    task.is_filled = task.cpus != own;
  }
  return found;
}

// Each core goes to one task.
class Division {
 public:
  Division(const CoreMap& map, const NearRequest& request) : map_(map), cpus_per_task_(request.cpus_per_task) {
    for (const auto& core : map.cores) {
      if (overlap(core, request.allowed)) free_.push_back(core & request.allowed);
    }
  }

  std::vector<NearCores> divide(const std::vector<CpuSet>& near) {
    std::vector<NearCores> tasks(near.size());
    std::vector<std::size_t> order(near.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto key = [&](std::size_t task) { return std::tuple(first_of(near[task]), last_of(near[task])); };
    std::stable_sort(order.begin(), order.end(), [&](auto one, auto other) { return key(one) < key(other); });
    // Places that overlap follow each other in this order, as far as they are ranges of cores.
    for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      auto together = near[order[begin]];
      for (end = begin + 1; end < order.size() && overlap(together, near[order[end]]); ++end) {
        together = together | near[order[end]];
      }
      const auto cores = count(together);
      for (auto at = begin; at < end; ++at) {
        const auto part = at - begin, parts = end - begin;
        const auto quota = cores * (part + 1) / parts - cores * part / parts;
        for (std::size_t i = 0; i < quota; ++i) take(tasks[order[at]], near[order[at]]);
      }
    }
    for (const auto task : order) fill(tasks[task], near[task]);
    return tasks;
  }

 private:
  std::size_t first_of(const CpuSet& place) const {
    const auto core = std::find_if(map_.cores.begin(), map_.cores.end(), [&](auto& one) { return overlap(one, place); });
    return static_cast<std::size_t>(core - map_.cores.begin());
  }
  std::size_t last_of(const CpuSet& place) const {
    const auto core =
        std::find_if(map_.cores.rbegin(), map_.cores.rend(), [&](auto& one) { return overlap(one, place); });
    return static_cast<std::size_t>(map_.cores.rend() - core);
  }
  std::size_t count(const CpuSet& place) const {
    return static_cast<std::size_t>(
        std::count_if(free_.begin(), free_.end(), [&](const CpuSet& core) { return overlap(core, place); }));
  }

  bool take(NearCores& task, const CpuSet& place) {
    const auto core = std::find_if(free_.begin(), free_.end(), [&](const CpuSet& one) { return overlap(one, place); });
    if (core == free_.end()) return false;
    task.cpus = task.cpus | *core;
    free_.erase(core);
    return true;
  }

  // A task without a core near its GPU gets others, too: what it has may be what others are given.
  void fill(NearCores& task, const CpuSet& place) {
    const auto package = package_of(map_, place);
    while (task.cpus.count() < std::max<std::uint64_t>(cpus_per_task_, 1)) {
      CpuSet all;
      for (const auto& core : free_) all = all | core;
      if (!take(task, package) && !take(task, all)) return;
      task.is_filled = true;
    }
  }

  const CoreMap& map_;
  std::uint64_t cpus_per_task_;
  std::vector<CpuSet> free_;
};

}  // namespace

std::vector<NearCores> find_near_cores(const CoreMap& map, const NearRequest& request) {
  std::vector<CpuSet> near;
  for (const auto& place : request.places) near.push_back(place & request.allowed);
  return request.is_exclusive ? Division(map, request).divide(near) : share(map, request, near);
}

std::vector<std::vector<std::uint32_t>> groups_of_gpus(const std::vector<Gpu>& gpus, std::size_t tasks) {
  const auto order = assign_gpus(Distances(tasks, std::vector<std::uint32_t>(gpus.size())), by_locality(gpus));
  std::vector<std::vector<std::uint32_t>> groups;
  for (std::uint32_t task = 0; task < tasks; ++task) {
    auto& group = groups.emplace_back(positions_of(task, tasks, gpus.size()));
    for (auto& gpu : group) gpu = order[gpu];
  }
  return groups;
}

CpuSet read_masks(std::string_view list) {
  CpuSet cpus;
  for (auto mask : split(list, ',')) {
    if (!mask.starts_with("0x")) return {};
    mask.remove_prefix(2);
    for (std::size_t digit = 0; digit < mask.size() && digit * 4 < CpuSet::kMaxCpus; ++digit) {
      const auto bits = parse_hex<std::uint32_t>(mask.substr(mask.size() - 1 - digit, 1));
      if (!bits) return {};
      for (std::size_t bit = 0; bit < 4; ++bit) {
        if ((*bits >> bit & 1U) != 0) cpus.add(digit * 4 + bit);
      }
    }
  }
  return cpus;
}

std::string_view nearness_name(Nearness nearness) {
  constexpr std::array<std::string_view, 5> kNames{"same L3 cache", "same NUMA node", "same package", "ACROSS PACKAGES",
                                                   "not known"};
  return kNames[static_cast<std::size_t>(nearness)];
}

Nearness nearness_of(const CpuSet& cores, const std::vector<Gpu>& gpus) {
  CpuSet l3, near, package;
  for (const auto& gpu : gpus) l3 = l3 | gpu.l3, near = near | gpu.near, package = package | gpu.package;
  if (cores.empty() || near.empty()) return Nearness::kUnknown;
  if (cores.is_within(l3)) return Nearness::kL3;
  if (cores.is_within(near)) return Nearness::kNumaNode;
  return cores.is_within(package) ? Nearness::kPackage : Nearness::kAcross;
}

std::string near_table(const std::vector<NearRow>& rows, const std::vector<std::string>& names) {
  using Line = std::array<std::string_view, 7>;
  std::vector<Line> lines{{"rank", "cores", "memory", "GPU", "cards", "how near", "cores with near"}};
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto rank_of = [&](std::size_t at) {
    return rows[at].nearness == Nearness::kUnknown ? -1 : static_cast<int>(rows[at].nearness);
  };
  std::stable_sort(order.begin(), order.end(), [&](auto one, auto other) { return rank_of(one) > rank_of(other); });
  std::size_t far = 0, cured = 0, unknown = 0;
  for (const auto at : order) {
    const auto& row = rows[at];
    const bool is_far = row.nearness == Nearness::kPackage || row.nearness == Nearness::kAcross;
    far += is_far ? 1 : 0;
    cured += is_far && !row.near.empty() ? 1 : 0;
    unknown += row.nearness == Nearness::kUnknown ? 1 : 0;
    lines.push_back({names[at], row.cores, row.memory, row.gpu, row.cards, nearness_name(row.nearness), row.near});
  }
  std::array<std::size_t, 7> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max({widths[i], line[i].size(), std::size_t{1}});
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (std::size_t i = 0, column = 0; i < line.size(); column += widths[i++] + 2) {
      pad_to(row, column);
      row += line[i].empty() ? "-" : line[i];
    }
    text += cat({row, "\n"});
  }
  const auto of_all = cat({" of ", counted(rows.size(), "rank"), ": "});
  if (cured != 0) {
    text += cat({"cores far from the GPU in ", std::to_string(cured), of_all,
                 "start the program with slurm-bootstrap near, or use srun --distribution=*:block\n"});
  }
  if (far != cured) {
    text += cat({"no core of the step near the GPU in ", std::to_string(far - cured), of_all,
                 "use --gres-flags=enforce-binding with sbatch or salloc\n"});
  }
  if (unknown != 0) text += cat({"no GPU, or no place of it, in ", std::to_string(unknown), of_all, "nothing to do\n"});
  if (far + unknown == 0) text += "all ranks run on cores near their GPU\n";
  return text;
}

}  // namespace bootstrap

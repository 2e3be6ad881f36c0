// For each task of a node, the cores near its GPUs, and how near the cores are that it has.
// SPDX-License-Identifier: Apache-2.0
#include "core/hardware/near_cores.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/hardware/gpu_assignment.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

bool overlap(const CpuSet& one, const CpuSet& other) { return !(one & other).empty(); }

CpuSet packages_of(const CpuSet& place, const std::vector<CpuSet>& packages) {
  CpuSet around;
  for (const auto& package : packages) around = overlap(package, place) ? around | package : around;
  return around;
}

// The allowed CPUs of each place of the request.
using Near = std::vector<CpuSet>;

std::vector<NearCores> share(const NearRequest& request, const Near& near, const std::vector<CpuSet>& packages) {
  std::vector<NearCores> found;
  for (const auto& own : near) {
    auto& one = found.emplace_back(NearCores{own, false});
    const auto sharing = std::count_if(near.begin(), near.end(), [&](auto& other) { return overlap(own, other); });
    const auto needed = (static_cast<std::size_t>(sharing) * request.needed + request.each - 1) / request.each;
    if (own.empty() || own.count() >= needed) continue;
    one.cpus = packages_of(own, packages) & request.allowed;
    if (one.cpus.count() < needed) one.cpus = request.allowed;
    one.is_filled = one.cpus != own;
  }
  return found;
}

std::vector<NearCores> divide(const NearRequest& request, const Near& near, const std::vector<CpuSet>& packages) {
  std::vector<CpuSet> free;
  for (const auto& core : request.cores) free.push_back(core & request.allowed);
  const auto take = [&](NearCores& one, const CpuSet& place) {
    const auto core = std::find_if(free.begin(), free.end(), [&](auto& next) { return overlap(next, place); });
    if (core == free.end()) return false;
    one.cpus = one.cpus | *core;
    free.erase(core);
    return true;
  };
  // In this order places that overlap follow each other, as far as they are ranges of cores.
  std::vector<std::size_t> order(near.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto key = [&](std::size_t at) {
    return near[at].empty() ? std::pair(SIZE_MAX, SIZE_MAX) : std::pair(near[at].first(), near[at].members().back());
  };
  std::stable_sort(order.begin(), order.end(), [&](auto one, auto other) { return key(one) < key(other); });
  std::vector<NearCores> found(near.size());
  for (std::size_t at = 0; at < order.size(); ++at) {
    auto together = near[order[at]];
    auto end = at + 1;
    for (; end < order.size() && overlap(together, near[order[end]]); ++end) together = together | near[order[end]];
    const auto cores = std::count_if(free.begin(), free.end(), [&](auto& core) { return overlap(core, together); });
    auto quota = static_cast<std::size_t>(cores) / (end - at);
    while (quota > 0 && take(found[order[at]], near[order[at]])) --quota;
  }
  for (const auto at : order) {
    auto& one = found[at];
    const auto around = packages_of(near[at], packages);
    while (one.cpus.count() < std::max<std::size_t>(1, request.needed / request.each) &&
           (take(one, around) || take(one, request.allowed)))
      one.is_filled = true;
  }
  return found;
}

}  // namespace

std::vector<NearCores> find_near_cores(const NearRequest& request, const std::vector<CpuSet>& packages) {
  Near near;
  for (const auto& place : request.places) near.push_back(place & request.allowed);
  return request.is_exclusive ? divide(request, near, packages) : share(request, near, packages);
}

CpuSet place_of(const std::vector<Gpu>& gpus) {
  CpuSet place;
  for (const auto& gpu : gpus) place = place | (gpu.l3.empty() ? gpu.near : gpu.l3);
  return place;
}

std::vector<std::vector<Gpu>> groups_of_gpus(const std::vector<Gpu>& gpus, std::size_t tasks) {
  const auto order = assign_gpus(Distances(tasks, std::vector<std::uint32_t>(gpus.size())), by_locality(gpus));
  std::vector<std::vector<Gpu>> groups(tasks);
  for (std::uint32_t task = 0; task < tasks; ++task) {
    for (const auto position : positions_of(task, tasks, gpus.size())) groups[task].push_back(gpus[order[position]]);
  }
  return groups;
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
  constexpr std::array<std::string_view, 5> kHowNear{"same L3 cache", "same NUMA node", "same package",
                                                     "ACROSS PACKAGES", "not known"};
  constexpr std::array<std::size_t, 5> kOrder{3, 2, 1, 0, 4};
  using Line = std::array<std::string_view, 7>;
  std::vector<Line> lines{{"rank", "cores", "memory", "GPU", "cards", "how near", "cores with near"}};
  std::size_t cured = 0, lost = 0, unknown = 0;
  for (const auto nearness : kOrder) {
    for (std::size_t at = 0; at < rows.size(); ++at) {
      const auto& row = rows[at];
      if (row.nearness != static_cast<Nearness>(nearness)) continue;
      lines.push_back({names[at], row.cores, row.memory, row.gpu, row.cards, kHowNear[nearness], row.near});
      if (nearness > 1) ++(nearness == kOrder.back() ? unknown : row.near.empty() ? lost : cured);
    }
  }
  std::vector<std::string> text(lines.size());
  for (std::size_t part = 0, column = 0; part < Line().size(); ++part, column += 2) {
    for (auto& line : text) pad_to(line, column);
    for (std::size_t at = 0; at < lines.size(); ++at) text[at] += lines[at][part].empty() ? "-" : lines[at][part];
    for (const auto& line : text) column = std::max(column, line.size());
  }
  const auto add = [&](std::size_t count, std::string_view what) {
    if (count != 0) text.push_back(cat({std::to_string(count), " of ", counted(rows.size(), "rank"), what}));
  };
  add(cured,
      " may run on cores far from the GPU: start the program with slurm-bootstrap near, or use srun "
      "--distribution=*:block");
  add(lost, " without a core of the step near the GPU: use --gres-flags=enforce-binding with sbatch or salloc");
  add(unknown, " without a GPU whose place is known");
  if (cured + lost + unknown == 0) text.emplace_back("all ranks run on cores near their GPU");
  return cat({join(text, "\n"), "\n"});
}

}  // namespace bootstrap

// A table of one node: its GPUs, which rank has which, on which cores, and what it can use.
// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_gpus/node_view.h"

#include <algorithm>

#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::size_t kColumns = 9;
constexpr std::size_t kWidest = 28;  // characters of a cell
constexpr std::size_t kMostRows = 128;
constexpr std::size_t kMostNodes = 32;

std::string cell(std::string_view text) {
  auto shown = printable(text);
  if (shown.size() > kWidest) shown.replace(kWidest - 3, std::string::npos, "...");
  return shown;
}

std::vector<std::uint32_t> ascending(std::vector<std::uint32_t> indices) {
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

class Table {
 public:
  explicit Table(const NodeView& view) : view_(view), gpus_(view.topology.gpus) {}

  std::string text() {
    add_gpus();
    for (const auto& rank : view_.ranks) {
      if (rank.gpus.empty()) add({}, &rank, {});
    }
    std::string text = title() + "\n\n";
    if (rows_.size() > 1) {
      const auto more = rows_.size() - std::min(rows_.size(), kMostRows);
      rows_.resize(rows_.size() - more);
      text += align_columns(rows_);
      if (more > 0) text += cat({"... and ", counted(more, "more row"), "\n"});
      text += "\n";
    }
    const auto& nodes = view_.topology.numa_nodes;
    for (std::size_t i = 0; i < std::min(nodes.size(), kMostNodes); ++i) {
      text += cat({"NUMA node ", std::to_string(nodes[i].number), ": CPUs ", nodes[i].cpus.to_list(), "\n"});
    }
    if (has_far_) text += "far: the cores of the rank, or some of them, are not those near the GPU.\n";
    for (const auto& note : view_.notes) text += printable(note) + "\n";
    return text;
  }

 private:
  std::string title() const {
    const auto given = ascending(view_.step_gpus);
    auto text = cat(
        {"Node ", printable(view_.host), ", step ", printable(view_.step), ": ", counted(view_.ranks.size(), "rank")});
    if (gpus_.empty()) return text + "; no GPU in this node";
    return cat({text, "; ", counted(gpus_.size(), "GPU"), ", given to the step: ",
                given.empty()                  ? "none"
                : given.size() == gpus_.size() ? "all"
                                               : write_ranges(given)});
  }

  void add_gpus() {
    const auto given = ascending(view_.step_gpus);
    const bool is_unsure =
        std::any_of(view_.ranks.begin(), view_.ranks.end(), [](auto& rank) { return !rank.knows_gpus; });
    std::vector<std::vector<const RankView*>> owners(gpus_.size());
    for (const auto& rank : view_.ranks) {
      for (const auto gpu : ascending(rank.gpus)) owners[gpu].push_back(&rank);
    }
    for (std::uint32_t index = 0; index < gpus_.size(); ++index) {
      const bool is_given = std::binary_search(given.begin(), given.end(), index) || !owners[index].empty();
      const auto* const what = !is_given ? "not of this step" : is_unsure ? "rank not known" : "free";
      if (owners[index].empty()) add(index, nullptr, what);
      for (const auto* const rank : owners[index])
        add(rank == owners[index].front() ? index : std::optional<std::uint32_t>(), rank, {}, index);
    }
  }

  void add(std::optional<std::uint32_t> gpu, const RankView* rank, std::string_view what,
           std::optional<std::uint32_t> own = {}) {
    std::vector<std::string> row(kColumns);
    if (gpu) {
      const auto& one = gpus_[*gpu];
      const std::string_view pci = one.pci;
      row[0] = std::to_string(*gpu);
      row[1] = cell(pci.starts_with("0000:") ? pci.substr(5) : pci);
      row[2] = cell(std::string_view(one.device).substr(one.device.rfind('/') + 1));
      row[3] =
          cell(one.name.starts_with("NVIDIA ") ? std::string_view(one.name).substr(7) : std::string_view(one.name));
      if (one.numa) row[4] = std::to_string(view_.topology.numa_nodes[*one.numa].number);
    }
    if (rank != nullptr) {
      row[5] = std::to_string(rank->rank);
      row[6] = std::to_string(rank->local_rank);
      row[7] = cores_of(*rank, own ? &gpus_[*own] : nullptr);
      const auto usable = ascending(rank->usable);
      row[8] = !rank->knows_gpus ? "not known" : usable.empty() ? "none" : cell(write_ranges(usable));
    }
    if (rank == nullptr) row[5] = what;
    rows_.push_back(std::move(row));
  }

  std::string cores_of(const RankView& rank, const Gpu* gpu) {
    if (rank.cpus.empty()) return "not known";
    const auto& all = view_.topology.cpus;
    if (!all.empty() && all.is_within(rank.cpus)) return "all";
    auto text = cell(rank.cpus.to_list());
    if (gpu == nullptr || gpu->near.empty() || rank.cpus.is_within(gpu->near)) return text;
    has_far_ = true;
    return text + ", far";
  }

  const NodeView& view_;
  const std::vector<Gpu>& gpus_;
  std::vector<std::vector<std::string>> rows_{
      {"GPU", "PCI", "DEVICE", "MODEL", "NUMA", "RANK", "LOCAL", "CORES OF THE RANK", "GPUS IT CAN USE"}};
  bool has_far_ = false;
};

}  // namespace

std::string node_table(const NodeView& view) { return Table(view).text(); }

}  // namespace bootstrap

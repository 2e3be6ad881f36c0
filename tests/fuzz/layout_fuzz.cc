// Task counts and layout texts: each accepted text is consistent, and is read as we write it.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <string>

#include "core/step/rank_layout.h"
#include "property.h"

namespace {

using bootstrap::LayoutComponent;

// Inputs with many ranks are slow and show nothing new.
constexpr std::size_t kMaxRanksHere = 4096;

void check_counts(std::string_view text) {
  const auto counts = bootstrap::parse_tasks_per_node(text);
  if (!counts) {
    check(!counts.error().message.empty(), "an error has a message");
    return;
  }
  check(!counts->empty(), "a list that is accepted has at least one node");
  check(std::accumulate(counts->begin(), counts->end(), std::size_t{0}) <= bootstrap::kMaxRanks, "and few ranks");
}

void check_component(const LayoutComponent& component) {
  auto seen = std::vector<std::uint32_t>(component.tasks_per_node.size());
  for (const auto node : component.node_of_rank) ++seen.at(node);
  check(seen == component.tasks_per_node, "the map puts on each node as many ranks as counted");
}

void check_round_trip(const bootstrap::LayoutText& layout) {
  std::vector<bootstrap::ComponentText> components;
  std::size_t ranks = 0;
  for (const auto& component : layout.components) {
    check_component(component);
    ranks += component.node_of_rank.size();
    components.push_back({component.job, "n[1-" + std::to_string(component.tasks_per_node.size()) + "]",
                          component.tasks_per_node, component.node_of_rank});
  }
  if (ranks > kMaxRanksHere) return;
  const auto text = bootstrap::write_layout(12, 3, components);
  if (!text || components.empty() || components[0].tasks_per_node.empty()) return;
  const auto nodes = bootstrap::parse_host_list(components[0].nodes);
  check(nodes.has_value(), "a list of numbered nodes is a list");
  const auto again = bootstrap::read_layout(*text, {*nodes, components[0].tasks_per_node, {}});
  check(again.has_value(), "what is written can be read");
  check(again->components.size() == layout.components.size(), "with all its components");
  for (std::size_t i = 0; i < layout.components.size(); ++i) {
    check(again->components[i].node_of_rank == layout.components[i].node_of_rank, "and the same map");
  }
}

}  // namespace

// "LAYOUT\0NODES\0COUNTS"
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = as_text(data, size);
  const auto first = text.find('\0');
  const auto second = first == std::string_view::npos ? first : text.find('\0', first + 1);
  const auto layout_text = text.substr(0, first);
  check_counts(layout_text);
  const auto nodes = bootstrap::parse_host_list(
      first == std::string_view::npos ? "n[1-2]" : text.substr(first + 1, second - first - 1));
  const auto counts =
      bootstrap::parse_tasks_per_node(second == std::string_view::npos ? "2(x2)" : text.substr(second + 1));
  if (!nodes || !counts || nodes->size() != counts->size()) return 0;
  const auto layout = bootstrap::read_layout(layout_text, {*nodes, *counts, {}});
  if (!layout) return 0;
  check_round_trip(*layout);
  (void)bootstrap::Layout::make(layout->components).has_value();
  return 0;
}

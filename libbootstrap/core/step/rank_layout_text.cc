// The layout as one short environment value, SLURM_BOOTSTRAP_LAYOUT.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/rank_layout_text.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "core/hardware/network.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string step_prefix(std::uint32_t job, std::uint32_t step) {
  return cat({std::to_string(job), ".", std::to_string(step), "/"});
}

// Adds "4x3" for three times 4; callers hand in maximal runs.
void append_run(std::string& text, std::uint32_t value, std::size_t times) {
  if (!text.empty()) text += ',';
  text += std::to_string(value);
  if (times > 1) text += cat({"x", std::to_string(times)});
}

template <class T>
std::string write_runs(const std::vector<T>& values) {
  std::string text;
  for (std::size_t start = 0; start < values.size();) {
    auto end = start + 1;
    while (end < values.size() && values[end] == values[start]) ++end;
    append_run(text, values[start], end - start);
    start = end;
  }
  return text;
}

std::optional<std::vector<NodeIndex>> read_runs(std::string_view text, std::size_t most) {
  std::vector<NodeIndex> values;
  for (const auto item : split(text, ',')) {
    const auto cross = item.find('x');
    const auto value = parse_unsigned(item.substr(0, cross), kMaxRanks);
    const auto times = cross == std::string_view::npos ? 1 : parse_unsigned(item.substr(cross + 1), kMaxRanks);
    if (!value || !times || *times == 0 || values.size() + *times > most) return std::nullopt;
    values.insert(values.end(), *times, static_cast<NodeIndex>(*value));
  }
  return values;
}

// A plane size can only be the length of the first run.
std::string write_map(const ComponentText& component) {
  const auto& map = component.node_of_rank;
  if (map == deal_block(component.tasks_per_node)) return "block";
  if (map == deal_cyclic(component.tasks_per_node)) return "cyclic";
  std::uint32_t plane = 1;
  while (plane < map.size() && map[plane] == map[0]) ++plane;
  if (map == deal_plane(component.tasks_per_node, plane)) return cat({"plane:", std::to_string(plane)});
  return cat({"map:", write_runs(map)});
}

std::optional<std::vector<NodeIndex>> read_map(std::string_view text, const std::vector<std::uint32_t>& counts) {
  if (text == "block") return deal_block(counts);
  if (text == "cyclic") return deal_cyclic(counts);
  if (text.starts_with("plane:")) {
    const auto plane = parse_unsigned(text.substr(6), kMaxRanks);
    if (!plane || *plane == 0) return std::nullopt;
    return deal_plane(counts, static_cast<std::uint32_t>(*plane));
  }
  if (!text.starts_with("map:")) return std::nullopt;
  auto map = read_runs(text.substr(4), std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (!map) return std::nullopt;
  std::vector<std::uint32_t> seen(counts.size());
  for (const auto node : *map) {
    if (node >= seen.size()) return std::nullopt;
    ++seen[node];
  }
  if (seen != counts) return std::nullopt;
  return map;
}

// The counts in our run form, "2x3,1". A node without a task is no node of the step.
std::optional<std::vector<std::uint32_t>> read_counts(std::string_view text) {
  auto counts = read_runs(text, kMaxNodes);
  if (!counts || std::find(counts->begin(), counts->end(), 0U) != counts->end()) return std::nullopt;
  return counts;
}

Error unreadable(std::string_view text) {
  return {ErrorCode::kInvalid,
          cat({"cannot read ", kLayoutVariable, "=", quoted(text), ": another version wrote it, or it was changed"})};
}

Error too_large(std::string_view text) {
  return {ErrorCode::kLimit, cat({"cannot read ", kLayoutVariable, "=", quoted(text),
                                  ": it has more tasks or nodes than a step can have"})};
}

// "44;n[1-2];2x2;block": the job id, nodes, counts and map of one component.
struct ComponentFields {
  std::uint32_t job = 0;
  HostList nodes;
  std::vector<std::uint32_t> counts;
};

Result<ComponentFields> read_fields(const std::vector<std::string_view>& fields, std::string_view whole) {
  const auto job = parse_unsigned(fields[0], UINT32_MAX);
  if (!job) return fail(unreadable(whole));
  auto nodes = HostList::parse(fields[1]);
  if (!nodes) return fail(nodes.error());
  if (nodes->size() > kMaxNodes) return fail(too_large(whole));
  auto counts = read_counts(fields[2]);
  if (!counts || counts->size() != nodes->size()) return fail(unreadable(whole));
  return ComponentFields{static_cast<std::uint32_t>(*job), std::move(*nodes), std::move(*counts)};
}

// Keeps the sizes of all components together below what a step can have.
class Budget {
 public:
  explicit Budget(std::size_t max_ranks) : max_ranks_(max_ranks) {}

  bool take(const std::vector<std::uint32_t>& counts) {
    nodes_ += counts.size();
    ranks_ += std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    return nodes_ <= kMaxNodes && ranks_ <= max_ranks_;
  }

 private:
  std::size_t max_ranks_;
  std::size_t nodes_ = 0;
  std::size_t ranks_ = 0;
};

}  // namespace

Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components,
                                 const LayoutNotes& notes) {
  auto text = step_prefix(job, step);
  for (const auto& component : components) {
    if (components.size() > 1 || notes.with_nodes) {
      if (&component != &components.front()) text += '/';
      text +=
          cat({std::to_string(component.job), ";", component.nodes, ";", write_runs(component.tasks_per_node), ";"});
    }
    text += write_map(component);
  }
  if (!notes.master_ip.empty()) text += cat({"@", notes.master_ip});
  if (text.size() > kMaxLayoutText) {
    return fail(ErrorCode::kLimit, cat({"the rank order of this step takes ", std::to_string(text.size()),
                                        " bytes to describe, more than the ", std::to_string(kMaxLayoutText),
                                        " that fit in an environment variable; use --distribution=block or cyclic"}));
  }
  return text;
}

bool layout_is_for(std::string_view text, std::uint32_t job, std::uint32_t step) {
  return text.starts_with(step_prefix(job, step));
}

Result<LayoutText> read_layout(std::string_view text, const HostList& nodes,
                               const std::vector<std::uint32_t>& tasks_per_node, std::size_t max_ranks) {
  if (text.size() > kMaxLayoutText) return fail(too_large(text));
  const auto slash = text.find('/');
  const auto dot = text.find('.');
  if (slash == std::string_view::npos || dot > slash) return fail(unreadable(text));
  const auto job = parse_unsigned(text.substr(0, dot), UINT32_MAX);
  const auto step = parse_unsigned(text.substr(dot + 1, slash - dot - 1), UINT32_MAX);
  if (!job || !step) return fail(unreadable(text));

  LayoutText layout;
  layout.job = static_cast<std::uint32_t>(*job);
  layout.step = static_cast<std::uint32_t>(*step);
  const auto at = text.find('@');
  if (at != std::string_view::npos) {
    layout.master_ip = text.substr(at + 1);
    if (!parse_ip_address(layout.master_ip)) return fail(unreadable(text));
  }
  const auto parts = split(text.substr(slash + 1, at == std::string_view::npos ? at : at - slash - 1), '/');
  if (parts.size() > kMaxComponents) return fail(too_large(text));
  Budget budget(max_ranks);
  for (const auto part : parts) {
    const auto fields = split(part, ';');
    const bool is_whole = parts.size() == 1 && fields.size() == 1;
    if (!is_whole && fields.size() != 4) return fail(unreadable(text));
    auto own = is_whole ? Result<ComponentFields>(ComponentFields{layout.job, nodes, tasks_per_node})
                        : read_fields(fields, text);
    if (!own) return fail(own.error());
    if (!budget.take(own->counts)) return fail(too_large(text));
    auto map = read_map(fields.back(), own->counts);
    if (!map) return fail(unreadable(text));
    if (!is_whole) layout.component_jobs.push_back(own->job);
    layout.components.push_back({std::move(own->nodes), std::move(own->counts), std::move(*map)});
  }
  return layout;
}

}  // namespace bootstrap

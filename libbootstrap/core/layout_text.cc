// The layout as one short environment value, SLURM_BOOTSTRAP_LAYOUT.
// SPDX-License-Identifier: Apache-2.0
#include "core/layout_text.h"

#include <numeric>
#include <optional>

#include "core/text.h"

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

std::optional<std::vector<NodeIndex>> read_runs(std::string_view text) {
  std::vector<NodeIndex> values;
  for (const auto item : split(text, ',')) {
    const auto cross = item.find('x');
    const auto value = parse_unsigned(item.substr(0, cross), kMaxRanks);
    const auto times = cross == std::string_view::npos ? 1 : parse_unsigned(item.substr(cross + 1), kMaxRanks);
    if (!value || !times || values.size() + *times > kMaxRanks) return std::nullopt;
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
  auto map = read_runs(text.substr(4));
  if (!map) return std::nullopt;
  std::vector<std::uint32_t> seen(counts.size());
  for (const auto node : *map) {
    if (node >= seen.size()) return std::nullopt;
    ++seen[node];
  }
  if (seen != counts) return std::nullopt;
  return map;
}

// The counts in our run form ("2x3,1"), which Slurm's parser does not read; ours reads both.
std::optional<std::vector<std::uint32_t>> read_counts(std::string_view text) {
  if (text.find('(') == std::string_view::npos) return read_runs(text);
  auto counts = parse_tasks_per_node(text);
  if (!counts) return std::nullopt;
  return std::move(*counts);
}

Error unreadable(std::string_view text) {
  return {ErrorCode::kInvalid, cat({kLayoutVariable, "=", quoted(text), " is not a layout that this version writes"})};
}

Result<LayoutComponent> read_component(std::string_view nodes, std::string_view counts, std::string_view map) {
  auto list = HostList::parse(nodes);
  if (!list) return fail(list.error());
  auto tasks = read_counts(counts);
  if (!tasks || std::accumulate(tasks->begin(), tasks->end(), std::size_t{0}) > kMaxRanks) {
    return fail(ErrorCode::kInvalid, cat({"tasks per node ", quoted(counts), " is not a list like \"2(x3),1\""}));
  }
  auto ranks = read_map(map, *tasks);
  if (!ranks) return fail(unreadable(map));
  return LayoutComponent{std::move(*list), std::move(*tasks), std::move(*ranks)};
}

}  // namespace

Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components) {
  auto text = step_prefix(job, step);
  for (const auto& component : components) {
    if (components.size() > 1) {
      if (&component != &components.front()) text += '/';
      text +=
          cat({std::to_string(component.job), ";", component.nodes, ";", write_runs(component.tasks_per_node), ";"});
    }
    text += write_map(component);
  }
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

Result<LayoutText> read_layout(std::string_view text, std::string_view nodes, std::string_view tasks_per_node) {
  const auto slash = text.find('/');
  const auto dot = text.find('.');
  if (slash == std::string_view::npos || dot == std::string_view::npos || dot > slash) {
    return fail(unreadable(text));
  }
  const auto job = parse_unsigned(text.substr(0, dot), UINT32_MAX);
  const auto step = parse_unsigned(text.substr(dot + 1, slash - dot - 1), UINT32_MAX);
  if (!job || !step) return fail(unreadable(text));

  LayoutText layout;
  layout.job = static_cast<std::uint32_t>(*job);
  layout.step = static_cast<std::uint32_t>(*step);
  const auto parts = split(text.substr(slash + 1), '/');
  for (const auto part : parts) {
    const auto fields = split(part, ';');
    if (fields.size() == 1 && parts.size() > 1) return fail(unreadable(text));  // which component would it be
    const auto component_job = fields.size() == 4 ? parse_unsigned(fields[0], UINT32_MAX) : job;
    if ((fields.size() != 1 && fields.size() != 4) || !component_job) return fail(unreadable(text));
    auto component = fields.size() == 1 ? read_component(nodes, tasks_per_node, fields[0])
                                        : read_component(fields[1], fields[2], fields[3]);
    if (!component) return fail(component.error());
    if (fields.size() == 4) layout.component_jobs.push_back(static_cast<std::uint32_t>(*component_job));
    layout.components.push_back(std::move(*component));
  }
  return layout;
}

}  // namespace bootstrap

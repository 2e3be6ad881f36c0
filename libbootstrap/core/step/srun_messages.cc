// What srun hands to the nodes, each as one line of text: its decision, and the layout of ranks.
// SPDX-License-Identifier: Apache-2.0
#include "core/step/srun_messages.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/hardware/network.h"
#include "core/settings/settings.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

// In front of a decision: a node reads that of its own version alone, and of its own step. In all versions the step is
// the second field and `asked` the fourth.
constexpr std::uint32_t kFormat = 5;
constexpr std::array<std::string_view, 4> kSetUps{"nothing", "torchrun", "world", "all"};  // by SetUp
constexpr std::string_view kSetUpPrefix = "set_up:";

struct DecisionRecord {
  std::uint32_t format = kFormat;
  std::string step;
  Decision decision;
};

auto fields_of(DecisionRecord& record) {
  auto& decision = record.decision;
  return std::tie(record.format, record.step, decision.set_up, decision.asked, decision.is_observed, decision.salt,
                  decision.unusable_master, decision.is_verbose, decision.endpoint, decision.reason);
}

}  // namespace

std::string verdict(const Decision& decision, std::string_view hint) {
  const auto* what = "SET UP: ";
  if (decision.set_up == SetUp::kNothing) what = "NOT SET UP: ";
  if (decision.set_up == SetUp::kTorchrun) what = "SET UP for torchrun: ";
  return cat({what, decision.reason, hint.empty() ? "" : "; ", hint});
}

std::string_view hint_of(const Decision& decision) {
  if (decision.set_up == SetUp::kNothing || decision.asked != Asked::kUnasked) return {};
  return "use --bootstrap=off to run it without the plugin";
}

std::string write_set_up(SetUp set_up) { return cat({kSetUpPrefix, kSetUps[static_cast<std::size_t>(set_up)]}); }

SetUp read_set_up(std::string_view settings) {
  if (!settings.starts_with(kSetUpPrefix)) return SetUp::kAllSettings;
  const auto word = settings.substr(0, settings.find(' ')).substr(kSetUpPrefix.size());
  const auto* const found = std::find(kSetUps.begin(), kSetUps.end(), word);
  return found == kSetUps.end() ? SetUp::kAllSettings : static_cast<SetUp>(found - kSetUps.begin());
}

std::string write_decision(const StepId& id, const Decision& decision) {
  return write_record(DecisionRecord{.step = to_string(id), .decision = decision});
}

bool asks_strongly(std::string_view decision, std::string_view step) {
  const auto fields = split(decision, '\t');
  return fields.size() > 3 && (step.empty() || fields[1] == step) && fields[3] == write_field(Asked::kStrongly);
}

// The text may come from a user, and goes into slurmd's log and to the user's terminal: a record holds printable text
// alone.
std::optional<Decision> read_decision(std::string_view text, const StepId& id) {
  auto read = read_record<DecisionRecord>(text);
  if (!read || read->format != kFormat) return std::nullopt;
  if (read->step != to_string(id) && read->step != to_string({.job = id.job, .step = kPendingStep}))
    return std::nullopt;
  const auto& master = read->decision.unusable_master;
  if (!master.empty() && !is_host_name(master)) return std::nullopt;
  return std::move(read->decision);
}

namespace {

// "12.0/", in front of a layout.
std::string owner_of_layout(std::uint32_t job, std::uint32_t step) {
  return cat({std::to_string(job), ".", std::to_string(step), "/"});
}

// "2,4x3" for 2, 4, 4, 4.
std::string write_runs(const std::vector<std::uint32_t>& values) {
  std::string text;
  for (std::size_t start = 0; start < values.size();) {
    auto end = start + 1;
    while (end < values.size() && values[end] == values[start]) ++end;
    text += cat({start == 0 ? "" : ",", std::to_string(values[start])});
    if (end - start > 1) text += cat({"x", std::to_string(end - start)});
    start = end;
  }
  return text;
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
    const auto plane = parse_unsigned<std::uint32_t>(text.substr(6), kMaxRanks);
    if (!plane || *plane == 0) return std::nullopt;
    return deal_plane(counts, *plane);
  }
  if (!text.starts_with("map:")) return std::nullopt;
  auto map = read_runs(text.substr(4), "x", "", std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  if (!map) return std::nullopt;
  std::vector<std::uint32_t> seen(counts.size());
  for (const auto node : *map) {
    if (node >= seen.size()) return std::nullopt;
    ++seen[node];
  }
  if (seen != counts) return std::nullopt;
  return map;
}

Error unreadable(std::string_view text) {
  return {ErrorCode::kInvalid,
          cat({"cannot read ", kLayoutVariable, "=", quote(text), ": another version wrote it, or it was changed"})};
}

Error too_large(std::string_view text) {
  return {ErrorCode::kLimit, cat({"cannot read ", kLayoutVariable, "=", quote(text),
                                  ": it has more tasks or nodes than a step can have"})};
}

// "44;n[1-2];2x2;block": the job id, nodes, counts and map of one component.
struct ComponentFields {
  std::uint32_t job = 0;
  std::vector<std::string> nodes;
  std::vector<std::uint32_t> counts;
};

Result<ComponentFields> read_fields(const std::vector<std::string_view>& fields, std::string_view whole) {
  const auto job = parse_unsigned<std::uint32_t>(fields[0]);
  if (!job) return fail(unreadable(whole));
  auto counts = read_runs(fields[2], "x", "", kMaxNodes);
  // A node without a task is no node of the step.
  if (!counts || std::find(counts->begin(), counts->end(), 0U) != counts->end()) return fail(unreadable(whole));
  auto nodes = parse_host_list(fields[1], counts->size());
  if (!nodes) return fail(nodes.error());
  if (counts->size() != nodes->size()) return fail(unreadable(whole));
  return ComponentFields{*job, std::move(*nodes), std::move(*counts)};
}

std::string write_meeting(const MeetingAddresses& meeting) {
  auto text = cat({"@", meeting.ours, ",", meeting.users, ",", meeting.of_node});
  while (text.ends_with(',')) text.pop_back();
  return text == "@" ? std::string() : text;
}

std::optional<MeetingAddresses> read_meeting(std::string_view text) {
  const auto fields = split(text, ',');
  MeetingAddresses meeting;
  const std::array into{&meeting.ours, &meeting.users, &meeting.of_node};
  if (fields.size() > into.size()) return std::nullopt;
  for (std::size_t i = 0; i < fields.size(); ++i) *into[i] = fields[i];
  const auto is_wrong = [](const std::string& address) { return !address.empty() && !parse_ip_address(address); };
  if (is_wrong(meeting.ours) || is_wrong(meeting.users)) return std::nullopt;
  if (!meeting.of_node.empty() && !is_host_name(meeting.of_node)) return std::nullopt;
  return meeting;
}

}  // namespace

Result<std::string> write_layout(std::uint32_t job, std::uint32_t step, const std::vector<ComponentText>& components,
                                 const MeetingAddresses& meeting) {
  auto text = owner_of_layout(job, step);
  for (const auto& component : components) {
    if (components.size() > 1) {
      if (&component != &components.front()) text += '/';
      text +=
          cat({std::to_string(component.job), ";", component.nodes, ";", write_runs(component.tasks_per_node), ";"});
    }
    text += write_map(component);
  }
  text += write_meeting(meeting);
  if (text.size() > kMaxLayoutText) {
    return fail(ErrorCode::kLimit, cat({"the rank order of this step takes ", std::to_string(text.size()),
                                        " bytes to describe, more than the ", std::to_string(kMaxLayoutText),
                                        " that fit in an environment variable; use --distribution=block or cyclic"}));
  }
  return text;
}

bool layout_is_for(std::string_view text, std::uint32_t job, std::uint32_t step) {
  return text.starts_with(owner_of_layout(job, step));
}

Result<LayoutText> read_layout(std::string_view text, std::vector<std::string> nodes,
                               std::vector<std::uint32_t> tasks_per_node, std::size_t max_ranks) {
  if (text.size() > kMaxLayoutText) return fail(too_large(text));
  const auto slash = text.find('/');
  const auto dot = text.find('.');
  if (slash == std::string_view::npos || dot > slash) return fail(unreadable(text));
  const auto job = parse_unsigned<std::uint32_t>(text.substr(0, dot));
  const auto step = parse_unsigned<std::uint32_t>(text.substr(dot + 1, slash - dot - 1));
  if (!job || !step) return fail(unreadable(text));

  LayoutText layout;
  layout.job = *job;
  layout.step = *step;
  const auto at = text.find('@');
  if (at != std::string_view::npos) {
    auto meeting = read_meeting(text.substr(at + 1));
    if (!meeting) return fail(unreadable(text));
    layout.meeting = std::move(*meeting);
  }
  const auto parts = split(text.substr(slash + 1, at == std::string_view::npos ? at : at - slash - 1), '/');
  if (parts.size() > kMaxComponents) return fail(too_large(text));
  std::size_t node_count = 0;
  std::size_t name_bytes = 0;
  std::size_t rank_count = 0;
  for (const auto part : parts) {
    const auto fields = split(part, ';');
    const bool is_whole = parts.size() == 1 && fields.size() == 1;
    if (!is_whole && fields.size() != 4) return fail(unreadable(text));
    // NOLINTBEGIN(bugprone-use-after-move): there is one part where it is whole.
    auto own = is_whole
                   ? Result<ComponentFields>(ComponentFields{layout.job, std::move(nodes), std::move(tasks_per_node)})
                   : read_fields(fields, text);
    // NOLINTEND(bugprone-use-after-move)
    if (!own) return fail(own.error());
    node_count += own->counts.size();
    rank_count += std::accumulate(own->counts.begin(), own->counts.end(), std::size_t{0});
    for (const auto& node : own->nodes) name_bytes += node.size();
    const auto most_nodes = is_whole ? kMaxNodes : kMaxNodesOfStep;
    if (node_count > most_nodes || rank_count > max_ranks || name_bytes > kMaxNameBytes) return fail(too_large(text));
    auto map = read_map(fields.back(), own->counts);
    if (!map) return fail(unreadable(text));
    if (!is_whole) layout.component_jobs.push_back(own->job);
    layout.components.push_back({std::move(own->nodes), std::move(own->counts), std::move(*map)});
  }
  return layout;
}

}  // namespace bootstrap

// The plan as a table of 80 columns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/plan/explain.h"
#include "core/plan/framework_rules.h"
#include "core/step/rank_layout_text.h"
#include "core/util/ranges.h"
#include "core/util/text.h"
#include "core/util/text_columns.h"

namespace bootstrap {
namespace {

constexpr std::size_t kNameWidth = 26;
constexpr std::size_t kValueWidth = 21;
constexpr std::size_t kFrameworkColumn = 12;
constexpr std::size_t kMaxNodesShown = 16;

void append_row(std::string& out, std::string_view name, std::string_view value, std::string_view from) {
  std::string line(name);
  pad_to(line, kNameWidth);
  if (line.size() > kNameWidth || line.back() != ' ') line += ' ';
  line += value;
  if (line.size() >= kNameWidth + kValueWidth) {  // a long value gets a line of its own
    out += line + "\n";
    line.clear();
  }
  append_wrapped(out, std::move(line), kNameWidth + kValueWidth, from);
}

// "0 1 0 1" where it fits, else the range of values.
std::string values_by_rank(const Layout& layout, std::uint32_t Place::*member) {
  std::string all;
  std::uint32_t least = UINT32_MAX;
  std::uint32_t most = 0;
  bool fits = true;
  for (Rank rank = 0; rank < layout.size(); ++rank) {
    const auto value = layout.place(rank).*member;
    least = std::min(least, value);
    most = std::max(most, value);
    if (fits) all += cat({rank == 0 ? "" : " ", std::to_string(value)});
    fits = all.size() < kValueWidth;
  }
  if (least == most) return std::to_string(least);
  return fits ? all : cat({std::to_string(least), " to ", std::to_string(most), " by rank"});
}

// Of the tasks of this node: "0,1 1,0".
std::string values_by_task(const PlannedVariable& variable) {
  std::string all;
  for (const auto& value : variable.values) all += cat({all.empty() ? "" : " ", printable(value)});
  return all.size() < kValueWidth ? all : cat({printable(variable.value(0)), " ..."});
}

std::string shown_value(const PlannedVariable& variable, const Layout& layout) {
  if (variable.of_place != nullptr) return values_by_rank(layout, variable.of_place);
  if (variable.name == kExportsVariable) return "...";
  if (variable.values.size() > 1) return values_by_task(variable);
  if (variable.name == kSettingsVariable) return "(below)";
  return printable(variable.value(0));
}

void append_nodes(std::string& out, const Layout& layout) {
  out += "\nNODE RANK  HOST                RANKS (LOCAL RANK 0 FIRST)\n";
  const auto shown = std::min(layout.node_count(), kMaxNodesShown);
  for (std::uint32_t node_rank = 0; node_rank < shown; ++node_rank) {
    std::string line = std::to_string(node_rank);
    pad_to(line, 11);
    line += printable(layout.host_by_node_rank(node_rank));
    pad_to(line, 30);
    line += ' ';
    append_wrapped(out, std::move(line), 31, write_ranges(layout.ranks_on(layout.node_by_node_rank(node_rank))));
  }
  if (shown < layout.node_count()) {
    out += cat({"... and ", std::to_string(layout.node_count() - shown), " more nodes\n"});
  }
}

void append_variables(std::string& out, const StepFacts& facts, const StepPlan& plan) {
  out += "\n";
  append_row(out, "VARIABLE", "VALUE (RANK 0 FIRST)", "FROM");
  for (const auto& variable : plan.variables) {
    if (variable.framework) continue;
    const auto ours = shown_value(variable, facts.layout);
    if (variable.action == Action::kKept) {
      append_row(out, variable.name, printable(variable.previous), cat({"kept: ", variable.why}));
      append_row(out, "", ours, cat({"not used: ", variable.from}));
      continue;
    }
    append_row(out, variable.name, ours, variable.from);
    if (variable.action == Action::kReplaced) {
      append_row(out, "", printable(variable.previous), cat({"replaced: ", variable.why}));
    }
  }
  for (const auto& kind : kGpuListKinds) {
    const auto value = facts.environment.get(kind.variable);
    if (value && !plan.find(kind.variable))
      append_row(out, kind.variable, printable(*value), "as Slurm or the user set it");
  }
  for (const auto& name : plan.removals) {
    append_row(out, name, "(removed)", is_message(name) ? "used up" : "left over from an outer step");
  }
}

// "HOROVOD_RANK=0 HOROVOD_SIZE=4": of rank 0, or of the task that asks.
std::string assignments(const StepPlan& plan, Framework framework) {
  std::string text;
  for (const auto& variable : plan.variables) {
    if (variable.framework != framework) continue;
    const bool is_kept = variable.action == Action::kKept;
    const auto& value = variable.effective();
    text += cat({text.empty() ? "" : " ", variable.name, "=", value.size() > kTableWidth ? "..." : printable(value),
                 is_kept ? " (kept: set by the user)" : ""});
  }
  return text;
}

void append_frameworks(std::string& out, const StepFacts& facts, const Settings& settings, const StepPlan& plan) {
  std::string rows;
  std::string others;
  for (std::size_t i = 0; i < kFrameworkCount; ++i) {
    const auto framework = static_cast<Framework>(i);
    const auto name = std::string(framework_name(framework));
    const auto text = assignments(plan, framework);
    const auto state = framework_state(framework, facts, settings);
    if (!text.empty()) append_wrapped(rows, name, kFrameworkColumn, text);
    if (text.empty() && !state.is_set) others += cat({others.empty() ? "" : "; ", name, ": ", state.why});
  }
  if (!rows.empty()) {
    std::string heading;
    append_wrapped(heading, "FOR", kFrameworkColumn, "VARIABLES AND VALUES (OF RANK 0)");
    out += cat({"\n", heading, rows});
  }
  const bool is_torchruns = facts.decision.set_up == SetUp::kTorchrun;
  if (!others.empty() && !is_torchruns && settings.frameworks.value != FrameworkChoice{false, 0}) {
    append_wrapped(out, "", 0, cat({"Not set for ", others, "."}));
  }
}

}  // namespace

std::string explain_text(const StepFacts& facts, const Settings& settings, const std::string& reason,
                         const StepPlan& plan) {
  const auto& layout = facts.layout;
  std::string out;
  append_wrapped(out, "", 0,
                 cat({step_prefix(facts.id), counted(layout.size(), "task"), " on ",
                      counted(layout.node_count(), "node"), "; ", reason}));
  append_nodes(out, layout);
  append_variables(out, facts, plan);
  append_frameworks(out, facts, settings, plan);
  const auto changed = write_settings(settings);
  out += "\n";
  append_wrapped(out, "", 0, cat({"Settings: ", changed.empty() ? "all at their default" : printable(changed)}));
  if (!facts.topology_from.empty()) append_wrapped(out, "", 0, cat({"Places of the GPUs: ", facts.topology_from}));
  if (plan.port_to_reserve) {
    append_wrapped(out, "", 0,
                   cat({"Port ", std::to_string(*plan.port_to_reserve), " of ", layout.host_of(0),
                        " is held for rank 0 until the step ends."}));
  }
  return out;
}

}  // namespace bootstrap

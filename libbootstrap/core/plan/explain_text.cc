// The plan as a table of 80 columns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/plan/explain.h"
#include "core/plan/framework_plan.h"
#include "core/plan/gpu_variables.h"
#include "core/step/message_prefix.h"
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
constexpr auto kInTable = Framework::kOpenmp;  // for all programs: a row of the table, and no line of its own

void append_row(std::string& out, std::string_view name, std::string_view value, std::string_view from) {
  std::string line(name);
  pad_to(line, kNameWidth);
  if (line.size() > kNameWidth || line.back() != ' ') line += ' ';
  if (line.size() + value.size() >= kNameWidth + kValueWidth) {  // a long value gets a line of its own
    append_wrapped(out, std::move(line), kNameWidth, value);
    line.clear();
  } else {
    line += value;
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

// Of one task its own value: what other tasks have of it, that task does not know.
std::string shown_value(const PlannedVariable& variable, const StepFacts& facts) {
  if (facts.is_one_task) {
    const auto& place = facts.layout.place(facts.local_ranks.front());
    return variable.of_place != nullptr ? std::to_string(place.*variable.of_place) : printable(variable.value(0));
  }
  if (variable.of_place != nullptr) return values_by_rank(facts.layout, variable.of_place);
  if (variable.values.size() > 1) return values_by_task(variable);
  if (variable.framework == kInTable) return cat({printable(variable.value(0)), " (rank 0)"});  // by its own cores
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

// The rows that a user acts on. --verbose shows all.
bool is_for_users(const PlannedVariable& variable) {
  constexpr std::array<std::string_view, 12> kNames{
      "RANK",        "WORLD_SIZE", "LOCAL_RANK",   "LOCAL_WORLD_SIZE",   "NODE_RANK",       "MASTER_ADDR",
      "MASTER_PORT", kGpuVariable, kGroupVariable, "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "BOOTSTRAP_INIT_FILE"};
  const auto is_name = [&](std::string_view name) { return variable.name == name; };
  const auto is_list = [&](const GpuListKind& kind) { return variable.name == kind.variable; };
  return variable.action != Action::kSet || std::any_of(kNames.begin(), kNames.end(), is_name) ||
         std::any_of(kGpuListKinds.begin(), kGpuListKinds.end(), is_list);
}

bool is_in_table(const PlannedVariable& variable) { return !variable.framework || variable.framework == kInTable; }

void append_variable(std::string& out, const PlannedVariable& variable, const StepFacts& facts) {
  const auto ours = variable.name == kExportsVariable ? "..." : shown_value(variable, facts);
  if (variable.action == Action::kKept) {
    append_row(out, variable.name, printable(variable.previous), cat({"kept: ", variable.why}));
    append_row(out, "", ours, cat({"not used: ", variable.from}));
    return;
  }
  append_row(out, variable.name, ours, variable.from);
  if (variable.action == Action::kReplaced) {
    append_row(out, "", printable(variable.previous), cat({"replaced: ", variable.why}));
  }
}

// The lists that stay as they are; without --verbose the one that counts.
void append_gpu_lists(std::string& out, const StepFacts& facts, const StepPlan& plan, bool shows_all) {
  for (const auto& kind : kGpuListKinds) {
    const auto value = facts.environment.get(kind.variable);
    if (!value || plan.find(kind.variable)) continue;
    if (!shows_all && plan.gpus && plan.gpus->kind().variable != kind.variable) continue;
    append_row(out, kind.variable, printable(*value), "as Slurm or the user set it");
    if (!shows_all) return;
  }
}

void append_variables(std::string& out, const StepFacts& facts, const StepPlan& plan, const ExplainContext& context) {
  out += "\n";
  append_row(out, "VARIABLE",
             !context.is_set_up  ? "VALUE IF SET UP"
             : facts.is_one_task ? "VALUE (THIS TASK)"
                                 : "VALUE (RANK 0 FIRST)",
             "FROM");
  for (const auto& variable : plan.variables) {
    if (is_in_table(variable) && (context.shows_all || is_for_users(variable))) append_variable(out, variable, facts);
  }
  append_gpu_lists(out, facts, plan, context.shows_all);
  if (!context.shows_all) return;
  for (const auto& name : plan.removals) {
    append_row(out, name, "(removed)", is_message(name) ? "used up" : "left over from an outer step");
  }
}

// "PET_NNODES=2 PET_NODE_RANK=0": of rank 0, or of the task that asks.
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

void append_frameworks(std::string& out, const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                       const ExplainContext& context) {
  std::string rows;
  std::string others;
  for (std::size_t i = 0; i < kFrameworkCount; ++i) {
    const auto framework = static_cast<Framework>(i);
    const auto name = std::string(framework_name(framework));
    const auto text = assignments(plan, framework);
    const auto state = framework_state(framework, facts, settings);
    if (!text.empty() && framework != kInTable) append_wrapped(rows, name, kFrameworkColumn, text);
    if (text.empty() && !state.is_set) others += cat({others.empty() ? "" : "; ", name, ": ", state.why});
  }
  if (!rows.empty()) {
    std::string heading;
    append_wrapped(heading, "FOR", kFrameworkColumn,
                   facts.is_one_task ? "VARIABLES AND VALUES" : "VARIABLES AND VALUES (OF RANK 0)");
    out += cat({"\n", heading, rows});
  }
  if (!context.shows_all || others.empty()) return;
  const bool is_torchruns = facts.decision.set_up == SetUp::kTorchrun;
  if (!is_torchruns && settings.frameworks.value != FrameworkChoice{false, 0}) {
    append_wrapped(out, "", 0, cat({"Not set for ", others, "."}));
  }
}

std::string describe_port(const StepFacts& facts, const StepPlan& plan, const ExplainContext& context) {
  if (!plan.port_to_reserve || !context.is_set_up) return {};
  const auto port = cat({"Port ", std::to_string(*plan.port_to_reserve), " of ", facts.layout.host_of(0)});
  if (context.is_preloaded) return cat({port, " is reserved for rank 0 only while its first program runs."});
  return cat({port, " is reserved for rank 0 until the step ends."});
}

}  // namespace

std::string explain_text(const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                         const ExplainContext& context) {
  std::string out;
  const auto paragraph = [&out](const std::string& text) {
    if (!text.empty()) append_wrapped(out, "", 0, text);
  };
  paragraph(step_prefix(facts.id) + context.verdict);
  if (facts.knows_hosts) append_nodes(out, facts.layout);
  append_variables(out, facts, plan, context);
  append_frameworks(out, facts, settings, plan, context);
  out += "\n";
  for (const auto& note : context.notes) paragraph(cat({"Note: ", printable(note), "."}));
  auto changed = list_settings(settings);
  // The setting that loading it stands for.
  if (context.is_preloaded) changed = replaced(changed, "SLURM_BOOTSTRAP_PRELOAD=on", "LD_PRELOAD");
  paragraph(cat({"Settings: ", changed.empty() ? "none" : printable(changed)}));
  if (!facts.topology_from.empty()) paragraph(cat({"Places of the GPUs: ", facts.topology_from}));
  paragraph(describe_port(facts, plan, context));
  if (facts.layout.size() > 1) paragraph("While a step runs, slurm-bootstrap status shows which rank is out of step.");
  if (!context.versions.empty()) paragraph(cat({"Versions: ", printable(context.versions)}));
  return out;
}

}  // namespace bootstrap

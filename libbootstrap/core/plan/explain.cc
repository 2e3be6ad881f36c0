// The plan for people and programs: a table of 80 columns, JSON, one line for each decision, and notes.
// SPDX-License-Identifier: Apache-2.0
#include "core/plan/explain.h"

#include <algorithm>
#include <array>

#include "core/plan/frameworks.h"
#include "core/plan/node_gpus.h"
#include "core/settings/variables.h"
#include "core/step/step_id.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

std::string decision_line(const PlannedVariable& variable, std::string_view from) {
  const auto ours = variable.is_of_task ? std::string("a value for each task") : printable(variable.value);
  const auto previous = printable(variable.previous);
  if (variable.action == Action::kKept) {
    return cat({variable.name, "=", previous, " is kept (", variable.why, ")"});
  }
  if (variable.action == Action::kReplaced) {
    return cat({variable.name, "=", previous, " is replaced by ", ours, " (", variable.why, ")"});
  }
  return cat({variable.name, "=", ours, " (", from, ")"});
}

std::string note_unused_gpus(const StepFacts& facts, const StepPlan& plan) {
  if (!plan.gpus || plan.gpus->is_own_list || facts.decision.set_up == SetUp::kTorchrun) return {};
  const auto& place = facts.layout.place(facts.ranks_here.front());
  const auto gpus = plan.gpus->list.entries.size();
  if (gpus <= place.local_size) return {};
  return cat({facts.layout.hosts()[place.node], " has ", counted(place.local_size, "task"), " and ",
              counted(gpus, "GPU"), ": a program that uses one GPU for each task leaves ",
              std::to_string(gpus - place.local_size), " unused; use --ntasks-per-node=", std::to_string(gpus),
              " for a task for each GPU"});
}

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

// "0 1 0 1" if it fits, else the range of values.
std::string values_by_rank(const Layout& layout, std::uint32_t Place::*member) {
  std::vector<std::uint32_t> values;
  for (Rank rank = 0; rank < layout.size(); ++rank) values.push_back(layout.place(rank).*member);
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return std::to_string(*least);
  const auto all = join(values, " ");
  return all.size() < kValueWidth ? all : cat({std::to_string(*least), " to ", std::to_string(*most), " by rank"});
}

// The values of this node's tasks: "0,1 1,0"; empty if all are equal.
std::string values_by_task(std::string_view name, TaskPlans tasks) {
  std::vector<std::string> values;
  for (const auto& task : tasks) {
    const auto* const variable = find_variable(task.variables, name);
    values.push_back(variable == nullptr ? "-" : printable(variable->value));
  }
  const auto is_first = [&](const std::string& value) { return value == values.front(); };
  if (std::all_of(values.begin(), values.end(), is_first)) return {};
  const auto all = join(values, " ");
  return all.size() < kValueWidth ? all : cat({values.front(), " ..."});
}

// A task that explains itself shows its own value, because it does not know those of other tasks.
std::string shown_value(const PlannedVariable& variable, const StepFacts& facts, TaskPlans tasks) {
  if (facts.is_one_task) return printable(variable.value);
  if (variable.of_place != nullptr) return values_by_rank(facts.layout, variable.of_place);
  if (variable.framework == kInTable) return cat({printable(variable.value), " (rank 0)"});  // by the task's cores
  auto values = variable.is_of_task ? values_by_task(variable.name, tasks) : std::string();
  return values.empty() ? printable(variable.value) : values;
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
  constexpr std::string_view kNames =
      "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT BOOTSTRAP_GPU BOOTSTRAP_GPUS "
      "BOOTSTRAP_PORTS BOOTSTRAP_INIT_FILE GLOO_SOCKET_IFNAME OMP_NUM_THREADS";
  const auto is_list = [&](const GpuListKind& kind) { return variable.name == kind.variable; };
  return variable.action != Action::kSet || has_word(kNames, variable.name) ||
         std::any_of(kGpuListKinds.begin(), kGpuListKinds.end(), is_list);
}

void append_variable(std::string& out, const PlannedVariable& variable, const StepFacts& facts, TaskPlans tasks) {
  const auto ours = variable.name == kExportsVariable ? "..." : shown_value(variable, facts, tasks);
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

// The lists of GPUs that the plan leaves as they are; without --verbose only the one that counts.
void append_gpu_lists(std::string& out, const StepFacts& facts, const StepPlan& plan, const TaskPlan& task,
                      bool shows_all) {
  for (const auto& kind : kGpuListKinds) {
    const auto value = facts.environment.get(kind.variable);
    if (!value || find_variable(task.variables, kind.variable) != nullptr) continue;
    if (!shows_all && plan.gpus && plan.gpus->kind().variable != kind.variable) continue;
    append_row(out, kind.variable, printable(*value), "as Slurm or the user set it");
    if (!shows_all) return;
  }
}

// Without the names that the plan sets again.
std::vector<std::string> removed_names(const StepPlan& plan, const TaskPlan& task) {
  auto names = plan.removals;
  std::erase_if(names, [&](const std::string& name) { return find_variable(task.variables, name) != nullptr; });
  return names;
}

void append_variables(std::string& out, const StepFacts& facts, const StepPlan& plan, TaskPlans tasks,
                      const ExplainContext& context) {
  out += "\n";
  append_row(out, "VARIABLE",
             !context.is_set_up  ? "VALUE IF SET UP"
             : facts.is_one_task ? "VALUE (THIS TASK)"
                                 : "VALUE (RANK 0 FIRST)",
             "FROM");
  std::vector<std::string> others;
  for (const auto& variable : tasks.front().variables) {
    if (variable.framework && variable.framework != kInTable) continue;
    if (context.shows_all || is_for_users(variable)) {
      append_variable(out, variable, facts, tasks);
    } else if (!variable.name.starts_with("SLURM_BOOTSTRAP_")) {
      others.push_back(variable.name);
    }
  }
  append_gpu_lists(out, facts, plan, tasks.front(), context.shows_all);
  if (!others.empty()) append_wrapped(out, "also set", kNameWidth, join(others, ", "));
  if (!context.shows_all) return;
  for (const auto& name : removed_names(plan, tasks.front())) {
    append_row(out, name, "(removed)", is_message(name) ? "used up" : "left over from an outer step");
  }
}

// "PET_NNODES=2 PET_NODE_RANK=0": the values of rank 0, or of the task that explains itself.
std::string assignments(const TaskPlan& task, Framework framework) {
  std::vector<std::string> texts;
  for (const auto& variable : task.variables) {
    if (variable.framework != framework) continue;
    const auto& value = variable.effective();
    texts.push_back(cat({variable.name, "=", value.size() > kTableWidth ? "..." : printable(value),
                         variable.action == Action::kKept ? cat({" (kept: ", variable.why, ")"}) : ""}));
  }
  return join(texts, " ");
}

void append_frameworks(std::string& out, const StepFacts& facts, const Settings& settings, const TaskPlan& task,
                       const ExplainContext& context) {
  std::string rows;
  std::vector<std::string> others;
  for (std::size_t i = 0; i < kFrameworkCount; ++i) {
    const auto framework = static_cast<Framework>(i);
    const auto name = std::string(framework_name(framework));
    const auto text = assignments(task, framework);
    const auto why_not = why_not_set(framework, facts, settings);
    if (!text.empty() && framework != kInTable) append_wrapped(rows, name, kFrameworkColumn, text);
    if (text.empty() && !why_not.empty()) others.push_back(cat({name, ": ", why_not}));
  }
  if (!rows.empty()) {
    out += "\n";
    append_wrapped(out, "FOR", kFrameworkColumn,
                   facts.is_one_task ? "VARIABLES AND VALUES" : "VARIABLES AND VALUES (OF RANK 0)");
    out += rows;
  }
  if (!context.shows_all || others.empty()) return;
  const bool is_torchruns = facts.decision.set_up == SetUp::kTorchrun;
  if (!is_torchruns && settings.frameworks.value != FrameworkChoice{false, 0}) {
    append_wrapped(out, "", 0, cat({"Not set for ", join(others, "; "), "."}));
  }
}

std::string json_rank(const Layout& layout, const Place& place) {
  return cat({"{", json_number("rank", place.rank), ", ", json_member("host", json_string(layout.hosts()[place.node])),
              ", ", json_number("local_rank", place.local_rank), ", ", json_number("local_size", place.local_size),
              ", ", json_number("node_rank", place.node_rank), ", ", json_number("cross_rank", place.cross_rank), ", ",
              json_number("cross_size", place.cross_size), "}"});
}

std::string json_variable(const PlannedVariable& variable, const StepFacts& facts) {
  constexpr std::array<std::string_view, 3> kActions{"set", "replaced", "kept"};
  std::vector<std::string> values;
  const bool is_by_rank = variable.of_place != nullptr && facts.knows_hosts;
  for (Rank rank = 0; is_by_rank && rank < facts.layout.size(); ++rank) {
    values.push_back(json_string(std::to_string(facts.layout.place(rank).*variable.of_place)));
  }
  auto out = cat({"{", json_member("name", json_string(variable.name)), ", ",
                  is_by_rank ? json_member("by_rank", cat({"[", join(values, ", "), "]"}))
                             : json_member("value", json_string(variable.value)),
                  ", ", json_member("from", json_string(variable.from)), ", ",
                  json_member("action", json_string(kActions[static_cast<std::size_t>(variable.action)]))});
  if (variable.framework) {
    out += cat({", ", json_member("framework", json_string(framework_name(*variable.framework)))});
  }
  if (variable.action != Action::kSet) {
    out += cat({", ", json_member("previous", json_string(variable.previous)), ", ",
                json_member("why", json_string(variable.why))});
  }
  return out + "}";
}

}  // namespace

std::vector<std::string> decision_lines(const StepFacts& facts, const StepPlan& plan, const TaskPlan& task,
                                        bool reserves_port) {
  std::vector<std::string> lines;
  // If torchrun is the program, only torchrun's variables have the address and the port.
  const bool is_torchruns = find_variable(task.variables, "MASTER_ADDR") == nullptr;
  for (const auto& variable : task.variables) {
    const bool is_address = variable.name == (is_torchruns ? "PET_MASTER_ADDR" : "MASTER_ADDR");
    const bool is_port = variable.name == (is_torchruns ? "PET_MASTER_PORT" : "MASTER_PORT");
    if (!is_address && !is_port && variable.action == Action::kSet) continue;
    lines.push_back(decision_line(variable, is_port      ? plan.master.port_from
                                            : is_address ? plan.master.address_from
                                                         : variable.from));
    if (!is_port || !reserves_port) continue;
    lines.back() +=
        facts.is_preloaded ? ", reserved while the first program of rank 0 runs" : ", reserved until the step ends";
  }
  for (const auto& note : step_notes(facts, plan)) lines.push_back(note);
  return lines;
}

std::string warn_of_unused_gpus(const StepFacts& facts, const StepPlan& plan) {
  const bool is_one_on_each = facts.layout.size() > 1 && facts.layout.size() == facts.layout.node_count();
  const bool has_asked = facts.decision.asked != Asked::kUnasked && facts.decision.set_up == SetUp::kAllSettings;
  return is_one_on_each && has_asked ? note_unused_gpus(facts, plan) : std::string();
}

std::vector<std::string> step_notes(const StepFacts& facts, const StepPlan& plan) {
  std::vector<std::string> notes;
  if (auto unknown = describe_unknown(facts.environment); !unknown.empty()) notes.push_back(std::move(unknown));
  // The other notes name options of srun. mpirun has its own.
  if (facts.id.launcher == Launcher::kMpirun) return notes;
  for (auto& note : {note_spread(facts.layout), note_unused_gpus(facts, plan)}) {
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

std::string note_far_gpu(const StepFacts& facts, Rank rank, const CpuSet& cores, const CpuSet& near) {
  if (cores.empty() || near.empty() || !(cores & near).empty()) return {};
  const bool is_world = facts.decision.set_up == SetUp::kWorld;
  return cat({"rank ", std::to_string(rank), " runs on cores ", cores.to_list(), ", and its GPU is near to cores ",
              near.to_list(),
              is_world ? "; use --bootstrap=on for GPUs near to the cores of their tasks"
                       : "; use --gres-flags=enforce-binding for cores near to the GPUs"});
}

std::string note_one_core(const StepFacts& facts, const StepPlan& plan, Rank rank) {
  const auto gpus = plan.gpus ? view_of(*plan.gpus, facts.layout.place(rank).local_rank).group.size() : 0;
  if (gpus == 0) return {};
  constexpr std::string_view kCure =
      "use srun --cpus-per-task=N for N cores, also in a job that has them, because srun does not take the number of "
      "sbatch";
  return cat({"rank ", std::to_string(rank), " has one core and ", counted(gpus, "GPU"),
              ": data loaders share this core with the training; ", kCure});
}

std::string explain_text(const StepFacts& facts, const Settings& settings, const StepPlan& plan, TaskPlans tasks,
                         const ExplainContext& context) {
  std::string out;
  const auto paragraph = [&out](const std::string& text) {
    if (!text.empty()) append_wrapped(out, "", 0, text);
  };
  paragraph(step_prefix(facts.id) + context.verdict);
  if (facts.knows_hosts) append_nodes(out, facts.layout);
  append_variables(out, facts, plan, tasks, context);
  append_frameworks(out, facts, settings, tasks.front(), context);
  out += "\n";
  for (const auto& note : context.notes) paragraph(cat({"Note: ", printable(note), "."}));
  auto changed = list_settings(settings);
  // LD_PRELOAD is how the user chose this setting.
  if (facts.is_preloaded) changed = replaced(changed, "SLURM_BOOTSTRAP_PRELOAD=on", "LD_PRELOAD");
  paragraph(cat({"Settings: ", changed.empty() ? "none" : printable(changed)}));
  if (plan.ports.master && context.reserves_port) {
    paragraph(cat({"Port ", std::to_string(plan.ports.master->port), " of ", facts.layout.host_of(0),
                   " is reserved for rank 0 ",
                   facts.is_preloaded ? "only while its first program runs." : "until the step ends."}));
  }
  if (facts.layout.size() > 1) paragraph("While a step runs, slurm-bootstrap status shows which rank is out of step.");
  if (!context.versions.empty()) paragraph(cat({"Versions: ", printable(context.versions)}));
  return out;
}

std::string explain_set_up(const StepFacts& facts, const Settings& settings, const StepPlan& plan, TaskPlans tasks,
                           ExplainContext context) {
  auto& notes = context.notes;
  if (settings.explain.value) {
    const auto of_step = step_notes(facts, plan);
    notes.insert(notes.begin(), of_step.begin(), of_step.end());
    return explain_text(facts, settings, plan, tasks, context);
  }
  auto lines = decision_lines(facts, plan, tasks.front(), context.reserves_port);
  lines.insert(lines.end(), notes.begin(), notes.end());
  if (facts.is_preloaded) lines.insert(lines.begin(), context.verdict);  // else srun has printed the verdict
  std::string text;
  for (const auto& line : lines) text += cat({step_prefix(facts.id), line, "\n"});
  return text;
}

std::string explain_json(const StepFacts& facts, const Settings& settings, const StepPlan& plan, const TaskPlan& task,
                         const ExplainContext& context) {
  std::vector<std::string> ranks;
  for (Rank rank = 0; rank < facts.layout.size(); ++rank) {
    if (facts.knows_hosts) ranks.push_back(json_rank(facts.layout, facts.layout.place(rank)));
  }
  std::vector<std::string> variables;
  for (const auto& variable : task.variables) variables.push_back(json_variable(variable, facts));
  std::vector<std::string> removals;
  for (const auto& name : removed_names(plan, task)) removals.push_back(json_string(name));

  std::vector<std::string> members{
      json_member("step", json_string(to_string(facts.id))),
      json_number("restart", facts.id.restart),
      json_member("set_up", context.is_set_up ? "true" : "false"),
      json_member("why", json_string(context.verdict)),
      json_number("world_size", facts.layout.size()),
      json_member("node_count", facts.knows_hosts ? std::to_string(facts.layout.node_count()) : "null"),
      json_member("settings", json_string(write_settings(settings))),
      json_member("variables", json_list(variables)),
      json_member("removed", json_list(removals)),
      json_member("ranks", json_list(ranks)),
  };
  // Variables without by_rank have the value of this task.
  if (facts.is_one_task) members.push_back(json_number("rank", facts.ranks_here.front()));
  return cat({"{\n  ", join(members, ",\n  "), "\n}\n"});
}

}  // namespace bootstrap

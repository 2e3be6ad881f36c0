// The plan as JSON, for programs.
// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "core/plan/explain.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

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
                             : json_member("value", json_string(variable.value(0))),
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

std::string explain_json(const StepFacts& facts, const Settings& settings, const StepPlan& plan,
                         const ExplainContext& context) {
  std::vector<std::string> ranks;
  for (Rank rank = 0; rank < facts.layout.size(); ++rank) {
    if (facts.knows_hosts) ranks.push_back(json_rank(facts.layout, facts.layout.place(rank)));
  }
  std::vector<std::string> variables;
  for (const auto& variable : plan.variables) variables.push_back(json_variable(variable, facts));
  std::vector<std::string> removals;
  for (const auto& name : plan.removals) removals.push_back(json_string(name));

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
  // What has no by_rank is the value of this task.
  if (facts.is_one_task) members.push_back(json_number("rank", facts.local_ranks.front()));
  return cat({"{\n  ", join(members, ",\n  "), "\n}\n"});
}

}  // namespace bootstrap

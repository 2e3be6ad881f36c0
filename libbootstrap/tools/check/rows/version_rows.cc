// The rows about what is installed: versions of this project and of Slurm, and Python's frameworks; and the table of
// one machine without a step.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/settings.h"
#include "core/util/text.h"
#include "tools/check/rows/rows.h"

namespace bootstrap {
namespace check {
namespace {

constexpr const char* kVersions = "versions";
constexpr const char* kSamePackage = "install the same packages of slurm-bootstrap on all nodes";

CheckRow failed_on_nodes(const Survey& survey, std::string text, const std::vector<Rank>& ranks, std::string hint) {
  return failed(kVersions, std::move(text), on_same_nodes(survey, ranks), std::move(hint));
}

CheckRow other_versions(const Survey& survey) {
  const auto& others = survey.findings().other_versions;
  std::vector<Rank> ranks;
  ranks.reserve(others.size());
  for (const auto& [rank, version] : others) ranks.push_back(rank);
  return failed(kVersions,
                cat({"slurm-bootstrap is ", others.begin()->second, " on these ranks and ", survey.first().version,
                     " on rank 0"}),
                std::move(ranks), kSamePackage);
}

bool lacks_plugin(const CheckReport& report) { return report.sees_plugstack && report.plugin.empty(); }

// "22.05.8" and "22.05.3" are one release: a plugin of one works with the other.
bool is_same_release(const std::string& one, const std::string& other) {
  const auto release = [](const std::string& text) { return text.substr(0, text.find('.', text.find('.') + 1)); };
  return release(one) == release(other);
}

bool fits_slurm(const CheckReport& report) {
  return report.slurm.empty() || report.plugin_slurm.empty() || is_same_release(report.slurm, report.plugin_slurm);
}

std::string named(std::string_view name, const std::vector<Variant>& variants) {
  return variants.empty() ? std::string() : cat({name, " ", variants.front().value, ", "});
}

std::string versions_in_order(const Survey& survey) {
  const auto plugins = survey.variants(&CheckReport::plugin);
  const auto slurms = survey.variants(&CheckReport::slurm);
  auto text = cat({named("plugin", plugins), named("library", survey.variants(&CheckReport::library)), "command ",
                   survey.first().version});
  if (slurms.size() == 1) text += cat({", Slurm ", slurms.front().value});
  if (slurms.size() > 1) text += cat({", Slurm ", describe_variants(slurms, "node")});
  if (plugins.empty() && lacks_plugin(survey.first())) text += cat({"; no plugin: ", survey.first().plugin_trouble});
  return text;
}

// Each with the line that it is about.
std::vector<std::string> troubles_of(const Plugstack& plugstack) {
  auto troubles = plugstack.troubles;
  for (const auto& line : plugstack.lines) {
    Settings settings;
    if (&line != &plugstack.lines.front()) {
      troubles.push_back(
          cat({line.place, ": loads the plugin again, and its arguments are ignored; remove this line"}));
      continue;
    }
    for (const auto& argument : line.arguments) {
      const auto applied = apply_site_argument(settings, argument);
      if (!applied) troubles.push_back(cat({line.place, ": ", applied.error().message}));
    }
  }
  return troubles;
}

CheckRow plugstack_row(const LocalPlugin& found) {
  constexpr const char* kName = "plugstack.conf";
  const auto& plugstack = found.plugstack;
  if (found.files.plugstack.empty()) return absent(kName, "no slurm.conf on this machine");
  const auto troubles = troubles_of(plugstack);
  if (!troubles.empty()) return failed(kName, join(troubles, "; "));
  if (plugstack.lines.empty()) {
    auto text = cat({"no line of ", found.files.plugstack, " loads spank_bootstrap.so"});
    if (!plugstack.unmatched.empty()) text += cat({"; ", join(plugstack.unmatched, "; ")});
    if (!found.is_expected) return absent(kName, std::move(text));
    return failed(kName, std::move(text), {},
                  "add the line: optional spank_bootstrap.so; spank_bootstrap(8) has its arguments. Where this host is "
                  "not meant to load the plugin, use: slurm-bootstrap check --local --no-plugin");
  }
  const auto& line = plugstack.lines.front();
  auto text = cat({line.place, ": ", line.is_required ? "required" : "optional"});
  for (const auto& argument : line.arguments) text += cat({" ", argument});
  return ok(kName, std::move(text));
}

CheckRow plugin_row(const LocalPlugin& found, const std::string& slurm) {
  constexpr const char* kName = "plugin";
  if (found.plugstack.lines.empty()) return absent(kName, "");
  const auto& line = found.plugstack.lines.front();
  const auto& plugin = found.plugin;
  if (!plugin.trouble.empty()) return failed(kName, cat({line.place, ": ", plugin.trouble}));
  if (!found.distrust.empty()) return failed(kName, cat({line.place, ": ", line.plugin, ": ", found.distrust}));
  if (!slurm.empty() && !is_same_release(slurm, plugin.slurm)) {
    return failed(kName,
                  cat({line.place, ": ", line.plugin, " is for Slurm ", plugin.slurm, " and this is Slurm ", slurm,
                       ", which does not load it"}),
                  {}, cat({"install the plugin for Slurm ", slurm}));
  }
  return ok(kName, cat({plugin.version, " for Slurm ", plugin.slurm, " (", line.plugin, ")"}));
}

CheckRow device_row(const CheckReport& report) {
  const auto closed = report.closed_gpus.size();
  const auto all = std::to_string(report.open_gpus.size() + closed);
  if (all == "0") return absent("GPUs", "no device node of a GPU");
  if (closed == 0) return ok("GPUs", cat({all, ", all can be opened"}));
  return warning("GPUs", cat({std::to_string(closed), " of ", all, " cannot be opened: ", report.closed_gpus.front(),
                              closed > 1 ? ", ..." : ""}));
}

}  // namespace

std::vector<Rank> ranks_without_plugin(const Survey& survey) {
  if (survey.variants(&CheckReport::plugin).empty()) return {};
  return on_same_nodes(survey, survey.where(lacks_plugin));
}

CheckRow version_row(const Survey& survey) {
  if (!survey.findings().other_versions.empty()) return other_versions(survey);
  const auto plugins = survey.variants(&CheckReport::plugin);
  const auto without = ranks_without_plugin(survey);
  if (!without.empty()) {
    const auto reasons = survey.variants(&CheckReport::plugin_trouble);
    return failed(kVersions,
                  cat({"no plugin on these nodes, but plugin ", plugins.front().value,
                       " on other nodes: ", reasons.front().value}),
                  without, "install and switch on the plugin on all nodes");
  }
  const auto misfits = survey.where(std::not_fn(fits_slurm));
  if (!misfits.empty()) {
    const auto& report = survey.report(misfits.front());
    return failed_on_nodes(survey,
                           cat({"the plugin is for Slurm ", report.plugin_slurm, " and this is Slurm ", report.slurm,
                                ", which does not load it"}),
                           misfits, cat({"install the plugin for Slurm ", report.slurm}));
  }
  struct Part {
    std::string_view name;
    std::vector<Variant> variants;
  };
  for (const auto& [name, variants] : {Part{"command", survey.variants(&CheckReport::version)}, Part{"plugin", plugins},
                                       Part{"library", survey.variants(&CheckReport::library)}}) {
    if (variants.size() < 2) continue;
    const auto noun = name == "command" ? "rank" : "node";
    return failed_on_nodes(survey, cat({"the ", name, " is ", describe_variants(variants, noun)}), odd_ranks(variants),
                           kSamePackage);
  }
  return ok(kVersions, versions_in_order(survey));
}

CheckRow framework_row(const Survey& survey) {
  constexpr const char* kFrameworks = "frameworks";
  const auto variants = survey.variants([](const CheckReport& report) {
    return report.frameworks.empty() ? std::string() : cat({"Python ", report.python, ": ", report.frameworks});
  });
  if (variants.empty()) return {kFrameworks, CheckResult::kAbsent, {}, {}, {}};
  const auto without =
      survey.where([](const CheckReport& report) { return !report.python.empty() && report.frameworks.empty(); });
  if (variants.size() == 1 && without.empty()) return ok(kFrameworks, variants.front().value);
  if (variants.size() == 1) {
    return warning(kFrameworks, cat({variants.front().value, "; these nodes have none of them"}),
                   on_same_nodes(survey, without));
  }
  return warning(kFrameworks, describe_variants(variants, "node"), on_same_nodes(survey, odd_ranks(variants)),
                 "use the same Python environment on all nodes");
}

}  // namespace check

CheckTable judge_machine(const MachineFindings& machine) {
  const auto& report = machine.report;
  // One rank on one node, whose name is in the title.
  CheckFindings findings;
  auto layout = Layout::make({{{"localhost"}, {1}, {0}}});
  if (layout) findings.layout = std::move(*layout);
  findings.reports = {report};
  findings.reports.front()->rank = 0;
  const check::Survey survey(findings);
  CheckTable table;
  table.title = cat({"this machine only (", report.host, "); for a step: srun slurm-bootstrap check"});
  table.layout = findings.layout;
  using check::absent;
  using check::ok;
  for (auto row :
       {check::version_row(survey), check::plugstack_row(machine.plugin),
        check::plugin_row(machine.plugin, report.slurm),
        report.pmix_client.empty() ? absent("PMIx", report.pmix_trouble) : ok("PMIx", report.pmix_client),
        check::framework_row(survey), check::nccl_row(survey),
        report.cuda_version.empty() ? absent("CUDA", "no driver: libcuda.so.1 is missing") : check::driver_row(survey),
        check::device_row(report), ok("CPUs", cat({report.cpus, " for this process"})), check::shm_row(survey),
        check::locked_memory_row(survey), check::system_row(survey)}) {
    row.ranks.clear();
    if (!row.text.empty()) table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace bootstrap

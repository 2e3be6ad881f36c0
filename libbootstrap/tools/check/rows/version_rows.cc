// The rows about what is installed: the versions of this project and of Slurm on each node, and Python's frameworks.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/util/text.h"
#include "tools/check/plugstack.h"
#include "tools/check/rows/rows.h"

namespace bootstrap::check {
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

// "node002, node003": at most four of them.
std::string hosts_of(const Survey& survey, const std::vector<Rank>& ranks) {
  constexpr std::size_t kMostShown = 4;
  std::vector<std::string> hosts;
  for (const auto rank : ranks) {
    const auto& host = survey.layout().host_of(rank);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(hosts.size(), kMostShown); ++i) text += cat({i == 0 ? "" : ", ", hosts[i]});
  return hosts.size() <= kMostShown ? text : cat({text, " and ", std::to_string(hosts.size() - kMostShown), " more"});
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
                  cat({"no plugin on ", hosts_of(survey, without), ", but plugin ", plugins.front().value,
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

}  // namespace bootstrap::check

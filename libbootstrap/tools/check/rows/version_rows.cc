// The rows about what is installed: versions of this project and of Slurm, and Python's frameworks; and the table of
// one machine without a step.
// SPDX-License-Identifier: Apache-2.0
#include "core/util/text.h"
#include "tools/check/check_table.h"

namespace bootstrap {
namespace {

constexpr const char* kSamePackage = "install the same packages of slurm-bootstrap on all nodes";

CheckRow other_versions(const CheckFindings& step) {
  const auto& others = step.other_versions;
  std::vector<Rank> ranks;
  ranks.reserve(others.size());
  for (const auto& [rank, version] : others) ranks.push_back(rank);
  return failed(cat({"slurm-bootstrap is ", others.begin()->second, " on these ranks and ", kVersion, " on rank 0"}),
                std::move(ranks), kSamePackage);
}

bool lacks_plugin(const CheckReport& report) { return !report.plugin_trouble.empty(); }

// Why a Slurm does not load a plugin for another one, as the end of a sentence. Empty where it does, or one of them is
// not known.
std::string misfit(const std::string& built_for, const std::string& slurm) {
  // "22.05.8" and "22.05.3" are one release: a plugin of one works with the other.
  const auto release = [](const std::string& text) { return text.substr(0, text.find('.', text.find('.') + 1)); };
  if (slurm.empty() || built_for.empty() || release(slurm) == release(built_for)) return {};
  return cat({"is for Slurm ", built_for, " and this is Slurm ", slurm, ", which does not load it"});
}

std::string misfit_of(const CheckReport& report) { return misfit(report.plugin_slurm, report.slurm); }

std::string named(std::string_view name, const std::vector<Variant>& variants) {
  return variants.empty() ? std::string() : cat({name, " ", variants.front().value, ", "});
}

std::string versions_in_order(const CheckFindings& step) {
  const auto plugins = step.variants(&CheckReport::plugin);
  const auto slurms = step.variants(&CheckReport::slurm);
  auto text =
      cat({named("plugin", plugins), named("library", step.variants(&CheckReport::library)), "command ", kVersion});
  if (slurms.size() == 1) text += cat({", Slurm ", slurms.front().value});
  if (slurms.size() > 1) text += cat({", Slurm ", describe_variants(slurms, "node")});
  if (plugins.empty() && lacks_plugin(step.first())) text += cat({"; no plugin: ", step.first().plugin_trouble});
  return text;
}

CheckRow plugstack_row(const LocalPlugin& found) {
  if (found.plugstack.empty()) return absent("no slurm.conf on this machine");
  if (!found.troubles.empty()) return failed(join(found.troubles, "; "));
  if (!found.line.empty()) return ok(found.line);
  auto text = cat({"no line of ", found.plugstack, " loads spank_bootstrap.so"});
  if (!found.unmatched.empty()) text += cat({"; ", join(found.unmatched, "; ")});
  if (!found.is_expected) return absent(std::move(text));
  return failed(std::move(text), {},
                "add the line: optional spank_bootstrap.so; spank_bootstrap(8) has its arguments. Where this host is "
                "not meant to load the plugin, use: slurm-bootstrap check --local --no-plugin");
}

CheckRow plugin_row(const LocalPlugin& found, const std::string& slurm) {
  if (found.path.empty()) return absent("");
  if (!found.trouble.empty()) return failed(found.trouble);
  const auto unfit = misfit(found.slurm, slurm);
  if (unfit.empty()) return ok(cat({found.version, " for Slurm ", found.slurm, " (", found.path, ")"}));
  return failed(cat({found.path, " ", unfit}), {}, cat({"install the plugin for Slurm ", slurm}));
}

CheckRow device_row(const CheckReport& report) {
  const auto closed = report.closed_gpus.size();
  const auto all = std::to_string(report.open_gpus.size() + closed);
  if (all == "0") return absent("no device node of a GPU");
  if (closed == 0) return ok(cat({all, ", all can be opened"}));
  return warning(cat({std::to_string(closed), " of ", all, " cannot be opened: ", report.closed_gpus.front(),
                      closed > 1 ? ", ..." : ""}));
}

}  // namespace

std::vector<Rank> ranks_without_plugin(const CheckFindings& step) {
  if (step.variants(&CheckReport::plugin).empty()) return {};
  return on_same_nodes(step, step.where(lacks_plugin));
}

CheckRow version_row(const CheckFindings& step) {
  if (!step.other_versions.empty()) return other_versions(step);
  const auto plugins = step.variants(&CheckReport::plugin);
  const auto without = ranks_without_plugin(step);
  if (!without.empty()) {
    const auto reasons = step.variants(&CheckReport::plugin_trouble);
    return failed(cat({"no plugin on these nodes, but plugin ", plugins.front().value,
                       " on other nodes: ", reasons.front().value}),
                  without, "install and switch on the plugin on all nodes");
  }
  const auto misfits = step.where([](auto& report) { return !misfit_of(report).empty(); });
  if (!misfits.empty()) {
    const auto& report = step.report(misfits.front());
    return failed(cat({"the plugin ", misfit_of(report)}), on_same_nodes(step, misfits),
                  cat({"install the plugin for Slurm ", report.slurm}));
  }
  const auto libraries = step.variants(&CheckReport::library);
  for (const auto& [name, variants] : {std::pair("plugin", &plugins), std::pair("library", &libraries)}) {
    if (variants->size() < 2) continue;
    return failed(cat({"the ", name, " is ", describe_variants(*variants, "node")}),
                  on_same_nodes(step, odd_ranks(*variants)), kSamePackage);
  }
  return ok(versions_in_order(step));
}

CheckRow framework_row(const CheckFindings& step) {
  const auto variants = step.variants([](auto& report) {
    return report.frameworks.empty() ? std::string() : cat({"Python ", report.python, ": ", report.frameworks});
  });
  if (variants.empty()) return absent({});
  const auto without = step.where([](auto& report) { return !report.python.empty() && report.frameworks.empty(); });
  if (variants.size() == 1) {
    if (without.empty()) return ok(variants.front().value);
    return warning(cat({variants.front().value, "; these nodes have none of them"}), on_same_nodes(step, without));
  }
  return warning(describe_variants(variants, "node"), on_same_nodes(step, odd_ranks(variants)),
                 "use the same Python environment on all nodes");
}

CheckTable judge_machine(const CheckFindings& machine) {
  const auto& report = machine.first();
  auto title = cat({"this machine only (", report.host, "); for a step: srun slurm-bootstrap check"});
  CheckTable table{std::move(title), {}, report.host, machine.layout};
  append_row(table, "versions", version_row(machine));
  append_row(table, "plugstack.conf", plugstack_row(machine.plugin));
  append_row(table, "plugin", plugin_row(machine.plugin, report.slurm));
  append_row(table, "PMIx", report.pmix_client.empty() ? absent(report.pmix_trouble) : ok(report.pmix_client));
  append_row(table, "frameworks", framework_row(machine));
  append_row(table, "NCCL", nccl_row(machine));
  append_row(table, "CUDA", report.cuda.empty() ? absent("no driver: libcuda.so.1 is missing") : ok(report.cuda));
  append_row(table, "GPUs", device_row(report));
  append_row(table, "CPUs", ok(cat({report.cpus, " for this process"})));
  append_row(table, "/dev/shm", shm_row(machine));
  append_row(table, "locked memory", locked_memory_row(machine));
  append_row(table, "system", system_row(machine));
  for (auto& row : table.rows) row.ranks.clear();
  return table;
}

}  // namespace bootstrap

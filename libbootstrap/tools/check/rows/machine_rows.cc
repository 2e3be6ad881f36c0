// The table of one machine without a step: plugstack.conf, the plugin, and what programs would find.
// SPDX-License-Identifier: Apache-2.0
#include "core/settings/settings.h"
#include "core/util/text.h"
#include "tools/check/rows/rows.h"

namespace bootstrap {
namespace {

using check::absent;
using check::failed;
using check::ok;

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const auto& sentence : sentences) text += cat({text.empty() ? "" : "; ", sentence});
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
  if (!troubles.empty()) return failed(kName, joined(troubles));
  if (plugstack.lines.empty()) {
    auto text = cat({"no line of ", found.files.plugstack, " loads spank_bootstrap.so"});
    if (!plugstack.unmatched.empty()) text += cat({"; ", joined(plugstack.unmatched)});
    auto row = absent(kName, std::move(text));
    row.hint = "see slurm-bootstrap-admin(8) for the line";
    return row;
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
  return check::warning("GPUs", cat({std::to_string(closed), " of ", all,
                                     " cannot be opened: ", report.closed_gpus.front(), closed > 1 ? ", ..." : ""}));
}

}  // namespace

CheckTable judge_machine(const MachineFindings& machine) {
  const auto& report = machine.report;
  // One rank on one node, whose name is in the title.
  CheckFindings findings;
  auto layout = Layout::make({{*HostList::parse("localhost"), {1}, {0}}});
  if (layout) findings.layout = std::move(*layout);
  findings.reports = {report};
  findings.reports.front()->rank = 0;
  const check::Survey survey(findings);

  CheckTable table;
  table.title = cat({"this machine only (", report.host, "); for a step: srun slurm-bootstrap check"});
  table.layout = findings.layout;
  for (auto row :
       {check::version_row(survey), plugstack_row(machine.plugin), plugin_row(machine.plugin, report.slurm),
        report.pmix_client.empty() ? absent("PMIx", report.pmix_trouble) : ok("PMIx", report.pmix_client),
        check::framework_row(survey), check::nccl_row(survey),
        report.cuda_version.empty() ? absent("CUDA", "no driver: libcuda.so.1 is missing") : check::driver_row(survey),
        device_row(report), ok("CPUs", cat({report.cpus, " for this process"})), check::shm_row(survey),
        check::locked_memory_row(survey), check::system_row(survey)}) {
    row.ranks.clear();
    if (!row.text.empty()) table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace bootstrap

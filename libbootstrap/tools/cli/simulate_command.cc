// slurm-bootstrap simulate: how long a start would take on a cluster that is not at hand.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate_command.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "core/util/result.h"
#include "core/util/text.h"
#include "simulation/report.h"

namespace bootstrap {
namespace {

using simulation::ConstantsFile;
using simulation::Report;
using simulation::Scenario;

Result<std::string> read_file(const std::string& path) {
  const auto refuse = [&path](int number) {
    return fail(ErrorCode::kUnavailable,
                cat({"cannot read constants from ", quoted(path), ": ", std::strerror(number)}));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!file) return refuse(errno);
  std::string text(simulation::kMaxConstantsText + 1, '\0');  // one more than is allowed, which the parser refuses
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return refuse(errno);
  return text;
}

Result<ConstantsFile> find_constants(const std::string& path) {
  auto built_in = simulation::built_in_constants();
  if (!built_in || path.empty()) return built_in;
  const auto text = read_file(path);
  if (!text) return fail(text.error());
  auto file = simulation::parse_constants(*text, *built_in);
  if (!file) return fail(file.error().code, cat({path, ": ", file.error().message}));
  return file;
}

Result<Scenario> scenario_of(const SimulateOptions& options, std::uint32_t ranks) {
  Scenario scenario;
  scenario.ranks = ranks;
  scenario.ranks_per_node = options.ranks_per_node;
  if (options.roots != "auto") {
    const auto roots = parse_unsigned(options.roots, simulation::kMaxRanks);
    if (!roots || *roots == 0) {
      return fail(ErrorCode::kInvalid, cat({"--roots ", quoted(options.roots), " is not auto or a number from 1 on"}));
    }
    scenario.roots = static_cast<std::uint32_t>(*roots);
  }
  // Slurm's default, mixed, takes a ring for a fence that collects data (pmixp_lib_fence() in pmixp_client.c).
  scenario.fence = options.fence == "tree" ? simulation::FenceKind::kTree : simulation::FenceKind::kRing;
  scenario.gets = options.gets == "all"    ? simulation::Gets::kAll
                  : options.gets == "node" ? simulation::Gets::kNode
                                           : simulation::Gets::kRoots;
  scenario.seed = options.seed;
  return scenario;
}

// The time line is that of the most ranks; one number of ranks stands beside the sizes that the design names, which one
// machine alone does not reach.
Result<Report> make_report(const SimulateOptions& options, ConstantsFile constants) {
  Report report;
  report.constants = std::move(constants);
  report.is_mixed = options.fence == "mixed";
  const auto& values = report.constants.values;
  auto sizes = options.ranks;
  const auto most = *std::max_element(sizes.begin(), sizes.end());
  if (sizes.size() == 1 && most > 64 && values.machine_cores == 0) sizes = {100, 1'000, 10'000, 100'000, most};
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const auto ranks : sizes) {
    const auto scenario = scenario_of(options, ranks);
    if (!scenario) return fail(scenario.error());
    if (ranks != most && scenario->roots > ranks) continue;  // too few for so many roots
    if (auto status = simulation::check_scenario(values, *scenario); !status) return fail(status.error());
    const auto line = simulation::simulate_start(values, *scenario);
    report.sizes.push_back(simulation::simulate_size(values, *scenario, line));
    if (ranks != most) continue;
    report.scenario = *scenario;
    report.time_line = line;
  }
  if (options.sensitivity) report.sensitivity = simulation::simulate_sensitivity(values, report.scenario);
  return report;
}

int write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return 0;
  (void)std::fprintf(stderr, "slurm-bootstrap: cannot write to standard output: %s\n", std::strerror(errno));
  return 1;
}

}  // namespace

int simulate_command(const SimulateOptions& options) {
  if (options.print_constants && options.constants.empty()) return write_out(simulation::built_in_constants_text());
  auto constants = find_constants(options.constants);
  if (constants && options.print_constants) return write_out(simulation::constants_text(*constants));
  const auto report = constants ? make_report(options, std::move(*constants)) : Result<Report>(fail(constants.error()));
  if (report) return write_out(options.json ? report_json(*report) : report_text(*report));
  (void)std::fprintf(stderr, "slurm-bootstrap: %s\n", report.error().message.c_str());
  return 1;
}

}  // namespace bootstrap

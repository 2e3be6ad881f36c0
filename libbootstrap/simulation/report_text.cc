// A simulation as text: tables, each labelled as simulated.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/util/text.h"
#include "simulation/report.h"

namespace bootstrap::simulation {
namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kMostColumns = 112;

constexpr std::array<std::string_view, kPhases> kTitles{
    "srun to slurmstepds",     "fork and exec of tasks",    "PMIx_Init", "put and fence", "Gets",
    "check-in with the roots", "NCCL's own rings, not ours"};

std::string number(const char* format, double value) {
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// Three digits, in a unit that fits: "1.43 s", "23.0 ms", "250 us".
std::string duration(Seconds time) {
  constexpr std::array<std::pair<double, std::string_view>, 3> kUnits{{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}}};
  std::string text = "0";
  for (const auto& [unit, name] : kUnits) {
    const double value = time / unit;
    if (value < 0.9995 && name != "us") continue;
    text = cat({number(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value), " ", name});
    break;
  }
  return text;
}

// The first `left` columns are words, the others numbers.
void append_table(std::string& out, const std::vector<Row>& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(widths[i] - row[i].size(), ' ');
      line += cat({i == 0 ? "" : "  ", i < left ? "" : blanks, row[i], i < left ? blanks : ""});
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
}

std::string bar(const Span& span, Seconds total) {
  constexpr double kWidth = 32;
  const auto first = static_cast<std::size_t>(std::min(kWidth - 1, span.begin / total * kWidth));
  const auto last = static_cast<std::size_t>(std::ceil(span.end / total * kWidth));
  return std::string(first, '.') + std::string(std::max<std::size_t>(1, last - first), '#') +
         std::string(static_cast<std::size_t>(kWidth) - std::max(last, first + 1), '.');
}

std::string fence_words(const Report& report) {
  const auto word = report.scenario.fence == FenceKind::kTree ? "a tree" : "a ring";
  return report.is_mixed ? "mixed, which is a ring where data is collected" : word;
}

void append_time_line(std::string& out, const Report& report) {
  const auto& scenario = report.scenario;
  const auto total = report.time_line.end();
  out += cat({"Start of ", std::to_string(scenario.ranks), " ranks on ", std::to_string(scenario.nodes()), " nodes, ",
              std::to_string(scenario.root_ranks()), scenario.root_ranks() == 1 ? " root" : " roots",
              " (simulated; fence: ", fence_words(report), ")\n\n"});
  std::vector<Row> rows{{"PHASE", "", "BEGINS", "ENDS", "ADDS", "SHARE"}};
  Seconds before = 0;
  for (std::size_t i = 0; i < kPhases; ++i) {
    const auto& span = report.time_line.phases[i];
    if (!span.is_there) continue;
    const auto adds = std::max(0.0, span.end - before);
    rows.push_back({std::string(kTitles[i]), bar(span, total), duration(span.begin), duration(span.end), duration(adds),
                    number("%.1f %%", 100 * adds / total)});
    before = std::max(before, span.end);
  }
  append_table(out, rows, 2);
  out += "\nA phase begins with its first rank and ends with its last; ADDS is from the end of the one before.\n";
}

void append_sizes(std::string& out, const Report& report) {
  const bool has_ids = report.scenario.gets != Gets::kAll;
  const auto of_ids = [has_ids](Seconds time) { return has_ids ? duration(time) : "-"; };
  out += cat(
      {"\nSizes side by side (simulated; ", std::to_string(report.scenario.ranks_per_node), " ranks on a node)\n\n"});
  std::vector<Row> rows{
      {"", "", "", "EXCHANGE", "EXCHANGE", "CHECK-IN", "CHECK-IN", "NCCL'S", "MAIN() TO", "TCPSTORE", "TCPSTORE"},
      {"RANKS", "NODES", "ROOTS", "RING", "TREE", "ONE ROOT", "ROOTS", "OWN RINGS", has_ids ? "IDS" : "VALUES", "THERE",
       "LATE"}};
  for (const auto& row : report.sizes) {
    auto many = row.scenario;
    if (many.roots == 1) many.roots = 0;
    rows.push_back({std::to_string(row.scenario.ranks), std::to_string(row.scenario.nodes()),
                    std::to_string(many.root_ranks()), duration(row.exchange_ring), duration(row.exchange_tree),
                    duration(row.one_root), duration(row.many_roots), of_ids(row.nccl_ring), duration(row.values),
                    of_ids(row.store), of_ids(row.late_store)});
  }
  append_table(out, rows, 0);
}

std::string verdict(Seconds time, Seconds goal) { return cat({duration(time), time <= goal ? " met" : " NOT MET"}); }

void append_goals(std::string& out, const Report& report) {
  out += "\nGoals of the design (simulated)\n\n";
  std::vector<Row> rows{{"RANKS", "EXCHANGE WITHIN", "RING", "TREE", "CHECK-IN WITHIN", "ONE ROOT", "ROOTS"}};
  for (const auto& row : report.sizes) {
    const auto goal = exchange_goal(row.scenario.ranks);
    rows.push_back({std::to_string(row.scenario.ranks), goal ? duration(*goal) : "-",
                    goal ? verdict(row.exchange_ring, *goal) : "-", goal ? verdict(row.exchange_tree, *goal) : "-",
                    duration(kRootGoal), verdict(row.one_root, kRootGoal), verdict(row.many_roots, kRootGoal)});
  }
  append_table(out, rows, 0);
}

std::string factors(const double (&pair)[2]) { return cat({number("%.2f", pair[0]), " ", number("%.2f", pair[1])}); }

void append_sensitivity(std::string& out, const Report& report) {
  if (report.sensitivity.empty()) return;
  out += cat({"\nWith 0.5 and 2 times each constant, ", std::to_string(report.scenario.ranks),
              " ranks (simulated; 1.00 is as above)\n\n"});
  std::vector<Row> rows{{"CONSTANT", "VALUE", "EXCHANGE", "CHECK-IN", "SRUN TO CHECKED IN"}};
  std::string others = "Less than 1 % of all of these:";
  std::size_t width = others.size();
  for (const auto& row : report.sensitivity) {
    if (row.most() < 1.005) {
      width += 1 + row.name.size();
      others += cat({width > kMostColumns ? "\n" : " ", row.name});
      if (width > kMostColumns) width = row.name.size();
      continue;
    }
    const auto specs = constant_specs();
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const auto& one) { return one.name == row.name; });
    rows.push_back({std::string(row.name), constant_text(*spec, row.value), factors(row.exchange), factors(row.roots),
                    factors(row.start)});
  }
  append_table(out, rows, 1);
  out += cat({"\n", others, "\n"});
}

}  // namespace

std::string report_text(const Report& report) {
  std::string out =
      cat({"simulated with constants of ", report.constants.date, ": ", report.constants.machine, "\n\n"});
  append_time_line(out, report);
  append_sizes(out, report);
  append_goals(out, report);
  append_sensitivity(out, report);
  out +=
      "\nEXCHANGE: put, fence and Gets of ranks that begin together, after PMIx_Init. MAIN() TO: from the last "
      "program\n"
      "that starts to the last rank that has the ids; TCPSTORE: the same with PyTorch's server, which is there before\n"
      "all ranks, or late, so that those who come first try again a second later. Left out: loading of the program "
      "and\n"
      "its libraries, the network's topology and other traffic, lost messages, slurmctld under load, CUDA, and what\n"
      "NCCL does besides its rings. Slurm 22.05 with PMIx 4.2 loses data in trees (SLURM_PMIX_FENCE=tree): do not use "
      "it.\n";
  return out;
}

}  // namespace bootstrap::simulation

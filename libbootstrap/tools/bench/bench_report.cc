// What `slurm-bootstrap bench` reads and prints: sizes, what each rank reports to the others, and the table of that.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "comm/nccl/nccl_library.h"
#include "comm/nccl/rank_conflicts.h"
#include "core/step/rank_layout.h"
#include "core/util/records.h"
#include "core/util/text.h"

namespace bootstrap {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
constexpr unsigned kStep = 10;  // from one unit to the next, in bits

unsigned shift_of(char unit) {
  constexpr std::string_view kUnits = "KkMmGg";
  const auto at = kUnits.find(unit);
  return at == std::string_view::npos ? 0 : kStep * (static_cast<unsigned>(at) / 2 + 1);
}

constexpr std::array<std::size_t, 7> kWidths = {12, 12, 7, 13, 13, 12, 8};

std::string decimals(double value, int digits) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return {text.data(), end};
}

// All columns to the right, where the digits are.
std::string line(const std::array<std::string_view, kWidths.size()>& cells) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text.append(kWidths[i] > cells[i].size() ? kWidths[i] - cells[i].size() : 1, ' ').append(cells[i]);
  }
  return text + "\n";
}

// "4 x NVIDIA H200, 2 x NVIDIA L4", in order of first mention.
std::string count_names(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) continue;
    parts.push_back(cat({std::to_string(std::count(name, names.end(), *name)), " x ", *name}));
  }
  return join(parts, ", ");
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view option, std::string_view text) {
  const unsigned shift = text.empty() ? 0 : shift_of(text.back());
  const auto number = parse_unsigned(shift == 0 ? text : text.substr(0, text.size() - 1), kMostBytes >> shift);
  if (number) return *number << shift;
  return fail(ErrorCode::kInvalid,
              cat({option, " is ", quoted(text, 20), "; it takes bytes, such as 8, 64K, 128M or 4G, 1024G at most"}));
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {" bytes", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return cat({std::to_string(bytes), kUnits[unit]});
}

Result<std::vector<std::uint64_t>> sizes_of(const SizeRange& range) {
  const auto least = std::to_string(range.least);
  if (range.least == 0 || range.least % kFloatBytes != 0) {
    return fail(ErrorCode::kInvalid, cat({"--min-bytes is ", least, "; it takes a multiple of ",
                                          std::to_string(kFloatBytes), ", since floats are added"}));
  }
  if (range.most < range.least) {
    return fail(ErrorCode::kInvalid,
                cat({"--max-bytes is ", std::to_string(range.most), ", below the ", least, " of --min-bytes"}));
  }
  std::vector<std::uint64_t> sizes;
  for (auto size = range.least;; size *= range.factor) {
    sizes.push_back(size);
    if (size > range.most / range.factor) return sizes;
  }
}

double algorithm_bandwidth(std::uint64_t bytes, double microseconds) {
  constexpr double kNanoseconds = 1000;  // in a microsecond
  return microseconds > 0 ? static_cast<double>(bytes) / (microseconds * kNanoseconds) : 0;
}

double bus_bandwidth(std::uint64_t bytes, double microseconds, std::uint32_t ranks) {
  if (ranks < 2) return 0;
  return algorithm_bandwidth(bytes, microseconds) * 2 * (ranks - 1) / ranks;
}

std::optional<std::string> trouble_of(const Layout& layout, const std::vector<BenchFinding>& findings) {
  const bool somebody_knows = std::any_of(findings.begin(), findings.end(), [](const BenchFinding& finding) {
    return !finding.trouble.empty() && !finding.is_late;
  });
  const auto has_trouble = [=](const BenchFinding& finding) {
    return !finding.trouble.empty() && !(somebody_knows && finding.is_late);
  };
  const auto first = std::find_if(findings.begin(), findings.end(), has_trouble);
  if (first == findings.end()) return std::nullopt;
  const auto others = std::count_if(first + 1, findings.end(), has_trouble);
  const auto more = others == 0 ? std::string() : cat({" and ", std::to_string(others), " more"});
  return cat({describe_rank(layout, static_cast<Rank>(first - findings.begin())), more, ": ", first->trouble});
}

std::string wrong_text(const Layout& layout, std::uint64_t bytes, const std::vector<BenchFinding>& findings) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < findings.size(); ++rank) {
    if (findings[rank].wrong > 0) ranks.push_back(rank);
  }
  if (ranks.empty()) return "";
  const auto& one = findings[ranks.front()];
  return cat({cat({"an all-reduce of ", bytes_text(bytes), " gave wrong sums on ", name_ranks(layout, ranks), ": "}),
              cat({counted(one.wrong, "value"), " on rank ", std::to_string(ranks.front()), ", the first is number ",
                   std::to_string(one.first.index), " of ", std::to_string(bytes / kFloatBytes), ", "}),
              cat({write_field(one.first.found), " where the sum is ", write_field(one.first.expected), " (",
                   one.first.is_in_place ? "in place" : "out of place", ")"})});
}

BenchRow row_of(std::uint64_t bytes, const std::vector<BenchFinding>& findings) {
  const auto& slowest = *std::max_element(
      findings.begin(), findings.end(),
      [](const BenchFinding& one, const BenchFinding& other) { return one.microseconds < other.microseconds; });
  BenchRow row{.bytes = bytes, .microseconds = slowest.microseconds};
  row.algorithm = algorithm_bandwidth(bytes, slowest.microseconds);
  row.bus = bus_bandwidth(bytes, slowest.microseconds, slowest.ranks);
  for (const auto& finding : findings) row.wrong += finding.wrong;
  return row;
}

double average_bus(const std::vector<BenchRow>& rows) {
  double sum = 0;
  for (const auto& row : rows) sum += row.bus;
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

std::string head_text(const BenchStage& stage, const BenchPlan& plan) {
  const auto sizes =
      cat({stage.fewest == stage.most ? "" : cat({std::to_string(stage.fewest), " to "}), counted(stage.most, "rank")});
  return cat({cat({"StepId=", stage.step, ": all-reduce: ", counted(stage.ranks, "rank"), " on ",
                   counted(stage.nodes, "node"), ", communicator ", to_string(plan.group), " of ", sizes, "\n"}),
              cat({count_names(stage.gpus), "; ", nccl::product(), " ", stage.nccl_version, " (", stage.nccl_path,
                   ")\nunique ids in ", decimals(stage.id_ms, 1), " ms, communicator in ", decimals(stage.comm_ms, 1),
                   " ms more; "}),
              cat({plan.task.is_in_place ? "in" : "out of", " place, ", counted(plan.task.warmup, "warm-up"), " and ",
                   counted(plan.task.iterations, "iteration"), " of each size, sums ",
                   plan.task.is_checked ? "verified" : "not verified", "\n\n"}),
              line({"BYTES", "COUNT", "TYPE", "TIME us", "ALGBW GB/s", "BUSBW GB/s", "#WRONG"})});
}

std::string row_text(const BenchRow& row, bool is_checked) {
  return line({std::to_string(row.bytes), std::to_string(row.bytes / kFloatBytes), "float",
               decimals(row.microseconds, 2), decimals(row.algorithm, 3), decimals(row.bus, 3),
               is_checked ? std::to_string(row.wrong) : "-"});
}

std::string foot_text(const std::vector<BenchRow>& rows) {
  return cat({"\naverage busbw ", decimals(average_bus(rows), 3), " GB/s\n"});
}

std::string bench_json(const BenchStage& stage, const BenchPlan& plan, const std::vector<BenchRow>& rows) {
  const auto real = [](std::string_view name, double value) { return json_member(name, decimals(value, 6)); };
  const auto text = [](std::string_view name, const std::string& value) {
    return json_member(name, json_string(value));
  };
  const auto flag = [](std::string_view name, bool value) { return json_member(name, value ? "true" : "false"); };
  std::vector<std::string> sizes;
  for (const auto& row : rows) {
    const std::vector<std::string> members{
        json_number("bytes", row.bytes),
        json_number("count", row.bytes / kFloatBytes),
        text("type", "float"),
        real("time_us", row.microseconds),
        real("algbw_gbs", row.algorithm),
        real("busbw_gbs", row.bus),
        plan.task.is_checked ? json_number("wrong", row.wrong) : json_member("wrong", "null")};
    sizes.push_back(cat({"{", join(members, ", "), "}"}));
  }
  std::vector<std::string> gpus;
  for (const auto& name : stage.gpus) gpus.push_back(json_string(name));
  const std::vector<std::string> members{text("step", stage.step),
                                         text("communicator", to_string(plan.group)),
                                         json_number("ranks", stage.ranks),
                                         json_number("nodes", stage.nodes),
                                         json_number("fewest_ranks", stage.fewest),
                                         json_number("most_ranks", stage.most),
                                         json_member("gpus", json_list(gpus)),
                                         text("nccl_version", stage.nccl_version),
                                         text("nccl_path", stage.nccl_path),
                                         real("unique_ids_ms", stage.id_ms),
                                         real("communicator_ms", stage.comm_ms),
                                         json_number("iterations", plan.task.iterations),
                                         json_number("warmup", plan.task.warmup),
                                         flag("in_place", plan.task.is_in_place),
                                         flag("checked", plan.task.is_checked),
                                         json_member("sizes", json_list(sizes)),
                                         real("average_busbw_gbs", average_bus(rows))};
  return cat({"{\n  ", join(members, ",\n  "), "\n}\n"});
}

}  // namespace bootstrap

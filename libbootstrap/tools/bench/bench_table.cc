// The table of `slurm-bootstrap bench`, for people and as JSON.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "comm/nccl/nccl_library.h"
#include "core/util/text.h"
#include "tools/bench/bandwidth.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {
namespace {

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
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const auto& name : names) {
    const auto at = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.first == name; });
    if (at == counts.end()) {
      counts.emplace_back(name, 1);
    } else {
      ++at->second;
    }
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    text += cat({text.empty() ? "" : ", ", std::to_string(count), " x ", name});
  }
  return text;
}

std::string count(std::uint32_t number, std::string_view what) {
  return cat({std::to_string(number), " ", what, number == 1 ? "" : "s"});
}

std::string size_of_groups(const BenchStage& stage) {
  if (stage.fewest == stage.most) return count(stage.most, "rank");
  return cat({std::to_string(stage.fewest), " to ", count(stage.most, "rank")});
}

}  // namespace

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

std::string head_text(const BenchStage& stage) {
  return cat({"StepId=",
              stage.step,
              ": all-reduce: ",
              count(stage.ranks, "rank"),
              " on ",
              count(stage.nodes, "node"),
              ", communicator ",
              stage.group,
              " of ",
              size_of_groups(stage),
              "\n",
              count_names(stage.gpus),
              "; ",
              nccl::product(),
              " ",
              stage.nccl_version,
              " (",
              stage.nccl_path,
              ")\nunique ids in ",
              decimals(stage.id_ms, 1),
              " ms, communicator in ",
              decimals(stage.comm_ms, 1),
              " ms more; ",
              stage.is_in_place ? "in" : "out of",
              " place, ",
              count(stage.warmup, "warm-up"),
              " and ",
              count(stage.iterations, "iteration"),
              " of each size, sums ",
              stage.is_checked ? "verified" : "not verified",
              "\n\n",
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

std::string bench_json(const BenchStage& stage, const std::vector<BenchRow>& rows) {
  const auto real = [](std::string_view name, double value) { return json_member(name, decimals(value, 6)); };
  const auto flag = [](std::string_view name, bool value) { return json_member(name, value ? "true" : "false"); };
  std::vector<std::string> lines;
  lines.reserve(rows.size());
  for (const auto& row : rows) {
    lines.push_back(cat({"{", json_number("bytes", row.bytes), ", ", json_number("count", row.bytes / kFloatBytes),
                         ", ", json_member("type", json_string("float")), ", ", real("time_us", row.microseconds), ", ",
                         real("algbw_gbs", row.algorithm), ", ", real("busbw_gbs", row.bus), ", ",
                         stage.is_checked ? json_number("wrong", row.wrong) : json_member("wrong", "null"), "}"}));
  }
  std::vector<std::string> gpus;
  gpus.reserve(stage.gpus.size());
  for (const auto& name : stage.gpus) gpus.push_back(json_string(name));
  return cat({"{\n  ", json_member("step", json_string(stage.step)),
              ",\n  ", json_member("communicator", json_string(stage.group)),
              ",\n  ", json_number("ranks", stage.ranks),
              ",\n  ", json_number("nodes", stage.nodes),
              ",\n  ", json_number("fewest_ranks", stage.fewest),
              ",\n  ", json_number("most_ranks", stage.most),
              ",\n  ", json_member("gpus", json_list(gpus)),
              ",\n  ", json_member("nccl_version", json_string(stage.nccl_version)),
              ",\n  ", json_member("nccl_path", json_string(stage.nccl_path)),
              ",\n  ", real("unique_ids_ms", stage.id_ms),
              ",\n  ", real("communicator_ms", stage.comm_ms),
              ",\n  ", json_number("iterations", stage.iterations),
              ",\n  ", json_number("warmup", stage.warmup),
              ",\n  ", flag("in_place", stage.is_in_place),
              ",\n  ", flag("checked", stage.is_checked),
              ",\n  ", json_member("sizes", json_list(lines)),
              ",\n  ", real("average_busbw_gbs", average_bus(rows)),
              "\n}\n"});
}

}  // namespace bootstrap

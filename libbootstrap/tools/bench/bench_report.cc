// What each rank of a bench tells the others, as text, and the sentences about those with trouble.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/step/rank_names.h"
#include "core/util/text.h"
#include "tools/bench/bandwidth.h"
#include "tools/bench/bench_report.h"

namespace bootstrap {
namespace {

constexpr char kSeparator = '\t';

// No field may hold the separator; a sentence of a driver might.
std::string field(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

// All digits: what is read is what was written.
std::string number(double value) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::optional<double> read_number(std::string_view text) {
  double value = 0;
  const auto end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (text.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

std::string write(const std::vector<std::string>& fields) {
  std::string text;
  for (const auto& each : fields) text += (text.empty() ? "" : std::string(1, kSeparator)) + field(each);
  return text;
}

std::string place_of(const WrongValue& wrong) { return wrong.is_in_place ? "in place" : "out of place"; }

}  // namespace

std::string write_member(const BenchMember& member) {
  return write({std::to_string(static_cast<unsigned>(member.gpu)), member.text, std::to_string(member.nccl_version),
                member.nccl_path, member.nccl_trouble});
}

std::optional<BenchMember> read_member(std::string_view text) {
  const auto fields = split(text, kSeparator);
  if (fields.size() != 5) return std::nullopt;
  const auto gpu = parse_unsigned(fields[0], static_cast<unsigned>(BenchMember::Gpu::kThere));
  const auto version = parse_unsigned(fields[2], INT32_MAX);
  if (!gpu || !version) return std::nullopt;
  return BenchMember{.gpu = static_cast<BenchMember::Gpu>(*gpu),
                     .text = std::string(fields[1]),
                     .nccl_version = static_cast<int>(*version),
                     .nccl_path = std::string(fields[3]),
                     .nccl_trouble = std::string(fields[4])};
}

std::string write_finding(const BenchFinding& finding) {
  const auto& first = finding.first;
  return write({number(finding.microseconds), number(finding.more), std::to_string(finding.ranks),
                std::to_string(finding.wrong), first.is_in_place ? "1" : "0", std::to_string(first.index),
                number(static_cast<double>(first.found)), number(static_cast<double>(first.expected)),
                finding.is_late ? "1" : "0", finding.trouble});
}

std::optional<BenchFinding> read_finding(std::string_view text) {
  const auto fields = split(text, kSeparator);
  if (fields.size() != 10) return std::nullopt;
  const auto time = read_number(fields[0]);
  const auto more = read_number(fields[1]);
  const auto ranks = parse_unsigned(fields[2], kMaxRanks);
  const auto wrong = parse_unsigned(fields[3]);
  const auto index = parse_unsigned(fields[5]);
  const auto found = read_number(fields[6]);
  const auto expected = read_number(fields[7]);
  if (!time || !more || !ranks || !wrong || !index || !found || !expected) return std::nullopt;
  return BenchFinding{.microseconds = *time,
                      .more = *more,
                      .ranks = static_cast<std::uint32_t>(*ranks),
                      .wrong = *wrong,
                      .first = {.is_in_place = fields[4] == "1",
                                .index = *index,
                                .found = static_cast<float>(*found),
                                .expected = static_cast<float>(*expected)},
                      .is_late = fields[8] == "1",
                      .trouble = std::string(fields[9])};
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
  return cat({"an all-reduce of ",
              bytes_text(bytes),
              " gave wrong sums on ",
              name_ranks(layout, ranks),
              ": ",
              std::to_string(one.wrong),
              one.wrong == 1 ? " value" : " values",
              " on rank ",
              std::to_string(ranks.front()),
              ", the first is number ",
              std::to_string(one.first.index),
              " of ",
              std::to_string(bytes / kFloatBytes),
              ", ",
              number(static_cast<double>(one.first.found)),
              " where the sum is ",
              number(static_cast<double>(one.first.expected)),
              " (",
              place_of(one.first),
              ")"});
}

}  // namespace bootstrap

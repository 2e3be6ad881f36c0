// The rows of a check's table, each made from the reports of all ranks; and what the rows have in common.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/check/check_table.h"

namespace bootstrap {

// "A on 2 ranks, B on the others", and the ranks that do not have the most frequent value. Precondition: at least two.
std::string describe_variants(const std::vector<Variant>& variants, std::string_view noun = "rank");
std::vector<Rank> odd_ranks(const std::vector<Variant>& variants);
// Returns all ranks on the nodes of these ranks.
std::vector<Rank> on_same_nodes(const CheckFindings& step, const std::vector<Rank>& ranks);

// Rows without their names.
inline CheckRow ok(std::string text) { return {CheckResult::kOk, std::move(text)}; }
inline CheckRow absent(std::string text) { return {CheckResult::kAbsent, std::move(text)}; }
inline CheckRow skipped(std::string text) { return {CheckResult::kSkipped, std::move(text)}; }
inline CheckRow warning(std::string text, std::vector<Rank> ranks = {}, std::string hint = {}) {
  return {CheckResult::kWarning, std::move(text), std::move(ranks), std::move(hint)};
}
inline CheckRow failed(std::string text, std::vector<Rank> ranks = {}, std::string hint = {}) {
  return {CheckResult::kFailed, std::move(text), std::move(ranks), std::move(hint)};
}
void append_row(CheckTable& table, std::string_view name, CheckRow row);  // none without a text

std::string time_text(std::uint64_t microseconds);  // "0.31 ms", "12 ms", "1.5 s"
std::string amount(std::uint64_t bytes);            // "8 MiB", "11 GiB"

// Returns the ranks on nodes without the plugin, if other nodes have it.
std::vector<Rank> ranks_without_plugin(const CheckFindings& step);

// Each makes one row; none where it has no text.
using RowFunction = CheckRow(const CheckFindings& step);
RowFunction version_row, framework_row, plan_row, ranks_row, network_row, port_row, clock_row, exchange_row;
RowFunction nccl_row, driver_row, gpu_row, peer_row, cpu_row, near_row, shm_row, locked_memory_row, system_row;

}  // namespace bootstrap

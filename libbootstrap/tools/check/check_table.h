// The table of a check: one row for each thing that has to work, with the ranks that it does not work for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/step/step_id.h"
#include "tools/check/check_report.h"
#include "tools/check/plugstack.h"

namespace bootstrap {

// A value and the ranks that reported it, ascending.
struct Variant {
  std::string value;
  std::vector<Rank> ranks;
};

// What rank 0 knows after its wait; or, on a machine without a step, what the one process knows.
struct CheckFindings {
  StepId id;
  Layout layout;
  std::vector<std::optional<CheckReport>> reports;  // by rank; empty: no answer
  std::uint64_t waited_ms = 0;                      // for the reports
  std::map<Rank, std::string> other_versions;       // ranks whose reports cannot be read, and their version
  std::string port_trouble;                         // why rank 0 could not listen on MASTER_PORT; empty: it could
  LocalPlugin plugin;                               // of a machine without a step

  bool has_exchanged = false;    // rank 0 asked for the exchange, which needs all ranks
  bool leaves_exchange = false;  // an MPI program may follow, whose MPI_Init fails after a PMIx session of its rank

  // Precondition of these: the rank has reported.
  const CheckReport& first() const { return *reports.front(); }
  const CheckReport& report(Rank rank) const { return *reports[rank]; }

  // The ranks whose report fulfils `holds`, ascending.
  std::vector<Rank> where(const std::function<bool(const CheckReport&)>& holds) const;
  bool any(const std::function<bool(const CheckReport&)>& holds) const { return !where(holds).empty(); }
  // The different texts in the reports; the most frequent first, of equally frequent ones that of the lower rank.
  // Reports without such a text are left out.
  std::vector<Variant> variants(const std::function<std::string(const CheckReport&)>& text_of) const;
  // The least and the greatest of a number of the reports.
  std::pair<std::uint64_t, std::uint64_t> range(
      const std::function<std::uint64_t(const CheckReport&)>& number_of) const;
};

// Ranks that sent no report, ascending.
std::vector<Rank> missing_ranks(const CheckFindings& findings);

enum class CheckResult : std::uint8_t {
  kOk,
  kAbsent,   // not there, and nothing in this step needs it
  kSkipped,  // could not be tried, since something else failed
  kWarning,  // works, and not as well as it could
  kFailed,
};

struct CheckRow {
  CheckResult result = CheckResult::kOk;
  std::string text = {};         // one short sentence
  std::vector<Rank> ranks = {};  // that it concerns, ascending; empty: all, or none in particular
  std::string hint = {};         // what to do; may be empty
  std::string_view name = {};
};

struct CheckTable {
  std::string title;  // "StepId=12.0: 4 ranks on 2 nodes, rendezvous at node001:20037"
  StepId id;
  std::string host;  // of rank 0, or the machine
  Layout layout;
  std::vector<CheckRow> rows = {};

  CheckResult worst() const;  // kOk, kWarning or kFailed
};

// Precondition: rank 0 is among the reports.
CheckTable judge_step(const CheckFindings& step);
CheckTable judge_machine(const CheckFindings& machine);

// Lines of at most 80 characters unless a word is longer itself; printable ASCII; ends with a newline. With colours:
// and sequences of a terminal around the results that are not good.
std::string table_text(const CheckTable& table, bool has_colours = false);

// One JSON object, RFC 8259, with a newline at its end.
std::string table_json(const CheckTable& table);

// -- for the files of rows/

// "A on 2 ranks, B on the others", and the ranks that do not have the most frequent value. Precondition: at least two.
std::string describe_variants(const std::vector<Variant>& variants, std::string_view noun = "rank");
std::vector<Rank> odd_ranks(const std::vector<Variant>& variants);
// Returns all ranks on the nodes of these ranks.
std::vector<Rank> on_same_nodes(const CheckFindings& step, const std::vector<Rank>& ranks);

bool has(const std::vector<std::string>& list, std::string_view item);

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

// Returns the ranks on nodes without the plugin, if other nodes have it.
std::vector<Rank> ranks_without_plugin(const CheckFindings& step);

// Each makes one row; none where it has no text.
using RowFunction = CheckRow(const CheckFindings& step);
RowFunction version_row, framework_row, plan_row, ranks_row, network_row, port_row, clock_row, exchange_row;
RowFunction nccl_row, driver_row, gpu_row, peer_row, cpu_row, near_row, shm_row, locked_memory_row, system_row;

}  // namespace bootstrap
